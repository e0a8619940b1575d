// SPDX-License-Identifier: Apache-2.0
#include "dtensor/text_table.h"

#include <gtest/gtest.h>

#include <limits>

namespace dtensor {
namespace {

TEST(TextTable, AlignsColumns) {
  TextTable t("lr", {"name", "n"});
  t.add({"a", "1,000"});
  t.add({"\xc3\xa4\xc3\xb6", ""});  // two letters of two bytes each
  t.add({"longer", "2"});
  EXPECT_EQ(t.to_string(),
            "name        n\n"
            "a       1,000\n"
            "\xc3\xa4\xc3\xb6\n"
            "longer      2\n");
}

TEST(TextTable, GroupsDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()),
            "-9,223,372,036,854,775,808");
}

}  // namespace
}  // namespace dtensor
