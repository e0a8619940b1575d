// SPDX-License-Identifier: Apache-2.0
// Measures the time of an operator beyond its kernel, on operands so small that
// the kernel is almost nothing. Each pair runs the kernel alone and the
// operator on the same 8x8 operands; the overhead is the difference.
//
//   bazel run -c opt //tests/bench:dispatch_bench
#include <benchmark/benchmark.h>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "dtensor/trace.h"

namespace dtensor {
namespace {

constexpr int64_t kSize = 8;

// Runs the loop of a benchmark as the only rank of a run.
void on_one_rank(benchmark::State& state,
                 const std::function<void(const Mesh&)>& body) {
  run(1, [&](Runtime& rt) {
    NoGrad no_grad;
    Mesh mesh = rt.mesh({{"dp", 1}});
    body(mesh);
  });
  state.SetItemsProcessed(state.iterations());
}

DistTensor operand(const Mesh& mesh, uint64_t stream) {
  return randn({kSize, kSize}, mesh, {}, DType::kF32, {1, stream});
}

void AddKernel(benchmark::State& state) {
  on_one_rank(state, [&](const Mesh& mesh) {
    DistTensor a = operand(mesh, 1), b = operand(mesh, 2), c = operand(mesh, 3);
    const Shape strides{kSize, 1};
    const kernels::Binary sum{.index = fn::index_of<fn::Add>,
                              .of = {.shape = {kSize, kSize},
                                     .out = c.local().mutable_data(),
                                     .in = {a.local().data(), b.local().data()},
                                     .strides = {strides, strides}}};
    for (auto _ : state) cpu_kernels().run({}, sum);
  });
}
BENCHMARK(AddKernel);

void AddOp(benchmark::State& state) {
  on_one_rank(state, [&](const Mesh& mesh) {
    DistTensor a = operand(mesh, 1), b = operand(mesh, 2);
    for (auto _ : state) benchmark::DoNotOptimize(add(a, b));
  });
}
BENCHMARK(AddOp);

// The same with a trace, which notes each operator.
void AddOpTraced(benchmark::State& state) {
  RunOptions options;
  options.trace = std::make_shared<Trace>(100'000'000);
  run(options, [&](Runtime& rt) {
    NoGrad no_grad;
    const Mesh mesh = rt.mesh({{"dp", 1}});
    DistTensor a = operand(mesh, 1), b = operand(mesh, 2);
    for (auto _ : state) benchmark::DoNotOptimize(add(a, b));
  });
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(AddOpTraced);

void MatmulKernel(benchmark::State& state) {
  on_one_rank(state, [&](const Mesh& mesh) {
    DistTensor a = operand(mesh, 1), b = operand(mesh, 2), c = operand(mesh, 3);
    kernels::Gemm g;
    g.m = g.n = g.k = kSize;
    g.a = a.local().data();
    g.b = b.local().data();
    g.c = c.local().mutable_data();
    g.a_m = g.b_k = g.c_m = kSize;
    g.a_k = g.b_n = g.c_n = 1;
    for (auto _ : state) cpu_kernels().run({}, g);
  });
}
BENCHMARK(MatmulKernel);

void MatmulOp(benchmark::State& state) {
  on_one_rank(state, [&](const Mesh& mesh) {
    DistTensor a = operand(mesh, 1), b = operand(mesh, 2);
    for (auto _ : state) benchmark::DoNotOptimize(matmul(a, b));
  });
}
BENCHMARK(MatmulOp);

// x w^T + b, as one operator, and as a product and a sum.
void LinearOp(benchmark::State& state) {
  on_one_rank(state, [&](const Mesh& mesh) {
    const DistTensor x = operand(mesh, 1), w = operand(mesh, 2),
                     b = randn({kSize}, mesh, {}, DType::kF32, {1, 3});
    for (auto _ : state) benchmark::DoNotOptimize(linear(x, w, b));
  });
}
BENCHMARK(LinearOp);

void ProductAndSumOps(benchmark::State& state) {
  on_one_rank(state, [&](const Mesh& mesh) {
    const DistTensor x = operand(mesh, 1), w = operand(mesh, 2),
                     b = randn({kSize}, mesh, {}, DType::kF32, {1, 3});
    for (auto _ : state)
      benchmark::DoNotOptimize(einsum("...i,oi->...o", {x, w}) + b);
  });
}
BENCHMARK(ProductAndSumOps);

// (x * 2).sum() and its gradient: forward, graph and backward pass.
void SumOfProductAndGradient(benchmark::State& state) {
  run(1, [&](Runtime& rt) {
    DistTensor x = operand(rt.mesh({{"dp", 1}}), 1).set_requires_grad();
    for (auto _ : state) benchmark::DoNotOptimize(grad(sum(mul(x, 2.0)), {x}));
  });
}
BENCHMARK(SumOfProductAndGradient);

// The time to decide on layouts that an operator has not met before. It is a
// dry run on four ranks, so that nothing else is done.
constexpr int kCold = 500;

void on_new_layouts(
    benchmark::State& state,
    const std::function<std::pair<Shape, Shape>(int64_t)>& shapes,
    const char* first, const char* second,
    const std::function<void(const DistTensor&, const DistTensor&)>& op) {
  RunOptions options;
  options.world = 4;
  options.dry_run = true;
  run(options, [&](Runtime&) {
    NoGrad no_grad;
    const Mesh mesh = Mesh::parse("dp=2,tp=2");
    auto made = [&](const Shape& shape, const char* layout) {
      return DistTensor::empty(Spec::get(
          mesh, shape, parse_layout(layout, mesh, shape), DType::kF32));
    };
    std::vector<std::pair<DistTensor, DistTensor>> operands;
    for (int64_t i = 0; i < kCold; ++i) {
      const auto [a, b] = shapes(64 + i);
      operands.emplace_back(made(a, first), made(b, second));
    }
    size_t next = 0;
    for (auto _ : state) {
      op(operands[next].first, operands[next].second);
      ++next;
    }
  });
}

void ColdAdd(benchmark::State& state) {
  on_new_layouts(
      state,
      [](int64_t n) {
        return std::pair(Shape{n, 64}, Shape{64});
      },
      "S0,R", "R,R",
      [](const DistTensor& a, const DistTensor& b) { add(a, b); });
}
BENCHMARK(ColdAdd)->Iterations(kCold);

void ColdMatmul(benchmark::State& state) {
  on_new_layouts(
      state,
      [](int64_t n) {
        return std::pair(Shape{n, 64}, Shape{64, n});
      },
      "S0,R", "R,S1",
      [](const DistTensor& a, const DistTensor& b) { matmul(a, b); });
}
BENCHMARK(ColdMatmul)->Iterations(kCold);

}  // namespace
}  // namespace dtensor
