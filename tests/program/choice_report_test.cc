// SPDX-License-Identifier: Apache-2.0
// The reasons that are given why a layout was not chosen must be true.
#include "dtensor/program/choice_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// A choice, together with all that it refers to.
struct Made {
  std::vector<OpInput> in;
  std::vector<SpecRef> held = {};
  BoundRule rule;
  Choice chosen = {};
  std::vector<Choice> all = {};
  ChoiceMade made() const { return {rule, chosen, in, all}; }
  // The first choice with this split.
  const Choice& row(const std::string& split) const {
    for (const Choice& c : all)
      if (made().split(c) == split) return c;
    fail("test", "{} is not listed", split);
  }
  std::string why_not(const std::string& split) const {
    return dtensor::why_not(made(), row(split));
  }
};

Made choose_among(std::string_view rule, const Mesh& mesh,
                  const std::vector<std::pair<Shape, const char*>>& inputs,
                  const CostTable& cost = {}, bool forward_only = false,
                  Keep keep = Keep::kMove) {
  std::vector<OpInput> in;
  std::vector<Shape> shapes;
  std::vector<SpecRef> held;
  for (const auto& [shape, layout] : inputs) {
    held.push_back(
        Spec::get(mesh, shape, parse_layout(layout, mesh, shape), DType::kF32));
    in.push_back({held.back(), keep});
    shapes.push_back(shape);
  }
  Made m{in, held, BoundRule(Rule(rule), shapes, "test")};
  const std::vector<DType> types(m.rule.rule().outputs().size(), DType::kF32);
  Planner planner(cost);
  m.chosen = choose(m.rule, in, types, {}, planner, "test", forward_only);
  m.all = all_choices(m.rule, in, types, {}, planner);
  return m;
}

TEST(ChoiceReport, GivesEachRowAReason) {
  const Mesh mesh = Mesh::parse("dp=2,tp=4");
  const Made m = choose_among("mk,kn->mn | linear 0; linear 1", mesh,
                              {{{4096, 64}, "R,S1"}, {{64, 256}, "R,S0"}});
  EXPECT_EQ(m.made().split(m.chosen), "k: tp");
  EXPECT_EQ(m.why_not("k: tp"), "");
  EXPECT_EQ(m.why_not("m: dp; k: tp"), "no input is split or partial over dp");
  EXPECT_EQ(m.why_not("R").substr(0, 9), "it costs ");
  const auto listed = choices_json(m.made(), 3);
  ASSERT_EQ(listed.size(), 4u);  // the chosen one is appended
  EXPECT_EQ(listed[0]["why_not"], why_not(m.made(), m.all[0]));
  EXPECT_EQ(listed[3]["chosen"], true);
  EXPECT_EQ(listed[3]["in"], (nlohmann::json{"R,S1", "R,S0"}));
  EXPECT_EQ(listed[3]["out"], nlohmann::json{"R,P"});
  EXPECT_EQ(listed[3]["why_not"], "");
  const Made few = choose_among("n->n", mesh, {{{8}, "R,R"}});
  EXPECT_EQ(few.why_not("n: tp").substr(0, 9), "it costs ");
  EXPECT_EQ(why(few.made()).substr(0, 12), "chosen: R, a");

  // The chosen split is over another factor than that of the inputs.
  CostTable slow;
  slow.ps_per_local_byte = 1e6;
  const Made other =
      choose_among("mk,n->mn", mesh, {{{2, 4}, "R,S0"}, {{640}, "R,R"}}, slow);
  EXPECT_EQ(other.made().split(other.chosen), "m: tp");
  EXPECT_EQ(other.why_not("n: tp"), "tp splits no input by n");
  EXPECT_EQ(other.why_not("m: tp; n: dp"),
            "no input is split or partial over dp");

  // A parameter that must stay.
  const Made stays =
      choose_among("n->n", mesh, {{{640}, "R,S0"}}, {}, false, Keep::kStay);
  EXPECT_EQ(stays.why_not("R"), "it would send a parameter, which must stay");
  EXPECT_EQ(stays.chosen.total_ps() > stays.row("R").total_ps(), false);
}

