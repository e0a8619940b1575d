// SPDX-License-Identifier: Apache-2.0
// nn::LSTM against torch 2.15's nn.LSTM(5, 3), in f64, for four steps of a
// batch of three.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;
using Values = std::vector<double>;

// sin(0.7 i + shift), for element i.
DistTensor sines(const Shape& shape, double shift, const Mesh& m,
                 const Placements& p = {}) {
  Values v(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = std::sin(0.7 * static_cast<double>(i) + shift);
  return DistTensor::from_global(Tensor::from(shape, v.data()), m, p);
}
// The sum of x times such sines, which tells one order from another.
DistTensor dot(const DistTensor& x, double shift) {
  return sum(x * sines(x.shape(), shift, x.mesh()));
}

struct Layouts {
  const char *mesh, *x, *state, *weight_ih, *weight_hh, *bias;
};
const Layouts kLayouts[] = {
    {"tp=1", "R", "R", "R", "R", "R"},
    {"dp=2", "S1", "S1", "R", "R", "R"},  // the batch, or with batch_first time
    {"dp=2", "S0", "R", "R", "R", "R"},
    {"dp=4", "S1", "S2", "R", "R", "R"},
    {"tp=2", "R", "R", "S0", "S0", "S0"},
    {"tp=3", "S2", "S0", "S0", "S1", "R"},
    {"dp=2,tp=2", "S1,R", "S1,R", "R,S0", "R,S1", "R,R"},
    {"dp=2,tp=3", "S0,S2", "R,S2", "R,S1", "S0,S1", "S0,R"}};

struct Case {
  std::string name;
  LSTMOptions options;
  bool begins;
  // dot() of the output, h and c, and of the gradients of their sum: of the
  // parameters in torch's order, of x, and of the initial h and c.
  Values want;
};
const Case kCases[] = {
    {"no bias",
     {.bias = false},
     false,
     {-0.689947910005804, -0.30791735122748604, -0.3653518994162577,
      -1.38408320241962, 0.5958351330423179, -1.3860336508225788}},
    {"three layers",
     {.num_layers = 3},
     true,
     {0.13500372291431065, 0.2582899801581301, -1.1549358033094501,
      -0.7356034314809743, 1.8853000584218793, 0.4108472458448055,
      0.4108472458448056, 1.0028128776458736, 0.1440383606522236,
      0.24316017124529907, 0.24316017124529898, 0.6971780731399351,
      0.46067013974878535, 0.1677251214936267, 0.1677251214936268,
      -0.06128375589565782, -0.9164572197287822, -0.5416272668692594}},
    {"both directions, batch first",
     {.num_layers = 2, .batch_first = true, .bidirectional = true},
     true,
     {0.12087249621578228,  0.31675480163065906, -2.0008813680464095,
      -1.0619542062618477,  -0.5023265722682393, 1.1930137575678992,
      1.1930137575678992,   1.529124506439846,   -0.37593701114750966,
      -0.2889281515210688,  -0.288928151521069,  -0.5366940071786498,
      -0.23961206048266973, 0.3342113532992488,  0.3342113532992488,
      -0.4774129806018264,  0.0701889652736868,  0.4449202641380293,
      0.44492026413802943,  -1.5247892094758355, 1.2712049301387318,
      2.1033618882137226}},
    {"both directions",
     {.num_layers = 2, .bidirectional = true},
     false,
     {-0.23812182648956337, -0.009541394955903643, -0.3002084247856862,
      -1.6460852255425213,  1.9588538660068184,    -0.20161360260404138,
      -0.20161360260404126, -0.5631598318888085,   0.27727677479375545,
      -0.4494176768265835,  -0.44941767682658357,  0.01995741920024624,
      0.06229159506276285,  -0.07941168257250628,  -0.07941168257250636,
      0.44768185454208403,  0.06620762582714264,   -0.12255622926366971,
      -0.12255622926366971, 1.6264921704269335}}};

TEST(LSTM, IsTorchsOnAllMeshes) {
  for (const Case& c : kCases)
    for (const Layouts& l : kLayouts)
      on_mesh<int>(l.mesh, [&](const Mesh& m) {
        const Scope at{.mesh = m,
                       .plan = std::make_shared<ParallelPlan>(
                           ParallelPlan{{"weight_ih*", l.weight_ih},
                                        {"weight_hh*", l.weight_hh},
                                        {"bias*", l.bias}}),
                       .dtype = DType::kF64};
        const LSTM lstm(at, 5, 3, c.options);
        double shift = 0;
        for (const auto& [name, p] : lstm.named_parameters()) {
          assign(p, sines(p.shape(), shift, m));
          shift += 0.3;
        }
        const int64_t layers =
            c.options.num_layers * (c.options.bidirectional ? 2 : 1);
        const Shape in =
                        c.options.batch_first ? Shape{3, 4, 5} : Shape{4, 3, 5},
                    state{layers, 3, 3};
        DistTensor x = sines(in, 1, m, l.x), h = sines(state, 2, m, l.state),
                   cell = sines(state, 3, m, l.state);
        std::vector<DistTensor> wanted = lstm.parameters();
        for (DistTensor* t : {&x, &h, &cell}) t->set_requires_grad();
        wanted.push_back(x);
        if (c.begins) wanted.insert(wanted.end(), {h, cell});
        const auto [output, last] =
            c.begins ? lstm.forward(x, {h, cell}) : lstm.forward(x);
        const DistTensor parts[] = {dot(output, 4), dot(last.h, 5),
                                    dot(last.c, 6)};
        Values found;
        for (const DistTensor& p : parts) found.push_back(p.item());
        for (const DistTensor& g : grad(parts[0] + parts[1] + parts[2], wanted))
          found.push_back(dot(g, 7).item());
        EXPECT_EQ(found.size(), c.want.size());
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_NEAR(found[i], c.want[i], 1e-12)
              << c.name << " on " << l.mesh << ", x " << l.x << ", number "
              << i;
        return 0;
      });
}

// With the batch split, steps send nothing.
TEST(LSTM, ASplitBatchSendsNothing) {
  on_mesh<int>("dp=2", [](const Mesh& m) {
    const LSTM lstm({.mesh = m}, 5, 3, {.num_layers = 2});
    const DistTensor x = randn({4, 6, 5}, m, Placements("S1"));
    const ExplicitOnly nothing_moves;
    lstm.forward(x);
    return 0;
  });
}

TEST(LSTM, DropsOutBetweenLayersInTraining) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    LSTM lstm({.mesh = m}, 5, 3, {.num_layers = 2, .dropout = 1});
    const LSTM same({.mesh = m}, 5, 3, {.num_layers = 2});
    const DistTensor x = randn({4, 6, 5}, m), zero = zeros({4, 6, 5}, m);
    EXPECT_EQ(values(lstm.forward(x).output),
              values(lstm.forward(zero).output));
    EXPECT_NE(values(lstm.forward(x).state.h),
              values(lstm.forward(zero).state.h));
    // Nothing is dropped behind the last layer.
    for (const double y : values(lstm.forward(x).output)) EXPECT_NE(y, 0);
    lstm.eval();
    EXPECT_EQ(values(lstm.forward(x).output), values(same.forward(x).output));
    for (const DistTensor& p : same.parameters())
      EXPECT_LE(amax(abs(p)).item(), 1 / std::sqrt(3.0));
    return 0;
  });
}

