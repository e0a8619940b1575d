// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/crowd.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace dtensor {
namespace {

struct Machine {
  int64_t ranks = 0;
  std::set<int> cores;
};

// Returns "RANKS MACHINE CORE CORE ..." for this process. It lists the cores
// that the process may run on, since mpirun may have bound it to a single core.
std::string here(int64_t ranks) {
  std::string machine = "?";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
  std::string text = fmt::format("{} {}", ranks, machine);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  for (int c = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(c, &cores)) text += fmt::format(" {}", c);
  return text;
}

}  // namespace

Crowd most_crowded(ProcessJob* job, int64_t ranks) {
  std::map<std::string, Machine> machines;
  const auto add = [&](const std::string& text) {
    std::istringstream in(text);
    int64_t n = 0;
    std::string name;
    in >> n >> name;
    Machine& m = machines[name];
    m.ranks += n;
    for (int c = 0; in >> c;) m.cores.insert(c);
  };
  const std::string mine = here(ranks);
  add(mine);
  if (job)
    job->gather("compare their cores", mine,
                [&](const ProcessJob::Gathered& g) { add(g.text); });
  Crowd most;
  for (const auto& [name, m] : machines) {
    const Crowd c{m.ranks, std::ssize(m.cores)};
    if (most.cores == 0 || c.ranks * most.cores > most.ranks * c.cores)
      most = c;
  }
  return most;
}

RunReport without_core_waits(RunReport r) {
  for (size_t i = 0; i < r.waited_for.size(); ++i) {
    const double core = r.waited_for_core[i];
    r.waited_for[i] = core < 0 ? 0 : std::max(0.0, r.waited_for[i] - core);
  }
  return r;
}

std::string crowd_text(const Crowd& c) {
  if (c.ranks <= c.cores || c.cores == 0) return "";
  return fmt::format(
      "{} ranks share {} core{}, so waiting for a rank cannot be told from "
      "waiting for a core",
      c.ranks, c.cores, c.cores == 1 ? "" : "s");
}

}  // namespace dtensor
