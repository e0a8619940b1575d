// SPDX-License-Identifier: Apache-2.0
// Each optimizer makes torch's updates in every layout. optimizers.json has
// torch's numbers; tools/optimizer_goldens.py says how they come about.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/nn/matrix_optimizers.h"
#include "dtensor/nn/soap.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;
using dtensor::testing::error_of;

struct Case {
  std::string name;
  double lr;
  std::function<std::unique_ptr<Optimizer>(const ParameterGroups&)> make;
};

template <class O, class Options>
Case of(const char* name, double lr, const Options& options) {
  return {name, lr, [options](const ParameterGroups& p) {
            return std::make_unique<O>(p, options);
          }};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      of<Adam>("adam", 0.1, AdamOptions{}),
      of<Adam>("adam_all", 0.1,
               AdamOptions{.beta1 = 0.8,
                           .beta2 = 0.95,
                           .eps = 1e-3,
                           .weight_decay = 0.1,
                           .amsgrad = true,
                           .maximize = true}),
      of<AdamW>("adamw", 0.1, AdamWOptions{}),
      of<SGD>(
          "sgd", 0.1,
          SGDOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}),
      of<Adagrad>("adagrad", 0.1, AdagradOptions{}),
      of<Adagrad>("adagrad_all", 0.1,
                  AdagradOptions{.lr_decay = 0.3,
                                 .weight_decay = 0.1,
                                 .initial_accumulator_value = 0.2,
                                 .eps = 1e-3,
                                 .maximize = true}),
      of<RMSprop>("rmsprop", 0.01, RMSpropOptions{}),
      of<RMSprop>("rmsprop_all", 0.01,
                  RMSpropOptions{.alpha = 0.9,
                                 .eps = 1e-3,
                                 .weight_decay = 0.1,
                                 .momentum = 0.8,
                                 .centered = true,
                                 .maximize = true}),
      of<Lion>("lion", 0.1, LionOptions{}),
      of<Lion>("lion_all", 0.1,
               LionOptions{.beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1}),
      of<Adafactor>("adafactor", 0.01, AdafactorOptions{}),
      of<Adafactor>("adafactor_all", 0.3,
                    AdafactorOptions{.beta2_decay = -0.5,
                                     .eps1 = 0.1,
                                     .eps2 = 0.2,
                                     .d = 1.5,
                                     .weight_decay = 0.1,
                                     .maximize = true}),
      of<Muon>("muon", 0.1, MuonOptions{}),
      of<Muon>("muon_all", 0.1,
               MuonOptions{.weight_decay = 0.2,
                           .momentum = 0.8,
                           .nesterov = false,
                           .ns_coefficients = {3, -4, 1.5},
                           .eps = 1e-3,
                           .ns_steps = 3,
                           .adjust_lr_fn = AdjustLr::kMatchRmsAdamW}),
      of<Shampoo>("shampoo", 0.1, ShampooOptions{}),
      of<Shampoo>("shampoo_all", 0.1,
                  ShampooOptions{
                      .momentum = 0.8, .weight_decay = 0.1, .epsilon = 0.01}),
      of<Shampoo>("shampoo_rare", 0.1,
                  ShampooOptions{.epsilon = 1, .update_freq = 3}),
      of<SOAP>("soap", 0.1, SOAPOptions{.precondition_frequency = 2}),
      of<SOAP>("soap_all", 0.1,
               SOAPOptions{.beta1 = 0.8,
                           .beta2 = 0.9,
                           .shampoo_beta = 0.7,
                           .eps = 1e-3,
                           .weight_decay = 0.1,
                           .precondition_frequency = 2,
                           .max_precond_dim = 5}),
      of<LBFGS>("lbfgs", 0.1, LBFGSOptions{.history_size = 2}),
      // By price, these small matrices have owners.
      of<Muon>("muon", 0.1, MuonOptions{.work = MatrixWork::kSplit}),
      of<Muon>("muon", 0.1, MuonOptions{.work = MatrixWork::kOwned}),
      of<Shampoo>("shampoo", 0.1, ShampooOptions{.work = MatrixWork::kSplit}),
      of<Shampoo>(
          "shampoo_rare", 0.1,
          ShampooOptions{
              .epsilon = 1, .update_freq = 3, .work = MatrixWork::kSplit}),
      of<Shampoo>(
          "shampoo_rare", 0.1,
          ShampooOptions{
              .epsilon = 1, .update_freq = 3, .work = MatrixWork::kOwned}),
  };
  return all;
}

