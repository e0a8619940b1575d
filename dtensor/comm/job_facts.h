// The facts on which the processes of a job have to agree before they compute
// together: the program, the library's version, the flags, and the environment.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtensor {

class JobFacts {
 public:
  // The program's name, the library's version, and the variables DTENSOR_*.
  static JobFacts of_process();

  // Adds what this process was given as `name`, which is "--lr" or the like.
  // Flags and variables that processes may be given differently (those that
  // name a file that one process writes, say) are listed in job_facts.cc, and
  // are left out.
  void add(std::string_view name, std::string_view value);

  const std::string& program() const { return all_.front().second; }
  // As they travel; and the same in few bytes.
  std::string text() const;
  static JobFacts from(std::string_view text);
  uint64_t hash() const;

  // The sentence that says how those of another process differ: "" where they
  // are the same.
  std::string difference(int process, const JobFacts& theirs) const;

 private:
  const std::string* find(std::string_view name) const;

  std::vector<std::pair<std::string, std::string>> all_;
};

}  // namespace dtensor
