// SPDX-License-Identifier: Apache-2.0
#include "tests/dtensor/fake_nccl.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm/scratch.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "tests/dtensor/device/recording_device.h"

namespace dtensor::testing {
namespace {

struct Work {
  enum What : uint8_t { kGather, kScatter, kReduce, kSend, kReceive };
  What what;
  const void* in;
  void* out;
  int64_t n;  // bytes; for reductions, elements
  int peer = -1;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kF32;
};

// One call by all members. For each member: its works, the event when their
// data is ready, and the event when it has read all members' data. `came`,
// `read` and `left` count the members that have called, read and returned.
struct Round {
  explicit Round(size_t members)
      : works(members), ready(members), done(members) {}
  std::vector<std::vector<Work>> works;
  std::vector<Event> ready, done;
  size_t came = 0, read = 0, left = 0;
};

struct Room {
  explicit Room(int size) : size(static_cast<size_t>(size)) {}
  const size_t size;
  size_t linked = 0;
  std::map<int64_t, Round> rounds;
};

class FakeLink;

struct Shared {
  std::mutex mutex;
  std::set<const FakeLink*> links;  // all that are alive
  FakeNccl::Counts counts;
  int64_t ids = 0;
  std::map<int64_t, std::shared_ptr<Room>> rooms;
  int fails = -1, refuses = -1, hangs = -1;
  int64_t fails_at = 0, refuses_at = 0, hangs_at = 0;
};

// Exchanges the works of a call between members in several processes. Those of
// each member are a file CALL.MEMBER in the group's folder.
class Files {
 public:
  explicit Files(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }
  void write(int64_t call, size_t member, std::span<const char> text) const {
    const std::string at = path(call, member);
    std::ofstream(at + ".part", std::ios::binary)
        .write(text.data(), std::ssize(text));
    std::filesystem::rename(at + ".part", at);
  }
  bool all_there(int64_t call, size_t members) const {
    for (size_t m = 0; m < members; ++m)
      if (access(path(call, m).c_str(), F_OK) != 0) return false;
    return true;
  }
  std::ifstream read(int64_t call, size_t member) const {
    return std::ifstream(path(call, member), std::ios::binary);
  }
  void remove(int64_t call, size_t member) const {
    std::remove(path(call, member).c_str());
  }

 private:
  std::string path(int64_t call, size_t member) const {
    return fmt::format("{}/{}.{}", folder_, call, member);
  }
  const std::string folder_;
};

class FakeLink final : public NcclLink {
 public:
  // If there are files, no other member uses the room.
  FakeLink(Shared& shared, std::shared_ptr<Room> room,
           std::unique_ptr<Files> files, int rank, Stream stream)
      : shared_(shared),
        room_(std::move(room)),
        files_(std::move(files)),
        rank_(static_cast<size_t>(rank)),
        device_(*RankContext::current().device),
        stream_(stream) {
    std::lock_guard lock(shared_.mutex);
    ++room_->linked;
    if (files_) files_->write(0, rank_, {});
    ++shared_.counts.links;
    shared_.links.insert(this);
  }
  ~FakeLink() override {
    std::lock_guard lock(shared_.mutex);
    shared_.links.erase(this);
  }

  bool settled() override {
    std::lock_guard lock(shared_.mutex);
    DT_CHECK(!aborted_, "nccl", "a link is used after abort()");
    if (!linked_)
      return linked_ = files_ ? files_->all_there(0, room_->size)
                              : room_->linked == room_->size;
    if (!open_) return true;
    DT_CHECK(
        shared_.fails != static_cast<int>(rank_) || shared_.fails_at != call_,
        "nccl", "unhandled system error");
    if (shared_.hangs == static_cast<int>(rank_) && shared_.hangs_at == call_)
      return false;
    Round& r = room_->rounds.at(call_);
    if (files_ && !read_ && files_->all_there(call_, room_->size)) read(r);
    if (r.came < room_->size) return false;
    if (!read_) {
      for (const Event& e : r.ready) device_.wait(stream_, e);
      for (size_t i = 0; i < r.works[rank_].size(); ++i) carry_out(r, i);
      r.done[rank_] = device_.record(stream_);
      ++r.read;
      read_ = true;
    }
    if (r.read < room_->size) return false;
    for (const Event& e : r.done) device_.wait(stream_, e);
    for (const auto& [work, result] : results_)
      copy(work.out, result.data(), work.n * size_of(work.dtype));
    results_.clear();
    received_.clear();
    // All members are in this call, so they have read the files of the previous
    // one.
    if (files_) files_->remove(call_ - 1, rank_);
    open_ = read_ = false;
    if (++r.left == room_->size) room_->rounds.erase(call_);
    return true;
  }

