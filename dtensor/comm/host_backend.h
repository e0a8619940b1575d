// Backends that another one can be built on, which sends the data itself: they
// let its ranks agree, notice who fails, and keep the deadline.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "dtensor/comm/agreement_channel.h"
#include "dtensor/comm/backend.h"

namespace dtensor {

class HostBackend : public Backend {
 public:
  // As group(), for an agreement alone.
  virtual std::unique_ptr<AgreementChannel> agreement_channel(
      std::span<const int64_t> ranks, int64_t me, int lane) = 0;

  struct RemoteFailure {
    int64_t rank;
    int lane;
    std::string_view what;
    bool everybodys = false;  // all ranks throw these very words
  };
  // Called by some thread, once for a lane, when one of its ranks has failed
  // and failed() of this object was not called: it is one of another process.
  // (It may be called where failed() was.) When this returns, none of the
  // earlier is called any more.
  virtual void when_others_fail(std::function<void(const RemoteFailure&)>) {}
};

}  // namespace dtensor
