// SPDX-License-Identifier: Apache-2.0
#include "programs/report/svg.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/programs/report/counting.h"

namespace dtensor::report {
namespace {

TEST(Svg, EscapesText) {
  Svg svg(100, "a<b & \"c\"");
  svg.text(1, 2, 10, "x > y");
  svg.rect(0, 0, 1, 1, R"(fill="#fff")", "1 < 2");
  const std::string text = svg.finish(50);
  EXPECT_EQ(count(text, "<title>a&lt;b &amp; &quot;c&quot;</title>"), 1u);
  EXPECT_EQ(count(text, ">x &gt; y</text>"), 1u);
  EXPECT_EQ(count(text, "<title>1 &lt; 2</title></rect>"), 1u);
}

TEST(Svg, TextIsMadeToFit) {
  Svg svg(100, "");
  const std::string arrow = "\xe2\x86\x92";
  std::string longest;
  for (int i = 0; i < 100; ++i) longest += arrow;
  svg.text_within(200, 0, 0, 12, longest);
  const std::string text = svg.finish(50);
  // The text is cut between letters, not within the bytes of one.
  const size_t shown = count(text, arrow);
  EXPECT_GT(shown, 10u);
  EXPECT_LT(shown, 60u);
  EXPECT_EQ(count(text, "\xe2"), shown);
  EXPECT_EQ(count(text, arrow + "...</text>"), 1u);
  EXPECT_LE(text_width(arrow, 8) * static_cast<double>(shown), 200);
}

TEST(Svg, TextThatIsTooWideIsSmallerBeforeItIsCut) {
  const double width = text_width("a longer text", 10);
  Svg svg(1000, "");
  svg.text_within(width, 0, 0, 20, "a longer text");
  EXPECT_EQ(count(svg.finish(50), "font-size=\"10.00\" >a longer text<"), 1u);
}

TEST(Svg, EqualStripesAreOnePattern) {
  Svg svg(100, "");
  const std::string a = svg.stripes("#111111 #222222", 5, 45);
  EXPECT_EQ(svg.stripes("#111111 #222222", 5, 45), a);
  EXPECT_NE(svg.stripes("#111111 #222222", 5, 0), a);
  EXPECT_NE(svg.stripes("#111111 #333333", 5, 45), a);
  const std::string text = svg.finish(50);
  EXPECT_EQ(count(text, "<pattern"), 3u);
  EXPECT_EQ(count(text, "fill=\"#111111\""), 3u);
}

TEST(Svg, ColoursDiffer) {
  for (int64_t n : {1, 2, 8, 16}) {
    std::set<std::string> seen;
    for (int64_t i = 0; i < n; ++i) {
      const std::string c = colour(i, n);
      EXPECT_EQ(c.size(), 7u);
      seen.insert(c);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), n);
  }
  EXPECT_EQ(shade(0), "#ffffff");
  EXPECT_EQ(std::set({shade(0), shade(0.1), shade(0.5), shade(1)}).size(), 4u);
  EXPECT_EQ(shade(-1), shade(0));
  EXPECT_EQ(shade(2), shade(1));
  EXPECT_EQ(text_on_shade(0), "#1c2430");
  EXPECT_EQ(text_on_shade(1), "#ffffff");
}

TEST(Svg, ShortBytes) {
  EXPECT_EQ(short_bytes(0), "0 B");
  EXPECT_EQ(short_bytes(999), "999 B");
  EXPECT_EQ(short_bytes(1000), "0.977 KiB");
  EXPECT_EQ(short_bytes(1536), "1.5 KiB");
  EXPECT_EQ(short_bytes(1 << 20), "1 MiB");
  EXPECT_EQ(short_bytes((int64_t{1} << 62) + 1), "4 EiB");
}

}  // namespace
}  // namespace dtensor::report
