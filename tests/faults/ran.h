// SPDX-License-Identifier: Apache-2.0
// Runs tests/faults:faulty, and reads the lines that its ranks print.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtensor::testing {

// The last line in which a rank says how it ended: "done", "left", "PeerFailed
// 1: ..." or "threw ..."; and when, in seconds of the machine's clock.
struct Ending {
  std::string text;
  double at = 0;
};

struct FaultyRun {
  int code = 0;
  double seconds = 0;    // how long the program ran
  std::string sentence;  // the lines of the program itself: "faulty: ..."
  std::string all;       // all of standard error
  std::map<int64_t, Ending> ends;
  std::map<int64_t, std::vector<std::string>> said;  // the ranks' other lines
  double fault_at = 0;                               // 0: there was no fault
  // The seconds from the fault until the last rank ended other than "done".
  double told_after() const;
};

// The command line that runs faulty with these flags on the backend under test,
// which FAULTS_BACKEND names (default: threads). FAULTS_LAUNCHER is put before
// the program, with "{ranks}" replaced by the number: "mpirun -n {ranks}".
std::string faulty(const std::string& flags, int64_t ranks,
                   const std::string& environment = "");
// Whether each rank is a process of its own on the backend under test.
bool ranks_are_processes();

FaultyRun parsed(int code, double seconds, const std::string& err);
FaultyRun run_faulty(const std::string& flags, int64_t ranks,
                     const std::string& environment = "", double limit = 20);
// Runs the program once in each environment, all at the same time.
std::vector<FaultyRun> run_faulty(const std::string& flags, int64_t ranks,
                                  const std::vector<std::string>& environments);

}  // namespace dtensor::testing
