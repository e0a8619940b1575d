// SPDX-License-Identifier: Apache-2.0
// The backend of ranks that are threads, of this process or of several. A
// backend that moves the data itself derives from it, and inherits how ranks
// agree, notice failures, and keep the deadline.
//
// Ranks of one process read each other's memory. Data that crosses processes is
// sent once per receiving process, for all of its ranks that take it.
// Reductions add in member order, so the results have the same bits, however
// the ranks are divided among processes.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "dtensor/comm/host_communicator.h"
#include "dtensor/comm/membership.h"

namespace dtensor {

class HostBackend : public Membership {
 public:
  using Membership::Membership;  // called by all processes of the job

  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    return std::make_unique<HostCommunicator>(*this, ranks, me, lane);
  }
};

}  // namespace dtensor
