// Backends on which another backend, which moves the data itself, can be built.
// They let its ranks agree, notice failures, and keep the deadline.
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
  // As group(), for agreement alone.
  virtual std::unique_ptr<AgreementChannel> agreement_channel(
      std::span<const int64_t> ranks, int64_t me, int lane) = 0;

  struct RemoteFailure {
    int64_t rank;
    int lane;
    std::string_view what;
    bool everybodys = false;  // all ranks throw exactly this text
  };
  // Registers a function that some thread calls once per lane, when a rank has
  // failed and failed() of this object was not called, because the rank is in
  // another process. It may also be called after failed(). When this returns, a
  // function registered earlier is no longer called.
  virtual void when_others_fail(std::function<void(const RemoteFailure&)>) {}
};

}  // namespace dtensor
