// SPDX-License-Identifier: Apache-2.0
// The calls to cuBLASLt, and the choice among its algorithms.
#include "dtensor/ops/kernels/cuda/gemm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/cuda/cuda_kernels.h"
#include "tests/cuda/fake_cublaslt.cuh"
#include "tests/cuda/random_gemm.h"
#include "tests/ops/reference.h"

namespace dtensor::kernels::cuda {
namespace {

// Keeps choices in a folder of this test, not in the user's cache.
const bool kOwnCache = [] {
  std::string folder = testing::TempDir() + "/gemm_test.XXXXXX";
  return mkdtemp(folder.data()) &&
         setenv("XDG_CACHE_HOME", folder.data(), 1) == 0;
}();

class CublasLtTest : public testing::Test {
 protected:
  CublasLtTest() {
    EXPECT_TRUE(kOwnCache);
    world = World();
  }
};

struct Tuned {
  Tuned() { options = CudaOptions{.tune_gemm = true}; }
  ~Tuned() { options = CudaOptions(); }
};

Stream stream(uintptr_t i) { return {reinterpret_cast<void*>(i)}; }

// A product of n x n matrices of f32, contiguous, in memory of its own.
struct Square {
  explicit Square(int64_t n)
      : a(static_cast<size_t>(n * n + 1), 1),
        b(static_cast<size_t>(n * n + 1), 1),
        c(static_cast<size_t>(n * n + 1), 5) {
    g.m = g.n = g.k = g.a_m = g.b_k = g.c_m = n;
    g.a_k = g.b_n = g.c_n = 1;
    g.a = a.data(), g.b = b.data(), g.c = c.data();
  }
  bool run(uintptr_t on = 1) { return cublaslt_gemm(stream(on), g); }
  std::vector<float> a, b, c;
  Gemm g;
};

cudaDataType cuda_type(DType t) {
  return t == DType::kF32   ? CUDA_R_32F
         : t == DType::kF64 ? CUDA_R_64F
                            : CUDA_R_16BF;
}

TEST_F(CublasLtTest, IsTheProduct) {
  std::mt19937 rng(2);
  const std::pair<DType, DType> types[] = {{DType::kF32, DType::kF32},
                                           {DType::kF64, DType::kF64},
                                           {DType::kBF16, DType::kBF16},
                                           {DType::kBF16, DType::kF32}};
  int taken = 0, left_alone = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto [in, out] = types[rng() % 4];
    const RandomGemm random(rng);
    Gemm g = random.g;
    // -1, 0 and 1, whose sums are whole numbers in any type.
    const auto values = [&](int64_t n) {
      std::vector<double> v(static_cast<size_t>(n));
      for (double& x : v) x = static_cast<double>(rng() % 3) - 1;
      return v;
    };
    const auto as = [&](const std::vector<double>& v, DType t) {
      std::vector<double> bytes(v.size());  // at least as many
      for (size_t j = 0; j < v.size(); ++j)
        set(bytes.data(), static_cast<int64_t>(j), cuda_type(t), v[j]);
      return bytes;
    };
    const auto a = values(random.a_size), b = values(random.b_size);
    auto want = values(random.c_size);
    const auto a_in = as(a, in), b_in = as(b, in);
    auto c_out = as(want, out);
    const auto before = c_out;
    g.a = a_in.data(), g.b = b_in.data(), g.c = c_out.data();
    g.type = in, g.c_type = out;
    if (!cublaslt_gemm(stream(1), g)) {
      ++left_alone;
      ASSERT_EQ(0, memcmp(before.data(), c_out.data(), before.size() * 8));
      continue;
    }
    ++taken;
    g.a = a.data(), g.b = b.data(), g.c = want.data();
    reference::gemm(g);
    for (int64_t j = 0; j < random.c_size; ++j)
      ASSERT_EQ(get(c_out.data(), j, cuda_type(out)),
                want[static_cast<size_t>(j)])
          << "case " << i << ", element " << j;
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(left_alone, 100);
  EXPECT_EQ(declined.counts(), (std::map<std::string, int64_t>{}));
}

constexpr Epilogue::Kind kEpilogues[] = {Epilogue::kBias, Epilogue::kGeluTanh,
                                         Epilogue::kSumB};

// Compares whole numbers, whose sums are exact in any type.
TEST_F(CublasLtTest, EpiloguesAreDoneOrLeftAlone) {
  std::mt19937 rng(3);
  int taken = 0, left_alone = 0;
  for (int i = 0; i < 6000; ++i) {
    const DType t =
        std::array{DType::kF32, DType::kF64, DType::kBF16}[rng() % 3];
    const cudaDataType type = cuda_type(t);
    Gemm g;
    g.epilogue.kind = kEpilogues[rng() % 3];
    const bool sums = g.epilogue.kind == Epilogue::kSumB;
    const auto one_of = [&](std::initializer_list<int64_t> sizes) {
      return sizes.begin()[rng() % sizes.size()];
    };
    g.m = one_of({1, 3, 8}), g.n = one_of({1, 3, 8, 16}),
    g.k = one_of({1, 2, 5});
    OperandLayout a(rng), b(rng);
    std::vector<std::pair<int64_t, int64_t*>> c;
    const int dims = static_cast<int>(rng() % 3);
    g.batch = g.a_batch_strides = g.b_batch_strides = g.c_batch_strides =
        Shape::filled(dims, 0);
    for (int d = 0; d < dims; ++d) {
      g.batch[d] = one_of({1, 2, 3});
      a.add(g.batch[d], g.a_batch_strides[d]);
      if (sums || rng() % 2) b.add(g.batch[d], g.b_batch_strides[d]);
      if (!sums) c.push_back({g.batch[d], &g.c_batch_strides[d]});
    }
    a.add(g.m, g.a_m), a.add(g.k, g.a_k);
    b.add(g.k, g.b_k), b.add(g.n, g.b_n);
    // Usually c lies as an operator's output does.
    c.push_back({g.m, &g.c_m}), c.push_back({g.n, &g.c_n});
    if (rng() % 4 == 0) std::shuffle(c.begin(), c.end(), rng);
    int64_t c_size = 1;
    for (size_t d = c.size(); d-- > 0;) {
      *c[d].second = c_size;
      c_size *= c[d].first;
    }
    const auto values = [&](int64_t n) {
      std::vector<double> v(static_cast<size_t>(n));
      for (double& x : v) x = static_cast<double>(rng() % 3) - 1;
      return v;
    };
    const auto va = values(a.lay_out()), vb = values(b.lay_out()),
               bias = values(g.n);
    std::vector<double> c64(static_cast<size_t>(c_size), 7),
        aux64 = c64, sum64(static_cast<size_t>(g.n), 7);
    // `off` decides whether the address is a multiple of 16.
    const auto as = [&](const std::vector<double>& v, const int64_t off) {
      std::vector<double> bytes(v.size() + 2);
      for (size_t j = 0; j < v.size(); ++j)
        set(bytes.data(), static_cast<int64_t>(j) + off, type, v[j]);
      return bytes;
    };
    const int64_t off = rng() % 4 == 0;
    const auto in_a = as(va, 0), in_b = as(vb, 0), in_bias = as(bias, off);
    auto out = as(c64, 0), out_aux = as(aux64, off), out_sum = as(sum64, off);
    const auto at = [&](std::vector<double>& v) {
      return reinterpret_cast<char*>(v.data()) + off * size_of(t);
    };
    const bool no_bias =
        rng() % 2 == 0 && g.epilogue.kind == Epilogue::kGeluTanh;
    g.a = in_a.data(), g.b = in_b.data(), g.c = out.data();
    g.epilogue.bias =
        no_bias ? nullptr : at(const_cast<std::vector<double>&>(in_bias));
    g.epilogue.aux = at(out_aux);
    g.epilogue.b_sum = at(out_sum);
    const auto before = out, before_aux = out_aux, before_sum = out_sum;
    g.type = g.c_type = t;
    if (!cublaslt_gemm(stream(1), g)) {
      ++left_alone;
      ASSERT_EQ(before, out);
      ASSERT_EQ(before_aux, out_aux);
      ASSERT_EQ(before_sum, out_sum);
      continue;
    }
    ++taken;
    g.a = va.data(), g.b = vb.data(), g.c = c64.data();
    g.epilogue.bias = no_bias ? nullptr : bias.data();
    g.epilogue.aux = aux64.data();
    g.epilogue.b_sum = sum64.data();
    reference::gemm(g);
    const auto expect = [&](const std::vector<double>& got, int64_t off,
                            const std::vector<double>& want) {
      for (size_t j = 0; j < want.size(); ++j)
        ASSERT_NEAR(get(got.data(), static_cast<int64_t>(j) + off, type),
                    want[j], 0.01 * std::abs(want[j]))
            << "case " << i << ", epilogue " << int{g.epilogue.kind}
            << ", element " << j;
    };
    expect(out, 0, c64);
    expect(out_aux, off, aux64);
    expect(out_sum, off, sum64);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(taken, 500);
  EXPECT_GT(left_alone, 500);
  EXPECT_EQ(world.done,
            (std::set{CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX,
                      CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_BGRADA,
                      CUBLASLT_EPILOGUE_BGRADB}));
}

// A layer of a model, [64, 32] times [32, 128], contiguous. For a sum, the
// gradient of the layer's weights, whose operands are both transposed.
struct Layer {
  explicit Layer(Epilogue::Kind kind, bool row_major = true) {
    g.m = 64, g.n = 128, g.k = 32;
    g.a_m = 32, g.a_k = 1;
    g.b_k = 1, g.b_n = 32;
    if (kind == Epilogue::kSumB) g.a_m = 1, g.a_k = 64, g.b_k = 128, g.b_n = 1;
    g.c_m = row_major ? 128 : 1, g.c_n = row_major ? 1 : 64;
    g.a = memory[0], g.b = memory[1], g.c = memory[2];
    g.epilogue = {kind, memory[3], memory[4], memory[5]};
  }
  bool run(DType t) {
    g.type = g.c_type = t;
    return cublaslt_gemm(stream(1), g);
  }
  Gemm g;
  alignas(64) static inline double memory[6][64 * 128];
};

TEST_F(CublasLtTest, ALayerOfAModelIsOneCall) {
  for (DType t : {DType::kBF16, DType::kF16})
    for (Epilogue::Kind kind : kEpilogues) EXPECT_TRUE(Layer(kind).run(t));
  EXPECT_TRUE(Layer(Epilogue::kBias).run(DType::kF32));
  EXPECT_TRUE(Layer(Epilogue::kSumB).run(DType::kF32));
  // A bias along columns, a gelu that cuBLASLt only approximates, and f64, for
  // which there are no kernels.
  EXPECT_FALSE(Layer(Epilogue::kBias, false).run(DType::kBF16));
  EXPECT_FALSE(Layer(Epilogue::kGeluTanh).run(DType::kF32));
  EXPECT_FALSE(Layer(Epilogue::kBias).run(DType::kF64));
  Layer once(Epilogue::kBias);
  world.products = 0;
  ASSERT_TRUE(once.run(DType::kBF16));
  EXPECT_EQ(world.products, 1);
}

// cuBLASLt 13.1 answers like this on an H200.
TEST_F(CublasLtTest, ASumIsDeclinedWhereOnlyTheLeftIsTransposed) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16}) {
    Layer layer(Epilogue::kSumB);
    EXPECT_TRUE(layer.run(t));
    const std::string what = fmt::format("{} product with bgrad", name(t));
    const int64_t before = declined.counts()[what];
    layer.g.a_m = 32, layer.g.a_k = 1;
    layer.g.b_k = 1, layer.g.b_n = 32;
    EXPECT_FALSE(layer.run(t));
    EXPECT_EQ(declined.counts()[what], before + 1);
  }
}

