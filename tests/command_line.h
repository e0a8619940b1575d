// SPDX-License-Identifier: Apache-2.0
// The command line of a program that runs its ranks itself, such as a
// benchmark.
#pragma once
#include <exception>
#include <functional>
#include <optional>
#include <string_view>

#include "dtensor/program/flags.h"

namespace dtensor {

// Parses the flags. Returns the exit code if the program has to end: 0 after
// the text of --help or --version, 2 after one sentence about bad input.
// Processes other than the main one pass false as `prints`.
std::optional<int> parse(Flags&, std::string_view about, int argc, char** argv,
                         bool prints = true);

// Parses the flags, then calls fn(), which returns the exit code. That is 1,
// after one sentence, if fn() throws.
int parse_and_run(Flags&, std::string_view about, int argc, char** argv,
                  const std::function<int()>& fn);

// Prints "PROGRAM: the error" in one line on standard error.
void print_error(char** argv, const std::exception&);

}  // namespace dtensor
