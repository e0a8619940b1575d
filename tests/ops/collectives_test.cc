// SPDX-License-Identifier: Apache-2.0
// Collectives of local tensors: values against plain loops, and gradients by
// the identity <f(x), c> = <x, f'(c)>, since all of them are linear.
#include "dtensor/ops/collectives.h"

#include <mutex>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/local_map.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

using Parts = std::vector<Array>;  // by member
using Collective =
    std::function<DistTensor(const DistTensor&, const AxisGroup&)>;

DistTensor local(const Array& a) {
  return DistTensor::from_global(tensor_of(a), local_mesh(), {});
}

// Elements [lo, hi) of dimension 0.
Array rows(const Array& a, int64_t lo, int64_t hi) {
  Shape shape = a.shape;
  shape[0] = hi - lo;
  const int64_t row = numel(a.shape) / std::max<int64_t>(a.shape[0], 1);
  return {shape, {a.v.begin() + lo * row, a.v.begin() + hi * row}, a.dtype};
}

Array joined(const Parts& parts) {
  Array all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    all.shape[0] += parts[i].shape[0];
    all.v.insert(all.v.end(), parts[i].v.begin(), parts[i].v.end());
  }
  return all;
}

Array sum_of(const Parts& parts) {
  Array all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i)
    for (int64_t k = 0; k < numel(all.shape); ++k) all.at(k) += parts[i].at(k);
  return all;
}

// Calls f on every rank of x=n, and in both groups of y=2,x=n along x, with
// part i of `x` on member i. Expects part i of `want`.
void check_collective(const Parts& x, const Parts& want, const Collective& f) {
  const auto n = static_cast<int64_t>(x.size());
  for (const std::string& mesh :
       {"x=" + std::to_string(n), "y=2,x=" + std::to_string(n),
        "x=" + std::to_string(n) + ",y=2"}) {
    SCOPED_TRACE(mesh);
    std::mutex mutex;
    double there = 0, back = 0, second = 0;
    on_mesh(mesh, [&](const Mesh& m) {
      const AxisGroup group(m, "x");
      const auto i = static_cast<size_t>(group.rank());
      DistTensor in = local(x[i]).set_requires_grad();
      const DistTensor y = f(in, group);
      expect_near(array_of(y.full()), want[i], 1e-12, "value");
      const int seed = static_cast<int>(RankContext::current().world_rank);
      const Array c = values(y.shape(), 10 + seed),
                  d = values(in.shape(), seed);
      DistTensor cotangent = local(c).set_requires_grad();
      const DistTensor g =
          grad(sum(y * cotangent), in, {.create_graph = true})[0];
      // The gradient is linear in the cotangent, and its gradient is f again.
      const DistTensor gg = grad(sum(g * local(d)), cotangent)[0];
      const DistTensor fd = f(local(d), group);
      const std::unique_lock lock(mutex);
      there += dot(want[i], c);
      back += dot(x[i], array_of(g.full()));
      second += dot(array_of((gg - fd).full()), array_of((gg - fd).full()));
    });
    EXPECT_NEAR(there, back, 1e-10);
    EXPECT_NEAR(second, 0, 1e-20);
  }
}

Parts parts_of(const std::vector<int64_t>& sizes, int64_t columns = 3) {
  Parts x;
  for (size_t i = 0; i < sizes.size(); ++i)
    x.push_back(values({sizes[i], columns}, static_cast<int>(i)));
  return x;
}

TEST(Collectives, AllReduce) {
  const Parts x = parts_of({2, 2, 2});
  check_collective(x, Parts(3, sum_of(x)),
                   [](const DistTensor& x, const AxisGroup& group) {
                     return all_reduce(x, group);
                   });
  run(3, [&](Runtime& rt) {
    const Mesh m({{"x", 3}});
    const DistTensor y = all_reduce(local(x[static_cast<size_t>(rt.rank())]),
                                    {m, "x"}, ReduceOp::kMax);
    for (int64_t k = 0; k < 6; ++k)
      EXPECT_EQ(array_of(y.full()).at(k),
                std::max({x[0].at(k), x[1].at(k), x[2].at(k)}));
  });
}

