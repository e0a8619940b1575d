// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/own_playground.h"

#include <nlohmann/json.hpp>

#include "dtensor/environment.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/explore/playground.h"
#include "dtensor/text_file.h"

namespace dtensor {
namespace {

using Json = nlohmann::ordered_json;

// Whether the flag can only name a file. --cost may name a machine; if it names
// a file, read_text_file() refuses that.
bool names_files(const Flags::Flag& f) {
  return (f.type == "FILE" || f.type == "DIR") && f.name != "--cost";
}

Json field_of(const Flags::Flag& f) {
  Json field = {{"name", f.name.substr(2)}, {"help", f.help}, {"type", f.type}};
  if (!f.shown.empty()) field["default"] = f.shown;
  if (f.repeats) field["repeats"] = true;
  if (!f.given.empty()) field["value"] = f.given;
  return field;
}

}  // namespace

Json form_of(const std::string& program, const Flags& flags, size_t own) {
  Json fields = Json::array();
  for (size_t i = 0; i < flags.all().size(); ++i) {
    const Flags::Flag& f = *flags.all()[i];
    const bool shared = f.name == "--mesh" || f.name == "--cost";
    if (!names_files(f) && (i >= own || shared)) fields.push_back(field_of(f));
  }
  return {{"tabs",
           {{{"id", "run"},
             {"title", program},
             {"path", "api/run"},
             {"command", program + " --dry-run"},
             {"fields", std::move(fields)}}}}};
}

void explore_program(const std::string& program, const Flags& flags, size_t own,
                     const std::string& port) {
  explore::Playground p;
  p.name = program;
  const auto number = number_in<int64_t>(port.empty() ? "0" : port, 0, 65535);
  DT_CHECK(number, "--explore", "'{}' is not a port; write one from 0 to 65535",
           port);
  p.port = *number;
  p.form = form_of(program, flags, own);
  p.commands = {{"/api/run", {program}, {"--dry-run", "--record=-"}}};
  serve(p);
}

std::optional<int64_t> most_operators() {
  return number_in<int64_t>(variable(explore::kMostOperators).value_or(""), 1);
}

void check_question(const Flags& flags, const Mesh& mesh) {
  for (const auto& f : flags.all())
    if (!f->given.empty() && names_files(*f) && f->given[0] != "-")
      check_may_use_files(f->name);
  check_ranks_of_question("--mesh", mesh);
}

void check_ranks_of_question(std::string_view flag, const Mesh& mesh) {
  const auto text = variable(explore::kMostRanks);
  const auto most = number_in<int64_t>(text.value_or(""), 1);
  DT_CHECK(
      !most || mesh.num_ranks() <= *most, flag,
      "{} has {} ranks, but this page takes at most {}; write a smaller "
      "mesh, run the program itself, as a dry run with --html FILE, or, if "
      "the page is that of //:explore, start it with --ranks {}",
      mesh.to_string(), mesh.num_ranks(), *most, mesh.num_ranks());
}

}  // namespace dtensor
