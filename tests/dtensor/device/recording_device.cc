// SPDX-License-Identifier: Apache-2.0
#include "tests/dtensor/device/recording_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/error.h"
#include "tests/dtensor/device/recording_kernels.h"

namespace dtensor {
namespace {

// Memory of devices. If the host touches it, a sentence is printed before the
// signal ends the process.
struct Forbidden {
  char* base = nullptr;
  int64_t bytes = 0;
};
Forbidden forbidden[64];

void on_fault(int, siginfo_t* info, void*) {
  const char* at = static_cast<const char*>(info->si_addr);
  for (const Forbidden& f : forbidden)
    if (f.base && at >= f.base && at < f.base + f.bytes) {
      constexpr std::string_view kText =
          "[device] the host touches memory of the device; use to_host()\n";
      (void)!write(STDERR_FILENO, kText.data(), kText.size());
    }
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
}

struct Captured;

// A stream. `work` has not run yet. Counts the works that it was given and that
// ran.
struct Queue {
  std::deque<std::function<void()>> work;
  int64_t given = 0, done = 0;
  std::shared_ptr<Captured> capture;  // while it is captured
};

// The works that the streams of a capture were given, in a lane for each
// stream.
struct Captured final : CapturedWork {
  struct Piece {
    std::function<void()> fn;
    Queue* other = nullptr;  // if set, waits for its first `until`
    size_t until = 0;
  };
  struct Lane {
    std::vector<Piece> pieces;
    size_t done = 0;  // in this replay
  };
  ~Captured() override { give_back(); }

  // Calls fn() for a lane's pieces below `until`, and before a piece that
  // waits, for those that it waits for.
  template <class Fn>
  void walk(Queue* q, size_t until, Fn&& fn) {
    Lane& lane = lanes[q];
    while (lane.done < until) {
      Piece& piece = lane.pieces[lane.done++];
      if (piece.other)
        walk(piece.other, piece.until, fn);
      else
        fn(piece);
    }
  }
  template <class Fn>
  void walk_all(Fn&& fn) {
    for (auto& [q, lane] : lanes) lane.done = 0;
    walk(origin, lanes[origin].pieces.size(), fn);
  }
  bool all_joined() {
    walk_all([](Piece&) {});
    for (const auto& [q, lane] : lanes)
      if (lane.done < lane.pieces.size()) return false;
    return true;
  }

  Queue* origin = nullptr;
  bool ended = false;
  std::map<Queue*, Lane> lanes;
  // Frees the memory that was allocated and released in the capture.
  std::vector<std::function<void()>> at_end;
  std::function<void(Captured&)> lock_and_free;
  void give_back() {
    if (lock_and_free) lock_and_free(*this);
  }
};

class Recording final : public RecordingDevice {
 public:
  Recording(int64_t bytes, Device& host)
      : bytes_(bytes),
        host_(host),
        kernels_(recording_kernels(*this, kernels_of(host))) {
    void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    DT_CHECK(base != MAP_FAILED, "device", "no {} bytes of addresses", bytes);
    base_ = next_ = static_cast<char*>(base);
    for (Forbidden& f : forbidden)
      if (!f.base) {
        f = {base_, bytes_};
        break;
      }
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    std::lock_guard lock(mutex_);
    all_.push_back(this);
  }
  ~Recording() override {
    std::lock_guard lock(mutex_);
    std::erase(all_, this);
    for (Forbidden& f : forbidden)
      if (f.base == base_) f = {};
    munmap(base_, static_cast<size_t>(bytes_));
  }

  Kind kind() const override { return Kind::kCuda; }  // it is like one
  std::string_view name() const override { return "a GPU"; }
  const KernelTable* own_kernels() const override { return kernels_.get(); }

  Stream open_stream() override {
    std::lock_guard lock(mutex_);
    queues_.push_back(std::make_unique<Queue>());
    return {queues_.back().get()};
  }

  bool has(Stream s) const override {
    std::lock_guard lock(mutex_);
    return std::any_of(queues_.begin(), queues_.end(),
                       [&](const auto& q) { return q.get() == s.handle; });
  }

  void* allocate(int64_t bytes, Stream s) override {
    bytes = rounded(bytes);
    std::lock_guard lock(mutex_);
    std::vector<void*>& freed = freed_[bytes];
    void* block = nullptr;
    if (!freed.empty()) {
      block = freed.back();
      freed.pop_back();
    } else if (bytes <= base_ + bytes_ - next_) {
      block = next_;
      next_ += bytes;
    } else {
      return nullptr;
    }
    const auto spoil = [block, bytes] {
      std::memset(block, 0xff, static_cast<size_t>(bytes));
    };
    if (queue(s).capture) {
      give(s, spoil);  // in every replay
    } else {
      const Open open;
      spoil();
    }
    return block;
  }
  // The block becomes free behind the work that may still use it.
  void release(void* block, int64_t bytes, Stream stream) noexcept override {
    std::lock_guard lock(mutex_);
    const auto free = [this, block, bytes] {
      freed_[rounded(bytes)].push_back(block);
    };
    if (const auto& capture = queue(stream).capture)
      capture->at_end.push_back(free);
    else
      give(stream, free);
  }

