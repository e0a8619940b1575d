// SPDX-License-Identifier: Apache-2.0
// Functions of local parts, compared with plain loops on many meshes.
#include "dtensor/ops/local_map.h"

#include <cmath>
#include <string>
#include <vector>

#include "dtensor/ops/collectives.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/data_shapes.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

using Tensors = std::vector<DistTensor>;

// x [m, k] times w [k, n], of the squares of the products.
Array product(const std::vector<Array>& in) {
  const int64_t m = in[0].shape[0], k = in[0].shape[1], n = in[1].shape[1];
  Array y = zeros_like({m, n});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        y.at(i * n + j) += std::tanh(in[0].at(i * k + l)) * in[1].at(l * n + j);
  return y;
}

Tensors local_product(const Tensors& in) {
  return {matmul(tanh(in[0]), in[1])};
}

// The product by local parts: `out` is the layout of the result.
Problem product_in(const std::vector<Placements>& in, const Placements& out,
                   int64_t m, int64_t k, int64_t n) {
  return {.inputs = {values({m, k}, 1), values({k, n}, 2)},
          .function =
              [=](const Tensors& x) {
                std::vector<Placements> layouts = in;
                if (x[0].mesh().num_ranks() == 1) layouts = {"", ""};
                return local_map(local_product, layouts,
                                 {x[0].mesh().num_ranks() == 1 ? Placements("")
                                                               : out})(x)[0];
              },
          .reference = product};
}

TEST(LocalMap, RowsColumnsAndSums) {
  // The sizes are uneven, and some parts are empty.
  for (const int64_t n : {1, 5, 7}) {
    check_problem(product_in({"S0", ""}, "S0", n, 3, 4),
                  {{"x=2", {"S0", ""}}, {"x=3", {"S1", "S0"}}, {"x=4", {}}});
    check_problem(product_in({"", "S1"}, "S1", 2, 3, n), {{"x=3", {}}});
    check_problem(product_in({"S1", "S0"}, "P", 3, n, 2),
                  {{"x=2", {}}, {"x=3", {"S1", "R"}}});
    check_problem(product_in({"S0,R", "R,S1"}, "S0,S1", n, 3, 5),
                  {{"x=2,y=2", {}}, {"x=3,y=2", {"R,S1", "S0,R"}}});
    check_problem(product_in({"S0,S1", "R,S0"}, "S0,P", 5, n, 2),
                  {{"x=2,y=3", {}}});
    check_problem(product_in({"", ""}, "", n, 2, 3), {{"x=3", {"S0", "S1"}}});
  }
}

// A partial input: the function is linear in it.
TEST(LocalMap, PartialInputs) {
  check_problem(
      {.inputs = {values({5, 3}, 1), values({4, 3}, 2), values({4}, 3)},
       .function =
           [](const Tensors& x) {
             const DistTensor y = matmul(x[0], transpose(x[1], 0, 1));
             const bool one = x[0].mesh().num_ranks() == 1;
             return local_map(
                 [](const Tensors& in) -> Tensors {
                   return {in[0] * exp(in[1])};
                 },
                 {one ? "" : "P", ""}, {one ? "" : "P"})({y, x[2]})[0];
           },
       .reference =
           [](const std::vector<Array>& in) {
             Array y = zeros_like({5, 4});
             for (int64_t i = 0; i < 20; ++i)
               for (int64_t k = 0; k < 3; ++k)
                 y.at(i) += in[0].at(i / 4 * 3 + k) * in[1].at(i % 4 * 3 + k) *
                            std::exp(in[2].at(i % 4));
             return y;
           }},
      {{"x=2", {"S1", "S1"}}, {"x=3", {"S0", ""}}});
}

// check_problem() also runs dry, where ranks cannot tell each other sizes.
TEST(LocalMap, GathersUnevenParts) {
  check_problem(
      {.inputs = {values({7, 2}, 1), values({7, 3}, 2)},
       .function =
           [](const Tensors& x) {
             return local_map(
                 [](const Tensors& in) -> Tensors {
                   return {matmul(transpose(all_gather(in[0], "x"), 0, 1),
                                  all_gather(in[1], "x"))};
                 },
                 {"S0", "S0"}, {""})(x)[0];
           },
       .reference =
           [](const std::vector<Array>& in) {
             Array y = zeros_like({2, 3});
             for (int64_t i = 0; i < 6; ++i)
               for (int64_t k = 0; k < 7; ++k)
                 y.at(i) += in[0].at(k * 2 + i / 3) * in[1].at(k * 3 + i % 3);
             return y;
           }},
      {{"x=2", {"S0", ""}}, {"x=3", {}}, {"x=9", {"S1", "S0"}}});
}

