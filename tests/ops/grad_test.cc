// SPDX-License-Identifier: Apache-2.0
// grad(): gradients of tensors inside the graph, and of tensors outside of it.
#include "dtensor/ops/grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/autograd.h"
#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

constexpr DType kF64 = DType::kF64;

// A tensor inside the graph gets a gradient, which also flows on through it.
TEST(Grad, OfATensorInsideTheGraph) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor w = full({4}, 3, m, "S0", kF64).set_requires_grad();
    const DistTensor h = w * 2.0, loss = sum(h * h * 5.0);
    const auto g = grad(loss, {h, w, loss});
    EXPECT_EQ(g[0].to_string(), "f64[4](S0) [60, 60, 60, 60]");
    EXPECT_EQ(g[1].to_string(), "f64[4](S0) [120, 120, 120, 120]");
    EXPECT_EQ(g[2].item(), 1);
    const auto again = grad(loss, {h, w}, {.create_graph = true});
    EXPECT_EQ(again[0].to_string(), g[0].to_string());
    EXPECT_EQ(again[1].to_string(), g[1].to_string());
    EXPECT_EQ(grad(loss, {w})[0].full().at(0), 120);
    EXPECT_EQ(grad(loss, {h})[0].full().at(0), 60);
  });
}

// A tensor's gradient is complete before it flows on: y is used by the sum and,
// one step earlier, by the product.
TEST(Grad, OfATensorThatIsUsedAtSeveralDepths) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor x = full({3}, 3, m, "S0", kF64).set_requires_grad();
    const DistTensor y = x * 2.0;
    const auto g = grad(sum(y + y * y), {x});  // 2 (1 + 2 y)
    EXPECT_EQ(g[0].to_string(), "f64[3](S0) [26, 26, 26]");
  });
}

TEST(Grad, OfATensorThatCountsForNothing) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor w = full({4}, 3, m, "S0", kF64).set_requires_grad();
    DistTensor other = full({2}, 3, m, {}, kF64).set_requires_grad();
    const DistTensor unused = w * 2.0;
    const auto g = grad(sum(w), {other, unused, w});
    EXPECT_EQ(g[0].to_string(), "f64[2](R) [0, 0]");
    EXPECT_EQ(g[1].to_string(), "f64[4](S0) [0, 0, 0, 0]");
    EXPECT_EQ(g[2].to_string(), "f64[4](S0) [1, 1, 1, 1]");
    EXPECT_THROW(grad(sum(w), {full({2}, 3, m)}), Error);
    EXPECT_THROW(grad(w, {w}), Error);
    EXPECT_THROW(grad(sum(full({2}, 3, m)), {w}), Error);
    EXPECT_THROW(grad(w, {w}, {.cotangent = ones({3}, m)}), Error);
  });
}

TEST(Grad, OfSeveralOutputs) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor w = full({4}, 3, m, "S0", kF64).set_requires_grad();
    const DistTensor twice = w * 2.0, sums = sum(w * w),
                     constant = full({2}, 1, m, {}, kF64);
    const DistTensor of_twice = full({4}, 5, m, {}, kF64),
                     of_sums = full({}, 10, m, {}, kF64),
                     of_constant = full({2}, 7, m, {}, kF64);
    // An output that is an input, and one that depends on nothing.
    const auto g =
        grad(std::vector{twice, sums, constant, w},
             std::vector{of_twice, of_sums, of_constant, of_twice}, {w, twice});
    EXPECT_EQ(g[0].to_string(), "f64[4](S0) [75, 75, 75, 75]");
    EXPECT_EQ(g[1].to_string(), "f64[4](S0) [5, 5, 5, 5]");
    EXPECT_EQ(error_of([&] {
                grad(std::vector{constant, constant},
                     std::vector{of_constant, of_constant}, {w});
              }),
              "[grad] none of the 2 outputs requires a gradient; compute one "
              "in a float type, outside of NoGrad and without detach(), from a "
              "tensor with set_requires_grad()");
    EXPECT_EQ(error_of([&] {
                grad(std::vector{twice, sums}, std::vector{of_twice}, {w});
              }),
              "[grad] the number of cotangents is 1, but that of outputs is 2; "
              "pass one cotangent for each output");
  });
}

