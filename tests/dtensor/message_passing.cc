// SPDX-License-Identifier: Apache-2.0
#include "tests/dtensor/message_passing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/transport.h"
#include "dtensor/placement/error.h"

namespace dtensor::testing {
namespace {

using Message = std::vector<char>;

struct Queue {
  std::mutex mutex;
  std::deque<Message> messages;
  std::atomic<int> waiting = 0;

  void put(Message m) {
    std::lock_guard lock(mutex);
    messages.push_back(std::move(m));
    ++waiting;
  }
  bool take(Message& m) {
    if (waiting == 0) return false;
    std::lock_guard lock(mutex);
    if (messages.empty()) return false;
    m = std::move(messages.front());
    messages.pop_front();
    --waiting;
    return true;
  }
};

// The state that all processes share.
struct Post {
  explicit Post(int processes)
      : told_mutex(static_cast<size_t>(processes)),
        told(static_cast<size_t>(processes)) {}
  Queue& queue(const Channel& c) {
    std::lock_guard lock(mutex);
    return queues[{c.from, c.to, c.lane}];
  }

  std::mutex mutex;
  std::map<std::tuple<int64_t, int64_t, int>, Queue> queues;
  std::vector<std::mutex> told_mutex;
  // The texts for each process, each with the number of its matter (job.h).
  std::vector<std::deque<std::pair<int64_t, ProcessJob::Told>>> told;
};

class QueuePendingMessages final : public PendingMessages {
 public:
  explicit QueuePendingMessages(Post& post) : post_(post) {}
  void send(const Channel& c, const void* data, int64_t bytes) override {
    const char* begin = static_cast<const char*>(data);
    post_.queue(c).put(Message(begin, begin + bytes));
  }
  void receive(const Channel& c, void* data, int64_t bytes) override {
    pending_.push_back({&post_.queue(c), data, bytes, c.from});
  }
  bool done() override {
    for (size_t i = 0; i < pending_.size(); ++i) {
      Pending& p = pending_[i];
      // Messages of one channel are received in order.
      bool before = false;
      for (size_t k = 0; k < i; ++k)
        before |= !pending_[k].done && pending_[k].queue == p.queue;
      Message m;
      if (p.done || before || !p.queue->take(m)) continue;
      const auto bytes = static_cast<int64_t>(m.size());
      DT_CHECK(bytes <= p.bytes, "transport",
               "a message of {} bytes came for {}", bytes, p.bytes);
      std::memcpy(p.data, m.data(), m.size());
      p.done = true;
    }
    std::erase_if(pending_, [](const Pending& p) { return p.done; });
    return pending_.empty();
  }
  std::vector<int64_t> awaited() const override {
    std::vector<int64_t> ranks;
    for (const Pending& p : pending_) ranks.push_back(p.from);
    return ranks;
  }
  void give_up() noexcept override { pending_.clear(); }

 private:
  struct Pending {
    Queue* queue;
    void* data;
    int64_t bytes;
    int64_t from;
    bool done = false;
  };
  Post& post_;
  std::vector<Pending> pending_;
};

class QueueJob final : public ProcessJob {
 public:
  QueueJob(std::shared_ptr<Post> post, int process, int processes)
      : ProcessJob(process, processes), post_(std::move(post)) {}
  std::string launcher(int64_t) const override { return "none"; }
  std::unique_ptr<PendingMessages> pending_messages() override {
    return std::make_unique<QueuePendingMessages>(*post_);
  }
  void abort(int) noexcept override {}

 private:
  void send(int64_t matter, int process, std::string text) override {
    const auto to = static_cast<size_t>(process);
    std::lock_guard lock(post_->told_mutex[to]);
    post_->told[to].push_back({matter, {process_, std::move(text)}});
  }
  void listen() override {
    const auto me = static_cast<size_t>(process_);
    std::lock_guard lock(post_->told_mutex[me]);
    for (auto& [matter, told] : std::exchange(post_->told[me], {}))
      deliver(matter, std::move(told));
  }

  const std::shared_ptr<Post> post_;
};

// The backend of a run whose processes are all in this one.
class AllProcesses final : public Backend {
 public:
  AllProcesses(int64_t world, int64_t ranks_per_process,
               const std::vector<ProcessJob*>& jobs, const MakeBackend& make)
      : ranks_per_process_(ranks_per_process) {
    for (ProcessJob* job : jobs)
      processes_.push_back(
          make ? make(world, ranks_per_process, job)
               : std::make_shared<HostBackend>(world, ranks_per_process, job));
  }
  void set_timeout(std::chrono::milliseconds timeout) override {
    for (const auto& p : processes_) p->set_timeout(timeout);
  }
  void set_checksum(bool on) override {
    for (const auto& p : processes_) p->set_checksum(on);
  }
  std::chrono::nanoseconds waited_for(int64_t rank) override {
    std::chrono::nanoseconds sum{};
    for (const auto& p : processes_) sum += p->waited_for(rank);
    return sum;
  }
  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    return of(me).group(ranks, me, lane);
  }
  void failed(int64_t rank, int lane, std::string_view what) noexcept override {
    of(rank).failed(rank, lane, what);
  }
  void left(int64_t rank) noexcept override { of(rank).left(rank); }
  void check() override {
    for (const auto& p : processes_) p->check();
  }
  FlightRing* flight(int64_t rank, int lane) override {
    return of(rank).flight(rank, lane);
  }
  void set_idle(int64_t rank, int lane, bool idle) noexcept override {
    of(rank).set_idle(rank, lane, idle);
  }

 private:
  Backend& of(int64_t rank) {
    return *processes_[static_cast<size_t>(rank / ranks_per_process_)];
  }

  const int64_t ranks_per_process_;
  std::vector<std::shared_ptr<Backend>> processes_;
};

// The jobs of one run. The backend is destroyed before them.
struct Queued {
  std::vector<std::unique_ptr<QueueJob>> jobs;
  std::shared_ptr<Backend> backend;
};

}  // namespace

std::shared_ptr<Backend> all_processes(int64_t world, int64_t ranks_per_process,
                                       const std::vector<ProcessJob*>& jobs,
                                       const MakeBackend& make) {
  return std::make_shared<AllProcesses>(world, ranks_per_process, jobs, make);
}

std::shared_ptr<Backend> backend_over_messages(int64_t world,
                                               int64_t ranks_per_process,
                                               const MakeBackend& make) {
  const auto processes =
      static_cast<int>((world + ranks_per_process - 1) / ranks_per_process);
  const auto post = std::make_shared<Post>(processes);
  const auto made = std::make_shared<Queued>();
  std::vector<ProcessJob*> jobs;
  for (int p = 0; p < processes; ++p)
    jobs.push_back(
        made->jobs.emplace_back(std::make_unique<QueueJob>(post, p, processes))
            .get());
  made->backend = all_processes(world, ranks_per_process, jobs, make);
  return {made, made->backend.get()};
}

std::shared_ptr<Backend> message_passing_backend(int64_t world) {
  return backend_over_messages(world, 1, {});
}

std::shared_ptr<Backend> processes_of_2(int64_t world) {
  return backend_over_messages(world, 2, {});
}

}  // namespace dtensor::testing