// On the last of 4 ranks, 30 rows and 32 numbers are parts of one size.
TEST(LocalMap, GathersUnevenPartsOfEqualSizes) {
  check_problem(
      {.inputs = {values({30, 2}, 1), values({32}, 2)},
       .function =
           [](const Tensors& x) {
             return local_map(
                 [](const Tensors& in) -> Tensors {
                   return {sum(in[0], {0}), all_gather(in[1], "x")};
                 },
                 {"S0", "S0"},
                 {x[0].mesh().num_ranks() == 1 ? "" : "P", ""})(x)[1];
           },
       .reference = [](const std::vector<Array>& in) { return in[1]; }},
      {{"x=4", {}}});
}

// Softmax over a split dimension, with collectives inside.
TEST(LocalMap, Collectives) {
  const TensorFunction softmax = [](const Tensors& in) -> Tensors {
    const DistTensor e = exp(in[0]);
    return {e / all_reduce(sum(e, {1}, true), "x")};
  };
  check_problem({.inputs = {values({3, 7}, 1)},
                 .function =
                     [=](const Tensors& x) {
                       return local_map(softmax, {"S1"}, {"S1"})(x)[0];
                     },
                 .reference =
                     [](const std::vector<Array>& in) {
                       Array y = in[0];
                       for (int64_t r = 0; r < 3; ++r) {
                         double s = 0;
                         for (int64_t i = 0; i < 7; ++i)
                           s += std::exp(y.at(r * 7 + i));
                         for (int64_t i = 0; i < 7; ++i)
                           y.at(r * 7 + i) = std::exp(y.at(r * 7 + i)) / s;
                       }
                       return y;
                     }},
                {{"x=2", {"S1"}}, {"x=3", {"S0"}}, {"x=9", {""}}});
}

TEST(LocalMap, SizesThatDependOnData) {
  run(3, [](Runtime& rt) {
    const Mesh m({{"x", 3}});
    const Array a = values({10}, 4);
    const DistTensor x = put(a, m, "S0");
    std::vector<double> want;
    for (double v : a.v)
      if (v > 0) want.push_back(v);
    ASSERT_GT(want.size(), 3u);
    const DistTensor part = to_local(x);
    const DistTensor y = from_local(masked_select(part, gt(part, 0)), m, "S0");
    EXPECT_EQ(array_of(y.full()).v, want);
    EXPECT_EQ(part.mesh(), local_mesh());
    EXPECT_EQ(local_mesh().world_rank(0), rt.rank());
  });
}

TEST(LocalMap, ToLocalAndBack) {
  for (const char* layout : {"S0,R", "R,R", "S1,S0", "R,S1"})
    check_problem(
        {.inputs = {values({5, 3}, 1)},
         .function =
             [=](const Tensors& x) {
               const Mesh& m = x[0].mesh();
               const DistTensor there =
                   x[0].redistribute(m.num_axes() == 1 ? "R" : layout);
               const DistTensor part = to_local(there);
               return from_local(part * part, m, there.layout(), {5, 3});
             },
         .reference =
             [](const std::vector<Array>& in) {
               Array y = in[0];
               for (double& v : y.v) v *= v;
               return y;
             }},
        {{"x=2,y=3", {"S0,S1"}}});
}

TEST(LocalMap, NoGradientReachesAnOutput) {
  run(2, [](Runtime&) {
    const Mesh m({{"x", 2}});
    DistTensor x = put(values({5}, 1), m, "S0").set_requires_grad();
    // On rank 0 the result does not depend on the input.
    const auto f = local_map(
        [](const DistTensor& part) {
          return RankContext::current().world_rank == 0 ? ones_like(part)
                                                        : part * 3;
        },
        "S0", "S0");
    const DistTensor g = grad(sum(f(x)), x)[0];
    EXPECT_EQ(array_of(g.full()).v, (std::vector<double>{0, 0, 3, 3, 3}));
  });
}

