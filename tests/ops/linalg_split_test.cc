// SPDX-License-Identifier: Apache-2.0
// Factors of matrices whose rows or columns are split, compared with plain
// loops. The proof compares them with one rank's on all layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/observer.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/diagonal.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/linalg.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

// The rows of q [m, n], and below them those of r [n, n], by Householder's
// reflections with the signs of LAPACK's dgeqrf. x has more rows than columns.
Array plain_qr(const Array& x) {
  const int64_t m = x.shape[0], n = x.shape[1];
  Array r = x, q = zeros_like({m, m}), both = zeros_like({m + n, n});
  for (int64_t i = 0; i < m; ++i) q.at(i * m + i) = 1;
  for (int64_t j = 0; j < n; ++j) {
    double below = 0;
    for (int64_t i = j + 1; i < m; ++i) below += std::pow(r.at(i * n + j), 2);
    if (below == 0) continue;
    std::vector<double> v(static_cast<size_t>(m));
    for (int64_t i = j; i < m; ++i) v[size_t(i)] = r.at(i * n + j);
    const double head = r.at(j * n + j);
    v[size_t(j)] += std::copysign(std::sqrt(head * head + below), head);
    double square = 0;
    for (double e : v) square += e * e;
    for (int64_t c = 0; c < n; ++c) {
      double by = 0;
      for (int64_t i = j; i < m; ++i) by += v[size_t(i)] * r.at(i * n + c);
      for (int64_t i = j; i < m; ++i)
        r.at(i * n + c) -= 2 * by / square * v[size_t(i)];
    }
    for (int64_t i = 0; i < m; ++i) {
      double by = 0;
      for (int64_t c = j; c < m; ++c) by += q.at(i * m + c) * v[size_t(c)];
      for (int64_t c = j; c < m; ++c)
        q.at(i * m + c) -= 2 * by / square * v[size_t(c)];
    }
  }
  for (int64_t i = 0; i < m + n; ++i)
    for (int64_t j = 0; j < n; ++j)
      both.at(i * n + j) = i < m        ? q.at(i * m + j)
                           : i - m <= j ? r.at((i - m) * n + j)
                                        : 0;
  return both;
}

DistTensor both_of(const Qr& f) { return cat({f.q, f.r}, -2); }

TEST(LinalgSplit, TallQr) {
  const auto function = [](const std::vector<DistTensor>& in) {
    return both_of(qr(in[0]));
  };
  const auto reference = [](const std::vector<Array>& in) {
    return plain_qr(in[0]);
  };
  const std::vector<Case> cases = {
      {"tp=2", {"S0"}},         {"tp=3", {"S0"}},         {"tp=6", {"S0"}},
      {"dp=2,tp=2", {"S0,S0"}}, {"dp=2,tp=2", {"R,S0"}},  {"tp=3", {"S1"}},
      {"dp=2,tp=2", {"P,S0"}},  {"dp=2,tp=2", {"S0,S1"}},
  };
  check_problem({{values({13, 3}, 1)}, function, reference}, cases);
  // Parts with fewer rows than columns, and without any.
  check_problem({{values({5, 4}, 3)}, function, reference}, cases);
}

TEST(LinalgSplit, RowsOfQAreSplitAsThoseOfX) {
  on_mesh("dp=2,tp=3", [](const Mesh& mesh) {
    const Array a = values({3, 20, 2}, 1);
    const DistTensor x = put(a, mesh, "S0,S1"), wide = transpose(x, -2, -1);
    const Qr f = qr(x);
    EXPECT_EQ(f.q.spec()->to_string(), x.spec()->to_string());
    EXPECT_EQ(f.r.spec()->to_string(), "f64[3, 2, 2](S0,R)");
    expect_near(array_of(matmul(f.q, f.r).full()), a, 1e-13, "product");
    EXPECT_EQ(svd(x).u.spec()->to_string(), x.spec()->to_string());
    EXPECT_EQ(svd(wide).vh.spec()->to_string(), wide.spec()->to_string());
    // Rows in any order: here each rank has several ranges of them.
    const DistTensor rows =
        reshape(put(values({2, 12, 2}, 4), mesh, "R,S1"), {24, 2});
    EXPECT_EQ(qr(rows).q.spec()->to_string(), rows.spec()->to_string());
    expect_near(array_of(both_of(qr(rows)).full()),
                plain_qr({{24, 2}, values({2, 12, 2}, 4).v}), 1e-13, "tree");
  });
}

