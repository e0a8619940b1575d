// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "dtensor/comm/mpi.h"
#include "dtensor/environment.h"

namespace dtensor {
namespace {

// Returns the value of the first of these variables that is a number of at
// least 0; -1 if there is no such variable.
int64_t first_of(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto n = number_in<int64_t>(variable(name).value_or(""), 0))
      return *n;
  return -1;
}
int64_t count() { return first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}); }

bool started() {
  if (const int64_t n = count(); n >= 0) return n > 1;
  // PMIx does not give the number of processes. In an interactive shell of
  // Slurm, PMIX_RANK may be set although there is only one process.
  return std::getenv("PMIX_RANK") && first_of({"SLURM_STEP_NUM_TASKS"}) != 1;
}

constexpr ProcessBackend::Local kLocal[] = {
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

}  // namespace

ProcessBackend mpi_backend() {
  return {.name = "mpi",
          .launched = "of mpirun",
          .lacks = mpi_is_built() ? ""
                                  : "MPI; build it where MPI is installed "
                                    "(./setup.sh installs Open MPI)",
          .started = started,
          .alone = [] { return count() >= 0 || std::getenv("PMIX_RANK"); },
          .process = []() -> int64_t {
            if (!started()) return -1;
            return std::max<int64_t>(
                0, first_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}));
          },
          .local = kLocal,
          .job = [](const std::string&, const JobFacts& facts) -> ProcessJob& {
            return mpi_job(facts);
          }};
}

}  // namespace dtensor