// The backward pass knows the axes, too: of a checkpoint(), and of a function
// with its own gradient. Random numbers are drawn again.
TEST(LocalMap, BackwardPassesThatCommunicate) {
  run(3, [](Runtime&) {
    const Mesh m({{"x", 3}});
    const Array a = values({3, 5}, 1);
    double all = 0;
    for (double v : a.v) all += v * v;
    DistTensor x = put(a, m, "S1").set_requires_grad();
    const auto f = local_map(
        [](const DistTensor& p) {
          return checkpoint(
              [](const DistTensor& q) {
                return all_reduce(sum(square(q)), "x");
              },
              p);
        },
        "S1", "");
    const DistTensor y = f(x);
    EXPECT_NEAR(y.item(), all, 1e-12);
    Array twice = a;
    for (double& v : twice.v) v *= 2;
    expect_near(array_of(grad(y, x)[0].full()), twice, 1e-12, "checkpoint");

    const auto keep = [](const DistTensor& t) { return t; };
    const auto g = local_map(
        [&](const DistTensor& p) {
          return custom_function(
              keep, [](const DistTensor& c) { return all_reduce(c, "x"); })(p);
        },
        "", "P");
    DistTensor r = put(a, m).set_requires_grad();
    expect_near(array_of(grad(sum(g(r)), r)[0].full()),
                array_of((ones_like(r) * 9).full()), 1e-12, "custom");

    const auto drops = local_map(
        [](const DistTensor& p) { return dropout(p, 0.5); }, "S1", "S1");
    const DistTensor d = drops(x);
    const Array gradient =
        array_of(grad(sum(d), x, {.create_graph = true})[0].full());
    const Array kept = array_of(d.full());
    for (int64_t i = 0; i < 15; ++i)
      EXPECT_EQ(gradient.at(i) == 0, kept.at(i) == 0) << i;
  });
}

// Runs fn under RunOptions::check, and returns the error.
std::string checked(const std::string& mesh,
                    const std::function<void(const Mesh&)>& fn) {
  const Mesh m = Mesh::parse(mesh);
  RunOptions options;
  options.world = m.num_ranks();
  options.check = true;
  return error_of([&] { run(options, [&](Runtime&) { fn(m); }); });
}

// Wrong layouts of each kind are found, and the right ones are not refused.
TEST(LocalMap, CheckFindsWrongLayouts) {
  struct Wrong {
    const char* name;
    TensorFunction fn;
    std::vector<Placements> in, out;
    const char* right_in;
    const char* right_out;
    std::string error;
  };
  const auto one = [](auto f) {
    return [f](const Tensors& in) -> Tensors { return {f(in[0])}; };
  };
  const std::vector<Wrong> all = {
      {"softmax of a split dimension",
       one([](const DistTensor& x) { return softmax(x, 1); }),
       {"S1"},
       {"S1"},
       "S0",
       "S0",
       "is wrong on ranks 0,1,2"},
      {"a sum called replicated",
       one([](const DistTensor& x) { return sum(x, {0}); }),
       {"S0"},
       {""},
       "S0",
       "P",
       "is wrong on ranks 0,1,2"},
      {"a sum called split",
       one([](const DistTensor& x) { return sum(x, {0}); }),
       {"S0"},
       {"S0"},
       "S0",
       "P",
       "but the function of the whole inputs"},
      {"a replicated value called partial",
       one([](const DistTensor& x) { return x * 2; }),
       {""},
       {"P"},
       "",
       "",
       "is wrong on ranks 0,1,2"},
      {"a product of partial values",
       one([](const DistTensor& x) { return x * x; }),
       {"P"},
       {"P"},
       "S1",
       "S1",
       "is wrong on ranks 0,1,2"},
      {"the other dimension",
       one([](const DistTensor& x) { return x + 1; }),
       {"S0"},
       {"S1"},
       "S0",
       "S0",
       "dimension 0 of output 0"},
      {"rows joined as columns",
       one([](const DistTensor& x) { return transpose(x, 0, 1); }),
       {"S0"},
       {"S0"},
       "S0",
       "S1",
       "output 0"},
      {"a cumulative sum of split rows",
       one([](const DistTensor& x) { return cumsum(x, 0); }),
       {"S0"},
       {"S0"},
       "S1",
       "S1",
       "is wrong on ranks 1,2"},
      {"a mean of means",
       one([](const DistTensor& x) { return mean(x, {0}); }),
       {"S0"},
       {"P"},
       "S1",
       "S0",
       "is wrong on ranks 0,1,2"},
      {"a maximum that is summed",
       one([](const DistTensor& x) { return amax(x, {0}); }),
       {"S0"},
       {"P"},
       "S1",
       "S0",
       "is wrong on ranks 0,1,2"},
      {"a nonlinear function before the sum",
       one([](const DistTensor& x) { return exp(x); }),
       {"P"},
       {"P"},
       "",
       "",
       "is wrong on ranks 0,1,2"},
      {"a collective over too few ranks",
       one([](const DistTensor& x) { return all_reduce(sum(x, {0}), "x"); }),
       {"S0"},
       {"P"},
       "S0",
       "",
       "is wrong on ranks 0,1,2"},
  };
  for (const Wrong& w : all) {
    SCOPED_TRACE(w.name);
    const auto f = [&](const std::vector<Placements>& in,
                       const std::vector<Placements>& out) {
      return checked("x=3", [&](const Mesh& m) {
        // A sum of equal parts.
        const DistTensor third =
            to_local(put(values({5, 4}, 1), m)) * (1.0 / 3);
        const DistTensor x = from_local(third, m, "P");
        local_map(w.fn, in, out)({x});
      });
    };
    EXPECT_NE(f(w.in, w.out).find(w.error), std::string::npos)
        << f(w.in, w.out);
    EXPECT_EQ(f({w.right_in}, {w.right_out}), "no error");
  }
}

