// SPDX-License-Identifier: Apache-2.0
// Runs an operator on many meshes and layouts, and compares it with a naive
// reference.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"

namespace dtensor::testing {

// Values of both signs, without symmetry, and with a mean that is not zero.
inline Array values(const Shape& shape, int seed, double scale = 1) {
  Array a = zeros_like(shape);
  for (int64_t i = 0; i < numel(shape); ++i)
    a.at(i) = scale * (std::sin(1.7 * static_cast<double>(i) + seed) +
                       0.3 * std::cos(0.37 * static_cast<double>(i * i)) + 0.2);
  return a;
}

inline Array integers(const Shape& shape, const std::vector<double>& v,
                      DType t = DType::kI64) {
  return {shape, v, t};
}

// Lays out an array on a mesh. `floats` is the type that f64 arrays get. "R"
// replicates on any mesh.
inline DistTensor put(const Array& a, const Mesh& mesh,
                      const std::string& layout = "",
                      DType floats = DType::kF64) {
  return DistTensor::from_global(
      tensor_of(a, a.dtype == DType::kF64 ? floats : a.dtype), mesh,
      Placements(layout == "R" ? "" : layout));
}

// Expects that got is `want`, within `tolerance` times the larger of 1 and the
// wanted value.
inline void expect_near(const Array& got, const Array& want, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(to_string(got.shape), to_string(want.shape)) << what;
  for (int64_t i = 0; i < numel(want.shape); ++i) {
    const double g = got.at(i), w = want.at(i);
    if ((std::isnan(g) && std::isnan(w)) || g == w) continue;
    ASSERT_LE(std::abs(g - w), tolerance * std::max(1.0, std::abs(w)))
        << what << ": element " << i << " is " << g << ", not " << w;
  }
}

using Function = std::function<DistTensor(const std::vector<DistTensor>&)>;
using Reference = std::function<Array(const std::vector<Array>&)>;

// A mesh and the inputs' layouts on it: {"x=2,y=3", {"S0,R", "R,S1"}}.
struct Case {
  std::string mesh;
  std::vector<std::string> layouts;
};

struct Problem {
  std::vector<Array> inputs;  // f64 inputs are differentiated
  Function function;
  Reference reference;
  bool second_order = true;
};

inline double dot(const Array& a, const Array& b) {
  double s = 0;
  for (int64_t i = 0; i < numel(a.shape); ++i) s += a.at(i) * b.at(i);
  return s;
}

// The derivative of f with respect to inputs[i], from central differences.
inline Array differences(
    std::vector<Array> inputs, size_t i,
    const std::function<double(const std::vector<Array>&)>& f) {
  constexpr double kStep = 1e-5;
  Array d = zeros_like(inputs[i].shape);
  for (int64_t k = 0; k < numel(d.shape); ++k) {
    const double x = inputs[i].at(k);
    inputs[i].at(k) = x + kStep;
    const double up = f(inputs);
    inputs[i].at(k) = x - kStep;
    const double down = f(inputs);
    inputs[i].at(k) = x;
    d.at(k) = (up - down) / (2 * kStep);
  }
  return d;
}

// The results of one evaluation by the library, as whole tensors.
struct Results {
  Array value;
  std::vector<Array> grads, grads_composed, second;
};

// Evaluates the function's value; its gradients for the cotangent `weights`,
// by fused operators and by composed ones; and the gradients of the dot product
// of its gradients with values().
inline Results evaluate(const Problem& p, const std::vector<Array>& inputs,
                        const Mesh& mesh,
                        const std::vector<std::string>& layouts,
                        const Array& weights, bool second_order) {
  Results r;
  auto whole = [](const DistTensor& t) { return array_of(t.full()); };
  std::vector<DistTensor> x, wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    x.push_back(put(inputs[i], mesh, i < layouts.size() ? layouts[i] : ""));
    if (inputs[i].dtype == DType::kF64)
      wanted.push_back(x.back().set_requires_grad());
  }
  DistTensor y = p.function(x);
  r.value = whole(y);
  GradOptions options;
  options.cotangent = put(weights, mesh);
  for (const DistTensor& g : grad(y, wanted, options))
    r.grads.push_back(whole(g));
  if (!second_order) return r;
  options.create_graph = true;
  DistTensor mix;
  std::vector<DistTensor> graph = grad(y, wanted, options);
  for (size_t i = 0; i < graph.size(); ++i) {
    r.grads_composed.push_back(whole(graph[i]));
    DistTensor part =
        sum(graph[i] *
            put(values(graph[i].shape(), 50 + static_cast<int>(i)), mesh));
    mix = mix.defined() ? mix + part : part;
  }
  for (const DistTensor& g : grad(mix, wanted)) r.second.push_back(whole(g));
  return r;
}

// Runs `fn` on the ranks of a mesh, as threads.
inline void on_mesh(const std::string& mesh,
                    const std::function<void(const Mesh&)>& fn) {
  const Mesh m = Mesh::parse(mesh);
  run(m.num_ranks(), [&](Runtime&) { fn(m); });
}

