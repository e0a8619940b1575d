// SPDX-License-Identifier: Apache-2.0
// Compares einsum() with a plain loop over all indices: values and gradients,
// for random rules, sizes and layouts.
#include "dtensor/ops/contraction.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <dnnl.hpp>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/conformance/cases.h"

namespace dtensor {
namespace {

using conformance::difference;
using conformance::part_of;
using testing::Array;
using testing::array_of;

struct Problem {
  std::vector<std::string> in;
  std::string out;
  std::map<char, int64_t> sizes;
  std::vector<Array> operands;
  Array cotangent;
  // The results of a plain loop.
  Array value;
  std::vector<Array> gradients;

  std::string text() const {
    std::string t;
    for (size_t i = 0; i < in.size(); ++i) t += (i ? "," : "") + in[i];
    return t + "->" + out;
  }
};

Array zeros(const std::string& letters, const std::map<char, int64_t>& sizes) {
  Array a;
  for (char c : letters) a.shape.push_back(sizes.at(c));
  a.v.assign(static_cast<size_t>(numel(a.shape)), 0.0);
  return a;
}

size_t offset(const std::string& letters, const Shape& shape,
              const std::map<char, int64_t>& at) {
  int64_t o = 0;
  for (size_t i = 0; i < letters.size(); ++i)
    o = o * shape[static_cast<int>(i)] + at.at(letters[i]);
  return static_cast<size_t>(o);
}

void solve(Problem& p) {
  p.value = zeros(p.out, p.sizes);
  for (const std::string& term : p.in)
    p.gradients.push_back(zeros(term, p.sizes));
  std::map<char, int64_t> at;
  std::function<void(std::map<char, int64_t>::const_iterator)> loop =
      [&](auto letter) {
        if (letter != p.sizes.end()) {
          const auto next = std::next(letter);
          for (at[letter->first] = 0; at[letter->first] < letter->second;
               ++at[letter->first])
            loop(next);
          return;
        }
        const size_t o = offset(p.out, p.value.shape, at);
        std::vector<size_t> from;
        double product = 1;
        for (size_t k = 0; k < p.in.size(); ++k) {
          from.push_back(offset(p.in[k], p.operands[k].shape, at));
          product *= p.operands[k].v[from[k]];
        }
        p.value.v[o] += product;
        for (size_t k = 0; k < p.in.size(); ++k) {
          double others = p.cotangent.v[o];
          for (size_t j = 0; j < p.in.size(); ++j)
            if (j != k) others *= p.operands[j].v[from[j]];
          p.gradients[k].v[from[k]] += others;
        }
      };
  loop(p.sizes.begin());
}

Problem make(std::mt19937& random, size_t operands) {
  Problem p;
  std::string used;
  for (size_t k = 0; k < operands; ++k) {
    std::string term;
    const size_t n = random() % 5;
    while (term.size() < n) {
      const char c = static_cast<char>('a' + random() % 6);
      if (term.find(c) == term.npos) term += c;
    }
    for (char c : term)
      if (used.find(c) == used.npos) used += c;
    p.in.push_back(term);
  }
  for (char c : used) p.sizes[c] = static_cast<int64_t>(random() % 16 / 3);
  for (auto& [c, n] : p.sizes)
    if (n == 0 && random() % 4 != 0) n = 3;  // few are empty
  std::shuffle(used.begin(), used.end(), random);
  p.out = used.substr(0, random() % (used.size() + 1));
  auto filled = [&](const std::string& letters) {
    Array a = zeros(letters, p.sizes);
    for (double& x : a.v)
      x = (static_cast<double>(random() % 2001) - 1000) / 256;
    return a;
  };
  for (const std::string& term : p.in) p.operands.push_back(filled(term));
  p.cotangent = filled(p.out);
  solve(p);
  return p;
}

DistTensor place(const Array& a, const Mesh& mesh, std::mt19937& random,
                 int which) {
  std::string text;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    const auto choice =
        static_cast<int>(random() % static_cast<unsigned>(a.shape.size() + 2));
    text += axis > 0 ? "," : "";
    text += choice == 0   ? "R"
            : choice == 1 ? "P"
                          : fmt::format("S{}", choice - 2);
  }
  const Spec* spec = Spec::get(
      mesh, a.shape, Placements(text).resolve(mesh, a.shape), a.dtype);
  return DistTensor::from_local(
      tensor_of(
          part_of(a, spec, RankContext::current().coordinate(mesh), which)),
      mesh, Placements(text), a.shape);
}

void check(const Array& got, const Array& want, const std::string& what) {
  double worst = 0;
  EXPECT_EQ(difference(got, want, 1e-11, 1e-9, worst), "") << what;
}

TEST(EinsumOracle, ValuesAndGradients) {
  std::mt19937 random(20);
  std::vector<Problem> problems;
  for (int i = 0; i < 180; ++i)
    problems.push_back(make(random, 1 + static_cast<size_t>(i % 6)));
  for (const char* text : {"x=1", "x=2", "x=3", "x=2,y=2"}) {
    const Mesh mesh = Mesh::parse(text);
    run(mesh.num_ranks(), [&](Runtime&) {
      std::mt19937 layouts(7);  // the same on all ranks
      for (const Problem& p : problems) {
        std::vector<DistTensor> x;
        std::string what = p.text() + " on " + text;
        for (size_t k = 0; k < p.in.size(); ++k) {
          x.push_back(place(p.operands[k], mesh, layouts, static_cast<int>(k)));
          x.back().set_requires_grad();
          what += " " + x.back().spec()->to_string();
        }
        const DistTensor y = einsum(p.text(), x);
        check(array_of(y.full()), p.value, what);
        const auto g =
            grad(y, x, {.cotangent = place(p.cotangent, mesh, layouts, 5)});
        for (size_t k = 0; k < x.size(); ++k)
          check(array_of(g[k].full()), p.gradients[k],
                fmt::format("gradient {} of {}", k, what));
      }
    });
  }
}

// oneDNN's cache shared the primitives of one rank's bf16 products with the
// other ranks' threads. That is a race: the thread sanitizer reports it with
// oneDNN 2.6, and it had corrupted memory in TensorFlow.

TEST(SharedPrimitives, AreNone) {
  dnnl::set_primitive_cache_capacity(1024);  // as it is by default
  run(4, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 4}});
    const auto draw = [&](uint64_t stream) {
      return randn({33, 33}, mesh, "R", DType::kBF16, {1, stream});
    };
    for (int i = 0; i < 10; ++i) matmul(draw(1), draw(2));
  });
  EXPECT_EQ(dnnl::get_primitive_cache_capacity(), 0);
}

}  // namespace
}  // namespace dtensor
