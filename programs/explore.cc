// SPDX-License-Identifier: Apache-2.0
// Serves a page on which a person asks the questions that //:explain and
// //:plan answer, and sees the answers while typing.
#include <nlohmann/json.hpp>

#include "dtensor/program/explore/playground.h"
#include "dtensor/program/program.h"
#include "programs/programs.h"

namespace dtensor::examples {
namespace {

constexpr const char* kForm =
#include "programs/explore_form.inc"
    ;

int explore_main(int argc, char** argv) {
  explore::Playground p;
  double gigabytes = 4;
  Program program({.about = "Serves a page on this machine that shows what "
                            "operators, moves and models do on a mesh. With a "
                            "first word explain, op or plan it is that program "
                            "instead.",
                   .no_ranks = true});
  program.add("--port", &p.port, "where it listens; 0: one that is free", 0,
              65535);
  program.add("--host", &p.host,
              "the address at which it listens; the default is not reachable "
              "from other machines",
              TextKind::kText);
  program.add("--open", &p.open, "open the page in a browser");
  program.add("--seconds", &p.limits.seconds, "the longest for a question",
              0.1);
  program.add("--memory", &gigabytes, "the most for a question, in GB", 0.25);
  program.add("--ranks", &p.ranks, "the most in a mesh", 1);
  program.add("--operators", &p.operators, "the most that a question runs", 1);
  program.add("--questions", &p.children, "how many are answered at once", 1,
              16);
  const std::vector<std::string> print = {"--record=-"};
  p.form = nlohmann::ordered_json::parse(kForm);
  p.commands = {{"/api/explain", {"explain", "explain"}, print},
                {"/api/op", {"explain", "explain"}, print},
                {"/api/plan", {"plan", "plan"}, print}};
  const auto check = [&] {
    p.name = "explore";
    p.limits.memory = static_cast<int64_t>(gigabytes * 1e9);
  };
  return program.main(argc, argv, check, [&] { serve(p); });
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  using namespace dtensor::examples;
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "explain" || word == "op")
    return explain_main(argc - 1, argv + 1);
  if (word == "plan") return plan_main(argc - 1, argv + 1);
  return explore_main(argc, argv);
}
