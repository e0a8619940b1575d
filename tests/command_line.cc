// SPDX-License-Identifier: Apache-2.0
#include "tests/command_line.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "dtensor/version.h"

namespace dtensor {
namespace {

std::string program_name(char** argv) {
  return std::filesystem::path(argv[0]).filename().string();
}

}  // namespace

void print_error(char** argv, const std::exception& e) {
  fmt::print(stderr, "{}: {}\n", program_name(argv), one_line(e.what()));
}

std::optional<int> parse(Flags& flags, std::string_view about, int argc,
                         char** argv, bool prints) {
  try {
    const Flags::Asked asked = flags.parse(argc, argv);
    if (asked == Flags::Asked::kRun) return std::nullopt;
    const std::string name = program_name(argv);
    if (prints)
      fmt::print("{}", asked == Flags::Asked::kHelp
                           ? flags.help(name, about)
                           : fmt::format("{} (dtensor {})\n", name, version()));
    return 0;
  } catch (const std::exception& e) {
    if (prints) print_error(argv, e);
    return 2;
  }
}

int parse_and_run(Flags& flags, std::string_view about, int argc, char** argv,
                  const std::function<int()>& fn) {
  if (const auto code = parse(flags, about, argc, argv)) return *code;
  try {
    return fn();
  } catch (const std::exception& e) {
    print_error(argv, e);
    return 1;
  }
}

}  // namespace dtensor
