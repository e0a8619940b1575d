// SPDX-License-Identifier: Apache-2.0
#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/rank_context.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

// As torch.nn.functional.cross_entropy, with the classes in the last dimension.
Array reference(const Array& logits, const Array& targets, Reduction reduction,
                int64_t ignore_index, double smoothing) {
  const int64_t v = logits.shape.back(), rows = numel(targets.shape);
  Array loss = zeros_like(targets.shape);
  double total = 0, count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const auto target = static_cast<int64_t>(targets.at(r));
    if (target == ignore_index) continue;
    double max = -INFINITY, sum = 0, mean = 0;
    for (int64_t i = 0; i < v; ++i) max = std::max(max, logits.at(r * v + i));
    for (int64_t i = 0; i < v; ++i) sum += std::exp(logits.at(r * v + i) - max);
    const double lse = max + std::log(sum);
    for (int64_t i = 0; i < v; ++i)
      mean += (lse - logits.at(r * v + i)) / static_cast<double>(v);
    loss.at(r) = (1 - smoothing) * (lse - logits.at(r * v + target));
    if (smoothing != 0) loss.at(r) += smoothing * mean;
    total += loss.at(r);
    count += 1;
  }
  if (reduction == Reduction::kNone) return loss;
  return {
      {}, {reduction == Reduction::kSum ? total : total / count}, DType::kF64};
}

Problem problem(const Array& logits, const Array& targets, Reduction reduction,
                int64_t ignore_index = -100, double smoothing = 0) {
  return {{logits, targets},
          [=](const auto& x) {
            return cross_entropy(x[0], x[1], reduction, ignore_index,
                                 smoothing);
          },
          [=](const auto& x) {
            return reference(x[0], x[1], reduction, ignore_index, smoothing);
          }};
}

const std::vector<Case> kCases = {
    {"x=2", {"R", "R"}},         {"x=2", {"S1", "R"}},
    {"x=3", {"S1", "R"}},        {"x=2", {"S0", "S0"}},
    {"x=3", {"S0", "R"}},        {"x=2", {"S1", "S0"}},
    {"x=2", {"P", "R"}},         {"x=2,y=2", {"S0,S1", "S0,R"}},
    {"x=2,y=2", {"S1,S1", "R"}}, {"x=2,y=3", {"S1,S0", "R,S0"}}};

class CrossEntropyTest : public ::testing::TestWithParam<Reduction> {};

TEST_P(CrossEntropyTest, Layouts) {
  const Array targets = integers({5}, {6, 0, 3, 3, 1});
  check_problem(problem(values({5, 7}, 1, 3), targets, GetParam()), kCases);
}

TEST_P(CrossEntropyTest, IgnoreIndexAndSmoothing) {
  // The ignored rows are not spread evenly: ranks count different numbers.
  const Array targets = integers({5}, {2, 2, 2, 6, 1});
  check_problem(problem(values({5, 7}, 1, 3), targets, GetParam(), 2), kCases);
  check_problem(problem(values({5, 7}, 1, 3), targets, GetParam(), 2, 0.3),
                kCases);
  Array far = integers({5}, {-100, 5, 2, -100, 1}, DType::kI32);
  check_problem(problem(values({5, 7}, 1, 3), far, GetParam(), -100, 0.1),
                {{"x=2", {"S1", "R"}}, {"x=2,y=2", {"S0,S1", "S0,R"}}});
}

TEST_P(CrossEntropyTest, EmptyParts) {
  const Array targets = integers({2}, {1, 0});
  check_problem(problem(values({2, 2}, 1, 3), targets, GetParam()),
                {{"x=3", {"S1", "R"}},
                 {"x=3", {"S0", "S0"}},
                 {"x=2,y=3", {"S0,S1", "S0,R"}}});
}

TEST_P(CrossEntropyTest, OtherRanks) {
  check_problem(
      problem(values({7}, 1, 3), integers({}, {5}), GetParam(), -100, 0.1),
      {{"x=2", {"S0", "R"}}});
  check_problem(
      problem(values({2, 3, 5}, 1, 3), integers({2, 3}, {4, 0, 1, 1, 2, 3}),
              GetParam(), 1),
      {{"x=2,y=2", {"S0,S2", "S0,R"}}, {"x=2,y=2", {"S1,S0", "S1,S0"}}});
}

TEST_P(CrossEntropyTest, Types) {
  Problem p = problem(values({5, 7}, 1, 2), integers({5}, {2, 2, 0, 6, 1}),
                      GetParam(), 2, 0.1);
  check_types(p, {"S1", "R"});
  check_types(p, {"S0", "S0"});
}

INSTANTIATE_TEST_SUITE_P(Reductions, CrossEntropyTest,
                         ::testing::Values(Reduction::kNone, Reduction::kMean,
                                           Reduction::kSum));

TEST(CrossEntropyTest, LargeLogits) {
  Array x{{2, 3}, {1e4, 1e4 + 2, -1e4, -700, -701, -INFINITY}, DType::kF64};
  const Array targets = integers({2}, {0, 1});
  for (const char* layout : {"R", "S1"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      DistTensor logits = put(x, mesh, layout).set_requires_grad();
      DistTensor loss =
          cross_entropy(logits, put(targets, mesh), Reduction::kNone);
      expect_near(array_of(loss.full()),
                  reference(x, targets, Reduction::kNone, -100, 0), 1e-12,
                  layout);
      auto g = grad(sum(loss), {logits});
      EXPECT_EQ(array_of(g[0].full()).at(5), 0) << layout;
    });
}

