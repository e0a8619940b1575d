// How the members of a group agree on collectives whose data another
// communicator moves (nccl.h). The members are threads that share memory, or
// processes that exchange short messages.
#pragma once
#include <cstdint>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/communicator.h"

namespace dtensor {

// One member's end of the channel. For one thread, like a communicator.
class AgreementChannel {
 public:
  virtual ~AgreementChannel() = default;

  // The most bytes that a member may show with its call.
  static constexpr int64_t kMost = 224;
  // Returns when all members have called this with the same fingerprint.
  // Otherwise all members throw: the Error of disagree(), or one that says why
  // some members will not come. Each member shows the others `bytes` bytes from
  // `mine`; all members pass the same number, which is 0 for an
  // all_gather_bytes.
  virtual void open(const Collective&, const void* mine, int64_t bytes) = 0;
  // The bytes that member m has shown, 8-byte aligned; valid until the next
  // open().
  virtual const void* shown(int m) const = 0;
  // out[m] = the `bytes` bytes of member m, for the all_gather_bytes that is
  // open.
  virtual void gather(const void* in, int64_t bytes, void* out) = 0;
};

// A member's end of a group, used either as a communicator or as a channel.
class HostCommunicator : public Communicator, public AgreementChannel {
 public:
  void gather(const void* in, int64_t bytes, void* out) final {
    do_all_gather_bytes({}, in, bytes, out);
  }

 protected:
  using Communicator::Communicator;
};

}  // namespace dtensor
