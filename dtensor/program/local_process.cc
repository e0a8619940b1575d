#include "dtensor/program/local_process.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || value < 0) return {};
  return value;
}

// Slurm's "4" or "4(x2)" mean the same number on each machine. "4,2" does not,
// and gives nothing.
std::optional<int64_t> count_in(std::string_view text) {
  if (text.ends_with(")"))
    if (const size_t at = text.find("(x"); at != text.npos)
      if (number(text.substr(at + 2, text.size() - at - 3)))
        text = text.substr(0, at);
  return number(text);
}

struct Says {
  const char *index, *count;
};
constexpr Says kTorchrun = {"LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Says kMpi[] = {
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

}  // namespace

LocalProcess local_process(bool over_mpi) {
  std::vector<Says> all(std::begin(kMpi), std::end(kMpi));
  all.insert(over_mpi ? all.end() : all.begin(), kTorchrun);
  for (const Says& s : all) {
    const char* text = std::getenv(s.index);
    if (!text || !*text) continue;
    const auto index = number(text);
    DT_CHECK(index, "--device",
             "{} is '{}'; write the number of this process among the job's "
             "processes on this machine, counting from 0",
             s.index, text);
    const char* of = std::getenv(s.count);
    return {*index, of ? count_in(of).value_or(0) : 0};
  }
  fail("--device",
       "it is not known which of the job's processes on this machine this one "
       "is, and so which GPU it takes; set LOCAL_RANK, counting from 0, as "
       "torchrun does");
}

std::pair<int64_t, int64_t> tasks_of_srun() {
  const char *tasks = std::getenv("SLURM_STEP_NUM_TASKS"),
             *task = std::getenv("SLURM_PROCID");
  if (!tasks || !task) return {1, 0};
  return {std::atoll(tasks), std::atoll(task)};
}

}  // namespace dtensor
