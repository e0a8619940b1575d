// SPDX-License-Identifier: Apache-2.0
// Writes the results of a program to where --json, --record and --html say.
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
  // Call it in the main process, before the run. Throws Error if an output
  // cannot be written. With "-" for --json or --record, the program's other
  // prints go to standard error from now on. `words` is the command line
  // without its first word, `cost` the value of --cost.
  void open(const std::string& program, std::span<char* const> words,
            const std::string& cost);

  // Whether there is a --record or a --html.
  bool wants_record() const { return !record_.empty() || !html_.empty(); }
  // The newest record, to which runs add; null unless wants_record(). If there
  // is none yet, makes one with this mesh and these prices.
  std::shared_ptr<Record> record(const Mesh&, const CostTable&);
  // Begins another record; returns null unless wants_record().
  std::shared_ptr<Record> another_record(std::string title, const Mesh&,
                                         const CostTable&);

  void write_json(const nlohmann::ordered_json&) const;
  // Writes the records that are not empty. Does nothing unless wants_record().
  void write_records() const;

 private:
  std::string json_, record_, html_;  // paths; "-": standard output
  std::string program_, command_, machine_;
  std::vector<std::shared_ptr<Record>> records_;
  int stdout_ = -1;  // the original standard output, if a flag takes it
};

}  // namespace dtensor