  void all_gather(Stream s, const void* in, void* out, int64_t bytes) override {
    add(s, {Work::kGather, in, out, bytes}, &FakeNccl::Counts::all_gathers);
  }
  void reduce_scatter(Stream s, ReduceOp op, DType dtype, const void* in,
                      void* out, int64_t n) override {
    add(s, {Work::kScatter, in, out, n, -1, op, dtype},
        &FakeNccl::Counts::reduce_scatters);
  }
  void all_reduce(Stream s, ReduceOp op, DType dtype, void* data,
                  int64_t n) override {
    add(s, {Work::kReduce, data, data, n, -1, op, dtype},
        &FakeNccl::Counts::all_reduces);
  }
  void begin_group() override {
    DT_CHECK(!group_, "nccl", "a group in a group");
    set_group(true);
  }
  void end_group() override {
    DT_CHECK(group_, "nccl", "no group");
    set_group(false);
    call();
  }
  void drop_group() noexcept override {
    set_group(false);
    works_.clear();
  }
  void send(Stream s, const void* data, int64_t bytes, int to) override {
    add(s, {Work::kSend, data, nullptr, bytes, to}, &FakeNccl::Counts::sends);
  }
  void receive(Stream s, void* data, int64_t bytes, int from) override {
    add(s, {Work::kReceive, nullptr, data, bytes, from}, nullptr);
  }
  void abort() noexcept override {
    std::unique_lock lock(shared_.mutex);
    aborted_ = true;
    ++shared_.counts.aborts;
    for (int tries = 0; has_to_wait(); ++tries) {
      if (tries == 3000) {
        ++shared_.counts.stuck;
        return;
      }
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.lock();
    }
  }

 private:
  bool has_to_wait() const {
    for (const FakeLink* l : shared_.links)
      if (&l->device_ == &device_ && l->open_ && !l->aborted_) return true;
    return !captured_.expired();
  }
  void set_group(bool open) {
    group_ = open;
    std::lock_guard lock(shared_.mutex);
    shared_.counts.groups += open ? 1 : -1;
  }
  void add(Stream s, Work work, int64_t FakeNccl::Counts::*count) {
    DT_CHECK(s == stream_, "nccl", "another stream");
    DT_CHECK(work.n > 0, "nccl", "{} elements", work.n);
    DT_CHECK(work.in || work.what == Work::kReceive, "nccl", "no memory");
    DT_CHECK(work.peer != static_cast<int>(rank_), "nccl", "sent to itself");
    DT_CHECK(shared_.refuses != static_cast<int>(rank_) ||
                 shared_.refuses_at != call_ + 1,
             "nccl", "invalid argument");
    works_.push_back(work);
    if (count) {
      std::lock_guard lock(shared_.mutex);
      ++(shared_.counts.*count);
    }
    if (!group_) call();
  }
  void call() {
    std::lock_guard lock(shared_.mutex);
    DT_CHECK(linked_ && !open_ && !aborted_, "nccl",
             "a call before the one ahead of it is settled");
    open_ = true;
    Round& r = room_->rounds.try_emplace(++call_, room_->size).first->second;
    r.works[rank_] = std::exchange(works_, {});
    r.ready[rank_] = device_.record(stream_);
    ++r.came;
    if (files_) write(r.works[rank_]);
    auto* const recording = dynamic_cast<RecordingDevice*>(&device_);
    if (!recording || !device_.is_captured(stream_)) return;
    // The graph holds the token as long as it lives. abort() waits for that.
    auto token = captured_.lock();
    if (!token) captured_ = token = std::make_shared<char>();
    recording->later(stream_, [token] {});
  }