// A group that was made outside of the function has one member as well.
TEST(LocalMap, CheckTakesAnyGroup) {
  EXPECT_EQ(checked("x=3",
                    [](const Mesh& m) {
                      const AxisGroup group(m, "x");
                      local_map(
                          [group](const DistTensor& p) {
                            return all_reduce(sum(p, {0}), group);
                          },
                          "S0", "")(put(values({5, 4}, 1), m));
                    }),
            "no error");
}

TEST(LocalMap, CheckNamesTheRankAndTheElement) {
  const std::string error = checked("x=2,y=2", [](const Mesh& m) {
    const DistTensor x = put(values({4, 3}, 1), m);
    local_map(
        [](const DistTensor& part) {
          return AxisGroup("x,y").rank() == 3 ? part * 2 : part;
        },
        "S0,R", "S0,R")(x);
  });
  EXPECT_NE(error.find("is wrong on rank 3: element [2, 0]"), std::string::npos)
      << error;
}

TEST(LocalMap, Errors) {
  const auto error = [](const std::function<void(const DistTensor&)>& fn) {
    return error_of([&] {
      on_mesh("x=2", [&](const Mesh& m) { fn(put(values({5}, 1), m, "S0")); });
    });
  };
  const TensorFunction same = [](const Tensors& in) { return in; };
  EXPECT_NE(error([&](const DistTensor& x) {
              local_map(same, {"S0", "S0"}, {"S0", "S0"})({x});
            }).find("got 1 input for 2 layouts"),
            std::string::npos);
  EXPECT_NE(error([&](const DistTensor& x) {
              local_map(same, {"S0"}, {"S0", "S0"})({x});
            }).find("returned 1 tensor for 2 layouts"),
            std::string::npos);
  EXPECT_NE(error([&](const DistTensor& x) {
              local_map([x](const Tensors&) -> Tensors { return {x}; }, {"S0"},
                        {"S0"})({x});
            }).find("must be on local_mesh()"),
            std::string::npos);
  EXPECT_NE(error([&](const DistTensor& x) {
              local_map(same, {"S0"}, {""})({x});
            }).find("has size 2 on rank 0 and 3 on rank 1"),
            std::string::npos);
  EXPECT_NE(error([&](const DistTensor& x) {
              DistTensor y = x;
              y.set_requires_grad();
              const auto f = local_map(same, {""}, {"P(max)"});
              grad(sum(f({y})[0]), y);
            }).find("partial by another reduction than a sum"),
            std::string::npos);
  EXPECT_NE(error([&](const DistTensor& x) {
              from_local(x, x.mesh(), "S0");
            }).find("must be on local_mesh()"),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor::testing