// A mean over no row is not a number, as in PyTorch; the sum is 0.
TEST(CrossEntropyTest, AllIgnored) {
  const Array targets = integers({3}, {1, 1, 1});
  for (const char* layout : {"R", "S0", "S1"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      DistTensor logits = put(values({3, 4}, 1), mesh, layout);
      EXPECT_TRUE(std::isnan(
          cross_entropy(logits, put(targets, mesh), Reduction::kMean, 1)
              .item()));
      EXPECT_EQ(
          cross_entropy(logits, put(targets, mesh), Reduction::kSum, 1).item(),
          0);
    });
}

// Forward: one maximum, and one sum of (exponentials, target's logit) per row.
// Backward: nothing. No rank ever holds more than its own columns.
TEST(CrossEntropyTest, SplitVocabularyStaysSplit) {
  run(4, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const int64_t rows = 6, vocabulary = 4001;
    const Spec* spec =
        Spec::get(mesh, {rows, vocabulary},
                  parse_layout("S1", mesh, {rows, vocabulary}), DType::kF64);
    DistTensor logits = DistTensor::empty(spec).set_requires_grad();
    Tensor local = logits.local();
    for (int64_t i = 0; i < local.numel(); ++i)
      local.mutable_ptr<double>()[i] =
          std::sin(static_cast<double>(i + rt.rank()));
    DistTensor targets =
        put(integers({rows}, {0, 4000, 17, 2500, 2501, 3}), mesh);
    const int64_t own = local.bytes();

    rt.context().record = true;
    DistTensor loss = cross_entropy(logits, targets);
    ASSERT_EQ(rt.context().events.size(), 2u);
    for (const CommEvent& e : rt.context().events)
      EXPECT_LE(e.counted, e.predicted);
    EXPECT_LE(rt.context().events[0].predicted, 2 * rows * 8);
    EXPECT_LE(rt.context().events[1].predicted, 2 * 2 * rows * 8);
    rt.context().events.clear();
    auto g = grad(loss, {logits});
    EXPECT_TRUE(rt.context().events.empty());
    EXPECT_EQ(g[0].spec(), spec);
    GradOptions options;
    options.create_graph = true;
    grad(loss, {logits}, options);

    for (const auto& [tag, bytes] :
         rt.context().allocator->stats().largest_by_tag)
      EXPECT_LE(bytes, own) << "in " << tag;
    EXPECT_LE(
        rt.context().allocator->stats().largest_by_tag.at("cross_entropy"),
        3 * rows * 8);
  });
}

// So it does with class weights and with probabilities as targets: no rank
// sends or holds more than a few numbers per row beyond its own columns.
TEST(CrossEntropyTest, WeightsAndProbabilitiesStaySplit) {
  run(4, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const int64_t rows = 6, vocabulary = 4001;
    DistTensor logits =
        randn({rows, vocabulary}, mesh, "S1", DType::kF64, {.seed = 1});
    logits.set_requires_grad();
    const DistTensor weight =
        uniform({vocabulary}, mesh, "S0", DType::kF64, {.seed = 2});
    const DistTensor p = softmax(
        randn({rows, vocabulary}, mesh, "S1", DType::kF64, {.seed = 3}), -1);
    const DistTensor ids =
        put(integers({rows}, {0, 4000, 17, 2500, 2501, 3}), mesh);
    const int64_t own = logits.local().bytes() + 8 * rows;
    rt.context().record = true;
    for (const DistTensor& targets : {ids, p})
      for (double smoothing : {0.0, 0.1}) {
        const DistTensor loss = cross_entropy(logits, targets, Reduction::kMean,
                                              -100, smoothing, weight);
        const auto g = grad(loss, {logits});
        EXPECT_EQ(g[0].spec(), logits.spec());
      }
    for (const CommEvent& e : rt.context().events)
      EXPECT_LE(e.predicted, 4 * rows * 8);
    for (const auto& [tag, bytes] :
         rt.context().allocator->stats().largest_by_tag)
      EXPECT_LE(bytes, own) << "in " << tag;
  });
}

TEST(CrossEntropyTest, Errors) {
  auto with = [](const Array& logits, const Array& targets, double smoothing) {
    return error_of(2, [=](const Mesh& m) {
      cross_entropy(put(logits, m), put(targets, m), Reduction::kMean, -100,
                    smoothing);
    });
  };
  EXPECT_EQ(with(values({2, 3}, 1), integers({3}, {0, 0, 0}), 0),
            "[cross_entropy] targets of shape [3] do not fit logits of shape "
            "[2, 3]; write targets of shape [2]");
  EXPECT_EQ(
      with(values({2, 3}, 1), values({2}, 1), 0),
      "[cross_entropy] targets f64[2](R) are probabilities, because they are "
      "floats, but do not fit logits of shape [2, 3]; pass one for each logit, "
      "or write cast(targets, DType::kI64)");
  EXPECT_EQ(with(values({2, 3}, 1), integers({2}, {0, 3}), 0),
            "[cross_entropy] target 3 is not in [0, 3), and not the "
            "ignore_index -100; write one of these");
  // No double is 2^53 + 1.
  EXPECT_EQ(
      error_of(
          2,
          [](const Mesh& m) {
            const auto whole = [&](double value) {
              return full({2}, value, m, "R", DType::kI64);
            };
            cross_entropy(put(values({2, 3}, 1), m), whole(0x1p53) + whole(1));
          }),
      "[cross_entropy] target 9007199254740993 is not in [0, 3), and not the "
      "ignore_index -100; write one of these");
  EXPECT_EQ(with(values({2, 3}, 1), integers({2}, {0, -0x1p63}), 0),
            "[cross_entropy] target -9223372036854775808 is not in [0, 3), and "
            "not the ignore_index -100; write one of these");
  EXPECT_EQ(with(values({2, 3}, 1), integers({2}, {0, 0}), 2),
            "[cross_entropy] label_smoothing is 2; write a number in [0, 1]");
}

}  // namespace
}  // namespace dtensor::testing