// The size of the buckets, or summing over two halves of the rows, does not
// change the gradients.
TEST(Grad, InBucketsAndAddedUp) {
  const Mesh m = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = randn({6, 5}, m, "S0", kF64, {1, 1});
    std::vector<DistTensor> w;
    for (uint64_t i = 0; i < 4; ++i)
      w.push_back(randn({5, 5}, m, i % 2 ? "R" : "S1", kF64, {2, i}));
    for (DistTensor& t : w) t.as_parameter(Keep::kMove);
    w[1].set_grad_layout("S0");
    EXPECT_EQ(w[1].grad_spec()->layout().to_string(m), "S0");
    EXPECT_EQ(w[2].grad_spec(), w[2].spec());
    const auto loss = [&](const DistTensor& in) {
      DistTensor y = in;
      for (const DistTensor& t : w) y = tanh(matmul(y, t));
      return sum(y);
    };
    const auto want = grad(loss(x), w);
    EXPECT_EQ(want[1].spec(), w[1].grad_spec());
    for (const int64_t bytes : {1, 300, 1 << 20}) {
      const auto g = grad(loss(x), w, {.bucket_bytes = bytes});
      for (size_t i = 0; i < w.size(); ++i)
        EXPECT_EQ(g[i].to_string(), want[i].to_string()) << bytes;
    }
    // Two halves of the rows, and one exchange for both.
    rt.context().record = true;
    auto first = grad(loss(slice(x, 0, 0, 3)), w, {.keep_partial = true});
    const auto both =
        grad(loss(slice(x, 0, 3, 6)), w, {.add_to = std::move(first)});
    rt.context().record = false;
    int64_t scatters = 0;
    for (const CommEvent& e : rt.context().events)
      scatters += e.op == "grad" && e.kind == StepKind::kReduceScatter;
    EXPECT_LE(scatters, 4);
    for (size_t i = 0; i < w.size(); ++i) {
      const auto a = both[i].full().to_doubles(),
                 b = want[i].full().to_doubles();
      for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-13);
    }
    // Each half sent by itself, and added where it belongs.
    for (const int64_t bytes : {0, 1, 300}) {
      std::vector<DistTensor> sums(w.size());
      for (const int64_t lo : {0, 3})
        sums = grad(loss(slice(x, 0, lo, lo + 3)), w,
                    {.bucket_bytes = bytes, .add_arrived = std::move(sums)});
      for (size_t i = 0; i < w.size(); ++i) {
        EXPECT_EQ(sums[i].spec(), want[i].spec());
        const auto a = sums[i].full().to_doubles(),
                   b = want[i].full().to_doubles();
        for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-13);
      }
    }
    // Sent as bf16, they are near.
    rt.context().events.clear();
    rt.context().record = true;
    const auto rough = grad(loss(x), w, {.wire_dtype = DType::kBF16});
    rt.context().record = false;
    for (size_t i = 0; i < w.size(); ++i) {
      EXPECT_EQ(rough[i].spec(), want[i].spec());
      const double r = rough[i].full().at(0), e = want[i].full().at(0);
      EXPECT_NEAR(r, e, 0.02 * std::abs(e) + 1e-3);
      EXPECT_NE(r, e);
    }
    // Only the last gradient is sent as bf16.
    const auto last =
        grad(loss(x), w, {.wire_dtype = DType::kBF16, .wire_from = 3});
    for (size_t i = 0; i < w.size(); ++i)
      EXPECT_EQ(last[i].to_string(), (i < 3 ? want : rough)[i].to_string());
  });
}

// Gradients that have arrived join the sums before the next bucket leaves, so
// that few are held beside the sums.
TEST(Grad, WhatArrivesIsAddedBeforeTheNextIsSent) {
  const Mesh m = Mesh::parse("dp=2");
  const int64_t block = 64 * 64 * 8;
  run(2, [&](Runtime& rt) {
    const DistTensor x = randn({6, 64}, m, "S0", kF64, {1, 1});
    std::vector<DistTensor> w, sums;
    for (uint64_t i = 0; i < 8; ++i)
      w.push_back(
          randn({64, 64}, m, "R", kF64, {2, i}).as_parameter(Keep::kMove));
    const auto loss = [&] {
      DistTensor y = x;
      for (const DistTensor& t : w) y = tanh(matmul(y, t));
      return sum(y);
    };
    sums = grad(loss(), w, {.bucket_bytes = 1});
    Allocator& allocator = *rt.context().allocator;
    const auto held = [&] {
      return allocator.stats().of(MemoryKind::kGradients);
    };
    allocator.reset_peak();
    const int64_t before = held().current_bytes;
    EXPECT_EQ(before, 8 * block);
    sums = grad(loss(), w, {.bucket_bytes = 1, .add_arrived = std::move(sums)});
    EXPECT_LE(held().peak_bytes - before, 5 * block);
  });
}

TEST(Grad, AReleasedGraphIsGone) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    DistTensor w = full({1000}, 3, m, "S0", kF64).set_requires_grad();
    const int64_t before = rt.context().allocator->stats().current_bytes;
    const DistTensor loss = sum(square(w * 2.0));
    EXPECT_GE(rt.context().allocator->stats().current_bytes, before + 4000);
    EXPECT_EQ(grad(loss, {w})[0].full().at(0), 24);
    EXPECT_EQ(grad(loss, {w}, {.release_graph = true})[0].full().at(0), 24);
    EXPECT_LT(rt.context().allocator->stats().current_bytes, before + 4000);
    const std::string e = error_of([&] { grad(loss, {w}); });
    EXPECT_NE(e.find("call was taken before, with release_graph"), e.npos) << e;
  });
}