TEST_F(CublasLtTest, WithoutAnAlgorithmForTheEpilogueTheProductIsLeft) {
  world.epilogues = false;
  const auto before = declined.counts();
  Layer layer(Epilogue::kBias);
  layer.g.m = 63;
  EXPECT_FALSE(layer.run(DType::kBF16));
  EXPECT_EQ(world.products, 0);
  auto expected = before;
  ++expected["bf16 product with bias"];
  EXPECT_EQ(declined.counts(), expected);
  layer.g.epilogue = {};
  EXPECT_TRUE(layer.run(DType::kBF16));
}

// The first proposal gives all runs, GPUs and processes the same bits.
TEST_F(CublasLtTest, TheFirstProposalIsTakenUnlessOneIsTimed) {
  Square square(16);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.last_algorithm, 0);
  EXPECT_EQ(world.syncs, 0);
  EXPECT_EQ(world.products, 1);
  const Tuned tuned;
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.last_algorithm, 1);
  EXPECT_EQ(world.syncs, 1);
}

TEST_F(CublasLtTest, TheFastestIsKeptForAllStreams) {
  const Tuned tuned;
  Square square(10);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.last_algorithm, 1);
  EXPECT_EQ(world.syncs, 1);
  world.products = 0;
  world.times = {1, 9, 1, 1};
  Square again(10);
  ASSERT_TRUE(again.run(2));
  EXPECT_EQ(world.last_algorithm, 1);
  EXPECT_EQ(world.syncs, 1);
  EXPECT_EQ(world.products, 1);
  EXPECT_EQ(world.workspaces.size(), 2u) << "one for each stream";
}