// torch's numbers for a case: the parameters "0", "1", ... after five steps,
// and their states "0.exp_avg", ...
struct Golden {
  std::vector<Shape> shapes;
  std::map<std::string, Values> tensors;
};

Golden golden(const std::string& name) {
  static const nlohmann::json all = [] {
    std::ifstream file("tests/nn/optimizers.json");
    return nlohmann::json::parse(file);
  }();
  for (const auto& entry : all)
    if (entry["name"] == name) {
      Golden g{{}, entry["tensors"]};
      for (const std::vector<int64_t> s : entry["shapes"])
        g.shapes.emplace_back(std::span<const int64_t>(s));
      return g;
    }
  ADD_FAILURE() << "no golden " << name;
  return {};
}

// Parameter i (step 0), or its gradient of step 1, 2, ...
Tensor value(const Shape& shape, size_t i, int step, DType t) {
  Values x(static_cast<size_t>(numel(shape)));
  for (size_t k = 0; k < x.size(); ++k) {
    const auto n = static_cast<double>(k);
    x[k] = std::sin(0.13 * n * n + 0.7 * n * step + 1.3 * step +
                    0.5 * static_cast<double>(i) + 0.1);
  }
  return converted(Tensor::from(shape, x.data()), t);
}

// The layouts of a parameter, of its gradient and, in ZeRO stage 3, of what
// operators see; "": the same. The first of each pair is for vectors.
struct Layouts {
  const char* mesh;
  const char *vector, *others;
  const char *vector_grad = "", *others_grad = "";
  const char *vector_use = "", *others_use = "";
};
const Layouts kLayouts[] = {
    {"tp=1", "R", "R"},
    {"tp=2", "R", "R"},
    {"tp=2", "S0", "S0"},
    {"tp=3", "R", "S1"},
    {"tp=3", "S0@0|0|1|N", "S0@0|0|1|N"},
    {"tp=8", "S0", "S0"},
    {"dp=2", "R", "R", "S0", "S0"},
    {"dp=3", "R", "R", "S0", "S1"},
    {"dp=3", "S0", "S0", "", "", "R", "R"},
    {"dp=2,tp=2", "S0,R", "S0,S1"},
    {"dp=2,tp=2", "R,S0", "R,S0", "tp,dp", "tp,dp"},
    {"dp=2,tp=2", "R,S0", "R,S1", "tp,dp", "S0,S1"},
    {"dp=2,tp=2", "tp,dp", "tp,dp", "", "", "R,S0", "R,S0"},
};

// "tp,dp" splits dimension 0 over tp, and each part over dp. N is its size.
Placements placements(std::string text, const Shape& shape) {
  using List = std::vector<std::pair<std::string, Placement>>;
  if (text == "tp,dp") return List{{"tp", Shard(0)}, {"dp", Shard(0)}};
  if (const size_t n = text.find('N'); n != text.npos)
    text.replace(n, 1, std::to_string(shape[0]));
  return std::string_view(text);
}

// The parameters "0", "1", ... of a case.
ParameterGroups parameters(const Golden& g, const Layouts& l, const Mesh& mesh,
                           DType t) {
  std::vector<DistTensor> all;
  for (size_t i = 0; i < g.shapes.size(); ++i) {
    const Shape& shape = g.shapes[i];
    const bool v = shape.size() == 1;
    const std::string grad = v ? l.vector_grad : l.others_grad,
                      use = v ? l.vector_use : l.others_use;
    DistTensor p =
        DistTensor::from_global(value(shape, i, 0, t), mesh,
                                placements(v ? l.vector : l.others, shape))
            .as_parameter();
    if (!grad.empty()) p.set_grad_layout(placements(grad, shape));
    if (!use.empty()) p.gather_on_use(placements(use, shape));
    all.push_back(p);
  }
  return all;
}

// Makes the steps `from` to `to`, counted from 1.
void train(Optimizer& o, double lr, DType t, int from, int to) {
  for (int step = from; step <= to; ++step) {
    std::vector<DistTensor> grads;
    for (size_t i = 0; i < o.parameters().size(); ++i) {
      const DistTensor& p = o.parameters()[i];
      grads.push_back(DistTensor::from_global(
          value(p.shape(), i, step, t), p.mesh(), p.grad_spec()->layout()));
    }
    o.step(grads, {.lr = lr});
  }
}

