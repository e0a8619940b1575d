// SPDX-License-Identifier: Apache-2.0
#include "programs/report/schedule_svg.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/programs/report/counting.h"

namespace dtensor::report {
namespace {

std::string drawn(const char* name) {
  return schedule_svg(schedule_report(nn::make_schedule(name, 2, 3), {}));
}

TEST(ScheduleSvg, HasEachTaskOnceAndALegend) {
  const std::string text = drawn("1f1b");
  // Two positions run three forwards and three backwards each.
  EXPECT_EQ(count(text, ", slot "), 12u) << text;
  for (const char* label : {"position 0", "position 1", "forward", "backward",
                            "the number is the micro-batch"})
    EXPECT_EQ(count(text, ">" + std::string(label) + "</text>"), 1u) << label;
  EXPECT_EQ(count(text, ">0</text>"), 4u);
}

TEST(ScheduleSvg, TellsTheGradientsApart) {
  const std::string text = drawn("zb-h1");
  EXPECT_EQ(count(text, ", slot "), 18u) << text;
  EXPECT_EQ(count(text, ">backward</text>"), 0u);
  EXPECT_EQ(count(text, ">gradient of the input</text>"), 1u);
  EXPECT_EQ(count(text, ">gradient of the weights</text>"), 1u);
}

}  // namespace
}  // namespace dtensor::report
