// SPDX-License-Identifier: Apache-2.0
// Reads questions from URLs: turns the part after "?" into flags of a program.
//
//   model=gpt&mesh=dp%3D2&in=4x8:S0&sequence-parallel&client=k3
//   -> --model=gpt --mesh=dp=2 --in=4x8:S0 --sequence-parallel
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::explore {

struct Question {
  // The value of "client", which names the one that asks: a newer question of
  // the same client replaces an older one. "" if it is not given.
  std::string client;
  // Arguments of a program, in the order of the query. The name of every other
  // parameter becomes a flag. Its value never does, even if it begins with
  // "--".
  std::vector<std::string> flags;
};

// Throws Error for a query that is not of this form, is too long, or names a
// flag that the server sets itself or with which the program would print
// something other than an answer (--dry-run, --record, --help and the like).
// Does not check other flags: the program, which knows them, does.
Question read_question(std::string_view query);

}  // namespace dtensor::explore