// Compares the results on one rank with the reference and its differences, and
// the results of each case with those on one rank. Also runs each case dry.
inline void check_problem(const Problem& p, const std::vector<Case>& cases) {
  const Array want = p.reference(p.inputs);
  const Array weights = values(want.shape, 91);
  std::vector<size_t> floats;
  for (size_t i = 0; i < p.inputs.size(); ++i)
    if (p.inputs[i].dtype == DType::kF64) floats.push_back(i);

  Results one;
  on_mesh("x=1", [&](const Mesh& mesh) {
    one = evaluate(p, p.inputs, mesh, {}, weights, p.second_order);
    expect_near(one.value, want, 1e-12, "value on one rank");
    for (size_t k = 0; k < floats.size(); ++k) {
      const Array d =
          differences(p.inputs, floats[k], [&](const std::vector<Array>& x) {
            return dot(p.reference(x), weights);
          });
      const std::string which = " of input " + std::to_string(floats[k]);
      expect_near(one.grads[k], d, 1e-7, "gradient" + which);
      if (!p.second_order) continue;
      expect_near(one.grads_composed[k], one.grads[k], 1e-12,
                  "composed gradient" + which);
      const Array dd =
          differences(p.inputs, floats[k], [&](const std::vector<Array>& x) {
            Results r = evaluate(p, x, mesh, {}, weights, false);
            double s = 0;
            for (size_t i = 0; i < r.grads.size(); ++i)
              s += dot(r.grads[i],
                       values(r.grads[i].shape, 50 + static_cast<int>(i)));
            return s;
          });
      expect_near(one.second[k], dd, 1e-6, "second gradient" + which);
    }
  });
  if (::testing::Test::HasFatalFailure()) return;

  for (const Case& c : cases) {
    std::string label = c.mesh + ":";
    for (const std::string& l : c.layouts) label += " " + l;
    SCOPED_TRACE(label);
    on_mesh(c.mesh, [&](const Mesh& mesh) {
      Results r =
          evaluate(p, p.inputs, mesh, c.layouts, weights, p.second_order);
      expect_near(r.value, one.value, 1e-12, label + ": value");
      for (size_t k = 0; k < one.grads.size(); ++k) {
        const std::string which = " of input " + std::to_string(floats[k]);
        expect_near(r.grads[k], one.grads[k], 1e-12,
                    label + ": gradient" + which);
        if (!p.second_order) continue;
        expect_near(r.grads_composed[k], one.grads[k], 1e-12,
                    label + ": composed gradient" + which);
        expect_near(r.second[k], one.second[k], 1e-11,
                    label + ": second gradient" + which);
      }
    });
    RunOptions dry;
    dry.world = Mesh::parse(c.mesh).num_ranks();
    dry.dry_run = true;
    run(dry, [&](Runtime&) {
      evaluate(p, p.inputs, Mesh::parse(c.mesh), c.layouts, weights,
               p.second_order);
    });
  }
}

// Compares the value in f32, bf16 and f16 on two ranks, and checks the
// gradients' types.
inline void check_types(const Problem& p, const std::vector<std::string>& at) {
  const Array want = p.reference(p.inputs);
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    on_mesh("x=2", [&](const Mesh& mesh) {
      std::vector<DistTensor> x, wanted;
      for (size_t i = 0; i < p.inputs.size(); ++i) {
        x.push_back(put(p.inputs[i], mesh, at[i], t));
        if (p.inputs[i].dtype == DType::kF64)
          wanted.push_back(x.back().set_requires_grad());
      }
      DistTensor y = p.function(x);
      const double tolerance = t == DType::kF32   ? 1e-5
                               : t == DType::kF16 ? 5e-3
                                                  : 4e-2;
      expect_near(array_of(y.full()), want, tolerance,
                  "value in " + std::string(name(t)));
      GradOptions options;
      options.cotangent = put(values(y.shape(), 91), mesh, "", y.dtype());
      for (bool create_graph : {false, true}) {
        options.create_graph = create_graph;
        std::vector<DistTensor> g = grad(y, wanted, options);
        for (size_t i = 0; i < g.size(); ++i)
          EXPECT_EQ(name(g[i].dtype()), name(wanted[i].dtype()));
      }
    });
  }
}

// The bytes that fn() sends; those of checks are not counted.
template <class Fn>
int64_t sent(Fn&& fn) {
  RankContext& context = RankContext::current();
  context.record = true;
  context.events.clear();
  fn();
  int64_t bytes = 0;
  for (const CommEvent& e : context.events) bytes += e.counted;
  return bytes;
}

// The message of the Error that fn throws on a mesh of `world` ranks.
inline std::string error_of(int64_t world,
                            const std::function<void(const Mesh&)>& fn) {
  try {
    run(world, [&](Runtime& rt) { fn(rt.mesh()); });
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace dtensor::testing
