// Ranks that are threads of processes connected over TCP. torchrun or a shell
// loop starts the processes, which find each other through the environment:
//
//   RANK, WORLD_SIZE          this process's number, and how many there are
//   MASTER_ADDR, MASTER_PORT  where the first process listens
//   DTENSOR_JOB_TOKEN         a text that is the same in the processes of this
//                             job and in no other; by default
//                             TORCHELASTIC_RUN_ID with
//                             TORCHELASTIC_RESTART_COUNT, or else the name of
//                             the program
//   DTENSOR_JOIN_TIMEOUT      seconds to wait for the others; default 120
//
// With TORCHELASTIC_USE_AGENT_STORE=True, torchrun itself listens at
// MASTER_PORT, and the first process listens at the next port.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/comm/job.h"
#include "dtensor/comm/tcp/tcp_rendezvous.h"

namespace dtensor {

// Whether the environment says that this process is one of several. Throws the
// Error that names the missing variables if only some of RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT are set.
bool started_by_torchrun();
// This process's number, and the number of processes, if RANK and WORLD_SIZE
// are numbers; otherwise 0 and 1.
int64_t process_by_torchrun();
int64_t processes_by_torchrun();

// The place that the environment describes. If `path` names a file for the
// rendezvous, MASTER_PORT is not needed, and MASTER_ADDR only for several
// machines. Throws the Error that names what is missing or is not a number.
TcpPlace tcp_place_by_environment(
    const std::string& path = "",
    const JobFacts& facts = JobFacts::of_process());

// The first call connects the processes and compares the facts of all of them;
// they disconnect at the end of the program. Throws the Error that says why
// they cannot connect, or what differs.
ProcessJob& tcp_job(const std::string& path = "",
                    const JobFacts& facts = JobFacts::of_process());

}  // namespace dtensor
