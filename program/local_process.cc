// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/local_process.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/environment.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// Returns the number of processes on each machine: 4 if Slurm writes "4", or
// "4(x2)" for two machines. Returns nothing for "4,2", where it differs.
std::optional<int64_t> count_in(std::string_view text) {
  if (text.ends_with(")"))
    if (const size_t at = text.find("(x"); at != text.npos)
      if (number_in<int64_t>(text.substr(at + 2, text.size() - at - 3), 0))
        text = text.substr(0, at);
  return number_in<int64_t>(text, 0);
}

}  // namespace

LocalProcess local_process(const ProcessBackend& backend) {
  std::vector<ProcessBackend::Local> all(backend.local.begin(),
                                         backend.local.end());
  for (const ProcessBackend& b : process_backends())
    if (b.name != backend.name)
      all.insert(all.end(), b.local.begin(), b.local.end());
  for (const ProcessBackend::Local& names : all) {
    const auto text = variable(names.index);
    if (!text) continue;
    const auto index = number_in<int64_t>(*text, 0);
    DT_CHECK(index, "--device",
             "{} is '{}'; write the number of this process among the job's "
             "processes on this machine, counting from 0",
             names.index, *text);
    return {*index, count_in(variable(names.count).value_or("")).value_or(0)};
  }
  fail("--device",
       "no environment variable says which of the job's processes on this "
       "machine this one is, and so which GPU it takes; set LOCAL_RANK to its "
       "number, counting from 0, as torchrun does");
}

std::pair<int64_t, int64_t> tasks_of_srun() {
  const char *tasks = std::getenv("SLURM_STEP_NUM_TASKS"),
             *task = std::getenv("SLURM_PROCID");
  if (!tasks || !task) return {1, 0};
  return {std::atoll(tasks), std::atoll(task)};
}

}  // namespace dtensor
