// SPDX-License-Identifier: Apache-2.0
// Every operator's rule, and the strategies that follow from it, as a file that
// a reviewer reads: a change of a rule is a change of that file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dtensor/placement/error.h"
#include "dtensor/placement/rule.h"
#include "dtensor/runtime.h"
#include "tests/ops/proof.h"
#include "tests/ops/proof_golden.h"
#include "tests/placement/strategies.h"

namespace dtensor {
namespace {

std::string describe(const Op& op) {
  Sample sample = op.samples()[0];
  std::vector<Shape> shapes;
  for (const SampleInput& in : sample.inputs) shapes.push_back(in.shape);
  try {
    Rule rule = op.bind(shapes, sample.attrs).rule();
    return rule.to_string() + "\n" + strategies(rule);
  } catch (const Error&) {
    return "decides its layouts without a rule\n";
  }
}

TEST(Rules, AsInTheGoldenFile) {
  std::string text;
  for (const auto& [id, op] : proof::named_ops()) {
    text += id + ": ";
    std::string lines = describe(*op);
    for (char c : lines) {
      text += c;
      if (c == '\n') text += "  ";
    }
    text.resize(text.size() - 2);
    text += '\n';
  }
  proof::expect_golden(text, "tests/ops/rules.golden",
                       "//tests/ops:rules_test");
}

TEST(Rules, EveryOperatorHasSamplesAndAName) {
  for (const auto& [id, op] : proof::named_ops()) {
    EXPECT_FALSE(op->name().empty());
    ASSERT_FALSE(op->samples().empty()) << id;
    // On empty tensors a proof would show nothing.
    for (const Sample& s : op->samples()) {
      EXPECT_FALSE(s.inputs.empty()) << id;
      for (const SampleInput& in : s.inputs)
        EXPECT_GT(numel(in.shape), 0) << id << ": " << to_string(in.shape);
    }
  }
}

}  // namespace
}  // namespace dtensor