TEST(ChoiceReport, SaysWhyAPartialInputIsReducedWhole) {
  const Mesh mesh = Mesh::parse("tp=4");
  const auto norm = [&](const CostTable& cost, bool forward_only) {
    return choose_among("mn!,n->mn", mesh, {{{4096, 1024}, "P"}, {{1024}, "R"}},
                        cost, forward_only);
  };
  const Made trained = norm({}, false);
  EXPECT_EQ(trained.why_not("m: tp"),
            "tp splits no input by m: input 0 is partial over it, and the "
            "price of a gradient that may follow is not known; redistribute "
            "input 0 to split it");
  const std::string said = why(trained.made());
  EXPECT_NE(said.find("m: tp would cost "), said.npos) << said;
  EXPECT_EQ(said.find("only possible"), said.npos) << said;
  EXPECT_EQ(norm({}, true).why_not("m: tp"), "");
  CostTable fast;
  fast.ps_per_flop = 0.05;
  fast.ps_per_local_byte = 20;
  EXPECT_EQ(norm(fast, true).why_not("m: tp"),
            "tp splits no input by m: input 0 is partial over it, and the work "
            "saved does not pay for all that is sent");
}

TEST(ChoiceReport, SaysThatOthersChose) {
  const Mesh mesh = Mesh::parse("tp=4");
  Made m = choose_among("n->n", mesh, {{{640}, "S0"}});
  m.chosen = m.row("R");
  m.chosen.basis = Basis::kGiven;
  EXPECT_EQ(m.why_not("n: tp"),
            "the caller gave the assignment, as a gradient takes its "
            "forward's");
  m.chosen.basis = Basis::kWay;
  EXPECT_EQ(m.why_not("n: tp"),
            "the operator has several algorithms, and chose one by its own "
            "price before");
  // If a choice is cheaper and nothing forbids it, choose() has made a mistake.
  m.chosen.basis = Basis::kPrice;
  EXPECT_NE(testing::error_of([&] {
              m.why_not("n: tp");
            }).find("[choice] n: tp is cheaper than R"),
            std::string::npos);
}

// True if the axis splits a dimension of input i that has one of these factors.
bool splits(const Made& m, size_t i, int axis, const std::string& letters) {
  const Rule::Term& term = m.rule.rule().inputs()[i];
  for (size_t d = 0; d < term.size(); ++d)
    for (int f : term[d])
      if (letters.find(m.rule.rule().factors()[size_t(f)].letter) !=
              letters.npos &&
          m.in[i].spec->dim(static_cast<int>(d)).axes() >> axis & 1)
        return true;
  return false;
}

// Checks that the reason is true, and counts its kind.
void check_facts(const Made& m, const Choice& row, const Mesh& mesh,
                 std::map<std::string, int>& kinds) {
  const std::string text = dtensor::why_not(m.made(), row);
  SCOPED_TRACE(m.made().split(row) + ": " + text);
  EXPECT_EQ(text.empty(), row.assignment == m.chosen.assignment);
  EXPECT_EQ(text == "it would send a parameter, which must stay",
            !row.feasible);
  if (text.starts_with("it ")) {
    if (row.feasible) {
      EXPECT_GE(row.total_ps(), m.chosen.total_ps());
    }
    EXPECT_EQ(text.find(" more") != text.npos &&
                  text.starts_with("it costs ") &&
                  !text.starts_with("it costs the same"),
              row.feasible && row.total_ps() > m.chosen.total_ps());
    ++kinds[text.substr(0, 14)];
    return;
  }
  if (text.empty()) return;
  EXPECT_LE(row.total_ps(), m.chosen.total_ps());
  EXPECT_TRUE(row.beyond);
  const auto each = [&](const char* pattern, const auto& check) {
    const std::regex re(pattern);
    for (std::sregex_iterator it(text.begin(), text.end(), re), end; it != end;
         ++it) {
      check(*it);
      ++kinds[pattern];
    }
  };
  each("no input is split or partial over (\\w+)", [&](const auto& said) {
    const int axis = mesh.axis(said[1].str());
    for (const OpInput& in : m.in)
      EXPECT_FALSE((in.spec->split_axes() | in.spec->partial_axes()) >> axis &
                   1);
  });
  each("(\\w+) splits no input by (\\w+)", [&](const auto& said) {
    for (size_t i = 0; i < m.in.size(); ++i)
      EXPECT_FALSE(splits(m, i, mesh.axis(said[1].str()), said[2].str()));
  });
  each("(\\w+) splits no input by \\w+: input (\\d)", [&](const auto& said) {
    EXPECT_TRUE(m.in[static_cast<size_t>(std::stoi(said[2].str()))]
                        .spec->partial_axes() >>
                    mesh.axis(said[1].str()) &
                1);
  });
  each("the price of a gradient",
       [&](const auto&) { EXPECT_EQ(m.chosen.basis, Basis::kPrice); });
  each("the work saved does not pay",
       [&](const auto&) { EXPECT_EQ(m.chosen.basis, Basis::kForwardPrice); });
}