  Memory memory() const override {
    std::lock_guard lock(mutex_);
    int64_t free = base_ + bytes_ - next_;
    for (const auto& [bytes, blocks] : freed_)
      free += bytes * static_cast<int64_t>(blocks.size());
    return {free, bytes_};
  }

  int64_t copy(Stream s, int64_t item, Sizes shape, void* dst, Sizes to,
               const void* src, Sizes from) override {
    later(s, [this, item, shape = keep(shape), dst, to = keep(to), src,
              from = keep(from)] {
      host_.copy({}, item, shape, dst, to, src, from);
    });
    return item * count(shape);
  }
  void cast(Stream s, Sizes shape, DType dst_type, void* dst, Sizes to,
            DType src_type, const void* src, Sizes from) override {
    later(s, [=, this, shape = keep(shape), to = keep(to), from = keep(from)] {
      host_.cast({}, shape, dst_type, dst, to, src_type, src, from);
    });
  }
  void fill(Stream s, DType dtype, Sizes shape, void* dst, Sizes to,
            double value) override {
    later(s, [=, this, shape = keep(shape), to = keep(to)] {
      host_.fill({}, dtype, shape, dst, to, value);
    });
  }
  int64_t reduce(Stream s, ReduceOp op, DType dtype, Sizes shape, void* dst,
                 Sizes to, std::span<const Operand> srcs,
                 int64_t terms) override {
    std::vector<std::pair<const void*, std::vector<int64_t>>> kept;
    for (const Operand& o : srcs) kept.push_back({o.data, keep(o.strides)});
    const int64_t read = srcs.empty() ? 0 : size_of(dtype) * count(shape);
    later(s, [=, this, shape = keep(shape), to = keep(to)] {
      std::vector<Operand> operands;
      for (const auto& [data, strides] : kept)
        operands.push_back({data, strides});
      host_.reduce({}, op, dtype, shape, dst, to, operands, terms);
    });
    return read;
  }
  int64_t reduce_into_all(Stream s, ReduceOp op, DType dtype, int64_t n,
                          std::span<char* const> dsts,
                          std::span<const char* const> srcs,
                          int64_t terms) override {
    later(s, [=, this, to = std::vector(dsts.begin(), dsts.end()),
              from = std::vector(srcs.begin(), srcs.end())] {
      host_.reduce_into_all({}, op, dtype, n, to, from, terms);
    });
    return srcs.empty() ? 0 : size_of(dtype) * n;
  }

  void divide(Stream s, DType dtype, int64_t n, void* dst, const void* a,
              const void* b) override {
    later(s, [=, this] { host_.divide({}, dtype, n, dst, a, b); });
  }

  void to_host(Stream s, void* host, const void* src, int64_t bytes) override {
    std::lock_guard lock(mutex_);
    not_captured(s, "copies to the host");
    ++waits_;
    run(queue(s), queue(s).given);
    const Open open;
    if (bytes > 0) std::memcpy(host, src, static_cast<size_t>(bytes));
  }
  void from_host(Stream s, void* dst, const void* host,
                 int64_t bytes) override {
    const char* from = static_cast<const char*>(host);
    std::lock_guard lock(mutex_);
    not_captured(s, "copies from the host");
    later(s, [dst, kept = std::vector<char>(from, from + bytes)] {
      if (!kept.empty()) std::memcpy(dst, kept.data(), kept.size());
    });
  }

  Event record(Stream s) override {
    std::lock_guard lock(mutex_);
    Queue& q = queue(s);
    const int64_t at =
        q.capture ? std::ssize(q.capture->lanes[&q].pieces) : q.given;
    return {std::make_shared<Mark>(Mark{this, &q, at, q.capture})};
  }
  void wait(Stream s, const Event& event) override {
    if (!event.handle) return;
    std::lock_guard lock(mutex_);
    const Mark& mark = *static_cast<Mark*>(event.handle.get());
    Queue& q = queue(s);
    if (!mark.capture && !q.capture) {
      give(s, [mark] { mark.device->run(*mark.queue, mark.given); });
      return;
    }
    DT_CHECK(mark.capture, "device",
             "a stream that is captured waits for what was given before");
    DT_CHECK(!mark.capture->ended, "device",
             "a stream waits for an event of a capture that has ended");
    if (!q.capture) q.capture = mark.capture;
    DT_CHECK(q.capture == mark.capture, "device",
             "a stream that is captured waits for an event of another capture");
    q.capture->lanes[&q].pieces.push_back(
        {{}, mark.queue, static_cast<size_t>(mark.given)});
  }

