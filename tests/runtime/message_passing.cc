#include "tests/runtime/message_passing.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/comm/agreement.h"
#include "dtensor/runtime/comm/parcels.h"
#include "dtensor/runtime/device/copy.h"

namespace dtensor::testing {
namespace {

using Message = std::vector<char>;

// The queues, and who waits.
class Post {
 public:
  using Ranks = std::vector<int64_t>;
  struct Queue {
    int64_t from;
    std::deque<Message> messages;
  };
  // What a thread waits for, for errors.
  struct Wait {
    StepKind kind;
    uint64_t sequence;
    const Ranks* group;
    std::string_view op;
  };

  explicit Post(int64_t world) : threads_(static_cast<size_t>(2 * world)) {
    for (size_t i = 1; i < threads_.size(); i += 2) threads_[i].idle = true;
  }

  // Of the messages in one group from one rank to another.
  Queue& queue(int lane, const Ranks& group, int64_t from, int64_t to) {
    std::lock_guard lock(mutex_);
    Queue& q = queues_[{lane, group, from, to}];
    q.from = from;
    return q;
  }
  void send(Queue& q, int64_t to, int lane, Message message) {
    std::lock_guard lock(mutex_);
    q.messages.push_back(std::move(message));
    thread(to, lane).more.notify_one();
  }
  Message receive(Queue& q, int64_t me, int lane, const Wait& wait) {
    std::unique_lock lock(mutex_);
    Thread& t = thread(me, lane);
    t.waits_for = &q;
    t.wait = wait;
    while (q.messages.empty()) {
      if (const std::string& failure = failures_[lane]; !failure.empty()) {
        t.waits_for = nullptr;
        if (deadlock_) fail(name(*deadlock_), "{}", failure);
        throw PeerFailed(name(wait.kind), failed_[lane], failure);
      }
      if (thread(q.from, lane).gone) {
        t.waits_for = nullptr;
        throw PeerLeft(name(wait.kind), q.from, me, text_of(wait));
      }
      if (all_wait()) {
        deadlock_ = wait.kind;
        const std::string who = who_waits();
        for (int l = 0; l < Backend::kLanes; ++l)
          fail_all(l, me, "every rank waits for another one: " + who);
        continue;
      }
      t.more.wait(lock);
    }
    t.waits_for = nullptr;
    Message message = std::move(q.messages.front());
    q.messages.pop_front();
    return message;
  }

  void failed(int64_t rank, int lane, std::string_view what) noexcept {
    std::lock_guard lock(mutex_);
    thread(rank, lane).gone = true;
    fail_all(lane, rank, std::string(what));
  }
  void left(int64_t rank) noexcept {
    std::lock_guard lock(mutex_);
    thread(rank, 0).gone = thread(rank, 1).gone = true;
    wake_all();
  }
  void set_idle(int64_t rank, int lane, bool idle) noexcept {
    std::lock_guard lock(mutex_);
    thread(rank, lane).idle = idle;
    wake_all();
  }

 private:
  struct Thread {
    std::condition_variable more;
    const Queue* waits_for = nullptr;
    Wait wait{};
    bool idle = false, gone = false;
  };
  Thread& thread(int64_t rank, int lane) {
    return threads_[static_cast<size_t>(2 * rank + lane)];
  }
  static std::string text_of(const Wait& w) {
    return call_to_string(w.kind, w.sequence, w.op);
  }
  void fail_all(int lane, int64_t rank, std::string what) {
    if (failures_[lane].empty()) {
      failed_[lane] = rank;
      failures_[lane] = std::move(what);
    }
    wake_all();
  }
  void wake_all() {
    for (Thread& t : threads_) t.more.notify_all();
  }
  bool all_wait() const {
    for (const Thread& t : threads_)
      if (!t.gone && !t.idle &&
          (!t.waits_for || !t.waits_for->messages.empty()))
        return false;
    return true;
  }
  std::string who_waits() const {
    std::string text;
    for (size_t i = 0; i < threads_.size(); ++i) {
      const Thread& t = threads_[i];
      if (t.gone || t.idle) continue;
      text +=
          fmt::format("{}rank {}{} in {} of ranks {}", text.empty() ? "" : "; ",
                      i / 2, i % 2 ? "'s redistribute_async" : "",
                      text_of(t.wait), ranks_to_string(*t.wait.group));
    }
    return text;
  }

