// SPDX-License-Identifier: Apache-2.0
// Factors are multiplied again and compared with the matrix.
#include "dtensor/ops/kernels/linalg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "dtensor/placement/error.h"
#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {
namespace {

using Numbers = std::vector<double>;
constexpr DType kWide[] = {DType::kF32, DType::kF64};

// a [m, k] times b [k, n], for each of `count` matrices.
Numbers product(const Numbers& a, const Numbers& b, int64_t count, int64_t m,
                int64_t k, int64_t n) {
  Numbers c(static_cast<size_t>(count * m * n));
  for (int64_t at = 0; at < count * m * n; ++at) {
    const int64_t matrix = at / (m * n), i = at / n % m, j = at % n;
    for (int64_t p = 0; p < k; ++p)
      c[static_cast<size_t>(at)] +=
          a[static_cast<size_t>((matrix * m + i) * k + p)] *
          b[static_cast<size_t>((matrix * k + p) * n + j)];
  }
  return c;
}
Numbers transposed(const Numbers& a, int64_t count, int64_t m, int64_t n) {
  Numbers t(a.size());
  for (int64_t at = 0; at < count * m * n; ++at)
    t[static_cast<size_t>(at / (m * n) * m * n + at % n * m + at / n % m)] =
        a[static_cast<size_t>(at)];
  return t;
}
Numbers identity(int64_t count, int64_t n) {
  Numbers one(static_cast<size_t>(count * n * n));
  for (int64_t at = 0; at < count * n * n; ++at)
    one[static_cast<size_t>(at)] = at / n % n == at % n;
  return one;
}
// Keeps the elements (i, j) of each matrix for which keep(i, j).
template <class Keep>
Numbers part(Numbers a, int64_t m, int64_t n, Keep keep) {
  for (size_t at = 0; at < a.size(); ++at) {
    const auto i = static_cast<int64_t>(at);
    if (!keep(i / n % m, i % n)) a[at] = 0;
  }
  return a;
}
// v as a factor of the columns of a [m, n].
Numbers scaled(Numbers a, const Numbers& v, int64_t m, int64_t n) {
  for (size_t at = 0; at < a.size(); ++at) {
    const auto i = static_cast<int64_t>(at);
    a[at] *= v[static_cast<size_t>(i / (m * n) * n + i % n)];
  }
  return a;
}
bool below(int64_t i, int64_t j) { return i > j; }
bool upper(int64_t i, int64_t j) { return i <= j; }
bool lower(int64_t i, int64_t j) { return i >= j; }

struct Size {
  int64_t count, m, n;
};
constexpr Size kSizes[] = {{3, 1, 1}, {2, 2, 2},  {3, 5, 5},  {1, 34, 34},
                           {2, 7, 3}, {1, 70, 9}, {2, 33, 1}, {2, 4, 0},
                           {0, 3, 3}, {2, 0, 0}};
double limit(DType t, const Size& s) {
  return tolerance(t) * static_cast<double>(10 + s.m);
}

TEST(LinalgTest, Cholesky) {
  for (DType t : kWide)
    for (const Size& s : kSizes) {
      if (s.m != s.n) continue;
      // a a^T + 1 is positive definite.
      const Numbers a = Elements::random(t, s.count * s.n * s.n).doubles();
      Numbers want =
          product(a, transposed(a, s.count, s.n, s.n), s.count, s.n, s.n, s.n);
      const Numbers one = identity(s.count, s.n);
      for (size_t i = 0; i < want.size(); ++i) want[i] += one[i];
      want = Elements(t, want).doubles();
      for (Triangle triangle :
           {Triangle::kBoth, Triangle::kLower, Triangle::kUpper}) {
        const Elements x(t, triangle == Triangle::kBoth ? want
                            : triangle == Triangle::kUpper
                                ? part(want, s.n, s.n, upper)
                                : part(want, s.n, s.n, lower));
        Elements l(t, x.size(), 7);
        std::vector<int64_t> failed(static_cast<size_t>(s.count), 9);
        run(Cholesky{t, s.count, s.n, triangle, x.data(), l.data(),
                     failed.data()});
        const Numbers left = l.doubles();
        EXPECT_EQ(part(left, s.n, s.n, lower), left);
        ASSERT_TRUE(
            near(Elements(t, product(left, transposed(left, s.count, s.n, s.n),
                                     s.count, s.n, s.n, s.n)),
                 want, limit(t, s) * 10));
        for (int64_t f : failed) EXPECT_EQ(f, 0);
      }
    }
}

TEST(LinalgTest, CholeskyTellsWhichRowFails) {
  const Elements x(DType::kF64, {4, 2, 2, 1, 1, 0, 0, -1, 1, 0, 0, 1});
  Elements l(DType::kF64, 12);
  std::vector<int64_t> failed(3);
  run(Cholesky{DType::kF64, 3, 2, Triangle::kLower, x.data(), l.data(),
               failed.data()});
  EXPECT_EQ(failed, (std::vector<int64_t>{2, 2, 0}));

  // A larger matrix, whose pivot 57 is 0, negative or NaN.
  constexpr int64_t n = 70;
  for (DType t : kWide)
    for (double pivot : {0.0, -1.0, std::nan("")}) {
      Elements y(t, identity(1, n)), of_y(t, n * n);
      y.set(56 * n + 56, pivot);
      run(Cholesky{t, 1, n, Triangle::kLower, y.data(), of_y.data(),
                   failed.data()});
      EXPECT_EQ(failed[0], 57) << pivot;
    }
}

TEST(LinalgTest, LuAndTriangularSystems) {
  for (DType t : kWide)
    for (const Size& s : kSizes) {
      if (s.m != s.n) continue;
      const int64_t n = s.n;
      const Elements x = Elements::random(t, s.count * n * n);
      Elements lu(t, x.size()), parity(t, s.count);
      std::vector<int64_t> order(static_cast<size_t>(s.count * n)),
          failed(static_cast<size_t>(s.count));
      run(Lu{t, s.count, n, x.data(), lu.data(), order.data(), parity.data(),
             failed.data()});
      for (int64_t f : failed) EXPECT_EQ(f, 0);
      Numbers l = part(lu.doubles(), n, n, below);
      const Numbers one = identity(s.count, n);
      for (size_t i = 0; i < l.size(); ++i) {
        EXPECT_LE(std::abs(l[i]), 1);
        l[i] += one[i];
      }
      Numbers rows(static_cast<size_t>(x.size()));
      for (int64_t r = 0; r < s.count * n; ++r)
        for (int64_t j = 0; j < n; ++j)
          rows[static_cast<size_t>(r * n + j)] =
              x[(r / n * n + order[static_cast<size_t>(r)]) * n + j];
      const Numbers u = part(lu.doubles(), n, n, upper);
      ASSERT_TRUE(near(Elements(t, product(l, u, s.count, n, n, n)), rows,
                       limit(t, s)));

      // Solves x y = b with both factors, in place the second time.
      for (int64_t k : {3, 1, 0}) {
        const Elements want = Elements::random(t, s.count * n * k);
        const Elements b(
            t, product(x.doubles(), want.doubles(), s.count, n, n, k));
        Elements y(t, want.size());
        SolveTriangular solve{
            t,        s.count,      n,       k, lu.data(), false, true,
            b.data(), order.data(), y.data()};
        run(solve);
        solve.upper = true;
        solve.unit = false;
        solve.b = y.data();
        solve.order = nullptr;
        run(solve);
        ASSERT_TRUE(near(y, want.doubles(), limit(t, s) * 3000));
      }
    }
}

TEST(LinalgTest, LuOfSingularMatrices) {
  const Elements x(DType::kF64, {0, 1, 0, 2, 1, 2, 2, 4, 0, 1, 1, 0});
  Elements lu(DType::kF64, 12), parity(DType::kF64, 3);
  std::vector<int64_t> order(6), failed(3);
  run(Lu{DType::kF64, 3, 2, x.data(), lu.data(), order.data(), parity.data(),
         failed.data()});
  EXPECT_EQ(failed, (std::vector<int64_t>{1, 2, 0}));
  EXPECT_EQ(parity.doubles(), (Numbers{1, -1, -1}));
  EXPECT_EQ(lu.doubles(), (Numbers{0, 1, 0, 2, 2, 4, 0.5, 0, 1, 0, 0, 1}));
}

TEST(LinalgTest, Qr) {
  for (DType t : kWide)
    for (const Size& s : kSizes) {
      const Elements x = Elements::random(t, s.count * s.m * s.n);
      Elements q(t, x.size()), r(t, s.count * s.n * s.n, 7),
          work(t, s.count * (2 * s.m + 1) * s.n);
      run(Qr{t, s.count, s.m, s.n, x.data(), q.data(), r.data(), work.data()});
      const Numbers qs = q.doubles(), rs = r.doubles();
      EXPECT_EQ(part(rs, s.n, s.n, upper), rs);
      ASSERT_TRUE(near(Elements(t, product(qs, rs, s.count, s.m, s.n, s.n)),
                       x.doubles(), limit(t, s)));
      ASSERT_TRUE(near(Elements(t, product(transposed(qs, s.count, s.m, s.n),
                                           qs, s.count, s.n, s.m, s.n)),
                       identity(s.count, s.n), limit(t, s)));
    }
}

// Each column keeps its digits, and the sign of its pivot, however small it is.
TEST(LinalgTest, QrOfColumnsOfAllSizes) {
  constexpr double small = 1e-30;
  for (DType t : kWide) {
    const Elements x(t, {3, 2 * small, 4, 11 * small, 0, 12 * small});
    Elements q(t, 6), r(t, 4), work(t, 14);
    run(Qr{t, 1, 3, 2, x.data(), q.data(), r.data(), work.data()});
    ASSERT_TRUE(near(q, {-0.6, 4.0 / 13, -0.8, -3.0 / 13, 0, -12.0 / 13}));
    r.set(1, r[1] / small);
    r.set(3, r[3] / small);
    ASSERT_TRUE(near(r, {-5, -10, 0, -13}));
  }
}

// x is [count, m, n].
void check_svd(const Size& s, const Elements& x) {
  const DType t = x.type();
  Elements sizes(t, s.count * s.n), u(t, x.size()), v(t, s.count * s.n * s.n),
      work(t, s.count * (s.m + s.n + 1) * s.n);
  run(Svd{t, s.count, s.m, s.n, x.data(), sizes.data(), u.data(), v.data(),
          work.data()});
  const Numbers us = u.doubles(), vs = v.doubles(), ss = sizes.doubles();
  for (size_t i = 0; i < ss.size(); ++i) {
    EXPECT_GE(ss[i], 0);
    if (i % static_cast<size_t>(s.n) > 0) {
      EXPECT_LE(ss[i], ss[i - 1]);
    }
  }
  const Numbers vt = transposed(vs, s.count, s.n, s.n);
  ASSERT_TRUE(near(Elements(t, product(scaled(us, ss, s.m, s.n), vt, s.count,
                                       s.m, s.n, s.n)),
                   x.doubles(), limit(t, s)));
  const Numbers one = identity(s.count, s.n);
  ASSERT_TRUE(near(Elements(t, product(vt, vs, s.count, s.n, s.n, s.n)), one,
                   limit(t, s)));
  ASSERT_TRUE(near(Elements(t, product(transposed(us, s.count, s.m, s.n), us,
                                       s.count, s.n, s.m, s.n)),
                   one, limit(t, s)));
}

TEST(LinalgTest, Svd) {
  for (DType t : kWide)
    for (const Size& s : kSizes)
      for (int64_t rank : {s.n, s.n / 2, int64_t{1}, int64_t{0}}) {
        if (rank < s.n && s.n >= 9) continue;
        // `rank` columns, repeated.
        Elements x = Elements::random(t, s.count * s.m * s.n);
        for (int64_t i = 0; i < x.size(); ++i)
          if (i % s.n >= rank) x.set(i, rank > 0 ? x[i - rank] : 0);
        check_svd(s, x);
      }
}

// For some of these, algorithms have failed that divide a matrix.
TEST(LinalgTest, SvdOfDegenerateMatrices) {
  constexpr int64_t m = 12, n = 10;
  for (DType t : kWide) {
    const Elements random = Elements::random(t, m * n);
    const auto check = [&](auto value) {
      Elements x(t, m * n);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          x.set(i * n + j, static_cast<double>(value(i, j)));
      check_svd({1, m, n}, x);
    };
    check([](int64_t, int64_t) { return 1; });
    check([](int64_t i, int64_t j) { return i == j; });
    check([](int64_t i, int64_t j) { return i == j || j == 0; });
    check([](int64_t i, int64_t j) {
      return 1 / static_cast<double>(i + j + 1);
    });
    check([&](int64_t i, int64_t j) {
      return random[i * n + j] * std::pow(10, -static_cast<double>(j));
    });
    check([&](int64_t i, int64_t j) { return random[i * n + j % 3]; });
  }
}

TEST(LinalgTest, Eigh) {
  for (DType t : kWide)
    for (const Size& s : kSizes) {
      if (s.m != s.n) continue;
      const int64_t n = s.n;
      const Numbers a = Elements::random(t, s.count * n * n).doubles();
      const Numbers at = transposed(a, s.count, n, n);
      Numbers mean = a;
      for (size_t i = 0; i < a.size(); ++i) mean[i] = (a[i] + at[i]) / 2;
      for (Triangle triangle :
           {Triangle::kBoth, Triangle::kLower, Triangle::kUpper}) {
        Numbers want = mean;
        if (triangle != Triangle::kBoth) {
          const bool up = triangle == Triangle::kUpper;
          const Numbers one = part(a, n, n, [=](int64_t i, int64_t j) {
            return up ? i < j : i > j;
          });
          const Numbers other = transposed(one, s.count, n, n);
          want = part(a, n, n, [](int64_t i, int64_t j) { return i == j; });
          for (size_t i = 0; i < a.size(); ++i) want[i] += one[i] + other[i];
        }
        const Elements x(t, a);
        Elements values(t, s.count * n), vectors(t, x.size()),
            work(t, 2 * x.size());
        run(Eigh{t, s.count, n, triangle, x.data(), values.data(),
                 vectors.data(), work.data()});
        const Numbers v = vectors.doubles(), w = values.doubles();
        for (size_t i = 1; i < w.size(); ++i)
          if (i % static_cast<size_t>(n) > 0) {
            EXPECT_LE(w[i - 1], w[i]);
          }
        const Numbers vt = transposed(v, s.count, n, n);
        ASSERT_TRUE(
            near(Elements(t, product(scaled(v, w, n, n), vt, s.count, n, n, n)),
                 want, limit(t, s)));
        ASSERT_TRUE(near(Elements(t, product(vt, v, s.count, n, n, n)),
                         identity(s.count, n), limit(t, s)));
      }
    }
}

TEST(LinalgTest, MatrixExp) {
  // exp([[a, b], [0, a]]) = exp(a) [[1, b], [0, 1]], and a rotation.
  for (DType t : kWide) {
    const Elements x(t, {-3, 40, 0, -3, 0, -100, 100, 0, 0, 0, 0, 0});
    Elements y(t, 12), work(t, 24);
    run(MatrixExp{t, 3, 2, x.data(), y.data(), work.data()});
    const double e = std::exp(-3), c = std::cos(100), s = std::sin(100);
    ASSERT_TRUE(near(y, {e, 40 * e, 0, e, c, -s, s, c, 1, 0, 0, 1},
                     100 * tolerance(t)));
  }
}

// Squares of these numbers underflow or overflow.
TEST(LinalgTest, TinyAndHugeNumbers) {
  for (double size : {1e-200, 1e200}) {
    const Elements x(DType::kF64, {3 * size, 0, 4 * size, 5 * size});
    Elements q(DType::kF64, 4), r(DType::kF64, 4), s(DType::kF64, 2),
        work(DType::kF64, 10);
    run(Qr{DType::kF64, 1, 2, 2, x.data(), q.data(), r.data(), work.data()});
    ASSERT_TRUE(near(q, {-0.6, -0.8, -0.8, 0.6}));
    for (int64_t i = 0; i < 4; ++i) r.set(i, r[i] / size);
    ASSERT_TRUE(near(r, {-5, -4, 0, 3}));
    run(Svd{DType::kF64, 1, 2, 2, x.data(), s.data(), q.data(), r.data(),
            work.data()});
    for (int64_t i = 0; i < 2; ++i) s.set(i, s[i] / size);
    ASSERT_TRUE(near(s, {std::sqrt(45), std::sqrt(5)}));
  }
}

TEST(LinalgTest, NansSpread) {
  const double nan = std::nan("");
  const Elements x(DType::kF64, {1, nan, nan, 2, 2, 1, 1, 2});
  Elements w(DType::kF64, 4), v(DType::kF64, 8), u(DType::kF64, 8),
      work(DType::kF64, 2 * 5 * 2);
  const auto check = [&](const Elements& y) {
    for (int64_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(y[i]), i < y.size() / 2) << i;
  };
  run(Eigh{DType::kF64, 2, 2, Triangle::kLower, x.data(), w.data(), v.data(),
           work.data()});
  check(w);
  check(v);
  run(Svd{DType::kF64, 2, 2, 2, x.data(), w.data(), u.data(), v.data(),
          work.data()});
  check(w);
  check(u);
  run(MatrixExp{DType::kF64, 2, 2, x.data(), u.data(), work.data()});
  check(u);
  run(Qr{DType::kF64, 2, 2, 2, x.data(), u.data(), v.data(), work.data()});
  check(u);
}

// The same matrix gives the same bits wherever it lies.
TEST(LinalgTest, BitsDoNotDependOnAddresses) {
  constexpr int64_t n = 17, size = n * n;
  for (DType t : kWide) {
    const Elements a = Elements::random(t, size);
    Numbers definite =
        product(a.doubles(), transposed(a.doubles(), 1, n, n), 1, n, n, n);
    for (int64_t i = 0; i < n; ++i)
      definite[static_cast<size_t>(i * n + i)] += 1;
    // All results, of arrays that begin `by` elements later.
    const auto results = [&](int64_t by) {
      Elements x(t, size + by), y(t, size + by), first(t, size + by),
          second(t, size + by), few(t, n + by), work(t, 3 * size);
      for (int64_t i = 0; i < size; ++i) {
        x.set(by + i, a[i]);
        y.set(by + i, definite[static_cast<size_t>(i)]);
      }
      std::vector<int64_t> order(n), failed(1);
      Numbers all;
      const auto keep = [&](const Elements& e) {
        const Numbers values = e.doubles();
        all.insert(all.end(), values.begin() + by, values.end());
      };
      run(Cholesky{t, 1, n, Triangle::kLower, y.at(by), first.at(by),
                   failed.data()});
      keep(first);
      run(SolveTriangular{t, 1, n, n, y.at(by), true, false, x.at(by), nullptr,
                          first.at(by)});
      keep(first);
      run(Lu{t, 1, n, x.at(by), first.at(by), order.data(), few.at(by),
             failed.data()});
      keep(first);
      run(Qr{t, 1, n, n, x.at(by), first.at(by), second.at(by), work.data()});
      keep(first), keep(second);
      run(Eigh{t, 1, n, Triangle::kBoth, y.at(by), few.at(by), first.at(by),
               work.data()});
      keep(few), keep(first);
      run(Svd{t, 1, n, n, x.at(by), few.at(by), first.at(by), second.at(by),
              work.data()});
      keep(few), keep(first), keep(second);
      run(MatrixExp{t, 1, n, x.at(by), first.at(by), work.data()});
      keep(first);
      return all;
    };
    const Numbers want = results(0);
    for (int64_t by : {1, 3}) EXPECT_EQ(results(by), want) << by;
  }
}

TEST(LinalgTest, ThrowsForOtherTypes) {
  EXPECT_THROW(run(Cholesky{.type = DType::kBF16}), Error);
  EXPECT_THROW(run(Svd{.type = DType::kI32}), Error);
}

}  // namespace
}  // namespace dtensor::kernels
