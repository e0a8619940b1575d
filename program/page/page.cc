// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/page/page.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace dtensor {
namespace {

constexpr std::string_view kPieces[] = {
#include "dtensor/program/page/page_text.inc"
};
constexpr std::string_view kPlayground[] = {
#include "dtensor/program/page/playground_text.inc"
};
constexpr std::string_view kRecords = "@RECORDS@\n";

// Appends the JSON, escaped so that it cannot end the <script> that holds it,
// and so that JavaScript reads it as one line.
void append_escaped(std::string& text, std::string_view json) {
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string_view rest = json.substr(i);
    if (rest.starts_with('<')) {
      text += "\\u003c";
    } else if (rest.starts_with('>')) {
      text += "\\u003e";
    } else if (rest.starts_with('&')) {
      text += "\\u0026";
    } else if (rest.starts_with("\u2028") || rest.starts_with("\u2029")) {
      text += rest[2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      text += rest[0];
    }
  }
}

void append_json(std::string& text, const nlohmann::ordered_json& json,
                 std::string_view attribute) {
  text += "<script type=\"application/json\" ";
  text += attribute;
  text += '>';
  append_escaped(text, json.dump(-1, ' ', false,
                                 nlohmann::json::error_handler_t::replace));
  text += "</script>\n";
}

// Joins the pieces, with `records` in the place of kRecords.
std::string joined(std::span<const std::string_view> pieces,
                   std::string_view records) {
  std::string text;
  for (const std::string_view piece : pieces)
    text += piece == kRecords ? records : piece;
  return text;
}

}  // namespace

std::string page(const std::vector<nlohmann::ordered_json>& records) {
  std::string all;
  for (const auto& record : records)
    append_json(all, record, "class=\"record\"");
  return joined(kPieces, all);
}

std::string playground_page(const nlohmann::ordered_json& form) {
  std::string text = page({}), json;
  append_json(json, form, "id=\"form\"");
  constexpr std::string_view kPolicy = "default-src 'none';", kEnd = "</body>";
  text.insert(text.find(kPolicy) + kPolicy.size(), " connect-src 'self';");
  text.insert(text.rfind(kEnd), joined(kPlayground, json));
  return text;
}

}  // namespace dtensor