// Nothing is reflected where a column is 0 below the diagonal.
TEST(LinalgSplit, QrOfATriangle) {
  on_mesh("tp=3", [](const Mesh& mesh) {
    const Array x{{6, 2}, {-3, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0}};
    expect_near(array_of(both_of(qr(put(x, mesh, "S0"))).full()),
                {{8, 2}, {1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, -3, 1, 0, 2}}, 0,
                "qr");
  });
}

TEST(LinalgSplit, TallSvd) {
  // u s^3 v^T = x x^T x.
  const auto cube = [](const std::vector<DistTensor>& in) {
    const Svd f = svd(in[0]);
    return matmul(f.u * unsqueeze(f.s * f.s * f.s, -2), f.vh);
  };
  const auto reference = [](const std::vector<Array>& in) {
    const int64_t m = in[0].shape[0], n = in[0].shape[1];
    Array y = zeros_like({m, n});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t k = 0; k < n; ++k)
          for (int64_t l = 0; l < m; ++l)
            y.at(i * n + j) +=
                in[0].at(i * n + k) * in[0].at(l * n + k) * in[0].at(l * n + j);
    return y;
  };
  check_problem({{values({13, 2}, 2, 0.4)}, cube, reference, false},
                {{"tp=2", {"S0"}}, {"tp=3", {"S0"}}, {"dp=2,tp=2", {"S0,S0"}}});
  check_problem({{values({2, 9}, 2, 0.4)}, cube, reference, false},
                {{"tp=2", {"S1"}}, {"dp=2,tp=2", {"R,S1"}}});
}

// A rank receives the other ranks' factors R and the first n rows, if another
// rank has them. A gather would take 3/4 of x.
TEST(LinalgSplit, BytesOfTallFactors) {
  const int64_t m = 256, n = 4, square = n * n * 8;
  on_mesh("tp=4", [&](const Mesh& mesh) {
    const DistTensor x = put(values({m, n}, 1), mesh, "S0").set_requires_grad();
    const int64_t own = mesh.rank(RankContext::current().coordinate(mesh)),
                  wanted = own == 0 ? 3 * square : 4 * square;
    Qr f;
    EXPECT_EQ(sent([&] { f = qr(x); }), wanted);
    EXPECT_EQ(sent([&] { svdvals(x); }), wanted);
    EXPECT_EQ(sent([&] { matrix_norm(x, 2); }), wanted);
    const DistTensor sum_of_both =
        sum(f.q * put(values({m, n}, 2), mesh, "S0")) +
        sum(f.r * put(values({n, n}, 3), mesh));
    EXPECT_LE(sent([&] { grad(sum_of_both, {x}); }), 4 * square);
    // Parts with fewer rows than columns are sent as they are.
    const DistTensor low = put(values({10, 8}, 1), mesh, "S0");
    EXPECT_LE(sent([&] { qr(low); }), (10 - low.local().shape()[0]) * 8 * 8);
    const ExplicitOnly only;
    EXPECT_EQ(error_of([&] { qr(x); }).substr(0, 79),
              "[qr] would have to communicate while it computes (all-to-all, "
              "512 bytes), which");
  });
}

// The lower triangle l with l l^T = x.
Array plain_cholesky(const Array& x) {
  const int64_t n = x.shape[0];
  Array l = zeros_like({n, n});
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double sum = x.at(i * n + j);
      for (int64_t k = 0; k < j; ++k) sum -= l.at(i * n + k) * l.at(j * n + k);
      l.at(i * n + j) = i == j ? std::sqrt(sum) : sum / l.at(j * n + j);
    }
  return l;
}

// Solves a x = b for a lower or an upper triangle a.
Array plain_solve(const Array& a, const Array& b, bool upper) {
  const int64_t n = b.shape[0], k = b.shape[1];
  Array x = b;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = upper ? n - 1 - step : step;
    for (int64_t c = 0; c < k; ++c) {
      for (int64_t j = upper ? i + 1 : 0; j < (upper ? n : i); ++j)
        x.at(i * k + c) -= a.at(i * n + j) * x.at(j * k + c);
      x.at(i * k + c) /= a.at(i * n + i);
    }
  }
  return x;
}

