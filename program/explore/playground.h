// SPDX-License-Identifier: Apache-2.0
// A server that answers questions about programs while a person types them.
//
// Each question is answered by a child process: a run of this very program with
// the question's flags, whose standard output is the answer. So an answer that
// takes too long, needs too much memory or crashes takes nothing else with it,
// and a question that nobody waits for any more is ended at once.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/program/explore/child.h"

namespace dtensor::explore {

// The environment of a child: its flags may not name files, its mesh has at
// most so many ranks, and it runs at most so many operators. text_file.h and
// class Program keep to them.
inline constexpr const char* kNoFiles = "DTENSOR_NO_FILES";
inline constexpr const char* kMostRanks = "DTENSOR_MOST_RANKS";
inline constexpr const char* kMostOperators = "DTENSOR_MOST_OPERATORS";

// GET `path`?FLAGS runs `before`, the flags, and then `after`.
struct PlaygroundCommand {
  std::string path;                 // "/api/plan"
  std::vector<std::string> before;  // the program's name first
  std::vector<std::string> after;
};

struct Playground {
  std::string name;  // the program's, for messages
  std::string host = "127.0.0.1";
  int64_t port = 0;             // 0: one that is free
  bool open = false;            // in a browser
  nlohmann::ordered_json form;  // what can be asked: page/playground.js
  std::vector<PlaygroundCommand> commands;
  ChildLimits limits;  // of each question
  int64_t ranks = 16384;
  int64_t operators = 100'000;
  int64_t children = 4;  // at once; as many questions again, and 16 more, wait
};

// Prints the server's address, and answers until SIGINT or SIGTERM. Throws
// Error if it cannot listen.
//
// An answer has status 200 and is what the child printed. Otherwise it is
// {"error": "a sentence"}: the program's own for bad input (400) and for a run
// that failed (422); or the bound that the question passed (422), a newer
// question of the same client (409), too many questions at once (503), or a
// child that crashed (500).
void serve(const Playground&);

}  // namespace dtensor::explore
