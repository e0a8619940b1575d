// SPDX-License-Identifier: Apache-2.0
// Where the results of a program go: --json, --record and --html.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/program/flags.h"
#include "dtensor/program/record.h"

namespace dtensor {

// Discards what this process prints to standard output from now on: for
// processes other than the main one.
void discard_stdout();

class Outputs {
 public:
  // Adds --json, and for a program with ranks --record and --html.
  void add_flags(Flags&, bool has_ranks);
  // Opens what the flags name, on the main process: throws Error if it cannot
  // be written, rather than after the run. With "-" for --json or --record,
  // prints of the program go to standard error. `words` is the command line,
  // `cost` the value of --cost.
  void open(const std::string& program, std::span<char* const> words,
            const std::string& cost);

  // Whether there is a --record or a --html.
  bool wants_record() const { return !record_.empty() || !html_.empty(); }
  // The record that runs add to; null unless one is wanted. Made when it is
  // first asked for, with this mesh and these prices.
  std::shared_ptr<Record> record(const Mesh&, const CostTable&);
  // Begins another one; null unless one is wanted.
  std::shared_ptr<Record> another_record(std::string title, const Mesh&,
                                         const CostTable&);

  void write_json(const nlohmann::ordered_json&) const;
  // Writes the records that are not empty; does nothing unless one is wanted.
  void write_records() const;

 private:
  std::string json_, record_, html_;  // paths; "-": standard output
  std::string program_, command_, machine_;
  std::vector<std::shared_ptr<Record>> records_;
  int stdout_ = -1;  // the original standard output, if a flag takes it
};

}  // namespace dtensor