  std::mutex mutex_;
  std::vector<Thread> threads_;  // two of each rank
  std::map<std::tuple<int, Ranks, int64_t, int64_t>, Queue> queues_;
  int64_t failed_[Backend::kLanes] = {};  // the first one, and why
  std::string failures_[Backend::kLanes];
  std::optional<StepKind> deadlock_;
};

char* advance(const void* data, int64_t elements, int64_t item) {
  return static_cast<char*>(const_cast<void*>(data)) + elements * item;
}

const Parcels::Place kHere{cpu(), {}};

class MessageCommunicator final : public Communicator {
 public:
  MessageCommunicator(Post& post, std::vector<int64_t> ranks, int index,
                      int lane)
      : Communicator(index, static_cast<int>(ranks.size())),
        post_(post),
        ranks_(std::move(ranks)),
        lane_(lane) {
    for (int m = 0; m < size(); ++m) {
      to_.push_back(&post.queue(lane, ranks_, world(index), world(m)));
      from_.push_back(&post.queue(lane, ranks_, world(m), world(index)));
    }
  }
  bool needs_serves() const override { return true; }

 protected:
  void agree(const Collective& c) override {
    wait_ = {c.call->kind, c.sequence, &ranks_, c.call->op};
    std::vector<uint64_t> prints(ranks_.size());
    prints[static_cast<size_t>(rank())] = c.fingerprint;
    send_all(&c.fingerprint, sizeof(uint64_t));
    for_others([&](int m) {
      const Message in = receive(m);
      std::memcpy(&prints[static_cast<size_t>(m)], in.data(), in.size());
    });
    for (size_t m = 1; m < prints.size(); ++m) {
      if (prints[m] == prints[0]) continue;
      std::vector<Statement> said = exchange_statements(statement_of(c));
      disagree(ranks_, c.sequence, m, std::move(said[0]), std::move(said[m]));
    }
  }

  void do_exchange(const Call&, Stream,
                   std::span<Transfer> transfers) override {
    const std::vector<Parcels> parcels = send_served(transfers);
    for (size_t i = 0; i < transfers.size(); ++i) {
      parcels[i].copy_own(kHere);
      for_others([&](int m) {
        const Message in = take(parcels[i], m, transfers[i]);
        if (!in.empty()) parcels[i].unpack(kHere, m, in.data());
      });
    }
  }

  void do_reduce(const Call&, Stream, std::span<Transfer> transfers) override {
    const std::vector<Parcels> parcels = send_served(transfers);
    for (size_t i = 0; i < transfers.size(); ++i) {
      std::vector<Message> in(ranks_.size());
      std::vector<const void*> data(ranks_.size());
      for_others([&](int m) {
        const auto at = static_cast<size_t>(m);
        in[at] = take(parcels[i], m, transfers[i]);
        data[at] = in[at].data();
      });
      parcels[i].reduce(kHere, data);
    }
  }

  void do_all_reduce(const Call&, Stream, std::span<Buffer> buffers) override {
    for (Buffer& b : buffers) {
      if (b.one_shot)
        reduce_everywhere(b);
      else
        reduce_in_chunks(b);
    }
  }

  void do_all_gather_bytes(const Call&, const void* in, int64_t bytes,
                           void* out) override {
    send_all(in, bytes);
    char* to = static_cast<char*>(out);
    copy_bytes(to + rank() * bytes, in, bytes);
    for_others([&](int m) {
      const Message message = receive(m);
      copy_bytes(to + m * bytes, message.data(), bytes);
    });
  }

