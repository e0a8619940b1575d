// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of processes connected over TCP. torchrun or a shell
// loop starts the processes, which find each other through the environment:
//
//   RANK, WORLD_SIZE          number of this process, number of processes
//   MASTER_ADDR, MASTER_PORT  where the first process listens
//   DTENSOR_JOB_TOKEN         a text that is the same in the processes of this
//                             job and in no other; by default
//                             TORCHELASTIC_RUN_ID with
//                             TORCHELASTIC_RESTART_COUNT, or else the name of
//                             the program (nothing with --rendezvous)
//   DTENSOR_JOIN_TIMEOUT      seconds to wait for the others; default 120
//
// With TORCHELASTIC_USE_AGENT_STORE=True, torchrun itself listens at
// MASTER_PORT, and the first process listens at the next port.
#pragma once
#include <string>

#include "dtensor/comm/process_backend.h"
#include "dtensor/comm/tcp/tcp_rendezvous.h"

namespace dtensor {

// Returns the row of --backend tcp in the table of process_backend.h. Its
// started() returns true if RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are
// all set and WORLD_SIZE is not 1. Its process() returns RANK if RANK and
// WORLD_SIZE are numbers and WORLD_SIZE is at least 2.
ProcessBackend tcp_backend();

// Returns the place for tcp_rendezvous() that the environment describes. If
// `path` names a file for the rendezvous, MASTER_PORT is not needed, and
// MASTER_ADDR is needed only for several machines. Throws an Error that names
// the variable that is missing or is not a number.
TcpPlace tcp_place_by_environment(
    const std::string& path = "",
    const JobFacts& facts = JobFacts::of_process());

}  // namespace dtensor