TEST(LSTM, ErrorsSayWhatToWrite) {
  on_mesh<int>("tp=2", [](const Mesh& m) {
    const LSTM lstm({.mesh = m}, 5, 3);
    EXPECT_EQ(
        error_of([&] {
          lstm.forward(zeros({4, 5}, m));
        }),
        "[lstm] the input is f32[4, 5](R); pass [steps, batch, 5], with a "
        "step or more");
    EXPECT_EQ(error_of([&] {
                lstm.forward(zeros({0, 2, 5}, m));
              }),
              "[lstm] the input is f32[0, 2, 5](R); pass [steps, batch, 5], "
              "with a step or more");
    EXPECT_EQ(error_of([&] {
                lstm.forward(zeros({4, 2, 5}, m), {zeros({1, 2, 3}, m), {}});
              }),
              "[lstm] the initial state has an undefined tensor, but h and c "
              "must be [1, 2, 3]; pass both, or neither");
    EXPECT_EQ(error_of([&] {
                lstm.forward(zeros({4, 2, 5}, m),
                             {zeros({1, 2, 3}, m), zeros({1, 3}, m)});
              }),
              "[lstm] the initial state has [1, 3], but h and c must be "
              "[1, 2, 3]; pass both, or neither");
    EXPECT_EQ(error_of([&] { LSTM({.mesh = m}, 5, 0, {.dropout = 2}); }),
              "[lstm] the module has input_size 5, hidden_size 0, num_layers 1 "
              "and dropout 2; write sizes above 0, and a dropout in [0, 1]");
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
