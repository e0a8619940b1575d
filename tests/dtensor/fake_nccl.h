// SPDX-License-Identifier: Apache-2.0
// A stand-in for NCCL that does what NCCL's manual says, among ranks with
// recording devices. Calls return before they are settled, and streams carry
// out what all members have called. Calls that do not fit together, for which
// NCCL would hang, throw Error. Reductions to the largest or smallest f32
// ignore NaNs. abort() waits until no other link of its device has a call under
// way, and no graph holds a call of its own link.
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
  // Makes links between thread ranks, whose devices reach each other's memory.
  static std::unique_ptr<FakeNccl> make();
  // Makes links between ranks that may be in several processes of this machine.
  // Members exchange the arguments of calls in files of the folder, which has
  // to exist and be empty at first. gpu_of() identifies a stream's GPU, in the
  // same way in all processes. In the environment, FILE_NCCL_KILL="MEMBER CALL"
  // kills the process of member MEMBER when its link makes call number CALL,
  // counted from 1.
  static std::unique_ptr<FakeNccl> make(std::string folder,
                                        std::function<Gpu(Stream)> gpu_of);

  // From now on joins_streams() is false. Otherwise it is true for thread
  // ranks, since their streams wait for each other's events in collectives.
  virtual void captures_no_collectives() = 0;
  // The numbers of calls so far, by all members together.
  struct Counts {
    int64_t links = 0, all_gathers = 0, reduce_scatters = 0, all_reduces = 0,
            sends = 0, aborts = 0;
    int64_t groups = 0;  // groups that have begun and not ended
    int64_t stuck = 0;   // calls of abort() that would have waited for ever
  };
  virtual Counts counts() const = 0;
  // Makes settled() throw Error for call number `call`, from 1, of the member's
  // link.
  virtual void fail(int member, int64_t call) = 0;
  // Makes send(), all_reduce() and so on themselves throw Error in that call.
  virtual void refuse(int member, int64_t call) = 0;
  // Makes that call never settle.
  virtual void hang(int member, int64_t call) = 0;
};

}  // namespace dtensor::testing