// A positive definite matrix.
Array definite(int64_t n) {
  Array x = zeros_like({n, n});
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      x.at(i * n + j) = std::sin(static_cast<double>(i + j)) +
                        (i == j ? static_cast<double>(n) : 0);
  return x;
}

// A parameter is not gathered, so small matrices are factored where they lie.
DistTensor fixed(DistTensor x) { return x.as_parameter(); }

const std::vector<Case> kSplits = {
    {"tp=2", {"S0"}},         {"tp=3", {"S0"}},
    {"tp=2", {"S1"}},         {"tp=3", {"S1"}},
    {"dp=2,tp=2", {"S0,S1"}}, {"dp=2,tp=2", {"S1,S0"}},
    {"dp=2,tp=2", {"S0,S0"}}, {"dp=3,tp=2", {"S0,S1"}},
    {"dp=2,tp=2", {"R,S0"}},  {"tp=8", {"S0"}}};

TEST(LinalgSplit, Cholesky) {
  const auto reference = [](const std::vector<Array>& in) {
    // The gradient is symmetric.
    const int64_t n = in[0].shape[0];
    Array mean = in[0];
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        mean.at(i * n + j) = (in[0].at(i * n + j) + in[0].at(j * n + i)) / 2;
    return plain_cholesky(mean);
  };
  for (const bool upper : {false, true})
    check_problem({{definite(7)},
                   [upper](const std::vector<DistTensor>& in) {
                     const DistTensor l = cholesky(fixed(in[0]), upper);
                     return upper ? transpose(l, -2, -1) : l;
                   },
                   reference,
                   false},
                  kSplits);
}

// Runs `fn` on a mesh on which messages cost nothing but their bytes, so small
// matrices take the split algorithms, too.
void where_bytes_count(const std::string& mesh,
                       const std::function<void(const Mesh&)>& fn) {
  const Mesh m = Mesh::parse(mesh);
  RunOptions options;
  options.world = m.num_ranks();
  options.cost.axes.assign(size_t(m.num_axes()), AxisCost{{0, 50}});
  run(options, [&](Runtime&) { fn(m); });
}

TEST(LinalgSplit, SolveTriangular) {
  const int64_t n = 23, k = 3;
  const Array a = definite(n), b = values({n, k}, 1), dx = values({n, k}, 2);
  Array turned = a;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) turned.at(i * n + j) = a.at(j * n + i);
  struct At {
    const char *mesh, *a, *b, *x;
  };
  for (const bool upper : {false, true}) {
    const Array want = plain_solve(a, b, upper),
                db = plain_solve(turned, dx, !upper);
    Array da = zeros_like({n, n});
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t c = 0; c < k; ++c)
          if (upper ? i <= j : i >= j)
            da.at(i * n + j) -= db.at(i * k + c) * want.at(j * k + c);
    for (const At& at : {At{"tp=2", "S0", "S0", "S0"},
                         {"tp=3", "S0", "R", "S0"},
                         {"tp=3", "S1", "S0", "S0"},
                         {"tp=3", "S0", "P", "S0"},
                         {"tp=30", "S0", "S0", "S0"},
                         {"dp=2,tp=2", "S0,S0", "S0,R", "S0,S0"},
                         {"dp=2,tp=2", "S0,S1", "S0,S1", "S0,S0"}})
      where_bytes_count(at.mesh, [&](const Mesh& mesh) {
        const DistTensor t = put(a, mesh, at.a).set_requires_grad(),
                         y = put(b, mesh, at.b).set_requires_grad(),
                         x = solve_triangular(t, y, upper);
        const std::string what =
            std::string(at.mesh) + ": " + at.a + ", " + at.b;
        EXPECT_EQ(x.spec()->to_string(), fmt::format("f64[23, 3]({})", at.x))
            << what;
        expect_near(array_of(x.full()), want, 1e-13, what);
        const auto d = grad(sum(x * put(dx, mesh)), {t, y});
        expect_near(array_of(d[0].full()), da, 1e-13, what);
        expect_near(array_of(d[1].full()), db, 1e-13, what);
      });
  }
}