  // The number of bytes in w.in that other members read.
  int64_t bytes_in(const Work& w) const {
    const auto p = static_cast<int64_t>(room_->size);
    switch (w.what) {
      case Work::kGather:
      case Work::kSend:
        return w.n;
      case Work::kScatter:
        return p * w.n * size_of(w.dtype);
      case Work::kReduce:
        return w.n * size_of(w.dtype);
      case Work::kReceive:
        return 0;
    }
    return 0;
  }
  void write(const std::vector<Work>& works) {
    int member = 0;
    int64_t at = 0;
    if (const char* kill = std::getenv("FILE_NCCL_KILL"))
      if (std::sscanf(kill, "%d %ld", &member, &at) == 2 && at == call_ &&
          member == static_cast<int>(rank_))
        std::raise(SIGKILL);
    std::vector<char> text;
    for (const Work& w : works) {
      const auto* head = reinterpret_cast<const char*>(&w);
      text.insert(text.end(), head, head + sizeof(Work));
      const size_t begin = text.size();
      text.resize(begin + static_cast<size_t>(bytes_in(w)));
      if (w.in)
        device_.to_host(stream_, text.data() + begin, w.in, bytes_in(w));
    }
    files_->write(call_, rank_, text);
  }
  // Reads the other members' works and copies their data to this member's
  // memory.
  void read(Round& r) {
    for (size_t m = 0; m < room_->size; ++m) {
      if (m == rank_) continue;
      std::ifstream in = files_->read(call_, m);
      for (Work w; in.read(reinterpret_cast<char*>(&w), sizeof(w));) {
        const int64_t bytes = bytes_in(w);
        std::vector<char> data(static_cast<size_t>(bytes));
        in.read(data.data(), bytes);
        received_.emplace_back(device_, stream_, bytes, "nccl");
        w.in = received_.back().data();
        if (w.in)
          device_.from_host(stream_, received_.back().data(), data.data(),
                            bytes);
        r.works[m].push_back(w);
      }
    }
    r.came = room_->size;
    r.read = r.left = room_->size - 1;
  }

  void copy(void* to, const void* from, int64_t bytes) {
    const int64_t shape[] = {bytes}, unit[] = {1};
    device_.copy(stream_, 1, shape, to, unit, from, unit);
  }
  // Member m's k-th work of kind `what`, to or from `peer`; k counts from 0.
  static const Work& kth(const Round& r, size_t m, Work::What what, int peer,
                         size_t k) {
    for (const Work& w : r.works[m])
      if (w.what == what && w.peer == peer && k-- == 0) return w;
    fail("nccl", "a send without a receive, or the other way round");
  }
  // The number of works of the same kind and peer before this member's work i.
  size_t before(const Round& r, size_t i) const {
    const std::vector<Work>& works = r.works[rank_];
    return static_cast<size_t>(std::count_if(
        works.begin(), works.begin() + static_cast<int64_t>(i),
        [&](const Work& w) {
          return w.what == works[i].what && w.peer == works[i].peer;
        }));
  }
  void carry_out(const Round& r, size_t i) {
    const Work& mine = r.works[rank_][i];
    const size_t k = before(r, i);
    const int self = static_cast<int>(rank_);
    if (mine.peer >= 0) {
      const bool sends = mine.what == Work::kSend;
      const Work& other = kth(r, static_cast<size_t>(mine.peer),
                              sends ? Work::kReceive : Work::kSend, self, k);
      DT_CHECK(other.n == mine.n, "nccl", "{} bytes meet {}", mine.n, other.n);
      if (!sends) copy(mine.out, other.in, mine.n);
      return;
    }
    const bool scatters = mine.what == Work::kScatter;
    const int64_t item = size_of(mine.dtype), unit[] = {1};
    std::vector<Operand> operands;
    for (size_t m = 0; m < room_->size; ++m) {
      const Work& other = kth(r, m, mine.what, -1, k);
      DT_CHECK(
          other.n == mine.n && other.op == mine.op && other.dtype == mine.dtype,
          "nccl", "collectives that are not the same");
      if (mine.what == Work::kGather)
        copy(static_cast<char*>(mine.out) + static_cast<int64_t>(m) * mine.n,
             other.in, mine.n);
      else
        operands.push_back({static_cast<const char*>(other.in) +
                                (scatters ? self * mine.n * item : 0),
                            unit});
    }
    if (mine.what == Work::kGather) return;
    void* to = mine.out;
    if (!scatters) {
      results_.emplace_back(mine,
                            Scratch(device_, stream_, mine.n * item, "nccl"));
      to = results_.back().second.data();
    }
    if (mine.dtype == DType::kF32 &&
        (mine.op == ReduceOp::kMax || mine.op == ReduceOp::kMin))
      return drop_nans(mine, to, operands);
    const int64_t shape[] = {mine.n};
    device_.reduce(stream_, mine.op, mine.dtype, shape, to, unit, operands,
                   static_cast<int64_t>(room_->size));
  }