// Computes such a product in another process, with a World like this one. The
// process exits with 0 if it takes this algorithm after this many waits.
void expect_elsewhere(int64_t n, int algorithm, int syncs, bool adds = false) {
  const auto run = [&] {
    const Tuned tuned;
    Square square(n);
    square.g.accumulate = adds;
    world.syncs = 0;
    exit(!square.run() || world.last_algorithm != algorithm ||
         world.syncs != syncs);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "")
      << "algorithm " << algorithm << " after " << syncs << " waits";
}

TEST_F(CublasLtTest, TheFastestIsKeptForLaterProcesses) {
  world.times = {9, 9, 9, 1};
  expect_elsewhere(20, 3, 1);
  world.times = {1, 9, 9, 9};
  expect_elsewhere(20, 3, 0);
  expect_elsewhere(21, 0, 1);
  // A process that captures a graph takes a kept choice, too, but measures
  // none.
  world.capturing = true;
  expect_elsewhere(20, 3, 0);
  expect_elsewhere(22, 0, 0);
  world.capturing = false;
  expect_elsewhere(22, 0, 1);
  // A choice does not count for other GPUs, versions or proposals.
  for (const auto& change :
       {+[] { world.gpu = "NVIDIA H100"; }, +[] { world.multiprocessors = 66; },
        +[] { world.version = 130200; },
        +[] {
          world.times = {1, 9, 9};
        }}) {
    const World before = world;
    change();
    expect_elsewhere(20, 0, 1);
    expect_elsewhere(20, 0, 0);
    world = before;
  }
  // This process takes the kept choice without measuring.
  const Tuned tuned;
  Square square(20);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.last_algorithm, 3);
  EXPECT_EQ(world.syncs, 0);
  EXPECT_EQ(world.products, 1);
}