// The largest difference to torch's parameters and states, relative to numbers
// above 1. Collective over `mesh`.
double worst(const Optimizer& o, const Golden& g, const Mesh& mesh) {
  std::map<std::string, DistTensor> all;
  for (size_t i = 0; i < o.parameters().size(); ++i)
    all[std::to_string(i)] = o.parameters()[i];
  for (const OptimizerState& s : o.state()) all[s.name] = s.value;
  double most = 0;
  for (const auto& [name, want] : g.tensors) {
    if (!all.contains(name)) {
      ADD_FAILURE() << "no tensor " << name;
      continue;
    }
    const Values found = values(all[name].redistribute(mesh, Placements()));
    EXPECT_EQ(found.size(), want.size()) << name;
    for (size_t k = 0; k < std::min(found.size(), want.size()); ++k) {
      const double d =
          std::abs(found[k] - want[k]) / std::max(1.0, std::abs(want[k]));
      most = std::isnan(d) ? INFINITY : std::max(most, d);
    }
  }
  return most;
}

double tolerance(DType t) { return t == DType::kF64 ? 1e-11 : 1e-6; }

// Prints the largest differences, which docs/from_torch.md lists.
TEST(Optimizers, UpdatesAreTorchsInAllLayouts) {
  using Worst = std::map<std::string, std::map<DType, double>>;
  Worst worst_of;
  for (const Layouts& l : kLayouts) {
    const auto of_layout = on_mesh<Worst>(l.mesh, [&](const Mesh& mesh) {
      Worst all;
      for (const Case& c : cases())
        for (DType t : {DType::kF64, DType::kF32}) {
          const Golden g = golden(c.name);
          const auto o = c.make(parameters(g, l, mesh, t));
          train(*o, c.lr, t, 1, 5);
          const double found = worst(*o, g, mesh);
          EXPECT_LE(found, tolerance(t))
              << c.name << " " << name(t) << " " << l.mesh << " " << l.others
              << " " << l.others_grad;
          double& most = all[c.name.substr(0, c.name.find('_'))][t];
          most = std::max(most, found);
        }
      return all;
    });
    for (const auto& [name, types] : of_layout)
      for (const auto& [t, d] : types)
        worst_of[name][t] = std::max(worst_of[name][t], d);
  }
  for (auto& [name, types] : worst_of)
    std::cout << fmt::format("{}: f64 {:.0e}, f32 {:.0e}\n", name,
                             types[DType::kF64], types[DType::kF32]);
}

TEST(Optimizers, StateResumesOnAnotherMeshAndInOtherLayouts) {
  const Layouts& to = kLayouts[2];
  for (const Layouts& l : kLayouts) {
    const Mesh mesh = Mesh::parse(l.mesh);
    if (mesh.num_ranks() < 3) continue;
    run(mesh.num_ranks(), [&](Runtime&) {
      for (const Case& c : cases()) {
        const Golden g = golden(c.name);
        const DType t = DType::kF64;
        const auto first = c.make(parameters(g, l, mesh, t));
        train(*first, c.lr, t, 1, 3);
        const Mesh other = Mesh::parse("tp=2 of ranks 2,0");
        const auto second = c.make(parameters(g, to, other, t));
        for (size_t i = 0; i < g.shapes.size(); ++i)
          assign(second->parameters()[i],
                 first->parameters()[i].redistribute(other, Placements()));
        second->load_state(first->state());
        train(*second, c.lr, t, 4, 5);
        EXPECT_LE(worst(*second, g, mesh), tolerance(t)) << c.name << l.mesh;
      }
    });
  }
}

// The bytes of the second step of a parameter [m, n], of the rank that receives
// most in each collective.
int64_t bytes_of(
    const std::string& mesh, const Shape& shape, const char* held,
    const char* grad,
    const std::function<std::unique_ptr<Optimizer>(const ParameterGroups&)>&
        make) {
  return on_mesh<int64_t>(mesh, [&](const Mesh& m) {
    DistTensor p = randn(shape, m, held).as_parameter();
    p.set_grad_layout(grad);
    const auto o = make(ParameterGroups({p}));
    const DistTensor g = randn(shape, m, grad);
    o->step({g}, {.lr = 0.1});
    const CommRecord record;
    o->step({g}, {.lr = 0.1});
    int64_t bytes = 0;
    for (const CommEvent& e : record.events()) bytes += e.predicted;
    return bytes;
  });
}