TEST(Grad, OptionsThatDoNotFitAreRefused) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    DistTensor w = full({4}, 3, m, {}, kF64).set_requires_grad();
    const DistTensor loss = sum(square(w));
    const std::string all =
        "[grad] create_graph cannot be combined with release_graph, "
        "bucket_bytes or wire_dtype; leave these out";
    EXPECT_EQ(error_of([&] {
                grad(loss, {w}, {.create_graph = true, .release_graph = true});
              }),
              all);
    EXPECT_EQ(error_of([&] {
                grad(loss, {w}, {.create_graph = true, .bucket_bytes = 1});
              }),
              all);
    EXPECT_EQ(error_of([&] { grad(loss, {w}, {.bucket_bytes = -1}); }),
              "[grad] bucket_bytes is -1; write 0 or more");
    EXPECT_EQ(
        error_of([&] { grad(loss, {w}, {.wire_dtype = DType::kI32}); }),
        "[grad] wire_dtype is i32; write DType::kF32, kF64, kBF16 or kF16");
    EXPECT_EQ(error_of([&] {
                grad(loss, {w}, {.keep_partial = true, .add_arrived = {w}});
              }),
              "[grad] add_arrived cannot be combined with create_graph or "
              "keep_partial; leave these out");
    EXPECT_EQ(error_of([&] { grad(loss, {w}, {.wire_from = 2}); }),
              "[grad] wire_from is 2, but the number of inputs is 1; write at "
              "most 1");
    EXPECT_EQ(
        error_of([&] {
          grad(loss, {w}, {.add_to = {w, w}});
        }),
        "[grad] add_to has length 2, but the number of inputs is 1; pass one "
        "gradient for each input, or an empty list");
  });
}

// The type of a given cotangent was not looked at: kernels read its memory as
// the output's type.

TEST(CotangentType, IsConvertedToTheOutputs) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    DistTensor x = arange(4, m, "S0", DType::kF32).set_requires_grad();
    for (DType t : {DType::kBF16, DType::kF16, DType::kF64, DType::kF32})
      for (const char* layout : {"R", "S0", "P"})
        EXPECT_EQ(grad(relu(x), {x}, {.cotangent = ones({4}, m, layout, t)})[0]
                      .to_string(),
                  "f32[4](S0) [0, 1, 1, 1]")
            << name(t) << " " << layout;
    EXPECT_EQ(grad(sum(x), {x}, {.cotangent = ones({}, m, {}, DType::kF64)})[0]
                  .dtype(),
              DType::kF32);
    EXPECT_THROW(
        grad(relu(x), {x}, {.cotangent = ones({4}, m, {}, DType::kI64)}),
        Error);
  });
}

TEST(CotangentType, OfAnotherMeshIsRefused) {
  run(4, [&](Runtime&) {
    const Mesh m = Mesh::parse("a=4"), other = Mesh::parse("a=2,b=2");
    DistTensor x = arange(4, m, "S0", DType::kF32).set_requires_grad();
    EXPECT_THROW(grad(relu(x), {x}, {.cotangent = ones({4}, other)}), Error);
  });
}

// An operator whose gradient() returned fewer gradients than the operator has
// inputs made the backward pass read past the end of the list.

// The first of two tensors.
class First : public RuleOp {
 public:
  First() : RuleOp("first", "...,...->...", {.saved_inputs = 0}) {}
  void compute(Compute& c) const override { c.out[0].copy_from(c.in[0]); }
  InputGradients gradient(const GradientCall& g) const override {
    return {g.cotangents[0]};
  }
};

TEST(GradientsOfEachInput, AreCounted) {
  run(1, [&](Runtime& rt) {
    const First first;
    const Mesh mesh = rt.mesh({{"a", 1}});
    const auto x = ones({2}, mesh).set_requires_grad(),
               y = ones({2}, mesh).set_requires_grad();
    const DistTensor in[] = {x, y};
    EXPECT_EQ(testing::error_of([&] {
                grad(sum(apply1(first, in)), {x, y});
              }),
              "[first] gradient() returned a list of size 1, but the number of "
              "inputs is 2; return one gradient, which may be undefined, for "
              "each");
  });
}

// set_requires_grad() on a fresh tensor looked up the operator that made it,
// which does not exist, for an error message that was not needed.

TEST(LeafRequiresGrad, OfATensorThatNoOperatorMade) {
  run(1, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"a", 1}});
    DistTensor x = ones({2}, mesh);
    EXPECT_TRUE(x.set_requires_grad().requires_grad());
    DistTensor y = exp(x);
    EXPECT_THROW(y.set_requires_grad(), Error);
    DistTensor ids = ones({2}, mesh, {}, DType::kI64);
    EXPECT_THROW(ids.set_requires_grad(), Error);
  });
}