  bool has_graphs() const override { return true; }
  bool is_captured(Stream s) override {
    std::lock_guard lock(mutex_);
    return queue(s).capture != nullptr;
  }
  void begin_capture(Stream s) override {
    std::lock_guard lock(mutex_);
    not_captured(s, "is captured");
    auto capture = std::make_shared<Captured>();
    capture->origin = &queue(s);
    capture->lanes[capture->origin];
    capture->lock_and_free = [](Captured& dead) {
      std::lock_guard lock(mutex_);
      for (const auto& free : dead.at_end) free();
    };
    queue(s).capture = std::move(capture);
  }
  std::shared_ptr<const CapturedWork> end_capture(Stream s) override {
    std::lock_guard lock(mutex_);
    const auto capture = queue(s).capture;
    DT_CHECK(capture && capture->origin == &queue(s), "device",
             "this stream began no capture");
    leave(*capture);
    DT_CHECK(capture->all_joined(), "device",
             "a stream was captured and not waited for in the end");
    return capture;
  }
  void drop_capture(Stream s) noexcept override {
    std::lock_guard lock(mutex_);
    if (const auto capture = queue(s).capture) leave(*capture);
  }
  void replay(Stream s, const CapturedWork& work) override {
    std::lock_guard lock(mutex_);
    not_captured(s, "replays");
    auto& captured = const_cast<Captured&>(static_cast<const Captured&>(work));
    give(s, [this, &captured] {
      captured.walk_all([&](Captured::Piece& piece) {
        ++works_;
        piece.fn();
      });
    });
  }
  bool passed(const Event& event) override {
    if (!event.handle) return true;
    std::lock_guard lock(mutex_);
    const Mark& mark = *static_cast<Mark*>(event.handle.get());
    return !mark.capture && mark.queue->done >= mark.given;
  }
  void synchronize(Stream s) override {
    std::lock_guard lock(mutex_);
    not_captured(s, "is waited for by the host");
    ++waits_;
    run(queue(s), queue(s).given);
    ++synchronized_;
  }
  int64_t waits() const override {
    std::lock_guard lock(mutex_);
    return waits_;
  }

  void later(Stream s, std::function<void()> fn) override {
    std::lock_guard lock(mutex_);
    give(s, std::move(fn));
  }
  int64_t given() const override {
    std::lock_guard lock(mutex_);
    int64_t n = null_.given;
    for (const auto& q : queues_) n += q->given;
    return n;
  }
  int64_t works() const override {
    std::lock_guard lock(mutex_);
    return works_;
  }
  int64_t waiting() const override {
    std::lock_guard lock(mutex_);
    int64_t n = null_.given - null_.done;
    for (const auto& q : queues_) n += q->given - q->done;
    return n;
  }
  int64_t synchronized() const override {
    std::lock_guard lock(mutex_);
    return synchronized_;
  }

 private:
  struct Mark {
    Recording* device;
    Queue* queue;
    int64_t given;
    std::shared_ptr<Captured> capture;  // if it was recorded in one
  };
  // As long as it lives, the memory of all devices may be touched, since work
  // of one may read memory of another. The caller holds the mutex.
  class Open {
   public:
    Open() {
      if (open_++ == 0) protect_all(PROT_READ | PROT_WRITE);
    }
    ~Open() {
      if (--open_ == 0) protect_all(PROT_NONE);
    }
  };

  static std::vector<int64_t> keep(Sizes s) { return {s.begin(), s.end()}; }
  static int64_t count(Sizes shape) {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
  static void protect_all(int how) {
    for (const Recording* d : all_)
      if (mprotect(d->base_, static_cast<size_t>(d->next_ - d->base_), how) !=
          0)
        std::abort();
  }
  Queue& queue(Stream s) {
    return s.handle ? *static_cast<Queue*>(s.handle) : null_;
  }
  static int64_t rounded(int64_t bytes) {
    constexpr int64_t kAlignment = 64;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  void not_captured(Stream s, std::string_view what) {
    DT_CHECK(!queue(s).capture, "cuda graph",
             "a stream {} while it is captured; do that before or after", what);
  }
  static void leave(Captured& capture) {
    capture.ended = true;
    for (auto& [q, lane] : capture.lanes) q->capture = nullptr;
  }
  void give(Stream s, std::function<void()> fn) {
    if (const auto& capture = queue(s).capture) {
      capture->lanes[&queue(s)].pieces.push_back({std::move(fn)});
      return;
    }
    queue(s).work.push_back(std::move(fn));
    ++queue(s).given;
  }
  // Runs works of q until `until` have run. The caller holds the mutex, and
  // functions that works call lock it again.
  void run(Queue& q, int64_t until) {
    if (q.done >= until) return;
    const Open open;
    while (q.done < until) {
      const auto fn = std::move(q.work.front());
      q.work.pop_front();
      ++q.done;
      ++works_;
      fn();
    }
  }

  const int64_t bytes_;
  Device& host_;
  const std::unique_ptr<const Kernels> kernels_;
  // One for all devices, since they wait for each other.
  static inline std::recursive_mutex mutex_;
  static inline std::vector<const Recording*> all_;
  static inline int open_ = 0;
  char* base_ = nullptr;
  char* next_ = nullptr;
  int64_t works_ = 0, waits_ = 0;
  Queue null_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::map<int64_t, std::vector<void*>> freed_;
  int64_t synchronized_ = 0;
};

}  // namespace

std::unique_ptr<RecordingDevice> RecordingDevice::make(int64_t bytes,
                                                       Device& host) {
  return std::make_unique<Recording>(bytes, host);
}

}  // namespace dtensor