// Checks that the parts of the next choice's price add up.
void check_parts(const Made& m, std::map<std::string, int>& kinds) {
  const std::string text = why(m.made());
  static const std::regex whole("costs ([0-9.]+) us more \\((.*)\\)\\. "),
      part("[a-z ]+ ([-+][0-9.]+)");
  std::smatch said;
  if (!std::regex_search(text, said, whole)) return;
  const std::string parts = said[2];
  double sum = 0;
  for (std::sregex_iterator it(parts.begin(), parts.end(), part), end;
       it != end; ++it)
    sum += std::stod((*it)[1]);
  // Each number is rounded to 0.01.
  EXPECT_NEAR(sum, std::stod(said[1]), 0.021) << text;
  ++kinds["parts"];
}

// A random layout of a tensor of this shape.
std::string any_layout(std::mt19937& gen, const Shape& shape, int axes,
                       bool partial) {
  std::string text;
  for (int a = 0; a < axes; ++a) {
    const auto pick = static_cast<int>(gen() % 6);
    text += a ? "," : "";
    if (pick < 3 && shape.size() > 0)
      text += fmt::format("S{}", gen() % static_cast<size_t>(shape.size()));
    else
      text += pick == 3 && partial ? "P" : "R";
  }
  return text;
}

// Samples of all operators, in random layouts.
TEST(ChoiceReport, ReasonsAreTrue) {
  const Mesh mesh = Mesh::parse("x=2,y=3");
  std::mt19937 gen(5);
  std::map<std::string, int> kinds;
  int choices = 0;
  for (const Op* op : all_ops()) {
    if (!op->facts().has_rule) continue;
    const std::vector<Sample> samples = op->samples();
    for (const Sample& sample :
         std::span(samples).first(std::min<size_t>(2, samples.size())))
      for (int trial = 0; trial < 4; ++trial) {
        std::vector<Shape> shapes;
        std::vector<DType> types;
        std::vector<OpInput> in;
        std::vector<SpecRef> held;
        std::string text = op->name();
        for (const SampleInput& s : sample.inputs) {
          using Values = SampleInput::Values;
          const bool real = s.values == Values::kAny ||
                            s.values == Values::kPositive ||
                            s.values == Values::kConstant;
          shapes.push_back(s.shape);
          types.push_back(real                        ? DType::kF32
                          : s.values == Values::kBool ? DType::kBool
                          : s.values == Values::kInt8 ? DType::kI8
                                                      : DType::kI64);
          held.push_back(Spec::get(
              mesh, s.shape,
              parse_layout(any_layout(gen, s.shape, 2, real), mesh, s.shape),
              types.back()));
          in.push_back({held.back(), gen() % 4 ? Keep::kMove : Keep::kStay});
          text += " " + held.back()->to_string();
        }
        SCOPED_TRACE(text);
        CostTable cost;
        if (trial % 2) cost.ps_per_flop = cost.ps_per_local_byte = 1e7;
        Planner planner(cost);
        Made m{in, held, op->bind(shapes, sample.attrs)};
        const std::vector<DType> out = op->out_dtypes(types, sample.attrs);
        const OpWork& work = op->facts().work;
        try {
          m.chosen = choose(m.rule, in, out, work, planner, op->name(),
                            /*forward_only=*/trial > 1);
        } catch (const Error&) {
          continue;  // it would send a parameter
        }
        m.all = all_choices(m.rule, in, out, work, planner, 64);
        for (const Choice& row : m.all) check_facts(m, row, mesh, kinds);
        check_parts(m, kinds);
        ++choices;
      }
  }
  EXPECT_GT(choices, 500);
  for (const char* kind :
       {"it would send ", "no input is split or partial over (\\w+)",
        "(\\w+) splits no input by (\\w+)", "the price of a gradient",
        "(\\w+) splits no input by \\w+: input (\\d)",
        "the work saved does not pay", "parts"})
    EXPECT_GT(kinds[kind], 0) << kind;
}

}  // namespace
}  // namespace dtensor