TEST(Collectives, AllGather) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {2, 2}, {3, 0, 1}, {0, 0}, {1, 4, 2, 2}}) {
    const Parts x = parts_of(sizes);
    check_collective(x, Parts(x.size(), joined(x)),
                     [](const DistTensor& x, const AxisGroup& group) {
                       return all_gather(x, group);
                     });
  }
}

TEST(Collectives, ReduceScatter) {
  for (const int64_t n : {1, 4, 7}) {
    const Parts x = parts_of({n, n, n});
    const Array all = sum_of(x);
    check_collective(x,
                     {rows(all, 0, n / 3), rows(all, n / 3, 2 * n / 3),
                      rows(all, 2 * n / 3, n)},
                     [](const DistTensor& x, const AxisGroup& group) {
                       return reduce_scatter(x, group);
                     });
  }
}

TEST(Collectives, AllToAll) {
  const Parts x = parts_of({3, 0, 5}, 4);
  Parts want, turned;
  for (int64_t j = 0; j < 3; ++j) {
    Parts from;
    for (const Array& a : x) {
      const int64_t n = a.shape[0];
      from.push_back(rows(a, j * n / 3, (j + 1) * n / 3));
    }
    want.push_back(joined(from));
    // Columns [4j/3, 4(j+1)/3) of all rows.
    const Array all = joined(x);
    const int64_t lo = 4 * j / 3, hi = 4 * (j + 1) / 3;
    Array columns = zeros_like({8, hi - lo});
    for (int64_t r = 0; r < 8; ++r)
      for (int64_t c = lo; c < hi; ++c)
        columns.at(r * (hi - lo) + c - lo) = all.at(r * 4 + c);
    turned.push_back(columns);
  }
  check_collective(x, want, [](const DistTensor& x, const AxisGroup& group) {
    return all_to_all(x, group);
  });
  check_collective(x, turned, [](const DistTensor& x, const AxisGroup& group) {
    return all_to_all(x, group, 1, 0);
  });
}

TEST(Collectives, AllToAllInGivenSizes) {
  const std::vector<std::vector<int64_t>> sizes = {
      {1, 0, 2}, {0, 0, 0}, {4, 1, 0}};
  const Parts x = parts_of({3, 0, 5}, 2);
  Parts want;
  for (size_t j = 0; j < 3; ++j) {
    Parts from;
    for (size_t i = 0; i < 3; ++i) {
      int64_t lo = 0;
      for (size_t k = 0; k < j; ++k) lo += sizes[i][k];
      from.push_back(rows(x[i], lo, lo + sizes[i][j]));
    }
    want.push_back(joined(from));
  }
  check_collective(x, want, [&](const DistTensor& x, const AxisGroup& group) {
    return all_to_all(x, group, sizes[static_cast<size_t>(group.rank())]);
  });
}

TEST(Collectives, Broadcast) {
  const Parts x = parts_of({2, 2, 2});
  check_collective(x, Parts(3, x[2]),
                   [](const DistTensor& x, const AxisGroup& group) {
                     return broadcast(x, group, 2);
                   });
  const Parts scalars = {values({}, 1), values({}, 2)};
  check_collective(scalars, Parts(2, scalars[0]),
                   [](const DistTensor& x, const AxisGroup& group) {
                     return broadcast(x, group);
                   });
}

TEST(Collectives, Permute) {
  const Parts x = parts_of({2, 0, 3});
  check_collective(x, {x[2], x[0], x[1]},
                   [](const DistTensor& x, const AxisGroup& group) {
                     return ppermute(x, group, {{0, 1}, {1, 2}, {2, 0}});
                   });
  check_collective(x, {zeros_like(x[0].shape), x[0], x[1]},
                   [](const DistTensor& x, const AxisGroup& group) {
                     return ppermute(x, group, {{0, 1}, {1, 2}});
                   });
  const Parts scalars = {values({}, 1), values({}, 2)};
  check_collective(scalars, {scalars[1], scalars[0]},
                   [](const DistTensor& x, const AxisGroup& group) {
                     return ppermute(x, group, {{0, 1}, {1, 0}});
                   });
}

