// SPDX-License-Identifier: Apache-2.0
// The facts on which the processes of a job have to agree before they compute
// together: the program, the library's version, the flags and the environment.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtensor {

class JobFacts {
 public:
  // The program's name, the library's version, and the environment variables
  // DTENSOR_*.
  static JobFacts of_process();

  // Adds the value that this process was given for `name`, which is "--lr" or
  // the like. Flags and variables that may differ between processes, such as
  // the name of a file that one process writes, are listed in job_facts.cc and
  // are ignored.
  void add(std::string_view name, std::string_view value);

  const std::string& program() const { return all_.front().second; }
  // A text form for messages, which from() reads, and a hash for comparison.
  std::string text() const;
  static JobFacts from(std::string_view text);
  uint64_t hash() const;

  // The error text that says how the facts of another process differ from
  // these, which are those of process 0; "" if they are equal.
  std::string difference(int process, const JobFacts& theirs) const;

 private:
  const std::string* find(std::string_view name) const;

  std::vector<std::pair<std::string, std::string>> all_;
};

}  // namespace dtensor
