// SPDX-License-Identifier: Apache-2.0
// Runs tests/faults:faulty and reads what its ranks said.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtensor::testing {

// What a rank said last of how it ended, and when, in seconds of the machine's
// clock: "done", "left", "PeerFailed 1: ...", "threw ...".
struct Ending {
  std::string text;
  double at = 0;
};

struct FaultyRun {
  int code = 0;
  double seconds = 0;    // all of it
  std::string sentence;  // what the program itself says: "faulty: ..."
  std::string all;       // standard error
  std::map<int64_t, Ending> ends;
  std::map<int64_t, std::vector<std::string>> said;  // everything else
  double fault_at = 0;                               // 0: there was none
  // From the fault until the last rank threw.
  double told_after() const;
};

// The command line: faulty with these flags, on the backend under test.
// FAULTS_BACKEND names it (threads unless set); FAULTS_LAUNCHER goes in front,
// "{ranks}" in it replaced: "mpirun -n {ranks}".
std::string faulty(const std::string& flags, int64_t ranks,
                   const std::string& environment = "");
// Are ranks processes of their own there?
bool ranks_are_processes();

FaultyRun parsed(int code, double seconds, const std::string& err);
FaultyRun run_faulty(const std::string& flags, int64_t ranks,
                     const std::string& environment = "", double limit = 20);
// One in each environment, all at the same time.
std::vector<FaultyRun> run_faulty(const std::string& flags, int64_t ranks,
                                  const std::vector<std::string>& environments);

}  // namespace dtensor::testing
