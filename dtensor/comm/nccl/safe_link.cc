// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/nccl/safe_link.h"

#include <chrono>
#include <thread>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor {

void SafeLink::settle(StepKind kind) {
  const Clock::time_point begun = Clock::now();
  for (int i = 0;; ++i) {
    {
      std::lock_guard lock(mutex_);
      check(kind);
      if (link_->settled()) return;
    }
    if (watched() && Clock::now() - begun > patience_)
      fail(
          name(kind),
          "NCCL has not accepted the call in {} s: a GPU, or a network between "
          "GPUs, does not answer; NCCL_DEBUG=INFO shows which",
          std::chrono::duration<double>(patience_).count());
    // A call usually settles soon; making a link takes longer.
    if (i < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void SafeLink::open(StepKind kind, std::unique_ptr<NcclLink> link) {
  {
    std::lock_guard lock(mutex_);
    link_ = std::move(link);
    open_ = true;
    if (failure_) begin_abort();
  }
  settle(kind);
}

void SafeLink::drop_passed() {
  while (!works_.empty() && works_.front().device->passed(works_.front().ends))
    works_.pop_front();
}

std::optional<StepKind> SafeLink::overdue(Clock::time_point now) {
  std::lock_guard lock(mutex_);
  if (failure_) return {};
  drop_passed();
  if (works_.empty()) return {};
  Work& first = works_.front();
  if (!first.device->passed(first.begins)) return {};
  if (first.seen == Clock::time_point()) first.seen = now;
  if (now - first.seen <= patience_) return {};
  return first.kind;
}

void SafeLink::abort(const RankFailure& failure) noexcept {
  std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = &failure;
  if (link_) begin_abort();
}

// Called with the mutex held, while others may wait for the calling thread. An
// abort may return only after the GPU's other links have been aborted, so each
// abort runs on a thread of its own.
void SafeLink::begin_abort() noexcept {
  try {
    aborting_ = std::thread([link = link_.get()] { link->abort(); });
  } catch (...) {  // no more threads
    link_->abort();
  }
}

void SafeLink::close() noexcept {
  std::unique_ptr<NcclLink> link;
  std::thread aborting;
  {
    std::lock_guard lock(mutex_);
    link = std::move(link_);
    aborting = std::move(aborting_);
  }
  if (aborting.joinable()) aborting.join();
}

}  // namespace dtensor
