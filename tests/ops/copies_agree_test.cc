// SPDX-License-Identifier: Apache-2.0
// Guards a fix: the ranks' copies of an element differed by an ulp if the ranks
// held it in parts of different sizes, because a kernel's rounding depends on
// the size. So full() differed between ranks.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"

namespace dtensor {
namespace {

using Values = std::vector<DistTensor>;
// The results of an operator on [40,64] x and y in a layout.
using Program = std::function<Values(const DistTensor& x, const DistTensor& y)>;

// Layouts of [40,64] in which several ranks hold some of the elements, in parts
// of different sizes or at different places.
struct Where {
  const char *mesh, *layout;
};
constexpr Where kWheres[] = {
    {"a=2", "[{},(1|63{a}@(0|0|63))]"},
    {"a=5", "[{},(3{a}|1|60{a}@(0|0|1|3|40|60))]"},
    {"a=5", "[(3{a}|1|36{a}@(0|0|1|1|1|36)),{}]"},
    {"a=3,b=2", "[(3{a}|37),(7{b}|57)]"},
    {"a=3,b=2", "[{b},(63{a}@(0|1|4|63)|1)]"},
    {"b=3,a=2", "[(39{a}@(0|0|39)|1),(15{b}@(0|0|1|15)|49)]"},
};

// Expects that each result's full() has the same bytes on all ranks.
void expect_copies_agree(const char* name, const Program& program) {
  for (const Where& where : kWheres)
    for (const DType type : {DType::kF32, DType::kF64, DType::kBF16}) {
      const Mesh mesh = Mesh::parse(where.mesh);
      std::vector<std::vector<std::string>> by_rank(
          static_cast<size_t>(mesh.num_ranks()));
      run(mesh.num_ranks(), [&](Runtime& rt) {
        auto& mine = by_rank[static_cast<size_t>(rt.rank())];
        for (uint64_t seed = 0; seed < 10; ++seed) {
          const auto value = [&](uint64_t of) {
            return cast(randn({40, 64}, mesh, "[{},{}]", DType::kF64,
                              {seed, of}),
                        type)
                .redistribute(where.layout)
                .set_requires_grad();
          };
          const DistTensor x = value(0), y = value(1);
          Values results = program(x, y);
          if (results[0].requires_grad())
            for (const DistTensor& g :
                 grad(sum(results[0] * results[0]), {x, y}))
              results.push_back(g);
          for (const DistTensor& r : results) {
            const Tensor full = r.full().to_contiguous();
            mine.emplace_back(
                static_cast<const char*>(full.data()),
                static_cast<size_t>(full.numel() * size_of(full.dtype())));
          }
        }
      });
      int differ = 0;
      for (const auto& mine : by_rank)
        for (size_t i = 0; i < mine.size(); ++i)
          differ += mine[i] != by_rank[0][i];
      EXPECT_EQ(differ, 0) << name << " of " << dtensor::name(type) << " in "
                           << where.layout << ": values that differ from those "
                           << "of rank 0, of " << by_rank[0].size()
                           << " on each rank";
    }
}

TEST(CopiesAgree, Sums) {
  using X = const DistTensor&;
  expect_copies_agree("sum over 0",
                      [](X x, X) -> Values { return {sum(x, {0})}; });
  expect_copies_agree("sum over 1",
                      [](X x, X) -> Values { return {sum(x, {1})}; });
  expect_copies_agree("a broadcast row", [](X x, X y) -> Values {
    return {x * sum(y, {0}, true)};
  });
}

TEST(CopiesAgree, Rows) {
  using X = const DistTensor&;
  expect_copies_agree("softmax over 0",
                      [](X x, X) -> Values { return {softmax(x, 0)}; });
  expect_copies_agree("softmax over 1",
                      [](X x, X) -> Values { return {softmax(x, 1)}; });
  expect_copies_agree("log_softmax",
                      [](X x, X) -> Values { return {log_softmax(x, 1)}; });
  expect_copies_agree("layer_norm", [](X x, X y) -> Values {
    const DistTensor w = slice(y, 0, 0, 1).detach();
    return {layer_norm(x, reshape(w, {64}), reshape(w, {64}))};
  });
  expect_copies_agree("rms_norm of columns", [](X x, X) -> Values {
    return {rms_norm(transpose(x, 0, 1))};
  });
  expect_copies_agree("cumsum over 0",
                      [](X x, X) -> Values { return {cumsum(x, 0)}; });
  expect_copies_agree("cumsum over 1",
                      [](X x, X) -> Values { return {cumsum(x, 1)}; });
}

TEST(CopiesAgree, Products) {
  using X = const DistTensor&;
  expect_copies_agree("x y^T", [](X x, X y) -> Values {
    return {matmul(x, transpose(y, 0, 1))};
  });
  expect_copies_agree("attention", [](X x, X y) -> Values {
    const DistTensor q = reshape(x, {1, 40, 8, 8}),
                     k = reshape(y, {1, 40, 8, 8});
    return {attention(q, k, q)};
  });
  expect_copies_agree("x^T y", [](X x, X y) -> Values {
    return {matmul(transpose(x, 0, 1), y)};
  });
}

TEST(CopiesAgree, Pointwise) {
  using X = const DistTensor&;
  expect_copies_agree("swiglu",
                      [](X x, X y) -> Values { return {swiglu(x, y)}; });
  expect_copies_agree("gelu", [](X x, X) -> Values { return {gelu(x)}; });
  expect_copies_agree("gelu_tanh",
                      [](X x, X) -> Values { return {gelu_tanh(x)}; });
  expect_copies_agree("lerp",
                      [](X x, X y) -> Values { return {x * y + y * x * x}; });
}

}  // namespace
}  // namespace dtensor
