// Ranks that are threads of processes that are connected over TCP, as torchrun,
// or a loop of a shell, starts them: they find each other by what the
// environment says.
//
//   RANK, WORLD_SIZE          which process of how many this is
//   MASTER_ADDR, MASTER_PORT  where the first one listens
//   DTENSOR_JOB_TOKEN         what is the same in the processes of this job and
//                             in no other; else TORCHELASTIC_RUN_ID, with
//                             TORCHELASTIC_RESTART_COUNT; else the program's
//                             name
//   DTENSOR_JOIN_TIMEOUT      seconds that they wait for each other; else 120
//
// With TORCHELASTIC_USE_AGENT_STORE=True torchrun itself listens at
// MASTER_PORT, and the first process at the port above.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/comm/job.h"
#include "dtensor/comm/tcp/tcp_rendezvous.h"

namespace dtensor {

// Whether the environment says that this process is one of several. Throws the
// Error that names what is missing when some of the first four are there.
bool started_by_torchrun();
// Which one of how many, where RANK and WORLD_SIZE are numbers; else 0 of 1.
int64_t process_by_torchrun();
int64_t processes_by_torchrun();

// What the environment says. With a path, through a file of which they meet,
// MASTER_PORT is not needed, nor MASTER_ADDR on one machine. Throws the Error
// that says what is missing or no number.
TcpPlace tcp_place_by_environment(
    const std::string& path = "",
    const JobFacts& facts = JobFacts::of_process());

// The processes meet with the first call, which compares the facts of all, and
// part at the end of the program. Throws the Error that says why they do not
// meet, or what differs.
ProcessJob& tcp_job(const std::string& path = "",
                    const JobFacts& facts = JobFacts::of_process());

}  // namespace dtensor
