// SPDX-License-Identifier: Apache-2.0
#include "dtensor/print.h"

#include <gtest/gtest.h>

#include <sstream>

#include "dtensor/dtensor.h"

namespace dtensor {
namespace {

// One rank may print alone: nothing is sent.
TEST(Print, PrintsTheSpec) {
  run(2, [](Runtime& rt) {
    const DistTensor x = zeros({4, 3}, rt.mesh(), "S0");
    if (rt.rank() != 0) return;
    const char* want =
        "f32[4, 3](S0) on ranks=2, without the values; write to_string() for "
        "them";
    std::ostringstream out;
    out << x;
    EXPECT_EQ(out.str(), want);
    EXPECT_EQ(fmt::format("{}", x), want);
    EXPECT_EQ(summary(DistTensor()), "an undefined tensor");
  });
}

}  // namespace
}  // namespace dtensor
