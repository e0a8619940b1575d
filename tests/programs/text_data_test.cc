// SPDX-License-Identifier: Apache-2.0
#include "programs/text_data.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/programs/running.h"

namespace dtensor::examples {
namespace {

// A text of the bytes 0, 1, ..., 249, which tell their own position.
TextData counting() {
  std::string bytes;
  for (int i = 0; i < 250; ++i) bytes += static_cast<char>(i);
  return TextData::file(testing::write_file("counting", bytes));
}

TEST(TextData, TheTargetOfAByteIsTheNext) {
  const TextData text = counting();
  std::set<int64_t> starts;
  for (int64_t step = 0; step < 20; ++step) {
    const nn::Batch b = text.windows(5, 8, 3, step);
    ASSERT_EQ(b.inputs.shape(), (Shape{5, 8}));
    ASSERT_EQ(b.targets.shape(), (Shape{5, 8}));
    const auto *in = b.inputs.ptr<int64_t>(), *out = b.targets.ptr<int64_t>();
    for (int64_t r = 0; r < 5; ++r) {
      starts.insert(in[r * 8]);
      EXPECT_LE(in[r * 8] + 8, 249);
      for (int64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(in[r * 8 + i], in[r * 8] + i);
        EXPECT_EQ(out[r * 8 + i], in[r * 8] + i + 1);
      }
    }
  }
  // A hundred draws from 242 starts.
  EXPECT_GT(starts.size(), 60u);
  EXPECT_LT(*starts.begin(), 30);
  EXPECT_GT(*starts.rbegin(), 210);
}

TEST(TextData, WindowsDependOnSeedAndStepAlone) {
  const TextData text = counting();
  const auto starts = [&](int64_t rows, uint64_t seed, int64_t step) {
    const nn::Batch b = text.windows(rows, 8, seed, step);
    std::vector<int64_t> list;
    for (int64_t r = 0; r < rows; ++r)
      list.push_back(b.inputs.ptr<int64_t>()[r * 8]);
    return list;
  };
  EXPECT_EQ(starts(4, 3, 7), starts(4, 3, 7));
  EXPECT_NE(starts(4, 3, 7), starts(4, 3, 8));
  EXPECT_NE(starts(4, 3, 7), starts(4, 4, 7));
  std::vector<int64_t> five = starts(5, 3, 7);
  five.pop_back();
  EXPECT_EQ(starts(4, 3, 7), five);
}

TEST(TextData, ConsecutiveWindowsNeitherOverlapNorSkip) {
  const TextData text = counting();
  const nn::Batch b = text.consecutive(3, 4, 10);
  ASSERT_EQ(b.inputs.shape(), (Shape{4, 9}));
  const auto *in = b.inputs.ptr<int64_t>(), *out = b.targets.ptr<int64_t>();
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t i = 0; i < 9; ++i) {
      EXPECT_EQ(in[r * 9 + i], (3 + r) * 10 + i);
      EXPECT_EQ(out[r * 9 + i], (3 + r) * 10 + i + 1);
    }
}

}  // namespace
}  // namespace dtensor::examples