TEST(Optimizers, ElementWiseUpdatesSendOnlyWhatTheyUpdate) {
  for (const Case& c : cases()) {
    if (c.name.starts_with("ada") && c.name[3] == 'f') continue;
    if (c.name.starts_with("muon") || c.name.starts_with("shampoo") ||
        c.name.starts_with("soap") || c.name == "lbfgs")
      continue;
    EXPECT_EQ(bytes_of("tp=3", {7, 5}, "S0", "S0", c.make), 0) << c.name;
    EXPECT_EQ(bytes_of("dp=2,tp=2", {7, 5}, "R,S1", "R,S1", c.make), 0);
    // ZeRO gathers the other half of the rows.
    EXPECT_EQ(bytes_of("dp=2", {8, 5}, "R", "S0", c.make), 4 * 5 * 4) << c.name;
  }
}

TEST(Optimizers, BytesAreTheFormulas) {
  const auto muon = [](const ParameterGroups& p) {
    return std::make_unique<Muon>(p, MuonOptions{.work = MatrixWork::kSplit});
  };
  const auto adafactor = [](const ParameterGroups& p) {
    return std::make_unique<Adafactor>(p);
  };
  for (const int64_t p : {2, 4}) {
    const std::string mesh = "tp=" + std::to_string(p);
    // One number, all-reduced: one rank adds up those of the others.
    const int64_t number = (p - 1) * 4;
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{8, 8}, {8, 64}}) {
      const int64_t grams = 5 * (n < 2 * m ? 2 : 3) * m * m * (p - 1) / p * 4,
                    moved = 2 * m * n * (p - 1) / p / p * 4;
      EXPECT_EQ(bytes_of(mesh, {m, n}, "S1", "S1", muon), grams + number);
      EXPECT_EQ(bytes_of(mesh, {n, m}, "S0", "S0", muon),
                grams + number + (m == n ? moved : 0));
      EXPECT_EQ(bytes_of(mesh, {m, n}, "S0", "S0", muon),
                grams + number + moved);
      EXPECT_EQ(bytes_of(mesh, {m, n}, "R", "R", muon), 0);
      // The two norms, and over split rows the mean of row_var.
      EXPECT_EQ(bytes_of(mesh, {m, n}, "S0", "S0", adafactor),
                2 * n * (p - 1) / p * 4 + 3 * number);
      EXPECT_EQ(bytes_of(mesh, {m, n}, "S1", "S1", adafactor),
                2 * m * (p - 1) / p * 4 + 2 * number);
    }
  }
}

TEST(Optimizers, ShampooSendsWhatItsRootsTake) {
  const auto shampoo = [](const ParameterGroups& p) {
    return std::make_unique<Shampoo>(
        p, ShampooOptions{.work = MatrixWork::kSplit});
  };
  for (const int64_t p : {2, 4})
    for (const char* layout : {"S0", "S1"}) {
      const int64_t m = 8, n = 16;
      const int64_t roots =
          2 * Shampoo::kIterations * (m * m + n * n) * (p - 1) / p * 8;
      const int64_t all =
          bytes_of("tp=" + std::to_string(p), {m, n}, layout, layout, shampoo);
      EXPECT_GE(all, roots) << p << layout;
      EXPECT_LE(all - roots, 4 * (m * m + n * n + 4 * m * n)) << p << layout;
    }
}

// The matrices of two blocks of a GPT.
std::vector<DistTensor> blocks(const Mesh& mesh, const char* layout) {
  std::vector<DistTensor> all;
  for (int block = 0; block < 2; ++block)
    for (const auto& [m, n] :
         {std::pair<int64_t, int64_t>{72, 24}, {24, 24}, {96, 24}, {24, 96}})
      all.push_back(randn({m, n}, mesh, layout, DType::kF32,
                          {5, static_cast<uint64_t>(all.size())})
                        .as_parameter());
  return all;
}

