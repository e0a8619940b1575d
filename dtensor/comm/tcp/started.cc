// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/comm/deadline.h"
#include "dtensor/comm/tcp.h"
#include "dtensor/comm/tcp/tcp_job.h"
#include "dtensor/environment.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

constexpr int kMostProcesses = 1 << 16;
// For how long the first process assumes that a process with other facts
// belongs to another job (TcpPlace::doubt).
constexpr auto kDoubt = std::chrono::seconds(2);

std::optional<int> whole(const char* name, int least,
                         int most = kMostProcesses) {
  return number_in<int>(variable(name).value_or(""), least, most);
}
int needed(const char* name, int least, int most = kMostProcesses) {
  const auto value = whole(name, least, most);
  DT_CHECK(value, "tcp", "{} is '{}'; write a whole number from {} to {}", name,
           variable(name).value_or(""), least, most);
  return *value;
}

// Returns the variables that are set, and those that are not.
std::pair<std::vector<std::string>, std::vector<std::string>> variables(
    const std::vector<const char*>& names) {
  std::pair<std::vector<std::string>, std::vector<std::string>> both;
  for (const char* name : names)
    (variable(name) ? both.first : both.second).emplace_back(name);
  return both;
}

std::string token() {
  if (const auto own = variable("DTENSOR_JOB_TOKEN")) return *own;
  const auto run = variable("TORCHELASTIC_RUN_ID");
  if (!run) return "";
  // The restart count gives processes left over from an earlier attempt another
  // token.
  return *run + "/" + variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
}

std::unique_ptr<TcpJob>& the_job() {
  static auto* const job = new std::unique_ptr<TcpJob>;
  return *job;
}

// Called at the end of the program.
void leave() {
  const StopOnSignals signals;
  try {
    the_job()->leave();
  } catch (const std::exception& e) {
    end_process(interrupted() ? 128 + interrupted() : 1, e.what());
  }
  the_job().reset();
}

ProcessJob& job(const std::string& path, const JobFacts& facts) {
  std::unique_ptr<TcpJob>& job = the_job();
  if (!job) {
    const TcpPlace place = tcp_place_by_environment(path, facts);
    job = std::make_unique<TcpJob>(place.process, tcp_rendezvous(place));
    std::atexit(leave);
    job->compare(facts);
  }
  return *job;
}

bool started() {
  const auto [there, missing] =
      variables({"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  if (there.empty()) return false;
  DT_CHECK(
      missing.empty(), "--backend",
      "the environment has {}, but not {}; set all four for processes that "
      "connect over TCP, as torchrun does, or none, or write --backend threads "
      "(RunOptions::backend)",
      fmt::join(there, ", "), fmt::join(missing, ", "));
  return variable("WORLD_SIZE") != "1";
}

int64_t process() {
  const auto rank = whole("RANK", 0);
  return rank && whole("WORLD_SIZE", 2) ? *rank : -1;
}

constexpr ProcessBackend::Local kLocal[] = {{"LOCAL_RANK", "LOCAL_WORLD_SIZE"}};

}  // namespace

ProcessBackend tcp_backend() {
  return {.name = "tcp",
          .launched = "over TCP, of torchrun",
          .started = started,
          .process = process,
          .local = kLocal,
          .meets_by_file = true,
          .job = job};
}

TcpPlace tcp_place_by_environment(const std::string& path,
                                  const JobFacts& facts) {
  std::vector<const char*> names = {"RANK", "WORLD_SIZE"};
  if (path.empty()) names.insert(names.end(), {"MASTER_ADDR", "MASTER_PORT"});
  const auto missing = variables(names).second;
  DT_CHECK(missing.empty(), "--backend",
           "for tcp the environment has to set {}, as torchrun does, but {} "
           "{} missing; start the program with torchrun, set what is missing, "
           "or write --backend threads (RunOptions::backend)",
           fmt::join(names, ", "), fmt::join(missing, ", "),
           missing.size() == 1 ? "is" : "are");
  TcpPlace place;
  place.processes = needed("WORLD_SIZE", 1);
  place.process = needed("RANK", 0);
  place.path = path;
  place.token = token();
  place.facts = facts.hash();
  if (place.token.empty() && path.empty()) {
    place.token = "program " + facts.program();
    place.doubt = kDoubt;
  }
  place.patience = join_patience().time;
  if (const auto host = variable("MASTER_ADDR")) place.host = *host;
  if (path.empty()) {
    const bool agent = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
    place.port = static_cast<uint16_t>(needed("MASTER_PORT", 1, 65534) +
                                       (agent ? 1 : 0));
  }
  return place;
}

}  // namespace dtensor
