// SPDX-License-Identifier: Apache-2.0
// A link that any thread may abort while its member uses it.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "dtensor/comm/nccl/link.h"
#include "dtensor/comm/peer_failed.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

class SafeLink {
 public:
  using Clock = std::chrono::steady_clock;

  // The timeout of nccl_backend(); 0: no limit.
  explicit SafeLink(std::chrono::milliseconds patience) : patience_(patience) {}
  ~SafeLink() { close(); }

  // Makes all calls of calls(NcclLink&), which enqueue work on that stream, as
  // one group, and waits until the host has finished it. If the link was
  // aborted, throws PeerFailed, or the Error of all ranks, with the reason.
  // Throws Error if NCCL does not accept the call in time.
  template <class Calls>
  void use(StepKind kind, Device& device, Stream stream, Calls&& calls) {
    // Work that a graph replays cannot be observed.
    const bool watches = watched() && !device.is_captured(stream);
    const Event begins = watches ? device.record(stream) : Event();
    {
      std::lock_guard lock(mutex_);
      check(kind);
      link_->begin_group();
      try {
        calls(*link_);
      } catch (...) {
        link_->drop_group();
        throw;
      }
      link_->end_group();
    }
    settle(kind);  // the work may reach the stream only then
    if (!watches) return;
    std::lock_guard lock(mutex_);
    drop_passed();
    works_.push_back({kind, &device, begins, device.record(stream), {}});
  }
  // Sets the link, and waits until it has been created.
  void open(StepKind kind, std::unique_ptr<NcclLink>);
  // Waits until the host has finished the last call. Throws errors of running
  // work.
  void settle(StepKind);
  bool is_open() const { return open_; }

  // By another thread, periodically: the kind of work that the GPU began too
  // long ago and has not finished, if any.
  std::optional<StepKind> overdue(Clock::time_point now);
  // Aborts the link because of that failure, which outlives the link. Does not
  // wait: see NcclLink::abort().
  void abort(const RankFailure&) noexcept;
  // By its member, which does not use the link again and has no graphs. Frees
  // the link; if an abort has begun, waits for it.
  void close() noexcept;

 private:
  struct Work {
    StepKind kind;
    Device* device;
    Event begins, ends;
    Clock::time_point seen;  // when it was first seen to have begun; or not set
  };
  bool watched() const { return patience_.count() > 0; }
  void drop_passed();
  void check(StepKind kind) const {
    if (failure_) failure_->raise(name(kind));
  }
  void begin_abort() noexcept;

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::unique_ptr<NcclLink> link_;
  std::thread aborting_;
  bool open_ = false;
  const RankFailure* failure_ = nullptr;  // why the link was aborted
  std::deque<Work> works_;                // may still be running, oldest first
};

}  // namespace dtensor
