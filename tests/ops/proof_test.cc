// SPDX-License-Identifier: Apache-2.0
// The proof of every operator in the list; see proof.h.
#include "tests/ops/proof.h"

#include <gtest/gtest.h>

#include <iostream>

#include "dtensor/ops/all_ops.h"
#include "tests/dtensor/message_passing.h"
#include "tests/ops/proof_golden.h"

namespace dtensor {
namespace {

using proof::Report;

class Proof
    : public ::testing::TestWithParam<std::pair<std::string, const Op*>> {};

TEST_P(Proof, EveryAssignmentGivesWhatOneRankGives) {
  const Op& op = *GetParam().second;
  Report report = proof::prove(op);
  std::cout << report.line() << std::endl;
  EXPECT_GT(report.samples, 0);
  EXPECT_GT(report.forced + report.chosen, 0);
  EXPECT_EQ(report.failed, 0);
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
}

// A sample of the proof over a backend that only sends and receives bytes.
TEST_P(Proof, AlsoOverMessages) {
  const Op& op = *GetParam().second;
  proof::Options options;
  options.meshes = {"3", "2x2"};
  options.chosen = 3;
  options.second = false;
  options.backend = testing::message_passing_backend;
  Report report = proof::prove(op, options);
  EXPECT_GT(report.forced + report.chosen, 0);
  EXPECT_EQ(report.failed, 0);
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
}

// With RunOptions::reproducible. These operators refuse layouts that cut what
// they add: heads of keys that ranks share, and runs of an expert's tokens.
TEST_P(Proof, ReproduciblyGivesTheBitsOfOneRank) {
  const Op& op = *GetParam().second;
  const bool refuses = proof::refuses_some(op) || op.name() == "attention" ||
                       op.name() == "attention_backward" ||
                       op.name() == "experts" ||
                       op.name() == "experts_backward";
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Report report = proof::prove(op, {.meshes = {"2", "3", "2x2"},
                                            .second = false,
                                            .dtype = dtype,
                                            .reproducible = true});
    std::cout << name(dtype) << " " << report.line() << std::endl;
    EXPECT_EQ(report.failed, 0);
    for (const std::string& f : report.failures) ADD_FAILURE() << f;
    EXPECT_TRUE(refuses || report.refused == 0) << report.refusal;
    EXPECT_LT(report.refused, report.chosen);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Proof, ::testing::ValuesIn(proof::named_ops()),
                         [](const auto& info) { return info.param.first; });

// Strategies that rules do not offer although they work: either a rule should
// offer them, or they work by chance. The golden file lists the accepted ones:
//   - derivatives that do not depend on x (neg', sign'), and square', which is
//     bilinear: they serve gradients alone, where x is not partial;
//   - norms and attention, linear in an input of which their second output
//     (a mean, a log-sum) knows nothing: a rule has no partial of one output;
//   - attention_backward over the keys, which the forward pass does not split;
//   - experts, linear in weights and down (why not is said there), and a split
//     of a token's choices, as of topk's, which are few.
TEST(MissingRules, AsInTheGoldenFile) {
  std::string text;
  for (const auto& [id, op] : proof::named_ops()) {
    std::vector<std::string> missing = proof::missing_rules(*op);
    if (missing.empty()) continue;
    text += id + ":";
    for (const std::string& m : missing) text += " " + m;
    text += '\n';
  }
  proof::expect_golden(text, "tests/ops/proof_missing.golden",
                       "//tests/ops:proof_test");
}

// ---------------------------------------------------------------------------
// The driver finds operators with one planted fault.

// `base` with another rule.
class WithRule : public Op {
 public:
  // Not differentiable by default: a gradient may rely on the order of factors
  // in the base's own rule.
  WithRule(std::string_view base, std::string rule, bool differentiable = false)
      : Op(std::string(base), {.differentiable = differentiable}),
        base_(*find_op(base)),
        rule_(rule) {}
  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    std::vector<std::pair<char, int64_t>> sizes;
    BoundRule right = base_.bind(shapes, attrs);
    for (size_t f = 0; f < right.rule().factors().size(); ++f)
      sizes.push_back({right.rule().factors()[f].letter, right.size(int(f))});
    return BoundRule(rule_, shapes, name(), sizes);
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs& attrs) const override {
    return base_.out_dtypes(in, attrs);
  }
  void compute(Compute& c) const override { base_.compute(c); }
  std::vector<Sample> samples() const override { return {base_.samples()[0]}; }

 protected:
  const Op& base_;

 private:
  Rule rule_;
};

int64_t failures(const Op& op) {
  proof::Options options;
  options.meshes = {"2"};
  options.second = false;
  return proof::prove(op, options).failed;
}

TEST(Mutations, WrongRulesAreFound) {
  const std::pair<const char*, const char*> wrong[] = {
      {"relu", "...->... | linear 0"},
      {"exp", "...->... | affine 0"},
      {"neg", "...->... | up 0"},
      {"add_scalar", "...->... | linear 0"},
      {"sign", "...->... | down 0"},
      {"mul", "...,...->... | linear 0,1"},
      {"mul", "...,...->... | linear 0; linear 1; max 0,1"},
      {"div", "...,...->... | linear 0; linear 1"},
      {"add", "...,...->... | linear 0"},
      {"sub", "...,...->... | max 0,1"},
      {"maximum", "...,...->... | min 0,1"},
      {"maximum", "...,...->... | linear 0,1"},
      {"eq", "...,...->... | linear 0"},
      {"where", "...,...,...->... | linear 1; linear 2"},
      {"matmul", "...mk,...kn->...mn | linear 0,1"},
      {"matmul", "...mk,...kn->...mn | k:max"},
      {"amax", "abc->ac | b:sum"},
      {"amax", "abc->ac | b:max; linear 0"},
      {"layer_norm", "Zn,n,n->Zn,Z,Z"},
      {"rms_norm", "Zn~,n->Zn,Z | linear 1"},
      {"log_softmax_backward", "...n~,...n->...n | linear 0"},
      {"embedding", "vh,...->...h | v:max"},
      {"dropout", "...->... | down 0"},
      {"rotary", "bshd->bshd | linear 0"},
  };
  for (auto [name, rule] : wrong) {
    const Op& op = *find_op(name);
    Sample sample = op.samples()[0];
    std::vector<Shape> shapes;
    for (const SampleInput& in : sample.inputs) shapes.push_back(in.shape);
    std::string right = op.bind(shapes, sample.attrs).rule().to_string();
    EXPECT_EQ(failures(WithRule(name, right)), 0) << name << " as it is";
    EXPECT_GT(failures(WithRule(name, rule)), 0) << name << " as " << rule;
  }
}

// Returns a replicated gradient as if it were one part of a sum, so that it is
// too large by the number of ranks.
class WrongGradient : public WithRule {
 public:
  WrongGradient() : WithRule("exp", "...->... | up 0", true) {}
  InputGradients gradient(const GradientCall& g) const override {
    DistTensor dx = base_.gradient(g)[0];
    if (dx.mesh().num_ranks() == 1) return {dx};
    return {DistTensor::wrap(
        dx.local().clone(),
        dx.spec()->is_replicated()
            ? dx.spec()->with(parse_layout("P", dx.mesh(), dx.shape()))
            : dx.spec())};
  }
};

TEST(Mutations, WrongGradientsAreFound) {
  EXPECT_GT(failures(WrongGradient()), 0);
}

}  // namespace
}  // namespace dtensor
