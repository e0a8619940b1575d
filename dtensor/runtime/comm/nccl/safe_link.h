// A link that any thread may abort, while its member uses it.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "dtensor/placement/step_kind.h"
#include "dtensor/runtime/comm/nccl/link.h"

namespace dtensor {

class SafeLink {
 public:
  // call(NcclLink&), and until the host has done with it. Throws PeerFailure
  // once the link is aborted, that says why.
  template <class Call>
  void use(StepKind kind, Call&& call) {
    {
      std::lock_guard lock(mutex_);
      check(kind);
      call(*link_);
    }
    settle(kind);
  }
  // The same for one that is being made.
  void open(StepKind kind, std::unique_ptr<NcclLink>);
  // Throws what went wrong with work that runs.
  void poll(StepKind kind) {
    use(kind, [](NcclLink&) {});
  }
  bool is_open() const { return open_; }

  // Since that rank failed.
  void abort(int64_t rank, std::string_view what) noexcept;

 private:
  void check(StepKind) const;
  void settle(StepKind);

  std::mutex mutex_;
  std::unique_ptr<NcclLink> link_;
  bool open_ = false, aborted_ = false;
  std::string why_;
};

}  // namespace dtensor
