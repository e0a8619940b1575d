// SPDX-License-Identifier: Apache-2.0
// An error about an undefined tensor names the operator that got it and the
// number of the input. As in torch, norms do without their weights.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

std::string sentence(const std::string& op, int input, int of) {
  return "[" + op + "] input " + std::to_string(input) + " of " +
         std::to_string(of) +
         ", counted from 0, is an undefined tensor; assign it a value first";
}

TEST(UndefinedInput, NamesTheOperatorAndTheInput) {
  run(2, [](Runtime& rt) {
    const DistTensor x = full({2, 2}, 1, rt.mesh()), none;
    EXPECT_EQ(error_of([&] { exp(none); }), sentence("exp", 0, 1));
    EXPECT_EQ(error_of([&] { mul(x, none); }), sentence("mul", 1, 2));
    EXPECT_EQ(error_of([&] { none + x; }), sentence("add", 0, 2));
    EXPECT_EQ(error_of([&] { none * 2; }), sentence("mul", 0, 2));
    EXPECT_EQ(error_of([&] { sub(2, none); }), sentence("sub", 1, 2));
    EXPECT_EQ(error_of([&] { matmul(x, none); }), sentence("matmul", 1, 2));
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc->ac", {none, x});
              }),
              sentence("einsum", 0, 2));
    EXPECT_EQ(error_of([&] { where(gt(x, 0), none, x); }),
              sentence("where", 1, 3));
    EXPECT_EQ(error_of([&] { where(gt(x, 0), 1, none); }),
              sentence("where", 2, 3));
    EXPECT_EQ(error_of([&] { cast(none, DType::kF64); }),
              sentence("cast", 0, 1));
    EXPECT_EQ(error_of([&] { add_rms_norm(x, x, none); }),
              sentence("add_rms_norm", 2, 3));
    const DistTensor i = cast(x, DType::kI64);
    EXPECT_EQ(error_of([&] { scatter(none, 0, i, x); }),
              sentence("scatter", 0, 3));
    EXPECT_EQ(error_of([&] { scatter(x, 0, none, x); }),
              sentence("scatter", 1, 3));
    EXPECT_EQ(error_of([&] { scatter(x, 0, i, none); }),
              sentence("scatter", 2, 3));
  });
}

