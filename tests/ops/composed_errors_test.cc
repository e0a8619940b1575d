// SPDX-License-Identifier: Apache-2.0
// Functions made of several operators check their input themselves, so that an
// error names the function that the user called.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "dtensor/ops/composed.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/distance.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/statistics.h"
#include "dtensor/ops/view.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

TEST(ComposedErrors, SayWhatToWrite) {
  run(2, [](Runtime& rt) {
    const auto zeros = [&](Shape s, DType t = DType::kF32) {
      return full(s, 0, rt.mesh(), {}, t);
    };
    const DistTensor x = zeros({2, 3}), v = zeros({3}), one = zeros({}),
                     ids = zeros({2}, DType::kI64), cube = zeros({2, 3, 4});
    const Reduction mean = Reduction::kMean;
    const struct {
      std::function<void()> call;
      const char *begin, *end = "";  // of the error's text
    } refused[] = {
        {[&] { huber_loss(x, x, mean, 0); },
         "[huber_loss] delta is 0; write a number above 0"},
        {[&] { huber_loss(x, x, mean, -1); },
         "[huber_loss] delta is -1; write a number above 0"},
        {[&] { smooth_l1_loss(x, x, mean, -1); },
         "[smooth_l1_loss] beta is -1; write 0 or more"},
        {[&] { nll_loss(x, x); }, "[nll_loss] targets f32[",
         "do not fit f32[2, 3](R); pass integers of shape [2]"},
        {[&] { nll_loss(one, one); },
         "[nll_loss] f32[](R) has no classes; pass log-probabilities [n, "
         "classes, ...], or [classes]"},
        {[&] { nll_loss(x, zeros({1}, DType::kI64)); },
         "[nll_loss] targets i64[1](R) do not fit f32[2, 3](R); pass integers "
         "of shape [2]"},
        {[&] {
           nll_loss(cube, zeros({2, 1}, DType::kI64));
         },
         "[nll_loss] targets i64[2, 1](R) do not fit f32[2, 3, 4](R); pass "
         "integers of shape [2, 4]"},
        {[&] { nll_loss(x, zeros({2})); }, "[nll_loss] targets f32[2](R) do ",
         "pass integers of shape [2]"},
        {[&] { nll_loss(x, ids, mean, zeros({2})); },
         "[nll_loss] the weight f32[2](R) does not fit f32[2, 3](R); pass a "
         "vector of size 3"},
        {[&] { multi_margin_loss(x, ids, mean, 3); },
         "[multi_margin_loss] p is 3; write 1 or 2"},
        {[&] { multi_margin_loss(x, zeros({3}, DType::kI64)); },
         "[multi_margin_loss] targets i64[",
         "do not fit f32[2, 3](R); pass integers of shape [2]"},
        {[&] {
           multilabel_margin_loss(cube, zeros({2, 3, 4}, DType::kI64));
         },
         "[multilabel_margin_loss] f32[",
         "is neither [b, classes] nor [classes]; pass one of these"},
        {[&] { cosine_embedding_loss(x, x, x); },
         "[cosine_embedding_loss] f32[",
         "do not fit each other; pass two tensors [b, n] and targets [b], or "
         "[n] and []"},
        {[&] { cross_entropy(x, ids, mean, -100, 0, one); },
         "[cross_entropy] the weight f32[](R) does not fit f32[",
         "pass a vector of size 3"},
        {[&] { addcdiv(x, ids, ids); }, "[addcdiv] divides integers, i64[",
         "cast one of them to a float type"},
        {[&] { glu(x); }, "[glu] dimension 1 of f32[",
         "pass a tensor whose size is even there"},
        {[&] { prelu(x, zeros({2})); },
         "[prelu] the weight f32[2](R) has 2 elements, but f32[",
         "pass a vector with 1 or 3 elements"},
        {[&] { equal(x, ids); }, "[equal] cannot compare f32[",
         "cast one of them to the other's type"},
        {[&] {
           prod(x, {1, -1});
         },
         "[prod] dimension 1 of f32[", "is named twice; name it once"},
        {[&] { nanmean(ids); }, "[nanmean] i64[",
         "has no mean; cast it to f32"},
        {[&] { cov(cube); }, "[cov] f32[", "pass [variables, observations]"},
        {[&] { cov(x, 1, v); }, "[cov] fweights are f32[",
         "but must be integers; pass them as aweights"},
        {[&] { cov(x, 1, {}, zeros({2})); }, "[cov] the weights f32[",
         "pass one for each of 3 observations"},
        {[&] {
           cdist(x, zeros({2, 4}));
         },
         "[cdist] f32[", "pass [..., m, k] and [..., n, k]"},
        {[&] { cdist(x, x, -1); }, "[cdist] p is -1; write 0 or more"},
        {[&] { pdist(v); }, "[pdist] f32[",
         "is not a set of vectors; pass [n, k]"},
        {[&] { renorm(v, 2, 0, 1); }, "[renorm] f32[",
         "has no slices; pass at least two dimensions"},
        {[&] { cross(x, x, 0); }, "[cross] f32[",
         "pass tensors of as many dimensions, one of which has size 3 in both"},
        {[&] { var(ids); }, "[var] i64[", "has no variance; cast it to f32"},
        {[&] { vector_norm(ids); }, "[vector_norm] i64[",
         "has no norm; cast it to f32"},
        {[&] { flatten(cube, 2, 1); },
         "[flatten] the start dimension 2 comes after the end dimension 1 in "
         "f32[",
         "swap them"},
        {[&] {
           unflatten(x, 1, {2, 2});
         },
         "[unflatten] dimension 1 of f32[",
         "cannot become [2, 2]; write sizes whose product is 3"},
        {[&] {
           unflatten(zeros({4}), 0, {-2, -2});
         },
         "[unflatten] dimension 0 of f32[4](R) cannot become [-2, -2]; write "
         "sizes whose product is 4"},
        {[&] {
           unflatten(zeros({1}), 0, {-1, -1});
         },
         "[unflatten] dimension 0 of f32[1](R) cannot become [-1, -1]; write "
         "sizes whose product is 1"},
        // The product is 2^64.
        {[&] {
           unflatten(zeros({0}), 0, {int64_t{1} << 32, int64_t{1} << 32});
         },
         "[unflatten] dimension 0 of f32[0](R) cannot become [4294967296, "
         "4294967296]; write sizes whose product is 0"},
        {[&] {
           movedim(cube, {0, 1}, {0});
         },
         "[movedim] the list of dimensions has length 2, but the list of "
         "positions has length 1; pass one position for each dimension"},
        {[&] {
           movedim(cube, {0, -3}, {0, 1});
         },
         "[movedim] dimension 0 of f32[", "is moved twice; name it once"},
        {[&] {
           movedim(cube, {0, 1}, {2, -1});
         },
         "[movedim] two dimensions of f32[",
         "are moved to position 2; give each its own"},
        {[&] { transpose(cube); }, "[transpose] f32[",
         "has more than two dimensions; write permute()"},
        {[&] { tensor_split(x, 0); },
         "[tensor_split] sections is 0; write at least 1"},
        {[&] {
           meshgrid({v, x});
         },
         "[meshgrid] f32[",
         "is not a vector; pass tensors of at most one dimension"},
        {[&] { repeat(x, {2}); },
         "[repeat] times has length 1, which is too short for f32[",
         "write at least one number for each dimension"},
        {[&] {
           repeat(x, {2, -1});
         },
         "[repeat] times[1] is -1; write 0 or more"},
        {[&] { tile(x, {-1}); }, "[tile] times[0] is -1; write 0 or more"},
        {[&] {
           roll(x, {1, 1}, {0});
         },
         "[roll] shifts has length 2, but dims has length 1; pass one shift "
         "for each dimension"},
        {[&] { pad(x, {1}); }, "[pad] the list of widths has length 1 for f32[",
         "beginning with the last dimension"},
        {[&] {
           pad(v, {1, 1, 1, 1});
         },
         "[pad] the list of widths has length 4 for f32[",
         "beginning with the last dimension"},
        {[&] {
           pad(v, {-2, -2});
         },
         "[pad] widths -2 and -2 cut more than dimension 0 of f32[",
         "write widths whose sum is at least -3"},
        {[&] {
           sum(x, {1, -1});
         },
         "[sum] dimension 1 of [2, 3] is named twice; name it once"},
        {[&] {
           dtensor::mean(x, {1, -1});
         },
         "[mean] dimension 1 of [2, 3] is named twice; name it once"},
        {[&] { mv(x, one); }, "[mv] the number of dimensions of f32[",
         "is 0; pass a tensor with 1"},
        {[&] { mv(v, v); }, "[mv] the number of dimensions of f32[",
         "is 1; pass a tensor with 2"},
        {[&] { dot(x, v); }, "[dot] the number of dimensions of f32[",
         "is 2; pass a tensor with 1"},
        {[&] { dot(v, x); }, "[dot] the number of dimensions of f32[",
         "is 2; pass a tensor with 1"},
        {[&] { dot(v, zeros({2})); }, "[dot] f32[",
         "have different sizes; pass vectors of one size"},
        {[&] {
           addmm(x, v, zeros({3, 4}));
         },
         "[addmm] the number of dimensions of f32[3](R) is 1; pass a tensor "
         "with 2"},
        {[&] { addmm(x, x, v); },
         "[addmm] the number of dimensions of f32[3](R) is 1; pass a tensor "
         "with 2"},
        {[&] {
           addmm(zeros({5}), x, zeros({3, 4}));
         },
         "[addmm] f32[",
         "does not broadcast to the product's shape [2, 4]; pass a tensor of "
         "that shape, or one that broadcasts to it"},
        {[&] {
           tensordot(x, v, {0, 1}, {0});
         },
         "[tensordot] dims_a has size 2 for f32["},
        {[&] { tensordot(x, v, {0}, {0}); }, "[tensordot] dimension 0 of f32["},
        {[&] { tensordot(x, v, 2); }, "[tensordot] dims is 2, for f32[",
         "; write 0 to 1"},
        {[&] { tensordot(x, v, -1); }, "[tensordot] dims is -1, for f32[",
         "; write 0 to 1"},
        {[&] { multi_dot({x}); },
         "[multi_dot] the number of matrices is 1; pass 2 to 51"},
        {[&] {
           multi_dot({x, x});
         },
         "[multi_dot] inputs 0 and 1 are f32[",
         "has to be the first size of the next"},
        {[&] {
           multi_dot({zeros({2, 2, 2}), x});
         },
         "[multi_dot] input 0 is f32[", "it has to be a matrix or a vector"},
        {[&] { cat({}); }, "[cat] got an empty list; pass at least one tensor"},
        {[&] { hstack({}); },
         "[hstack] got an empty list; pass at least one tensor"},
        {[&] { column_stack({}); },
         "[column_stack] got an empty list; pass at least one tensor"},
        {[&] { linspace(0, 1, -1, rt.mesh()); },
         "[linspace] n is -1; write 0 or more"},
        {[&] { eye(-1, 2, rt.mesh()); },
         "[eye] rows is -1 and columns is 2; write 0 or more"},
        {[&] {
           cat({x, v});
         },
         "[cat] cannot join f32[",
         "along dimension 0; give them the same number of dimensions, and "
         "equal sizes in all others"},
        {[&] {
           cat({x, zeros({2, 2})});
         },
         "[cat] cannot join f32[",
         "along dimension 0; give them the same number of dimensions, and "
         "equal sizes in all others"},
        {[&] {
           cat({x, zeros({2, 3}, DType::kF64)});
         },
         "[cat] f32[", "have different types; cast them to one"},
        {[&] { stack({}); },
         "[stack] got an empty list; pass at least one tensor"},
        {[&] {
           stack({x, zeros({3, 2})});
         },
         "[stack] f32[", "expand or slice one of them"},
        {[&] { tril(v); }, "[tril] f32[",
         "is not a matrix; pass a tensor of at least two dimensions"},
        {[&] { trace(v); }, "[trace] f32[",
         "is not a matrix; pass a tensor of two dimensions"},
        {[&] { arange(0, 4, 0, rt.mesh()); },
         "[arange] cannot count from 0 to 4 in steps of 0; write finite "
         "numbers with a finite difference, and a step other than 0"},
        {[&] { arange(0, 4, -1, rt.mesh()); },
         "[arange] steps of -1 do not lead from 0 to 4; write a step of the "
         "other sign"},
        {[&] { masked_fill(x, x, 1); }, "[masked_fill] the mask is f32["},
        {[&] { masked_fill(x, gt(x, 0), v); },
         "[masked_fill] the value is f32[",
         "not a scalar; pass a tensor without dimensions"},
        {[&] {
           broadcast_tensors({x, zeros({4})});
         },
         "[broadcast_tensors] shapes [2, 3] and [4] do not broadcast: "},
        {[&] {
           broadcast_tensors({zeros({3, 1}), zeros({1, 4}), zeros({2, 4})});
         },
         "[broadcast_tensors] tensor 2 of shape [2, 4] does not broadcast with "
         "the tensors before it: size 2 of its dimension 0 meets size 3; make "
         "the two equal, or one of them 1"},
        {[&] { one_hot(ids, 0); }, "[one_hot] classes is 0; write at least 1"},
        {[&] { one_hot(cast(ids, DType::kF32), 2); },
         "[one_hot] the indices are f32, but must be i32 or i64; write "
         "cast(indices, DType::kI64)"},
    };
    for (const auto& [call, begin, end] : refused) {
      const std::string said = testing::error_of(call);
      EXPECT_TRUE(said.starts_with(begin) && said.ends_with(end))
          << said << "\nwanted: " << begin << " ... " << end;
    }
  });
}

}  // namespace
}  // namespace dtensor
