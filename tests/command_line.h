// SPDX-License-Identifier: Apache-2.0
// The command line of a test program that starts its ranks itself, such as a
// benchmark.
#pragma once
#include <exception>
#include <functional>
#include <optional>
#include <string_view>

#include "dtensor/program/flags.h"

namespace dtensor {

// Parses the flags. Returns the exit code if the program should end: 0 after
// printing --help or --version, 2 after printing an error about bad input.
// Processes other than the main one pass false for `prints`, and print nothing.
std::optional<int> parse(Flags&, std::string_view about, int argc, char** argv,
                         bool prints = true);

// Parses the flags, then calls fn() and returns its result as the exit code. If
// fn() throws, prints the error and returns 1.
int parse_and_run(Flags&, std::string_view about, int argc, char** argv,
                  const std::function<int()>& fn);

// Prints "PROGRAM: ERROR" as one line on standard error.
void print_error(char** argv, const std::exception&);

}  // namespace dtensor