// A result that its operator saved for the gradient may not be overwritten
// unnoticed: the gradient would be that of other values.

TEST(SavedOutputs, AreChecked) {
  run(1, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 1}});
    DistTensor x = randn({2, 3}, mesh, {}, DType::kF64, {1, 1});
    x.set_requires_grad();
    for (auto op : {+[](const DistTensor& t) { return softmax(t, 1); },
                    +[](const DistTensor& t) { return amax(t, {1}); }}) {
      DistTensor y = op(x);
      const DistTensor loss = sum(square(y.detach()) * y);
      DistTensor untouched = op(x);
      EXPECT_NO_THROW(grad(sum(untouched), {x}));
      {
        NoGrad scope;
        y.assign(Tensor::full(y.shape(), DType::kF64, 5));
      }
      DistTensor z = sum(y);
      const std::string e = testing::error_of([&] { grad(z, {x}); });
      EXPECT_NE(e.find("output 0, "), e.npos) << e;
      EXPECT_NE(e.find("was changed in place after it was made"), e.npos) << e;
    }
  });
}

// A write to a tensor's local part counts as a write in place: a gradient that
// needs the old values throws.

// A pointer for reading cannot be written through by mistake.
static_assert(std::is_same_v<decltype(Tensor().ptr<double>()), const double*>);
static_assert(std::is_same_v<decltype(Tensor().data()), const void*>);

TEST(LocalWrites, ToWhatWasSavedAreNoticed) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 2}});
    const DistTensor x =
        randn({4, 3}, mesh, "S0", DType::kF64, {1, 1}).set_requires_grad();
    const DistTensor used = sum(square(x));
    const DistTensor made = softmax(x, 1), of_made = sum(made);
    EXPECT_NO_THROW(grad(sum(square(x)), {x}));
    made.local().mutable_ptr<double>()[0] = 1;
    std::string e = testing::error_of([&] { grad(of_made, {x}); });
    EXPECT_NE(e.find("was changed in place after it was made"), e.npos) << e;
    x.local().mutable_ptr<double>()[0] = 1;
    e = testing::error_of([&] { grad(used, {x}); });
    EXPECT_NE(e.find("was changed in place after it was used"), e.npos) << e;
  });
}

// local() is const, and its part can be written to.
TEST(LocalWrites, ByFillAndCopyFrom) {
  run(2, [](Runtime& rt) {
    const DistTensor x = zeros({4}, rt.mesh({{"x", 2}}), "S0");
    x.local().fill(static_cast<double>(rt.rank()));
    EXPECT_EQ(x.full().to_doubles(), (std::vector<double>{0, 0, 1, 1}));
    x.local().copy_from(Tensor::full({2}, DType::kF32, 3));
    EXPECT_EQ(x.full().to_doubles(), (std::vector<double>{3, 3, 3, 3}));
  });
}

TEST(LocalWrites, ReadingIsNone) {
  run(1, [](Runtime& rt) {
    const DistTensor x =
        randn({2}, rt.mesh({{"x", 1}}), {}, DType::kF64, {1, 1})
            .set_requires_grad();
    const DistTensor y = sum(square(x));
    const double first = x.local().ptr<double>()[0];
    EXPECT_EQ(grad(y, {x})[0].local().ptr<double>()[0], 2 * first);
  });
}

// A view that changes nothing was the tensor itself, so that its gradient
// included that of other results made from the tensor.

TEST(IdentityViewGradient, CountsWhatWasMadeOfTheViewAlone) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    DistTensor x = ones({2, 1}, m, {}, DType::kF64).set_requires_grad();
    const std::pair<const char*, DistTensor> views[] = {
        {"view", view(x, {2, 1})},         {"reshape", reshape(x, {2, -1})},
        {"permute", permute(x, {0, 1})},   {"transpose", transpose(x, 1, 1)},
        {"slice", slice(x, 0, 0, 2)},      {"narrow", narrow(x, 0, 0, 2)},
        {"split", split(x, {2}, 0)[0]},    {"chunk", chunk(x, 1, 0)[0]},
        {"expand", expand(x, {2, 1})},     {"cat", cat({x}, 0)},
        {"dropout", dropout(x, 0, {1, 1})}};
    for (const auto& [name, y] : views) {
      const auto g = grad(sum(x * 2.0 + y), {y, x});
      EXPECT_EQ(g[0].full().at(1), 1) << name;
      EXPECT_EQ(g[1].full().at(1), 3) << name;
      // A view still, not a copy.
      EXPECT_EQ(y.local().storage(), x.local().storage()) << name;
    }
  });
}

}  // namespace
}  // namespace dtensor
