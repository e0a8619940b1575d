// How the members of a group agree on collectives whose data takes a way of its
// own (nccl.h): they are threads that meet, or processes that send each other
// few bytes.
#pragma once
#include <cstdint>

#include "dtensor/comm/agreement.h"

namespace dtensor {

// One member's. For one thread, as a communicator.
class AgreementChannel {
 public:
  virtual ~AgreementChannel() = default;

  // What a member may show with its call.
  static constexpr int64_t kMost = 224;
  // Returns when all members have come with the same fingerprint; else all of
  // them throw what disagree() throws, or that some will not come. With it each
  // shows the others `bytes` bytes, all as many; 0 in an all_gather_bytes.
  virtual void open(const Collective&, const void* mine, int64_t bytes) = 0;
  // What member m has shown, for what is 8-byte aligned; until the next open().
  virtual const void* shown(int m) const = 0;
  // out[m] = member m's `bytes` bytes of the all_gather_bytes that is open.
  virtual void gather(const void* in, int64_t bytes, void* out) = 0;
};

}  // namespace dtensor