 private:
  int64_t world(int m) const { return ranks_[static_cast<size_t>(m)]; }
  static void copy_bytes(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  // The others, beginning behind this one.
  template <class Fn>
  void for_others(Fn&& fn) {
    for (int i = 1; i < size(); ++i) fn((rank() + i) % size());
  }
  void send(int m, Message message) {
    post_.send(*to_[static_cast<size_t>(m)], world(m), lane_,
               std::move(message));
  }
  void send(int m, const void* data, int64_t bytes) {
    const char* begin = static_cast<const char*>(data);
    send(m, Message(begin, begin + bytes));
  }
  void send_all(const void* data, int64_t bytes) {
    for_others([&](int m) { send(m, data, bytes); });
  }
  Message receive(int m) {
    return post_.receive(*from_[static_cast<size_t>(m)], world(rank()), lane_,
                         wait_);
  }

  std::vector<Statement> exchange_statements(const Statement& mine) {
    Message out(1 + sizeof(uint64_t) + mine.text.size());
    out[0] = static_cast<char>(mine.kind);
    std::memcpy(&out[1], &mine.fingerprint, sizeof(uint64_t));
    std::copy(mine.text.begin(), mine.text.end(),
              out.begin() + 1 + sizeof(uint64_t));
    std::vector<Statement> said(ranks_.size(), mine);
    send_all(out.data(), static_cast<int64_t>(out.size()));
    for_others([&](int m) {
      const Message in = receive(m);
      Statement& s = said[static_cast<size_t>(m)];
      s.kind = static_cast<StepKind>(in[0]);
      std::memcpy(&s.fingerprint, &in[1], sizeof(uint64_t));
      s.text.assign(in.begin() + 1 + sizeof(uint64_t), in.end());
    });
    return said;
  }

  // One message of each tensor to each member that takes something.
  std::vector<Parcels> send_served(std::span<const Transfer> transfers) {
    std::vector<Parcels> parcels;
    for (const Transfer& t : transfers) {
      const Parcels& p = parcels.emplace_back(t);
      for_others([&](int m) {
        Message message(static_cast<size_t>(p.bytes_to(m)));
        if (message.empty()) return;
        p.pack(kHere, m, message.data());
        send(m, std::move(message));
      });
    }
    return parcels;
  }
  Message take(const Parcels& parcels, int m, Transfer& t) {
    if (parcels.bytes_from(m) == 0) return {};
    Message in = receive(m);
    t.counted += static_cast<int64_t>(in.size());
    return in;
  }

  // All members' elements of a buffer's part, which is here at `own`: reduced
  // there, in member order.
  void reduce_here(Buffer& b, int64_t elements, char* own) {
    const int64_t bytes = elements * size_of(b.dtype), unit[] = {1};
    const int64_t shape[] = {elements};
    std::vector<Message> in(ranks_.size());
    std::vector<Operand> operands(ranks_.size(), {own, unit});
    for_others([&](int m) {
      const auto at = static_cast<size_t>(m);
      in[at] = receive(m);
      DT_CHECK(static_cast<int64_t>(in[at].size()) == bytes, "all-reduce",
               "a message of {} bytes came for {}", in[at].size(), bytes);
      b.counted += static_cast<int64_t>(in[at].size());
      operands[at] = {in[at].data(), unit};
    });
    reduce_strided(b.op, b.dtype, shape, own, unit, operands, size());
  }
  void reduce_everywhere(Buffer& b) {
    if (b.n == 0) return;
    send_all(b.data, b.n * size_of(b.dtype));
    reduce_here(b, b.n, static_cast<char*>(b.data));
  }
  void reduce_in_chunks(Buffer& b) {
    const int64_t item = size_of(b.dtype), p = size();
    const auto chunk = [&](int m) {
      return Interval{m * b.n / p, (m + 1) * b.n / p};
    };
    const auto at = [&](int m) { return advance(b.data, chunk(m).lo, item); };
    for_others([&](int m) {
      if (chunk(m).size() > 0) send(m, at(m), chunk(m).size() * item);
    });
    if (chunk(rank()).size() > 0) {
      reduce_here(b, chunk(rank()).size(), at(rank()));
      send_all(at(rank()), chunk(rank()).size() * item);
    }
    for_others([&](int m) {
      if (chunk(m).size() == 0) return;
      const Message in = receive(m);
      b.counted += static_cast<int64_t>(in.size());
      copy_bytes(at(m), in.data(), static_cast<int64_t>(in.size()));
    });
  }

  Post& post_;
  const std::vector<int64_t> ranks_;
  const int lane_;
  std::vector<Post::Queue*> to_, from_;
  Post::Wait wait_{};
};

class MessageBackend final : public Backend {
 public:
  explicit MessageBackend(int64_t world) : post_(world) {}
  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    const auto at = std::find(ranks.begin(), ranks.end(), me);
    DT_CHECK(at != ranks.end(), "communicator",
             "rank {} is not a member of the group that it asks for", me);
    return std::make_unique<MessageCommunicator>(
        post_, std::vector(ranks.begin(), ranks.end()),
        static_cast<int>(at - ranks.begin()), lane);
  }
  void failed(int64_t rank, int lane, std::string_view what) noexcept override {
    post_.failed(rank, lane, what);
  }
  void left(int64_t rank) noexcept override { post_.left(rank); }
  void set_idle(int64_t rank, int lane, bool idle) noexcept override {
    post_.set_idle(rank, lane, idle);
  }

 private:
  Post post_;
};

}  // namespace

std::shared_ptr<Backend> message_passing_backend(int64_t world) {
  return std::make_shared<MessageBackend>(world);
}

}  // namespace dtensor::testing