// Functions that look at the shape, the type or the mesh of an input before an
// operator gets it.
TEST(UndefinedInput, FunctionsThatLookAtTheirInputsFirst) {
  struct Call {
    const char* op;
    int input, of;
    std::function<void()> run;
  };
  run(2, [](Runtime& rt) {
    const DistTensor x = full({2, 2}, 1, rt.mesh()), none,
                     v = full({2}, 1, rt.mesh()),
                     cube = full({2, 2, 2}, 1, rt.mesh());
    const std::vector<DistTensor> one = {x, none};
    const std::vector<Call> calls = {
        {"flatten", 0, 1, [&] { flatten(none); }},
        {"unflatten", 0, 1,
         [&] {
           unflatten(none, 0, {2, 1});
         }},
        {"movedim", 0, 1, [&] { movedim(none, {0}, {1}); }},
        {"transpose", 0, 1, [&] { transpose(none); }},
        {"transpose", 0, 1, [&] { transpose(none, 0, 1); }},
        {"permute", 0, 1,
         [&] {
           permute(none, {1, 0});
         }},
        {"atleast_1d", 0, 1, [&] { atleast_1d(none); }},
        {"atleast_2d", 0, 1, [&] { atleast_2d(none); }},
        {"atleast_3d", 0, 1, [&] { atleast_3d(none); }},
        {"unbind", 0, 1, [&] { unbind(none, 0); }},
        {"tensor_split", 0, 1, [&] { tensor_split(none, 2, 0); }},
        {"tensor_split", 0, 1,
         [&] { tensor_split(none, std::vector<int64_t>{1}, 0); }},
        {"vstack", 1, 2, [&] { vstack(one); }},
        {"hstack", 1, 2, [&] { hstack(one); }},
        {"dstack", 1, 2, [&] { dstack(one); }},
        {"column_stack", 1, 2, [&] { column_stack(one); }},
        {"broadcast_tensors", 1, 2, [&] { broadcast_tensors(one); }},
        {"meshgrid", 0, 1, [&] { meshgrid({none}); }},
        {"cat", 1, 2, [&] { cat(one); }},
        {"stack", 1, 2, [&] { stack(one); }},
        {"repeat", 0, 1, [&] { repeat(none, {2}); }},
        {"tile", 0, 1, [&] { tile(none, {2}); }},
        {"repeat_interleave", 0, 1, [&] { repeat_interleave(none, 2); }},
        {"roll", 0, 1, [&] { roll(none, {1}, {0}); }},
        {"pad", 0, 1,
         [&] {
           pad(none, {1, 1});
         }},
        {"slice", 0, 1, [&] { slice(none, 0, 0, 1); }},
        {"narrow", 0, 1, [&] { narrow(none, 0, 0, 1); }},
        {"select", 0, 1, [&] { select(none, 0, 0); }},
        {"slice_scatter", 0, 2, [&] { slice_scatter(none, x, 0, 0, 2); }},
        {"slice_scatter", 1, 2, [&] { slice_scatter(x, none, 0, 0, 2); }},
        {"select_scatter", 0, 2, [&] { select_scatter(none, v, 0, 0); }},
        {"select_scatter", 1, 2, [&] { select_scatter(x, none, 0, 0); }},
        {"flip", 0, 1, [&] { flip(none, {0}); }},
        {"split", 0, 1, [&] { split(none, 1); }},
        {"split", 0, 1, [&] { split(none, std::vector<int64_t>{2}); }},
        {"chunk", 0, 1, [&] { chunk(none, 2); }},
        {"view", 0, 1, [&] { view(none, {2}); }},
        {"reshape", 0, 1, [&] { reshape(none, {2}); }},
        {"squeeze", 0, 1, [&] { squeeze(none); }},
        {"squeeze", 0, 1, [&] { squeeze(none, 0); }},
        {"unsqueeze", 0, 1, [&] { unsqueeze(none, 0); }},
        {"softmax", 0, 1, [&] { softmax(none, 0); }},
        {"log_softmax", 0, 1, [&] { log_softmax(none, 0); }},
        {"topk", 0, 1, [&] { topk(none, 1); }},
        {"sort", 0, 1, [&] { sort(none); }},
        {"argmax", 0, 1, [&] { argmax(none); }},
        {"argmax", 0, 1, [&] { argmax(none, 0); }},
        {"amax", 0, 1, [&] { amax(none); }},
        {"amin", 0, 1, [&] { amin(none); }},
        {"cumsum", 0, 1, [&] { cumsum(none, 0); }},
        {"index_put", 0, 2, [&] { index_put(none, {v}, v); }},
        {"index_put", 1, 2, [&] { index_put(v, {v}, none); }},
        {"logcumsumexp", 0, 1, [&] { logcumsumexp(none, 0); }},
        {"sum", 0, 1, [&] { sum(none); }},
        {"mean", 0, 1, [&] { mean(none); }},
        {"expand", 0, 1, [&] { expand(none, {2}); }},
        {"sum_to", 0, 1, [&] { sum_to(none, {2}); }},
        {"bmm", 1, 2, [&] { bmm(cube, none); }},
        {"any", 0, 1, [&] { any(none); }},
        {"all", 0, 1, [&] { all(none); }},
        {"count_nonzero", 0, 1, [&] { count_nonzero(none); }},
        {"aminmax", 0, 1, [&] { aminmax(none); }},
        {"var", 0, 1, [&] { var(none); }},
        {"logsumexp", 0, 1, [&] { logsumexp(none); }},
        {"vector_norm", 0, 1, [&] { vector_norm(none); }},
        {"dot", 1, 2, [&] { dot(v, none); }},
        {"mv", 0, 2, [&] { mv(none, v); }},
        {"outer", 1, 2, [&] { outer(v, none); }},
        {"inner", 0, 2, [&] { inner(none, v); }},
        {"kron", 0, 2, [&] { kron(none, x); }},
        {"kron", 1, 2, [&] { kron(x, none); }},
        {"tensordot", 1, 2, [&] { tensordot(x, none, 1); }},
        {"tensordot", 0, 2,
         [&] { tensordot(none, x, std::vector<int>{0}, std::vector<int>{0}); }},
        {"kron", 1, 2, [&] { kron(x, none); }},
        {"addmm", 0, 3, [&] { addmm(none, x, x); }},
        {"addmv", 0, 3, [&] { addmv(none, x, v); }},
        {"addr", 0, 3, [&] { addr(none, v, v); }},
        {"baddbmm", 0, 3, [&] { baddbmm(none, cube, cube); }},
        {"addbmm", 0, 3, [&] { addbmm(none, cube, cube); }},
        {"bilinear", 2, 3, [&] { bilinear(x, x, none); }},
        {"nll_loss", 1, 2, [&] { nll_loss(x, none); }},
        {"cosine_similarity", 0, 2, [&] { cosine_similarity(none, x); }},
        {"full_like", 0, 1, [&] { full_like(none, 1); }},
        {"tril", 0, 1, [&] { tril(none); }},
        {"triu", 0, 1, [&] { triu(none); }},
        {"trace", 0, 1, [&] { trace(none); }},
        {"masked_fill", 1, 3, [&] { masked_fill(x, none, v); }},
        {"masked_fill", 0, 1, [&] { masked_fill(none, gt(x, 0), 1.0); }},
        {"one_hot", 0, 1, [&] { one_hot(none, 2); }},
        {"layer_norm", 0, 3, [&] { layer_norm(none); }},
        {"rms_norm", 0, 2, [&] { rms_norm(none); }},
        {"add_layer_norm", 1, 4, [&] { add_layer_norm(x, none, v, v); }},
        {"add_rms_norm", 0, 3, [&] { add_rms_norm(none, x, v); }},
        {"dropout", 0, 1, [&] { dropout(none, 0.5); }},
        {"attention", 1, 3, [&] { attention(x, none, x); }},
        {"linear", 1, 2, [&] { linear(x, none); }},
        {"summa", 1, 2, [&] { summa(x, none); }},
        {"embedding", 0, 2, [&] { embedding(none, x); }},
        {"cross_entropy", 0, 2, [&] { cross_entropy(none, x); }},
        {"rotary", 0, 1, [&] { rotary(none); }},
        {"rotary", 1, 2, [&] { rotary(cube, {}, none); }},
        {"copy_into", 2, 3, [&] { copy_into(x, x, 0, none); }},
        {"paged_attention", 2, 6,
         [&] { paged_attention(cube, cube, none, x, v, v, {}); }}};
    for (const Call& c : calls)
      EXPECT_EQ(error_of(c.run), sentence(c.op, c.input, c.of)) << c.op;
  });
}

