#include "dtensor/page/page.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace dtensor {
namespace {

constexpr std::string_view kPieces[] = {
#include "dtensor/page/page_text.inc"
};
constexpr std::string_view kRecords = "@RECORDS@\n";

// JSON that cannot end the script that holds it, and that JavaScript reads as
// one line.
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

}  // namespace

std::string page(const std::vector<nlohmann::ordered_json>& records) {
  using Json = nlohmann::ordered_json;
  std::string text;
  for (const std::string_view piece : kPieces) {
    if (piece != kRecords) {
      text += piece;
      continue;
    }
    for (const Json& record : records) {
      text += "<script type=\"application/json\" class=\"record\">";
      append_escaped(
          text, record.dump(-1, ' ', false, Json::error_handler_t::replace));
      text += "</script>\n";
    }
  }
  return text;
}

}  // namespace dtensor
