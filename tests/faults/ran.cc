// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/ran.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <sstream>

#include "tests/faults/child.h"

namespace dtensor::testing {

double FaultyRun::told_after() const {
  double last = fault_at;
  for (const auto& [rank, end] : ends)
    if (end.text != "done") last = std::max(last, end.at);
  return last - fault_at;
}

bool ranks_are_processes() { return std::getenv("FAULTS_LAUNCHER") != nullptr; }

std::string faulty(const std::string& flags, int64_t ranks,
                   const std::string& environment) {
  const char* launcher = std::getenv("FAULTS_LAUNCHER");
  const char* backend = std::getenv("FAULTS_BACKEND");
  std::string command = environment.empty() ? "" : "env " + environment + " ";
  if (launcher) command += std::string(launcher) + " ";
  const std::string what = "{ranks}";
  if (const size_t at = command.find(what); at != command.npos)
    command.replace(at, what.size(), std::to_string(ranks));
  command += "tests/faults/faulty " + flags;
  if (backend) command += std::string(" --backend ") + backend;
  if (flags.find("--mesh") == flags.npos)
    command += " --mesh ranks=" + std::to_string(ranks);
  return command;
}

FaultyRun parsed(int code, double seconds, const std::string& err) {
  FaultyRun run;
  run.code = code;
  run.seconds = seconds;
  run.all = err;
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    double at = 0;
    long long rank = 0;
    int length = 0;
    if (line.rfind("faulty: ", 0) == 0) run.sentence += line + "\n";
    if (std::sscanf(line.c_str(), "@ %lf rank %lld: %n", &at, &rank, &length) !=
            2 ||
        length == 0)
      continue;
    const std::string text = line.substr(static_cast<size_t>(length));
    if (text == "fault")
      run.fault_at = at;
    else if (text == "done" || text == "left" ||
             text.rfind("PeerFailed ", 0) == 0 || text.rfind("threw ", 0) == 0)
      run.ends[rank] = {text, at};
    else
      run.said[rank].push_back(text);
  }
  return run;
}

FaultyRun run_faulty(const std::string& flags, int64_t ranks,
                     const std::string& environment, double limit) {
  const auto start = std::chrono::steady_clock::now();
  Child child(faulty(flags, ranks, environment));
  const int code = child.wait(limit);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - start;
  return parsed(code, took.count(), child.err());
}

std::vector<FaultyRun> run_faulty(
    const std::string& flags, int64_t ranks,
    const std::vector<std::string>& environments) {
  const auto start = std::chrono::steady_clock::now();
  std::deque<Child> children;
  for (const std::string& environment : environments)
    children.emplace_back(faulty(flags, ranks, environment));
  std::vector<FaultyRun> runs;
  for (Child& child : children) {
    const int code = child.wait(20);
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - start;
    runs.push_back(parsed(code, took.count(), child.err()));
  }
  return runs;
}

}  // namespace dtensor::testing
