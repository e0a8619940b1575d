// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/step_kind.h"

#include <gtest/gtest.h>

namespace dtensor {
namespace {

TEST(StepKind, HasANameAndAKey) {
  for (int k = 0; k < kNumStepKinds; ++k) {
    auto kind = static_cast<StepKind>(k);
    EXPECT_EQ(parse_kind(key(kind)), kind);
    EXPECT_EQ(parse_kind(name(kind)), kind);
    EXPECT_EQ(key(kind).find('-'), std::string::npos);
  }
  EXPECT_EQ(parse_kind("gather"), std::nullopt);
}

TEST(StepKind, WhatSendsReducesOrMoves) {
  for (int k = 0; k < kNumStepKinds; ++k) {
    auto kind = static_cast<StepKind>(k);
    EXPECT_EQ(sends(kind), reduces(kind) != moves_alone(kind)) << name(kind);
  }
}

}  // namespace
}  // namespace dtensor