TEST_F(CublasLtTest, WithoutTuningNothingIsKept) {
  world.times = {9, 1};
  Square square(24);
  ASSERT_TRUE(square.run());
  expect_elsewhere(24, 1, 1);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.last_algorithm, 0);
}

TEST_F(CublasLtTest, WithoutMemoryToTimeNothingIsKept) {
  world.memory = false;
  expect_elsewhere(25, 0, 0, true);
  world.memory = true;
  expect_elsewhere(25, 1, 1, true);
  expect_elsewhere(25, 1, 0, true);
}

TEST_F(CublasLtTest, ADamagedFileIsMeasuredAgain) {
  world.times = {9, 1};
  expect_elsewhere(26, 1, 1);
  const std::filesystem::path file =
      std::string(getenv("XDG_CACHE_HOME")) + "/dtensor/gemm_choices.txt";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  world.times = {1, 9};
  expect_elsewhere(26, 0, 1);
  expect_elsewhere(26, 0, 0);
}

// cuBLASLt proposes at most eight, however many are asked for.
TEST_F(CublasLtTest, AtMostEightAreProposed) {
  world.times = {9, 9, 9, 9, 9, 9, 2, 9, 1, 1, 1, 1, 1, 1, 1, 1};
  const Tuned tuned;
  Square square(27);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.last_algorithm, 6);
}

