// SPDX-License-Identifier: Apache-2.0
// A server that answers questions about programs while a person types them.
//
// Each question is answered by a child process: a run of this very program with
// the question's flags, whose standard output is the answer. So an answer that
// takes too long, needs too much memory or crashes does not disturb other
// answers, and a question that nobody waits for any more is ended at once.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/program/explore/child.h"

namespace dtensor::explore {

// Environment variables that limit a child. text_file.h and class Program obey
// them. kNoFiles: the child's flags may not name files.
inline constexpr const char* kNoFiles = "DTENSOR_NO_FILES";
inline constexpr const char* kMostRanks = "DTENSOR_MOST_RANKS";  // of its mesh
// The most operators of the child's run.
inline constexpr const char* kMostOperators = "DTENSOR_MOST_OPERATORS";

// GET `path`?FLAGS runs this program with `before`, the flags and `after`.
struct PlaygroundCommand {
  std::string path;                 // "/api/plan"
  std::vector<std::string> before;  // the program's name first
  std::vector<std::string> after;
};

struct Playground {
  std::string name;  // the program's, for messages
  std::string host = "127.0.0.1";
  int64_t port = 0;             // 0: one that is free
  bool open = false;            // open the page in a browser
  nlohmann::ordered_json form;  // what can be asked: page/playground.js
  std::vector<PlaygroundCommand> commands;
  ChildLimits limits;  // of each question
  int64_t ranks = 16384;
  int64_t operators = 100'000;
  int64_t children = 4;  // at once; up to children + 16 more questions wait
};

// Prints the server's address, and answers until SIGINT or SIGTERM. Throws
// Error if it cannot listen.
//
// The path / has the page. A good answer to a question has status 200 and is
// the child's standard output. Any other answer is {"error": "a sentence"}. The
// sentence is the program's own for bad input (400) and for a failed run (422).
// Otherwise it says what is wrong with the request, that the question passed a
// bound (422), that a newer one of the same client replaced it or the server
// ends (409), that a page of another site sent it (403), that too many
// questions wait (503), or that a signal ended the child (500).
void serve(const Playground&);

}  // namespace dtensor::explore