std::vector<DistTensor> gradients_of(const Optimizer& o) {
  std::vector<DistTensor> all;
  for (const DistTensor& p : o.parameters())
    all.push_back(randn(p.shape(), p.mesh(), p.grad_spec()->layout(),
                        DType::kF32, {6, static_cast<uint64_t>(all.size())}));
  return all;
}

// A rank sends its part of a matrix to the owner once, and gets its part of
// the update once. Ranks own about equally much.
TEST(Optimizers, OwnersReceiveTheLeastBytes) {
  const std::function<std::unique_ptr<MatrixOptimizer>(const ParameterGroups&)>
      makers[] = {[](const auto& p) { return std::make_unique<Muon>(p); },
                  [](const auto& p) {
                    return std::make_unique<Muon>(
                        p, MuonOptions{.ns_dtype = DType::kBF16,
                                       .work = MatrixWork::kOwned});
                  },
                  [](const auto& p) { return std::make_unique<Shampoo>(p); },
                  [](const auto& p) { return std::make_unique<SOAP>(p); }};
  for (const char* text : {"tp=2", "tp=4", "dp=2,tp=2"})
    for (const char* layout : {"S0", "S1", "R"})
      for (size_t kind = 0; kind < std::size(makers); ++kind) {
        const Mesh mesh = Mesh::parse(text);
        const int64_t p = mesh.num_ranks();
        std::vector<int64_t> lower(static_cast<size_t>(p)), work = lower;
        run(p, [&](Runtime& rt) {
          const std::string l =
              mesh.num_axes() == 2 ? "R," + std::string(layout) : layout;
          const auto o = makers[kind](ParameterGroups(blocks(mesh, l.c_str())));
          const auto grads = gradients_of(*o);
          const CommRecord record;
          o->step(grads, {.lr = 0.1});
          int64_t bytes = 0;
          for (const CommEvent& e : record.events()) bytes += e.counted;
          EXPECT_EQ(bytes, o->owner_bytes()) << text << layout << kind;
          lower[static_cast<size_t>(rt.rank())] = o->owner_bytes();
          for (const int64_t owner : o->owners()) EXPECT_GE(owner, 0);
        });
        if (kind == 0)
          std::cout << fmt::format(
              "{} {}: ranks receive at most {} bytes\n", text, layout,
              *std::max_element(lower.begin(), lower.end()));
      }
}

TEST(Optimizers, OwnersMakeTheUpdateOfOneRank) {
  const auto updated = [](const std::string& mesh, const char* layout) {
    return on_mesh<Values>(mesh, [&](const Mesh& m) {
      Muon muon(blocks(m, layout), {.work = MatrixWork::kOwned});
      for (int i = 0; i < 2; ++i) muon.step(gradients_of(muon), {.lr = 0.1});
      Values all;
      for (const DistTensor& p : muon.parameters())
        for (const double v : values(p)) all.push_back(v);
      return all;
    });
  };
  const Values one = updated("tp=1", "R");
  for (const char* mesh : {"tp=2", "tp=3"})
    for (const char* layout : {"S0", "S1", "R"}) {
      const Values found = updated(mesh, layout);
      ASSERT_EQ(found.size(), one.size());
      double worst = 0;
      for (size_t i = 0; i < one.size(); ++i)
        worst = std::max(worst, std::abs(found[i] - one[i]));
      EXPECT_LE(worst, 1e-6) << mesh << layout;
    }
}

TEST(Optimizers, MuonGivesOtherParametersTheUpdateOfAdamW) {
  on_mesh<int>("dp=2", [](const Mesh& mesh) {
    const auto make = [&] {
      DistTensor p = randn({7, 5}, mesh, "R", DType::kF64, {1, 1});
      p.as_parameter().set_grad_layout("S0");
      return p;
    };
    const DistTensor g = randn({7, 5}, mesh, "S0", DType::kF64, {1, 2});
    const std::vector<NamedParameter> a = {{"a", make()}}, b = {{"b", make()}},
                                      c = {{"b", make()}};
    Muon both(a, {}, b, {.beta1 = 0.7, .weight_decay = 0.3});
    AdamW adamw(c, {.beta1 = 0.7, .weight_decay = 0.3});
    for (int i = 0; i < 3; ++i) {
      both.step({g, g}, {.lr = 0.1});
      adamw.step({g}, {.lr = 0.1});
    }
    const Values found = values(both.parameters()[1]),
                 want = values(c[0].tensor);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(found[i], want[i], 1e-13);
    EXPECT_NE(values(both.parameters()[0]), want);
    EXPECT_EQ(both.state()[0].name, "a.momentum_buffer");
    EXPECT_EQ(error_of([&] { Muon m({ones({3}, mesh)}); }),
              "[muon] parameter 0 is f32[3](R), but only matrices get this "
              "update; list it in the argument `others`");
    return 0;
  });
}