TEST_F(CublasLtTest, WhatIsAddedToIsAddedToOnce) {
  const Tuned tuned;
  Square square(11);
  square.g.accumulate = true;
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.syncs, 1);
  EXPECT_EQ(square.c[0], 5 + 11);
  // Without memory for a copy of c, algorithms are not timed.
  world.memory = false;
  Square other(12);
  other.g.accumulate = true;
  ASSERT_TRUE(other.run());
  EXPECT_EQ(world.syncs, 1);
  EXPECT_EQ(world.last_algorithm, 0);
  EXPECT_EQ(other.c[0], 5 + 12);
}

TEST_F(CublasLtTest, NothingIsTimedWhileAGraphIsCaptured) {
  const Tuned tuned;
  world.capturing = true;
  Square square(13);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.syncs, 0);
  EXPECT_EQ(world.products, 1);
  EXPECT_EQ(world.last_algorithm, 0);
  world.capturing = false;
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.syncs, 0) << "equal calls give equal bits";
}

TEST_F(CublasLtTest, WithoutAnAlgorithmItIsAnothersWork) {
  world.times = {};
  Square square(14);
  EXPECT_FALSE(square.run());
  EXPECT_FALSE(square.run());
  EXPECT_EQ(declined.counts()["f32 product"], 2);
  EXPECT_EQ(square.c[0], 5);
}

TEST_F(CublasLtTest, IsToldHowTheMatricesLie) {
  alignas(64) static float memory[3][1024];
  Gemm g;
  g.m = g.n = g.k = g.a_m = g.b_k = g.c_m = 16;
  g.a_k = g.b_n = g.c_n = 1;
  g.a = memory[0] + 1, g.b = memory[1] + 8, g.c = memory[2];
  ASSERT_TRUE(cublaslt_gemm(stream(1), g));
  // The transpose of c is that of b times that of a.
  EXPECT_EQ(world.alignment[0], 16u);
  EXPECT_EQ(world.alignment[1], 4u);
  EXPECT_EQ(world.alignment[2], 16u);
  EXPECT_EQ(world.alignment[3], 16u);
  EXPECT_EQ(world.schemes, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  // In a batch, the alignment is that of all matrices.
  g.a = memory[0];
  g.batch = {2};
  g.a_batch_strides = {258}, g.b_batch_strides = {256},
  g.c_batch_strides = {256};
  ASSERT_TRUE(cublaslt_gemm(stream(1), g));
  EXPECT_EQ(world.alignment[1], 8u);
}

TEST_F(CublasLtTest, Tf32IsAskedFor) {
  Square square(15);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.compute, CUBLAS_COMPUTE_32F);
  options = CudaOptions{.tf32 = true};
  ASSERT_TRUE(square.run());
  options = CudaOptions();
  EXPECT_EQ(world.compute, CUBLAS_COMPUTE_32F_FAST_TF32);
}

}  // namespace
}  // namespace dtensor::kernels::cuda