// Parts of any sizes, whose bounds of rows and columns differ, and axes in any
// order.
TEST(LinalgSplit, UnevenParts) {
  const int64_t n = 9, k = 2;
  const Array a = definite(n), b = values({n, k}, 1);
  where_bytes_count("dp=2,tp=3", [&](const Mesh& mesh) {
    const auto over = [&](std::vector<int> axes, std::vector<int64_t> points) {
      return axes.empty() ? Dim(n)
                          : Dim(n, Split::at(axes, std::move(points), mesh));
    };
    const auto laid_out = [&](const Array& x, const Dim& rows,
                              const Dim& columns) {
      return DistTensor::from_global(tensor_of(x, DType::kF64), mesh,
                                     Placements(Layout{{rows, columns}, {}}));
    };
    for (const auto& [rows, columns] : std::vector<std::pair<Dim, Dim>>{
             {over({1}, {0, 0, 7, 9}), over({}, {})},
             {over({1, 0}, {0, 1, 3, 3, 3, 8, 9}), over({}, {})},
             {over({0}, {0, 2, 9}), over({1}, {0, 4, 5, 9})},
             {over({1}, {0, 9, 9, 9}), over({0}, {0, 0, 9})},
             {over({}, {}), over({0, 1}, {0, 1, 1, 4, 6, 8, 9})}}) {
      const DistTensor x = laid_out(a, rows, columns),
                       l = cholesky(fixed(laid_out(a, rows, columns)));
      EXPECT_EQ(l.spec(), x.spec());
      expect_near(array_of(l.full()), plain_cholesky(a), 1e-13, "cholesky");
      const DistTensor y = laid_out(b, rows, Dim(k));
      for (const bool upper : {false, true})
        expect_near(array_of(solve_triangular(x, y, upper).full()),
                    plain_solve(a, b, upper), 1e-13, "solve_triangular");
      expect_near(array_of(both_of(qr(fixed(y))).full()), plain_qr(b), 1e-13,
                  "qr");
    }
  });
}

// The negative logarithm of the likelihood of a Gaussian process, without
// constants: y^T x^-1 y + log det x.
DistTensor likelihood(const DistTensor& x, const DistTensor& y) {
  const DistTensor l = cholesky(x);
  return sum(square(solve_triangular(l, y, false))) +
         2 * sum(log(diagonal(l, 0, -2, -1)));
}

TEST(LinalgSplit, GaussianProcess) {
  check_problem(
      {{definite(6), values({6, 1}, 3)},
       [](const std::vector<DistTensor>& in) {
         const DistTensor x = in[0];
         return likelihood((x + transpose(x, -2, -1)) * 0.5, in[1]);
       },
       [](const std::vector<Array>& in) {
         const int64_t n = in[0].shape[0];
         Array mean = in[0], loss = zeros_like({});
         for (int64_t i = 0; i < n; ++i)
           for (int64_t j = 0; j < n; ++j)
             mean.at(i * n + j) =
                 (in[0].at(i * n + j) + in[0].at(j * n + i)) / 2;
         const Array l = plain_cholesky(mean), z = plain_solve(l, in[1], false);
         for (int64_t i = 0; i < n; ++i)
           loss.at(0) += z.at(i) * z.at(i) + 2 * std::log(l.at(i * n + i));
         return loss;
       }},
      {{"tp=2", {"S0", "S0"}}, {"dp=2,tp=2", {"S0,S1", "S0,R"}}});
}