  // Reduces to the largest or smallest f32. Like NCCL, it ignores NaNs.
  void drop_nans(const Work& work, void* to,
                 const std::vector<Operand>& operands) {
    const auto reduce = [=, n = work.n, max = work.op == ReduceOp::kMax] {
      for (int64_t i = 0; i < n; ++i) {
        const auto x = [&](size_t m) {
          return static_cast<const float*>(operands[m].data)[i];
        };
        float best = x(0);
        for (size_t m = 1; m < operands.size(); ++m)
          best = max ? std::fmax(best, x(m)) : std::fmin(best, x(m));
        static_cast<float*>(to)[i] = best;
      }
    };
    auto* const recording = dynamic_cast<RecordingDevice*>(&device_);
    DT_CHECK(recording, "nccl", "it computes on recording devices");
    recording->later(stream_, reduce);
  }

  Shared& shared_;
  const std::shared_ptr<Room> room_;
  const std::unique_ptr<Files> files_;
  const size_t rank_;
  Device& device_;
  const Stream stream_;
  std::vector<Work> works_;
  std::vector<std::pair<Work, Scratch>> results_;
  std::vector<Scratch> received_;
  std::weak_ptr<char> captured_;
  int64_t call_ = 0;
  bool linked_ = false, group_ = false, open_ = false, read_ = false,
       aborted_ = false;
};

class Fake final : public FakeNccl {
 public:
  Fake() = default;
  Fake(std::string folder, std::function<Gpu(Stream)> gpu_of)
      : folder_(std::move(folder)), gpu_of_(std::move(gpu_of)), joins_(false) {}

  bool joins_streams() const override { return joins_; }
  void captures_no_collectives() override { joins_ = false; }
  Gpu gpu(Stream stream) override {
    if (gpu_of_) return gpu_of_(stream);
    const Device* device = RankContext::current().device;
    Gpu gpu{};
    std::memcpy(gpu.data(), &device, sizeof(device));
    return gpu;
  }
  Id make_id() override {
    std::lock_guard lock(shared_.mutex);
    const Made made{++shared_.ids, getpid()};
    Id id{};
    std::memcpy(id.data(), &made, sizeof(made));
    return id;
  }
  std::unique_ptr<NcclLink> link(const Id& id, int size, int rank,
                                 Stream stream) override {
    Made made{};
    std::memcpy(&made, id.data(), sizeof(made));
    std::shared_ptr<Room> room;
    std::unique_ptr<Files> files;
    if (folder_.empty()) {
      std::lock_guard lock(shared_.mutex);
      DT_CHECK(made.number > 0 && made.number <= shared_.ids, "nccl",
               "no such id");
      auto& there = shared_.rooms[made.number];
      if (!there) there = std::make_shared<Room>(size);
      room = there;
    } else {
      room = std::make_shared<Room>(size);
      files = std::make_unique<Files>(
          fmt::format("{}/{}.{}", folder_, made.process, made.number));
    }
    return std::make_unique<FakeLink>(shared_, std::move(room),
                                      std::move(files), rank, stream);
  }
  Counts counts() const override {
    std::lock_guard lock(shared_.mutex);
    return shared_.counts;
  }
  void fail(int member, int64_t call) override {
    shared_.fails = member;
    shared_.fails_at = call;
  }
  void refuse(int member, int64_t call) override {
    shared_.refuses = member;
    shared_.refuses_at = call;
  }
  void hang(int member, int64_t call) override {
    shared_.hangs = member;
    shared_.hangs_at = call;
  }

 private:
  struct Made {
    int64_t number, process;
  };
  const std::string folder_;  // "": members are threads of this process
  const std::function<Gpu(Stream)> gpu_of_;
  bool joins_ = true;
  mutable Shared shared_;
};

}  // namespace

std::unique_ptr<FakeNccl> FakeNccl::make() { return std::make_unique<Fake>(); }
std::unique_ptr<FakeNccl> FakeNccl::make(std::string folder,
                                         std::function<Gpu(Stream)> gpu_of) {
  return std::make_unique<Fake>(std::move(folder), std::move(gpu_of));
}

}  // namespace dtensor::testing
