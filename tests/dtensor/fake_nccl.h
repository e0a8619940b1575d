// SPDX-License-Identifier: Apache-2.0
// NCCL as its manual words it, among ranks whose devices are recording ones:
// calls return before they are settled, streams carry out what all members have
// called, and what does not fit together, where NCCL would hang, is an Error.
// The largest and smallest f32 are found without NaNs. abort() returns when no
// other link of its device has a call under way, and when no graph holds one of
// its own.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dtensor/comm/nccl/link.h"
#include "tests/dtensor/device/recording_device.h"

namespace dtensor::testing {

class FakeNccl : public NcclLibrary {
 public:
  // Its members are thread ranks, whose devices reach each other's memory.
  static std::unique_ptr<FakeNccl> make();
  // Its members may be in several processes of this machine. What they give a
  // call, others read in files of the folder, which is there, and empty at
  // first. gpu_of() gives a stream's GPU as all processes know it. In the
  // environment, FILE_NCCL_KILL="MEMBER CALL" kills the process of that member
  // where it makes that call of a link, from 1.
  static std::unique_ptr<FakeNccl> make(std::string folder,
                                        std::function<Gpu(Stream)> gpu_of);

  // Its members wait for each other's events, as threads do, unless told that
  // no collectives are captured.
  virtual void captures_no_collectives() = 0;
  // What was called so far, of all members.
  struct Counts {
    int64_t links = 0, all_gathers = 0, reduce_scatters = 0, all_reduces = 0,
            sends = 0, aborts = 0;
    int64_t groups = 0;  // begun and not ended
    int64_t stuck = 0;   // aborts that would have waited for ever
  };
  virtual Counts counts() const = 0;
  // Call `call` of that member's link, from 1, fails when it is to settle.
  virtual void fail(int member, int64_t call) = 0;
  // What that member's link is to send, receive or reduce in such a call is
  // refused at once.
  virtual void refuse(int member, int64_t call) = 0;
  // It never settles.
  virtual void hang(int member, int64_t call) = 0;
};

}  // namespace dtensor::testing