// The same for functions that are compositions; each call is its own name.
TEST(UndefinedInput, Compositions) {
  struct Call {
    std::string text;
    std::function<void()> run;
  };
  run(2, [](Runtime& rt) {
    const DistTensor x = full({2, 2}, 1, rt.mesh()), none,
                     v = full({2}, 1, rt.mesh()), i = cast(v, DType::kI64),
                     cube = full({2, 2, 2}, 1, rt.mesh()),
                     image = full({1, 2, 4, 4}, 1, rt.mesh());
#define DT_CALL(...)                   \
  {                                    \
#__VA_ARGS__, [&] { __VA_ARGS__; } \
  }
    const std::vector<Call> calls = {DT_CALL(addcdiv(none, x, x)),
                                     DT_CALL(addcmul(x, none, x)),
                                     DT_CALL(alpha_dropout(none, 0.5)),
                                     DT_CALL(bernoulli(none)),
                                     DT_CALL(bincount(none)),
                                     DT_CALL(block_diag({x, none})),
                                     DT_CALL(bucketize(none, v)),
                                     DT_CALL(bucketize(v, none)),
                                     DT_CALL(cartesian_prod({v, none})),
                                     DT_CALL(cdist(x, none)),
                                     DT_CALL(combinations(none)),
                                     DT_CALL(cosine_embedding_loss(x, none, v)),
                                     DT_CALL(cov(none)),
                                     DT_CALL(cross(x, none)),
                                     DT_CALL(ctc_loss(cube, i, none, i)),
                                     DT_CALL(cumulative_trapezoid(none)),
                                     DT_CALL(diag(none)),
                                     DT_CALL(diag_embed(none)),
                                     DT_CALL(diagflat(none)),
                                     DT_CALL(diagonal(none)),
                                     DT_CALL(diagonal_scatter(x, none)),
                                     DT_CALL(diff(none)),
                                     DT_CALL(equal(x, none)),
                                     DT_CALL(frexp(none)),
                                     DT_CALL(gather(x, 0, none)),
                                     DT_CALL(gaussian_nll_loss(x, none, x)),
                                     DT_CALL(glu(none)),
                                     DT_CALL(gradient(none)),
                                     DT_CALL(grid_sample(none, image)),
                                     DT_CALL(grid_sample(image, none)),
                                     DT_CALL(histc(none)),
                                     DT_CALL(index(none, {i})),
                                     DT_CALL(index_add(x, 0, none, x)),
                                     DT_CALL(index_select(x, 0, none)),
                                     DT_CALL(interpolate(none, {.size = {2}})),
                                     DT_CALL(isin(x, none)),
                                     DT_CALL(lerp(x, none, 0.5)),
                                     DT_CALL(local_response_norm(none, 2)),
                                     DT_CALL(masked_scatter(x, none, x)),
                                     DT_CALL(masked_sum(none, x)),
                                     DT_CALL(masked_var(none, x)),
                                     DT_CALL(matrix_norm(none)),
                                     DT_CALL(msort(none)),
                                     DT_CALL(multi_dot({x, none})),
                                     DT_CALL(multinomial(none, 1)),
                                     DT_CALL(mvlgamma(none, 1)),
                                     DT_CALL(nanmean(none)),
                                     DT_CALL(nansum(none)),
                                     DT_CALL(native_layer_norm(none, {2})),
                                     DT_CALL(nonzero(none)),
                                     DT_CALL(norm(none, 2)),
                                     DT_CALL(normal(x, none)),
                                     DT_CALL(normal(none)),
                                     DT_CALL(normal(0, none)),
                                     DT_CALL(pdist(none)),
                                     DT_CALL(polygamma(1, none)),
                                     DT_CALL(prelu(x, none)),
                                     DT_CALL(prelu(none, v)),
                                     DT_CALL(put(x, none, x)),
                                     DT_CALL(rand_like(none)),
                                     DT_CALL(randint_like(none, 0, 2)),
                                     DT_CALL(randn_like(none)),
                                     DT_CALL(renorm(none, 2, 0, 1)),
                                     DT_CALL(rot90(none)),
                                     DT_CALL(searchsorted(v, none)),
                                     DT_CALL(solve(x, none)),
                                     DT_CALL(take(x, none)),
                                     DT_CALL(take_along_dim(x, none)),
                                     DT_CALL(trapezoid(none)),
                                     DT_CALL(unfold(none, 0, 1, 1)),
                                     DT_CALL(unfold(none, {1})),
                                     DT_CALL(unravel_index(none, {2, 2})),
                                     DT_CALL(vander(none)),
                                     DT_CALL(vecdot(v, none))};
#undef DT_CALL
    for (const Call& c : calls) {
      const std::string error = error_of(c.run);
      EXPECT_EQ(error.rfind("[" + c.text.substr(0, c.text.find('(')) + "] ", 0),
                0u)
          << c.text << ": " << error;
      EXPECT_NE(error.find("is an undefined tensor"), std::string::npos)
          << c.text << ": " << error;
    }
  });
}

TEST(UndefinedInput, NormsWithoutWeights) {
  run(2, [](Runtime& rt) {
    const double v[] = {1, 2, 3, 6, 0, 0, 4, 8};
    const DistTensor x = DistTensor::from_global(
        Tensor::from<double>({2, 4}, v), rt.mesh(), "S1");
    const DistTensor one = full({4}, 1, rt.mesh(), {}, DType::kF64),
                     zero = full({4}, 0, rt.mesh(), {}, DType::kF64);
    const Tensor layer = layer_norm(x).full(),
                 layer_want = layer_norm(x, one, zero).full(),
                 rms = rms_norm(x).full(), rms_want = rms_norm(x, one).full();
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(layer.at(i), layer_want.at(i));
      EXPECT_EQ(rms.at(i), rms_want.at(i));
    }
    // (1 - 3) / sqrt(3.5)
    EXPECT_NEAR(layer.at(0), -1.0690449676, 1e-5);
  });
}

}  // namespace
}  // namespace dtensor
