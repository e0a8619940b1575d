// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "dtensor/ops/losses.h"
#include "dtensor/ops/reduce.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

constexpr int64_t kTime = 5, kTexts = 3, kClasses = 4, kLength = 2;

// -log of the sum of the probabilities of all paths of `time` classes that
// spell the text, once repetitions and then blanks are removed.
double by_all_paths(const Array& log_probs, int64_t text,
                    const std::vector<int64_t>& want, int64_t time,
                    int64_t blank) {
  int64_t paths = 1;
  for (int64_t t = 0; t < time; ++t) paths *= kClasses;
  double total = 0;
  for (int64_t path = 0; path < paths; ++path) {
    std::vector<int64_t> spelled;
    double log_p = 0;
    int64_t last = -1, rest = path;
    for (int64_t t = 0; t < time; ++t, rest /= kClasses) {
      const int64_t c = rest % kClasses;
      log_p += log_probs.at((t * kTexts + text) * kClasses + c);
      if (c != last && c != blank) spelled.push_back(c);
      last = c;
    }
    if (spelled == want) total += std::exp(log_p);
  }
  return -std::log(total);
}

TEST(CtcLossTest, AddsThePathsThatSpellTheText) {
  const Array scores = values({kTime, kTexts, kClasses}, 3);
  // Two equal labels, which a blank has to part; one label; none.
  const std::vector<std::vector<int64_t>> texts = {{1, 1}, {3}, {}};
  const std::vector<double> times = {5, 3, 4};
  for (const int64_t blank : {0, 2})
    for (const Case& c : std::vector<Case>{{"x=1", {"R", "R"}},
                                           {"x=2", {"S2", "R"}},
                                           {"x=3", {"S1", "S0"}},
                                           {"x=3", {"S2", "S0"}},
                                           {"x=2,y=2", {"S1,S2", "S0,R"}},
                                           {"x=2", {"S0", "S1"}}})
      on_mesh(c.mesh, [&](const Mesh& mesh) {
        const DistTensor x =
            put(scores, mesh, c.layouts[0]).set_requires_grad();
        const DistTensor log_probs = log_softmax(x, 2);
        const DistTensor targets =
            put(integers({kTexts, kLength}, {1, 1, 3, 3, 3, 3}), mesh,
                c.layouts[1]);
        const auto lengths = [&](const std::vector<double>& v) {
          return put(integers({kTexts}, v), mesh, "R");
        };
        const auto loss = [&](Reduction r) {
          return ctc_loss(log_probs, targets, lengths(times),
                          lengths({2, 1, 0}), blank, r);
        };
        const Array all = array_of(log_probs.full());
        double each[3], mean = 0;
        for (int64_t i = 0; i < kTexts; ++i) {
          const auto at = static_cast<size_t>(i);
          each[i] = by_all_paths(all, i, texts[at],
                                 static_cast<int64_t>(times[at]), blank);
          mean += each[i] /
                  static_cast<double>(std::max<size_t>(1, texts[at].size())) /
                  3;
        }
        const Array got = array_of(loss(Reduction::kNone).full());
        for (int64_t i = 0; i < kTexts; ++i)
          EXPECT_NEAR(got.at(i), each[i], 1e-12) << c.mesh << " text " << i;
        EXPECT_NEAR(loss(Reduction::kSum).item(), each[0] + each[1] + each[2],
                    1e-12);
        EXPECT_NEAR(loss(Reduction::kMean).item(), mean, 1e-12);
        EXPECT_NEAR(loss(Reduction::kBatchMean).item(),
                    (each[0] + each[1] + each[2]) / 3, 1e-12);
        // Scores beyond a text's time have no gradient; each row sums to 0.
        const Array g = array_of(grad(loss(Reduction::kSum), {x})[0].full());
        for (int64_t t = 0; t < kTime; ++t)
          for (int64_t i = 0; i < kTexts; ++i) {
            double row = 0, size = 0;
            for (int64_t k = 0; k < kClasses; ++k) {
              const double v = g.at((t * kTexts + i) * kClasses + k);
              row += v;
              size += std::abs(v);
            }
            EXPECT_NEAR(row, 0, 1e-12);
            EXPECT_EQ(size > 0,
                      static_cast<double>(t) < times[static_cast<size_t>(i)]);
          }
      });
}

TEST(CtcLossTest, TextsThatDoNotFit) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x =
        log_softmax(put(values({2, 2, kClasses}, 1), mesh, "S2"), 2)
            .detach()
            .set_requires_grad();
    // Two equal labels need three steps.
    const DistTensor targets = put(integers({2, 2}, {1, 1, 1, 2}), mesh, "R");
    const DistTensor two = put(integers({2}, {2, 2}), mesh, "R");
    const auto loss = [&](bool zero) {
      return ctc_loss(x, targets, two, two, 0, Reduction::kNone, zero);
    };
    const Array got = array_of(loss(false).full());
    EXPECT_EQ(got.at(0), std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isfinite(got.at(1)));
    EXPECT_EQ(array_of(loss(true).full()).at(0), 0);
    const Array g = array_of(grad(sum(loss(true)), {x})[0].full());
    for (int64_t t = 0; t < 2; ++t)
      for (int64_t k = 0; k < kClasses; ++k)
        EXPECT_EQ(g.at((t * 2) * kClasses + k), 0);
  });
}

// Without input there is only the empty text.
TEST(CtcLossTest, NoInput) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const DType t : {DType::kF64, DType::kF16}) {
      const DistTensor x =
          log_softmax(put(values({2, 2, kClasses}, 1), mesh, "S2", t), 2);
      const DistTensor loss =
          ctc_loss(x, put(integers({2, 1}, {1, 1}), mesh),
                   put(integers({2}, {0, 0}), mesh),
                   put(integers({2}, {0, 1}), mesh), 0, Reduction::kNone);
      EXPECT_EQ(
          loss.full().to_doubles(),
          (std::vector<double>{0, std::numeric_limits<double>::infinity()}));
    }
  });
}

TEST(CtcLossTest, Errors) {
  EXPECT_EQ(error_of(1,
                     [](const Mesh& m) {
                       const DistTensor n = put(integers({2}, {1, 1}), m);
                       ctc_loss(put(values({3, 2, 4}, 1), m),
                                put(integers({2, 1}, {1, 1}), m), n, n, 4);
                     }),
            "[ctc_loss] blank is 4, and there are 4 classes; write one of "
            "them");
  EXPECT_EQ(error_of(1,
                     [](const Mesh& m) {
                       const DistTensor n = put(integers({2}, {1, 1}), m);
                       ctc_loss(put(values({3, 2, 4}, 1), m),
                                put(integers({2}, {1, 1}), m), n, n);
                     }),
            "[ctc_loss] log-probabilities f64[3, 2, 4](R), targets i64[2](R) "
            "and lengths i64[2](R) and i64[2](R) do not fit; pass "
            "[t, n, classes], [n, s], [n] and [n]");
}

}  // namespace
}  // namespace dtensor::testing
