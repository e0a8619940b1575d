#include "tests/runtime/device/recording_device.h"

#include <sys/mman.h>
#include <unistd.h>

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
#include "tests/runtime/device/recording_kernels.h"

namespace dtensor {
namespace {

// Ranges that end the process with a sentence instead of a bare signal.
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

// A stream: what it was given, of which `done` pieces ran.
struct Queue {
  std::deque<std::function<void()>> work;
  int64_t given = 0, done = 0;
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
  const Kernels* own_kernels() const override { return kernels_.get(); }

  Stream open_stream() override {
    std::lock_guard lock(mutex_);
    queues_.push_back(std::make_unique<Queue>());
    return {queues_.back().get()};
  }

  void* allocate(int64_t bytes, Stream) override {
    constexpr int64_t kAlignment = 64;
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
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
    const Open open;
    std::memset(block, 0xff, static_cast<size_t>(bytes));
    return block;
  }
  // Behind the work that may still use it.
  void release(void* block, int64_t bytes, Stream stream) noexcept override {
    std::lock_guard lock(mutex_);
    give(stream, [this, block, bytes] {
      constexpr int64_t kAlignment = 64;
      freed_[(bytes + kAlignment - 1) / kAlignment * kAlignment].push_back(
          block);
    });
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

  void divide(Stream s, DType dtype, int64_t n, void* dst, const void* a,
              const void* b) override {
    later(s, [=, this] { host_.divide({}, dtype, n, dst, a, b); });
  }

  void to_host(Stream s, void* host, const void* src, int64_t bytes) override {
    std::lock_guard lock(mutex_);
    ++waits_;
    run(queue(s), queue(s).given);
    const Open open;
    if (bytes > 0) std::memcpy(host, src, static_cast<size_t>(bytes));
  }
  void from_host(Stream s, void* dst, const void* host,
                 int64_t bytes) override {
    const char* from = static_cast<const char*>(host);
    later(s, [dst, kept = std::vector<char>(from, from + bytes)] {
      if (!kept.empty()) std::memcpy(dst, kept.data(), kept.size());
    });
  }

  Event record(Stream s) override {
    std::lock_guard lock(mutex_);
    return {std::make_shared<Mark>(Mark{this, &queue(s), queue(s).given})};
  }
  void wait(Stream s, const Event& event) override {
    if (!event.handle) return;
    later(s, [mark = *static_cast<Mark*>(event.handle.get())] {
      mark.device->run(*mark.queue, mark.given);
    });
  }
  bool passed(const Event& event) override {
    if (!event.handle) return true;
    std::lock_guard lock(mutex_);
    const Mark& mark = *static_cast<Mark*>(event.handle.get());
    return mark.queue->done >= mark.given;
  }
  void synchronize(Stream s) override {
    std::lock_guard lock(mutex_);
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
  };
  // The memory may be touched, of all devices: work of one may read that of
  // another. The caller holds the mutex.
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
  void give(Stream s, std::function<void()> fn) {
    queue(s).work.push_back(std::move(fn));
    ++queue(s).given;
  }
  // The caller holds the mutex, which those that the work calls take again.
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
  // Of all devices, since they wait for each other.
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