// Two axes make one group; the last one varies fastest.
TEST(Collectives, SeveralAxes) {
  run(4, [](Runtime& rt) {
    const Mesh m({{"a", 2}, {"b", 2}});
    const Array mine = integers({1}, {double(rt.rank())}, DType::kF64);
    EXPECT_EQ(array_of(all_gather(local(mine), {m, "a,b"}).full()).v,
              (std::vector<double>{0, 1, 2, 3}));
    EXPECT_EQ(array_of(all_gather(local(mine), {m, "b,a"}).full()).v,
              (std::vector<double>{0, 2, 1, 3}));
    EXPECT_EQ(AxisGroup(m, "b,a").rank(), rt.rank() % 2 * 2 + rt.rank() / 2);
    EXPECT_EQ(AxisGroup(m, "a").size(), 2);
  });
}

// Without a group: all ranks of the run, or all axes of local_map()'s mesh.
TEST(Collectives, HaveTheGroupOfAllRanks) {
  on_mesh("x=2,y=2", [](const Mesh&) {
    const auto rank = static_cast<double>(RankContext::current().world_rank);
    const DistTensor mine = local(values({1}, 1)) * 0 + rank;
    EXPECT_EQ(all_reduce(mine).local().item(), 6);
    EXPECT_EQ(broadcast(mine).local().item(), 0);
    EXPECT_EQ(broadcast(mine, {}, 3).local().item(), 3);
    const Mesh half({{"z", 2}}, {1, 3});
    if (!half.contains(RankContext::current().world_rank)) return;
    const DistTensor y =
        local_map([](const DistTensor& part) { return all_reduce(part); }, "S0",
                  "R")(full({2}, 5, half, "S0"));
    EXPECT_EQ(y.full().item(), 10);
  });
}

TEST(Collectives, Errors) {
  const auto error =
      [](const std::function<void(const DistTensor&, const AxisGroup&)>& fn) {
        return error_of([&] {
          on_mesh("x=2", [&](const Mesh& m) {
            fn(local(values({3, 2}, 1)), {m, "x"});
          });
        });
      };
  using X = const DistTensor&;
  using G = const AxisGroup&;
  EXPECT_NE(error([](X x, G) {
              all_reduce(x, "x");
            }).find("has no mesh outside of local_map()"),
            std::string::npos);
  EXPECT_NE(error([](X x, G g) {
              all_reduce(x, g, ReduceOp::kMean);
            }).find("cannot reduce by mean"),
            std::string::npos);
  EXPECT_NE(error([](X x, G g) {
              broadcast(x, g, 2);
            }).find("the root is 2, but the group has 2 members"),
            std::string::npos);
  EXPECT_NE(error([](X x, G g) {
              ppermute(x, g, {{0, 1}, {1, 1}});
            }).find("of an earlier pair"),
            std::string::npos);
  EXPECT_NE(error([](X x, G g) {
              ppermute(x, g, {{0, 2}});
            }).find("a pair is (0, 2)"),
            std::string::npos);
  EXPECT_NE(error([](X x, G g) {
              all_to_all(x, g, {1, 1});
            }).find("2 sizes with the sum 2"),
            std::string::npos);
  EXPECT_NE(error([](X x, G g) {
              all_to_all(x, g, {4, -1});
            }).find("a size is -1"),
            std::string::npos);
  // Members whose calls differ all throw.
  EXPECT_NE(error([](X x, G g) {
              all_reduce(g.rank() == 0 ? x : slice(x, 0, 0, 2), g);
            }).find("all_reduce"),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor::testing
