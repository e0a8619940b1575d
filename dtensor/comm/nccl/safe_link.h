// A link that any thread may abort, while its member uses it.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "dtensor/comm/nccl/link.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

class SafeLink {
 public:
  using Clock = std::chrono::steady_clock;

  // See nccl_backend(); 0: without end.
  explicit SafeLink(std::chrono::milliseconds patience) : patience_(patience) {}
  ~SafeLink() { close(); }

  // Work of that stream: call(NcclLink&), and until the host has done with it.
  // Throws PeerFailed, or everybody's Error, once the link is aborted, that
  // says why, and Error when NCCL does not take the call in time.
  template <class Call>
  void use(StepKind kind, Device& device, Stream stream, Call&& call) {
    // What a graph replays, nobody can ask for.
    const bool watches = watched() && !device.is_captured(stream);
    const Event begins = watches ? device.record(stream) : Event();
    {
      std::lock_guard lock(mutex_);
      check(kind);
      call(*link_);
    }
    settle(kind);  // the stream may have been given it only then
    if (watches) watch({kind, &device, begins, device.record(stream), {}});
  }
  // A link that is being made.
  void open(StepKind kind, std::unique_ptr<NcclLink>);
  // Throws what went wrong with work that runs.
  void poll(StepKind kind) { settle(kind); }
  bool is_open() const { return open_; }

  // By another thread, now and then: what the GPU began too long ago and has
  // not done.
  std::optional<StepKind> overdue(Clock::time_point now);
  // Since that rank failed; `everybodys`: with these very words. Waits for
  // nothing: see NcclLink::abort().
  void abort(int64_t rank, std::string_view what, bool everybodys) noexcept;
  // By its member, which uses it no more and has no graphs: lets go of the
  // link, when it is aborted if that has begun.
  void close() noexcept;

 private:
  struct Work {
    StepKind kind;
    Device* device;
    Event begins, ends;
    Clock::time_point seen;  // first known to have begun; or not set
  };
  bool watched() const { return patience_.count() > 0; }
  void watch(Work);
  void check(StepKind) const;
  void settle(StepKind);
  void begin_abort() noexcept;

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::unique_ptr<NcclLink> link_;
  std::thread aborting_;
  bool open_ = false, aborted_ = false, everybodys_ = false;
  int64_t who_ = 0;  // failed, and why
  std::string why_;
  std::deque<Work> works_;  // that may still run, in their order
};

}  // namespace dtensor
