// SPDX-License-Identifier: Apache-2.0
// The price of an operator with windows has the bytes that its halos take.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/observer.h"
#include "dtensor/ops/convolution.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/interpolate.h"
#include "dtensor/ops/pool.h"
#include "dtensor/ops/unfold.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

struct Bytes {
  int64_t priced = 0, predicted = 0, counted = 0;  // counted: the most
};

// Computes a result from x, and may add tensors that want a gradient.
using Windowed =
    std::function<DistTensor(const DistTensor&, std::vector<DistTensor>&)>;

// Runs f(x) and its gradient on thread ranks, with prices of 1 ps per byte.
// Returns the bytes of each call of an operator whose rule has windows, and
// which found its inputs in place.
std::multimap<std::string, Bytes> bytes_of(const std::string& mesh,
                                           const std::string& layout,
                                           const Shape& shape,
                                           const Windowed& f) {
  std::vector<std::pair<std::string, Bytes>> all;
  std::mutex mutex;
  const Mesh m = Mesh::parse(mesh);
  RunOptions options;
  options.world = m.num_ranks();
  AxisCost prices;
  prices.alpha_ps = 0;
  prices.ps_per_byte = 1;
  options.cost.axes.assign(static_cast<size_t>(m.num_axes()), prices);
  run(options, [&](Runtime& rt) {
    RankContext& context = rt.context();
    context.record = true;
    DistTensor x = put(values(shape, 5), m, layout);
    x.set_requires_grad();
    size_t calls = 0;
    const OnOp observe(context, [&](const OpRan& op) {
      if (!op.rule || op.rule->windows().empty() || !op.moves.empty()) return;
      const std::lock_guard lock(mutex);
      if (calls == all.size()) all.push_back({std::string(op.op), {}});
      Bytes& b = all[calls++].second;
      b = {op.choice.comm_ps, 0, b.counted};
      int64_t counted = 0;
      for (size_t i = op.first_event; i < context.events.size(); ++i) {
        b.predicted += context.events[i].predicted;
        counted += context.events[i].counted;
      }
      b.counted = std::max(b.counted, counted);
    });
    std::vector<DistTensor> wanted = {x};
    const DistTensor y = f(x, wanted);
    GradOptions with;
    with.cotangent = ones_like(y);
    grad(y, wanted, with);
  });
  return {all.begin(), all.end()};
}

TEST(Windows, PriceIsThatOfTheHalos) {
  const struct {
    std::string name;
    Windowed f;
    std::vector<std::string> ops;
  } cases[] = {
      {"conv2d",
       [](const DistTensor& x, auto& wanted) {
         DistTensor w = put(values({4, 3, 3, 5}, 2), x.mesh());
         w.set_requires_grad();
         wanted.push_back(w);
         return conv2d(x, w, {}, {.padding = {1, 2}});
       },
       {"convolution", "convolution_transpose", "convolution_weight"}},
      {"strided conv2d",
       [](const DistTensor& x, auto&) {
         return conv2d(x, put(values({2, 3, 4, 2}, 2), x.mesh()), {},
                       {.stride = {2}, .dilation = {3}});
       },
       {"convolution", "convolution_transpose"}},
      {"max_pool2d",
       [](const DistTensor& x, auto&) {
         return max_pool2d(x, {3}, {.stride = {2}, .padding = {1}});
       },
       {"max_pool", "max_pool_backward"}},
      {"unfold",
       [](const DistTensor& x, auto&) {
         return unfold(x, {2, 3});
       },
       {"unfold", "fold"}},
      {"interpolate",
       [](const DistTensor& x, auto&) {
         return adaptive_avg_pool2d(x, {7, 9});
       },
       {"resample"}},
  };
  for (const auto& [mesh, layout] : {std::pair{"x=4", "S2"},
                                     {"x=3", "S3"},
                                     {"x=2,y=2", "S2,S3"},
                                     {"x=2,y=2", "S2,S0"},
                                     {"x=4", "S2@0|0|5|12|17"}})
    for (const auto& c : cases) {
      SCOPED_TRACE(c.name + " of " + layout + " on " + mesh);
      const auto bytes = bytes_of(mesh, layout, {3, 3, 17, 19}, c.f);
      for (const std::string& op : c.ops) EXPECT_TRUE(bytes.contains(op)) << op;
      int64_t sent = 0;
      for (const auto& [op, b] : bytes) {
        sent += b.predicted;
        EXPECT_EQ(b.priced, b.predicted) << op;
        EXPECT_EQ(b.counted, b.predicted) << op;
      }
      EXPECT_GT(sent, 0);
    }
}

// A rank receives the elements of y that its part of x meets, and no others:
// with a stride, a loop counts them.
TEST(Windows, TransposedConvolutionsFetchWhatTheyMeet) {
  constexpr int64_t kChannels = 8, kTaps = 4, kStride = 2;
  on_mesh("x=4", [&](const Mesh& m) {
    for (const char* layout : {"S2", "S2@0|1001|1002|3003|4000"}) {
      const DistTensor y = put(values({1, kChannels, 4000}, 5), m, layout),
                       w = put(values({kChannels, kChannels, kTaps}, 2), m);
      DistTensor x;
      const int64_t got =
          sent([&] { x = conv_transpose1d(y, w, {}, {.stride = {kStride}}); });
      ASSERT_EQ(x.region()[2].size(), 1u) << layout;
      const Interval made = x.region()[2][0], held = y.region()[2][0];
      ASSERT_LT(made.size(), x.size(2)) << layout;
      int64_t lacks = 0;
      for (int64_t i = 0; i < 4000; ++i) {
        const int64_t first = i * kStride;
        lacks += first < made.hi && first + kTaps > made.lo &&
                 !(i >= held.lo && i < held.hi);
      }
      EXPECT_EQ(got, lacks * kChannels * 8) << layout;
    }
  });
}

}  // namespace
}  // namespace dtensor::testing