TEST(Optimizers, LBFGSAllReducesThreeNumbersForEachPair) {
  on_mesh<int>("tp=2", [](const Mesh& mesh) {
    const DistTensor a = randn({6, 4}, mesh, "S0").as_parameter(),
                     b = randn({6}, mesh, "S0").as_parameter();
    LBFGS o({a, b}, {.history_size = 2});
    for (const int64_t pairs : {0, 1, 2, 2}) {
      const CommRecord record;
      // The gradients of a^2 / 2 + b^2.
      o.step({a.detach() * 1, b.detach() * 2}, {.lr = 0.3});
      int64_t bytes = 0;
      for (const CommEvent& e : record.events()) bytes += e.predicted;
      EXPECT_EQ(bytes, (pairs ? 3 * pairs + 3 : 2) * 4) << pairs;
    }
    return 0;
  });
}

TEST(Optimizers, LBFGSMinimizesAsTorch) {
  for (const Layouts& l : kLayouts)
    on_mesh<int>(l.mesh, [&](const Mesh& mesh) {
      const DType t = DType::kF64;
      const Golden g = golden("lbfgs_closure");
      LBFGS o(parameters(g, l, mesh, t), {.max_iter = 6, .history_size = 3});
      const auto at = [&](size_t i, int step) {
        const DistTensor& p = o.parameters()[i];
        return DistTensor::from_global(value(p.shape(), i, step, t), mesh,
                                       p.layout());
      };
      int calls = 0;
      const auto evaluate = [&] {
        ++calls;
        DistTensor loss, all;
        for (size_t i = 0; i < o.parameters().size(); ++i) {
          const DistTensor& p = o.parameters()[i];
          const DistTensor shifted = p - at(i, 1);
          const DistTensor own = sum(exp(shifted) + exp(-shifted)) / 2,
                           part = sum(p * at(i, 2));
          loss = i ? loss + own : own;
          all = i ? all + part : part;
        }
        loss = loss + all * all / 20;
        return LBFGS::Evaluation{loss, grad(loss, o.parameters())};
      };
      const double first = o.minimize(evaluate);
      for (int i = 1; i < 5; ++i) EXPECT_LT(o.minimize(evaluate), first);
      EXPECT_LE(calls, 30);
      EXPECT_LE(worst(o, g, mesh), 1e-10) << l.mesh << l.others;
      return 0;
    });
}

