// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/page/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dtensor {
namespace {

using Json = nlohmann::ordered_json;

// The texts of the scripts that hold the page's records.
std::vector<std::string> records_in(const std::string& html) {
  const std::string open =
      "<script type=\"application/json\" class=\"record\">";
  std::vector<std::string> found;
  for (size_t at = 0; (at = html.find(open, at)) != std::string::npos;) {
    at += open.size();
    found.push_back(html.substr(at, html.find("</script>", at) - at));
  }
  return found;
}

TEST(Page, HoldsTheRecords) {
  const Json a = {{"version", 1}, {"title", "a"}}, b = {{"title", "b"}};
  const std::vector<std::string> found = records_in(page({a, b}));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(Json::parse(found[0]), a);
  EXPECT_EQ(Json::parse(found[1]), b);
  EXPECT_TRUE(records_in(page({})).empty());
}

TEST(Page, IsOneDocumentThatReachesNothing) {
  const std::string html = page({});
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  for (const char* placeholder : {"@CSS@", "@SCRIPT@", "@RECORDS@"})
    EXPECT_EQ(html.find(placeholder), std::string::npos) << placeholder;
}

TEST(Page, NoTextEndsAScript) {
  const std::string hostile =
      "</script><!--<script>&amp;\u2028\u2029\u20ac @RECORDS@ \"quoted\"";
  const Json record = {{hostile, hostile}};
  const std::vector<std::string> found = records_in(page({record}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(Json::parse(found[0]), record);
  for (const char* mark : {"<", ">", "&", "\u2028", "\u2029"})
    EXPECT_EQ(found[0].find(mark), std::string::npos) << mark;
}

TEST(Page, ReplacesInvalidUtf8) {
  const std::vector<std::string> found =
      records_in(page({{{"name", "a\xff"}}}));
  EXPECT_EQ(found.at(0), "{\"name\":\"a\uFFFD\"}");
}

}  // namespace
}  // namespace dtensor
