// Collectives among ranks that are threads of one process. A member reads its
// peers' memory in place, between two barriers, without packing or padding. The
// ranks' devices must reach each other's memory: the CPU, one GPU shared by all
// ranks, or GPUs with peer access. On GPUs, streams wait for the peers' events;
// the host never waits for work.
#pragma once
#include <memory>

#include "dtensor/comm/agreement_channel.h"
#include "dtensor/comm/membership.h"

namespace dtensor {

// Member number `index` of the group, whose members are all in this process.
std::unique_ptr<HostCommunicator> thread_communicator(Membership&, Group&,
                                                      int index);

}  // namespace dtensor
