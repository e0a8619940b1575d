// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/job_facts.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dtensor/comm/pack.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/version.h"

namespace dtensor {
namespace {

// Facts that may differ between processes: files that one process reads or
// writes by itself, how the processes meet, and how long each waits for that.
constexpr std::string_view kMayDiffer[] = {
    "--flight",          "--json",
    "--rendezvous",      "--svg",
    "--trace",           "DTENSOR_CUDA_LIBRARY",
    "DTENSOR_JOB_TOKEN", "DTENSOR_JOIN_TIMEOUT",
};
constexpr std::string_view kVariables = "DTENSOR_";
constexpr size_t kMostNamed = 4, kMostLetters = 200;

// Returns a fact as the error shows it: "--lr 0.5", "no --lr" (value is null),
// "--resume", "DTENSOR_X=1", "program train".
std::string shown(const std::string& name, const std::string* value) {
  if (!value) return "no " + name;
  if (value->empty()) return name;
  std::string text = name + (name.starts_with(kVariables) ? "=" : " ") + *value;
  if (text.size() > kMostLetters) text.replace(kMostLetters, text.npos, "...");
  return text;
}

}  // namespace

JobFacts JobFacts::of_process() {
  JobFacts facts;
  facts.add("program", program_invocation_short_name);
  facts.add("dtensor", version());
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text = *variable;
    const size_t equals = text.find('=');
    if (text.starts_with(kVariables) && equals != text.npos)
      facts.add(text.substr(0, equals), text.substr(equals + 1));
  }
  std::sort(facts.all_.begin() + 2, facts.all_.end());
  return facts;
}

void JobFacts::add(std::string_view name, std::string_view value) {
  if (std::count(std::begin(kMayDiffer), std::end(kMayDiffer), name) == 0)
    all_.emplace_back(name, value);
}

std::string JobFacts::text() const { return pack(all_); }

JobFacts JobFacts::from(std::string_view text) {
  JobFacts facts;
  unpack(text, facts.all_);
  return facts;
}

uint64_t JobFacts::hash() const { return hash_text(text()); }

const std::string* JobFacts::find(std::string_view name) const {
  for (const auto& [n, value] : all_)
    if (n == name) return &value;
  return nullptr;
}

std::string JobFacts::difference(int process, const JobFacts& theirs) const {
  std::vector<std::string> names, there, here;
  const auto compare = [&](const JobFacts& of) {
    for (const auto& [name, value] : of.all_) {
      const std::string *a = find(name), *b = theirs.find(name);
      if ((a && b && *a == *b) || std::count(names.begin(), names.end(), name))
        continue;
      names.push_back(name);
      if (names.size() > kMostNamed) continue;
      here.push_back(shown(name, a));
      there.push_back(shown(name, b));
    }
  };
  compare(*this);
  compare(theirs);
  if (names.empty()) return "";
  const std::string more =
      names.size() > kMostNamed
          ? fmt::format(" ({} more {})", names.size() - kMostNamed,
                        names.size() == kMostNamed + 1 ? "differs" : "differ")
          : "";
  return fmt::format(
      "[{}] process {} was started with {}, and process 0 with {}{}; start all "
      "processes with the same program, flags and environment",
      names[0], process, fmt::join(there, ", "), fmt::join(here, ", "), more);
}

}  // namespace dtensor
