// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dtensor {
namespace {

TEST(JsonText, ArraysOfNumbersStandOnOneLine) {
  const nlohmann::ordered_json json = {
      {"losses", {5.5, 5.25, nullptr}},
      {"none", nlohmann::ordered_json::array()},
      {"rows", {{{"name", "a \"b\""}, {"shape", {2, 3}}}, {{"name", "c"}}}},
      {"nested", {{1, 2}, {3}}},
      {"empty", nlohmann::ordered_json::object()}};
  const std::string text = json_text(json);
  EXPECT_EQ(text, R"({
  "losses": [5.5,5.25,null],
  "none": [],
  "rows": [
    {
      "name": "a \"b\"",
      "shape": [2,3]
    },
    {
      "name": "c"
    }
  ],
  "nested": [
    [1,2],
    [3]
  ],
  "empty": {}
}
)");
  EXPECT_EQ(nlohmann::ordered_json::parse(text), json);
}

TEST(JsonText, BrokenTextIsReplaced) {
  EXPECT_EQ(json_text({{"sample\xff", "\xff"}}),
            "{\n  \"sample\xef\xbf\xbd\": \"\xef\xbf\xbd\"\n}\n");
}

TEST(JsonText, ErrorsShowTheBeginning) {
  const std::string long_text(81, 'x');
  EXPECT_EQ(shown(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(shown(long_text), std::string(80, 'x') + "...");
  const nlohmann::ordered_json json = {{"a", "\u00e9"}};
  EXPECT_EQ(shown(json), R"({"a":"\u00e9"})");
  EXPECT_EQ(shown(nlohmann::ordered_json("\xff")), R"("\ufffd")");
}

}  // namespace
}  // namespace dtensor
