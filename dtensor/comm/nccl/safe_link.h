// SPDX-License-Identifier: Apache-2.0
// An NcclLink that any thread may abort while its member uses it.
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

  // `patience` is the timeout of the backend (nccl_backend()); 0: no limit.
  explicit SafeLink(std::chrono::milliseconds patience) : patience_(patience) {}
  ~SafeLink() { close(); }

  // Runs calls(NcclLink&), which enqueues work on that stream as one group, and
  // waits until the host has finished the group. If the link was aborted,
  // throws PeerFailed, or the Error that all ranks throw, with the reason.
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
  // Takes the link, and waits until its creation, which has begun, is complete.
  void open(StepKind kind, std::unique_ptr<NcclLink>);
  // Waits until the host has finished the last call. Throws as use() does, and
  // errors of running work.
  void settle(StepKind);
  bool is_open() const { return open_; }

  // Another thread calls this periodically. Returns the kind of the work that
  // has run on the GPU for longer than the timeout, if there is any.
  std::optional<StepKind> overdue(Clock::time_point now);
  // Aborts the link because of that failure, which must outlive this object.
  // Does not wait for NcclLink::abort(), which a new thread calls (unless no
  // thread can be made).
  void abort(const RankFailure&) noexcept;
  // Frees the link; if an abort has begun, waits for it. The link's member
  // calls this when it no longer uses the link and no graph contains its calls.
  void close() noexcept;

 private:
  struct Work {
    StepKind kind;
    Device* device;
    Event begins, ends;
    // When overdue() first saw that the work had begun; not set before.
    Clock::time_point seen;
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
  std::deque<Work> works_;  // work that may still run, oldest first
};

}  // namespace dtensor