// As the header says: at most half of a gather if rows are split. Each rank of
// a grid of 2 by 2 ranks receives at most one block, where a gather takes
// three.
TEST(LinalgSplit, BytesOfCholesky) {
  const int64_t n = 512;
  const Array a = definite(n);
  on_mesh("tp=4", [&](const Mesh& mesh) {
    const int64_t r = mesh.rank(RankContext::current().coordinate(mesh)),
                  block = n / 4 * n / 4 * 8;
    const DistTensor rows = put(a, mesh, "S0"), columns = put(a, mesh, "S1");
    DistTensor l;
    EXPECT_EQ(sent([&] { l = cholesky(rows); }), r * (r + 1) / 2 * block);
    EXPECT_EQ(l.spec()->to_string(), rows.spec()->to_string());
    EXPECT_EQ(sent([&] { l = cholesky(columns); }), r * (4 - r) * block);
    EXPECT_EQ(l.spec()->to_string(), columns.spec()->to_string());
    // A vector, a number for each row, and sums.
    const DistTensor y = put(values({n, 1}, 1), mesh, "S0");
    EXPECT_LE(sent([&] { likelihood(rows, y); }),
              r * (r + 1) / 2 * block + 2 * n * 8);
  });
  for (const int64_t q : {2, 3})
    on_mesh(fmt::format("dp={0},tp={0}", q), [&](const Mesh& mesh) {
      const int64_t size = 168 * q, part = 168 * 168 * 8;
      const DistTensor x = put(definite(size), mesh, "S0,S1");
      const Coord& at = RankContext::current().coordinate(mesh);
      DistTensor l;
      EXPECT_EQ(sent([&] { l = cholesky(x); }), (at[0] > at[1] ? 2 * at[1] + 1
                                                 : at[0] == at[1] ? at[1]
                                                                  : 0) *
                                                    part);
      EXPECT_EQ(l.spec()->to_string(), x.spec()->to_string());
    });
  // Small matrices are gathered.
  on_mesh("tp=4", [&](const Mesh& mesh) {
    EXPECT_EQ(cholesky(put(definite(8), mesh, "S0")).spec()->to_string(),
              "f64[8, 8](R)");
  });
}

// Every rank has a turn, with two messages: the factor of a block, and the rows
// below it.
TEST(LinalgSplit, PriceOfCholeskysMessages) {
  RunOptions options;
  options.world = 4;
  options.cost.axes.resize(1);
  options.cost.axes[0].alpha_ps = 1000;
  options.cost.axes[0].ps_per_byte = 1;
  run(options, [](Runtime& rt) {
    RankContext& context = rt.context();
    context.record = true;
    int64_t price = 0, bytes = 0;
    const DistTensor x = put(definite(512), rt.mesh(), "S0").as_parameter();
    const OnOp observe(context, [&](const OpRan& op) {
      if (op.op == "cholesky") price = op.choice.comm_ps;
    });
    cholesky(x);
    for (const CommEvent& e : context.events) bytes += e.predicted;
    EXPECT_EQ(price, 4 * 2 * 1000 + bytes);
  });
}

// A rank receives the rows of x that are solved before its own.
TEST(LinalgSplit, BytesOfSolveTriangular) {
  on_mesh("tp=4", [&](const Mesh& mesh) {
    const int64_t n = 512, k = 8,
                  r = mesh.rank(RankContext::current().coordinate(mesh)),
                  part = n / 4 * k * 8;
    const DistTensor a = put(definite(n), mesh, "S0"),
                     b = put(values({n, k}, 1), mesh, "S0");
    DistTensor x;
    EXPECT_EQ(sent([&] { x = solve_triangular(a, b, false); }), r * part);
    EXPECT_EQ(x.spec()->to_string(), b.spec()->to_string());
    EXPECT_EQ(sent([&] { solve_triangular(a, b, true); }), (3 - r) * part);
    // A matrix whose columns are split exchanges them for rows.
    EXPECT_EQ(sent([&] { solve_triangular(transpose(a, 0, 1), b, true); }),
              (3 - r) * part + n / 4 * n * 3 / 4 * 8);
  });
}

TEST(LinalgSplit, TheFirstBadPivotIsNamed) {
  for (const auto& [mesh, layout] :
       {std::pair{"tp=3", "S0"}, {"dp=2,tp=2", "S0,S1"}})
    on_mesh(mesh, [&](const Mesh& m) {
      Array a = definite(7);
      a.at(4 * 7 + 4) = -1;
      EXPECT_EQ(
          error_of([&] { cholesky(fixed(put(a, m, layout))); }).substr(0, 77),
          "[cholesky] a matrix is not positive definite: the pivot of row 4 "
          "is not above");
    });
}

}  // namespace
}  // namespace dtensor::testing
