// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/explore/question.h"

#include <algorithm>
#include <array>

#include "dtensor/placement/error.h"

namespace dtensor::explore {
namespace {

constexpr size_t kMostFlags = 100, kLongest = 8000;
constexpr const char* kWhere = "question";

// Flags that a question may not have: the server sets them itself, or with them
// the program prints something other than an answer.
constexpr std::array<std::string_view, 7> kOfServer = {
    "dry-run", "explore", "help", "html", "json", "record", "version"};

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i] == '+' ? ' ' : text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
      const int low = high >= 0 ? digit_of(text[i + 2]) : -1;
      DT_CHECK(low >= 0, kWhere,
               "a % is not followed by two hexadecimal digits; write %25 for a "
               "percent sign");
      c = static_cast<char>(16 * high + low);
      i += 2;
    }
    DT_CHECK(c != '\0', kWhere, "the query has a zero byte; leave it out");
    out += c;
  }
  return out;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 40 && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

}  // namespace

Question read_question(std::string_view query) {
  DT_CHECK(query.size() <= kLongest, kWhere,
           "the query has {} bytes; write at most {}", query.size(), kLongest);
  Question q;
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    const std::string name = decoded(part.substr(0, equals));
    DT_CHECK(is_name(name), kWhere,
             "the parameter '{}' is not the name of a flag; write names such "
             "as mesh, in lower case and without the two hyphens",
             name.substr(0, 40));
    const bool has_value = equals != part.npos;
    const std::string value =
        has_value ? decoded(part.substr(equals + 1)) : std::string();
    if (name == "client") {
      q.client = value;
      continue;
    }
    DT_CHECK(
        std::find(kOfServer.begin(), kOfServer.end(), name) == kOfServer.end(),
        "--" + name, "it cannot be asked here; leave it out");
    DT_CHECK(q.flags.size() < kMostFlags, kWhere,
             "the query has more than {} flags; write fewer", kMostFlags);
    // (CLI11 takes an empty value only as an argument of its own.)
    q.flags.push_back("--" + name + (value.empty() ? "" : "=" + value));
    if (has_value && value.empty()) q.flags.emplace_back();
  }
  return q;
}

}  // namespace dtensor::explore
