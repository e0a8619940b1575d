#include <cstdlib>
#include <initializer_list>
#include <string>

#include "dtensor/comm/mpi.h"

namespace dtensor {
namespace {

// The value of the first of these variables that is a number, or -1.
int64_t first_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (!text) continue;
    char* end = nullptr;
    const long long value = std::strtoll(text, &end, 10);
    if (end != text && *end == 0 && value >= 0) return value;
  }
  return -1;
}

}  // namespace

bool started_by_mpi() {
  const int64_t count = first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  if (count >= 0) return count > 1;
  // PMIx does not give the number of processes. In an interactive Slurm shell
  // there is only one.
  return std::getenv("PMIX_RANK") && first_of({"SLURM_STEP_NUM_TASKS"}) != 1;
}

bool launched_by_mpi() {
  return first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) >= 0 ||
         std::getenv("PMIX_RANK");
}

int64_t process_by_environment() {
  const int64_t process =
      first_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"});
  return process < 0 ? 0 : process;
}

}  // namespace dtensor