// The losses of searches() in tools/optimizer_goldens.py.
TEST(Optimizers, LBFGSSearchesAsTorch) {
  const DType t = DType::kF64;
  using All = std::vector<DistTensor>;
  const auto vs = [&](const Mesh& mesh, const Shape& s, size_t i, int step) {
    return DistTensor::from_global(value(s, i, step, t), mesh, {});
  };
  struct Search {
    const char* name;
    double lr;
    std::function<DistTensor(const All&)> loss;
  };
  const Search searches[] = {
      {"quadratic", 9,
       [&](const All& p) {
         const auto of = [&](size_t i) {
           const auto at = [&](int step) {
             return vs(p[i].mesh(), p[i].shape(), i, step);
           };
           return sum(exp(at(2) * 2) * square(p[i] - at(1)));
         };
         return of(0) + of(1);
       }},
      {"steep", 100,
       [&](const All& p) {
         const auto of = [&](size_t i) {
           const DistTensor x = p[i] - vs(p[i].mesh(), p[i].shape(), i, 1);
           return sum(square(relu(x * 3)) + relu(-x));
         };
         return of(0) + of(1);
       }},
      {"rosenbrock", 1,
       [](const All& p) {
         const DistTensor a = slice(p[0], 0, 0, 7), b = slice(p[0], 0, 1, 8);
         return sum(square(b - square(a)) * 100 + square(1 - a));
       }},
      {"mlp", 0.01,
       [&](const All& p) {
         const Mesh& m = p[0].mesh();
         const auto layer = [&](const DistTensor& x, size_t i) {
           return matmul(x, transpose(p[i], 0, 1)) + p[i + 1];
         };
         const DistTensor hidden = tanh(layer(vs(m, {7, 4}, 0, 3), 0));
         return mean(square(layer(hidden, 2) - vs(m, {7, 2}, 1, 4)));
       }},
  };
  for (const Search& search : searches)
    for (const Layouts& l : kLayouts)
      on_mesh<int>(l.mesh, [&](const Mesh& mesh) {
        const Golden g = golden(search.name);
        LBFGS o(parameters(g, l, mesh, t),
                {.max_iter = 4,
                 .max_eval = 40,
                 .history_size = 5,
                 .line_search_fn = LineSearch::kStrongWolfe});
        int calls = 0;
        double most = 0;
        for (int step = 1; step <= 5; ++step) {
          o.minimize(
              [&] {
                ++calls;
                const DistTensor loss = search.loss(o.parameters());
                return LBFGS::Evaluation{loss, grad(loss, o.parameters())};
              },
              {.lr = search.lr});
          for (size_t i = 0; i < o.parameters().size(); ++i) {
            const Values found =
                values(o.parameters()[i].redistribute(mesh, Placements()));
            const Values& want = g.tensors.at(fmt::format("{} {}", i, step));
            EXPECT_EQ(found.size(), want.size());
            for (size_t k = 0; k < want.size(); ++k)
              most = std::max(most, std::abs(found[k] - want[k]));
          }
        }
        EXPECT_LE(most, 1e-9) << search.name << l.mesh << l.others;
        // On every rank: the ranks take the same decisions.
        EXPECT_EQ(calls, g.tensors.at("calls")[0]) << search.name << l.mesh;
        return 0;
      });
}

TEST(Optimizers, OptionsOutOfRange) {
  on_mesh<int>("tp=1", [](const Mesh& mesh) {
    const ParameterGroups p = {ones({2, 2}, mesh)};
    const auto refused = [](const std::string& what, const auto& make) {
      EXPECT_EQ(error_of(make).rfind("[optimizer] " + what, 0), 0u) << what;
    };
    refused("beta2 is 1", [&] { Adam(p, {.beta2 = 1}); });
    refused("eps is -1", [&] { Adagrad(p, {.eps = -1}); });
    refused("momentum is -1", [&] { RMSprop(p, {.momentum = -1}); });
    refused("beta1 is 2", [&] { Lion(p, {.beta1 = 2}); });
    refused("beta2_decay is 1 and d is 0.5",
            [&] { Adafactor(p, {.beta2_decay = 1, .d = 0.5}); });
    refused("ns_steps is 100", [&] { Muon(p, {.ns_steps = 100}); });
    EXPECT_EQ(error_of([&] { LBFGS(p, {.max_iter = 0}); }),
              "[lbfgs] max_iter is 0, max_eval is 0 and history_size is 100; "
              "write at least 1, 0 and 1");
    EXPECT_EQ(
        error_of([&] {
          LBFGS({{.parameters = {{"p", p.groups()[0].parameters[0].tensor}},
                  .weight_decay = 0.5}});
        }),
        "[lbfgs] a group has the weight decay 0.5, but the loss must "
        "include it; leave it out, and add it to the loss of the "
        "closure");
    LBFGS searching(p, {.line_search_fn = LineSearch::kStrongWolfe});
    EXPECT_EQ(error_of([&] {
                searching.minimize([] { return LBFGS::Evaluation(); },
                                   {.grad_scale = 0.5});
              }),
              "[lbfgs] a line search compares the loss with its gradients, but "
              "grad_scale is 0.5, clip is not defined and skip is false; pass "
              "only lr");
    refused("update_freq is 0", [&] { Shampoo(p, {.update_freq = 0}); });
    refused("precondition_frequency is 0",
            [&] { SOAP(p, {.precondition_frequency = 0}); });
    refused("shampoo_beta is 1", [&] { SOAP(p, {.shampoo_beta = 1}); });
    refused("weight decay is -3", [&] { Muon(p, {.weight_decay = -3}); });
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
