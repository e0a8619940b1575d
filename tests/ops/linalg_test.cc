// SPDX-License-Identifier: Apache-2.0
// torch's cases and the proof check most of it. Here are factors that are not
// unique, singular matrices, and errors.
#include "dtensor/ops/linalg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

constexpr double kNear = 1e-12, kInf = std::numeric_limits<double>::infinity();

Array whole(const DistTensor& x) { return array_of(x.full()); }
DistTensor t(const DistTensor& x) { return transpose(x, -2, -1); }
void expect_equal(const DistTensor& got, const DistTensor& want,
                  const std::string& what) {
  expect_near(whole(got), whole(want), kNear, what);
}
// The gradient of sum(y * values).
Array gradient(const DistTensor& y, const DistTensor& x) {
  return whole(grad(sum(y * put(values(y.shape(), 5), x.mesh())), {x})[0]);
}
// 3 positive definite matrices of 4 rows.
DistTensor definite(const Mesh& mesh, const char* layout) {
  const DistTensor a = put(values({3, 4, 4}, 2), mesh);
  return put(whole(matmul(a, t(a)) + eye(4, 4, mesh, DType::kF64)), mesh,
             layout);
}

TEST(Linalg, FactorsHaveTheMatrixAsTheirProduct) {
  for (const char* layout : {"R", "S0", "S1", "S2", "P"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      for (const Shape& shape :
           {Shape{3, 5, 2}, Shape{3, 2, 5}, Shape{3, 3, 6}}) {
        const int64_t n = std::min(shape[1], shape[2]);
        const DistTensor x = put(values(shape, 1), mesh, layout),
                         one = eye(n, n, mesh, DType::kF64);
        const Svd f = svd(x);
        expect_equal(matmul(f.u * unsqueeze(f.s, -2), f.vh), x, layout);
        const DistTensor thin = shape[1] == 5 ? f.u : t(f.vh);
        expect_equal(matmul(t(thin), thin), expand(one, {3, n, n}), layout);
        const Qr o = qr(x);
        expect_equal(matmul(o.q, o.r), x, layout);
        expect_equal(triu(o.r), o.r, layout);
        expect_equal(svdvals(x), f.s, layout);
      }
      const DistTensor x = definite(mesh, layout);
      const Eigh f = eigh(x);
      expect_equal(matmul(f.vectors * unsqueeze(f.values, -2), t(f.vectors)), x,
                   layout);
      const DistTensor l = cholesky(x), u = cholesky(x, true);
      expect_equal(matmul(l, t(l)), x, layout);
      expect_equal(u, t(l), layout);
    });
}

// The vectors' signs cancel in v f(w) v^T, which is a function of x alone.
TEST(Linalg, GradientsOfVectors) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = definite(mesh, "S0").set_requires_grad();
    const Eigh f = eigh(x);
    const DistTensor square =
        matmul(f.vectors * unsqueeze(f.values * f.values, -2), t(f.vectors));
    // eigh() takes x as symmetric, so its gradient is symmetric.
    const DistTensor mean = (x + t(x)) * 0.5;
    expect_near(gradient(square, x), gradient(matmul(mean, mean), x), kNear,
                "eigh");
    for (const Shape& shape : {Shape{3, 5, 2}, Shape{3, 2, 5}}) {
      const DistTensor a =
          put(values(shape, 1), mesh, "S0").set_requires_grad();
      const Svd d = svd(a);
      expect_near(gradient(matmul(d.u * unsqueeze(d.s, -2), d.vh), a),
                  whole(put(values(shape, 5), mesh)), 1e-11, "svd");
      const Qr o = qr(a);
      expect_near(gradient(matmul(o.q, o.r), a),
                  whole(put(values(shape, 5), mesh)), 1e-11, "qr");
    }
  });
}

TEST(Linalg, OneTriangleIsRead) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = definite(mesh, "S0");
    for (bool upper : {false, true}) {
      const DistTensor half =
          (upper ? triu(x) : tril(x)).detach().set_requires_grad();
      expect_equal(cholesky(half, upper), cholesky(x, upper), "cholesky");
      expect_equal(eigvalsh(half, upper), eigvalsh(x), "eigvalsh");
      for (const Array& d : {gradient(cholesky(half, upper), half),
                             gradient(eigvalsh(half, upper), half)})
        expect_near(d, whole(t(put(d, mesh))), kNear, "symmetric");
    }
  });
}

// The other triangle is not read, and neither is a diagonal that counts as 1.
TEST(Linalg, GradientsOfTrianglesAreTriangles) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor b = put(values({4, 3}, 7), mesh);
    for (const bool upper : {false, true})
      for (const bool unit : {false, true}) {
        const DistTensor a =
            put(values({4, 4}, 3), mesh, "S1").set_requires_grad();
        const Array d = gradient(solve_triangular(a, b, upper, true, unit), a);
        for (int64_t i = 0; i < 4; ++i)
          for (int64_t j = 0; j < 4; ++j) {
            const bool read = upper ? j >= i + unit : j <= i - unit;
            EXPECT_EQ(d.v[static_cast<size_t>(4 * i + j)] != 0, read)
                << upper << unit << " at " << i << ", " << j;
          }
      }
  });
}

TEST(Linalg, SystemsBroadcast) {
  for (const char* layout : {"R", "S0", "S1", "S2", "P"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      const DistTensor a = put(values({4, 4}, 3), mesh),
                       b = put(values({5, 4, 3}, 7), mesh, layout);
      expect_equal(matmul(a, solve(a, b)), b, layout);
      expect_equal(matmul(solve(a, t(b), false), a), t(b), layout);
      expect_equal(matmul(triu(a), solve_triangular(a, b, true)), b, layout);
      expect_equal(matmul(solve_triangular(a, t(b), false, false, true),
                          tril(a, -1) + eye(4, 4, mesh, DType::kF64)),
                   t(b), layout);
      const DistTensor many = put(values({4, 3, 3}, 3), mesh, layout),
                       rows = put(values({4, 3}, 1), mesh);
      expect_equal(squeeze(matmul(many, unsqueeze(solve(many, rows), -1)), -1),
                   rows, layout);
      expect_equal(matmul(many, inv(many)),
                   expand(eye(3, 3, mesh, DType::kF64), {4, 3, 3}), layout);
    });
}

TEST(Linalg, SingularMatrices) {
  // The second one needs its rows exchanged, and loses a pivot at once.
  const Array x{{3, 2, 2}, {1, 2, 2, 4, 0, 1, 0, 0, 0, 0, 0, 0}};
  for (const char* layout : {"R", "S0"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      const DistTensor a = put(x, mesh, layout).set_requires_grad();
      const SlogDet s = slogdet(a);
      EXPECT_EQ(whole(s.sign).v, (std::vector<double>{0, 0, 0}));
      EXPECT_EQ(whole(s.logabsdet).v,
                (std::vector<double>{-kInf, -kInf, -kInf}));
      EXPECT_EQ(whole(det(a)).v, (std::vector<double>{0, 0, 0}));
      const Array d = whole(grad(sum(det(a)), {a})[0]);
      expect_near(d, {{3, 2, 2}, {4, -2, -2, 1, 0, 0, -1, 0, 0, 0, 0, 0}},
                  kNear, layout);
    });
}

TEST(Linalg, PowersAndNorms) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = put(values({3, 3}, 4), mesh, "S0");
    expect_equal(matrix_power(x, 5),
                 matmul(x, matmul(x, matmul(x, matmul(x, x)))), "5");
    expect_equal(matrix_power(x, 0), eye(3, 3, mesh, DType::kF64), "0");
    const DistTensor inf =
        put({{1, 2, 2}, {1, kInf, 0, 1}}, mesh, "S1").set_requires_grad();
    expect_near(gradient(matrix_power(inf, 0), inf), zeros_like({1, 2, 2}), 0,
                "the gradient of a constant");
    expect_equal(matrix_power(x, -2), matmul(inv(x), inv(x)), "-2");
    expect_equal(matrix_exp(x * 0), eye(3, 3, mesh, DType::kF64), "exp");
    // The matrices of dimensions 2 and 0: [3, 5], two of them.
    const DistTensor y = put(values({5, 2, 3}, 4), mesh, "S0"),
                     as = permute(y, {1, 2, 0});
    for (double order : {1.0, -1.0, 2.0, -2.0, kInf, -kInf}) {
      const DistTensor n = matrix_norm(as, order);
      EXPECT_EQ(to_string(n.shape()), "[2]");
      expect_equal(matrix_norm(y, order, {2, 0}), n, "moved");
      expect_equal(matrix_norm(y, order, {2, 0}, true), reshape(n, {1, 2, 1}),
                   "kept");
      expect_equal(norm(y, order, {2, 0}), n, "norm");
    }
    // The sums of columns are 4 and 6, and those of rows 3 and 7.
    const DistTensor four = put({{2, 2}, {1, -2, -3, 4}}, mesh, "S0");
    EXPECT_EQ(matrix_norm(four, 1).item(), 6);
    EXPECT_EQ(matrix_norm(four, -1).item(), 4);
    EXPECT_EQ(matrix_norm(four, kInf).item(), 7);
    EXPECT_EQ(matrix_norm(four, -kInf).item(), 3);
    expect_equal(matrix_norm(y, "nuc", {2, 0}, true),
                 reshape(sum(svdvals(as), {-1}), {1, 2, 1}), "nuc");
  });
}

TEST(Linalg, EmptyMatrices) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const Shape& shape : {Shape{3, 0, 0}, Shape{0, 2, 2}}) {
      const DistTensor x =
          put(zeros_like(shape), mesh, "S0").set_requires_grad();
      const Qr o = qr(x);
      const Svd f = svd(x);
      const Eigh e = eigh(x);
      for (const DistTensor& y :
           {cholesky(x), o.q, o.r, f.u, f.s, f.vh, e.values, e.vectors,
            solve_triangular(x, x, true), solve(x, x), inv(x), det(x),
            slogdet(x).logabsdet, matrix_exp(x), matrix_power(x, 3),
            matrix_power(x, 0), matrix_norm(x, "nuc")})
        EXPECT_EQ(to_string(gradient(y, x).shape), to_string(shape));
      EXPECT_EQ(whole(det(x)).v,
                std::vector<double>(static_cast<size_t>(shape[0]), 1.0));
    }
  });
}

TEST(Linalg, ErrorsSayWhatToWrite) {
  // All ranks hear of a matrix that only one of them has.
  for (const char* layout : {"R", "S0", "S1"})
    on_mesh("x=3", [&](const Mesh& mesh) {
      const DistTensor x =
          put({{3, 2, 2}, {2, 1, 1, 2, 2, 1, 1, 2, 1, 1, 1, 1}}, mesh, layout);
      EXPECT_EQ(error_of([&] { cholesky(x); }),
                "[cholesky] a matrix is not positive definite: the pivot of "
                "row 1 is not above 0; pass positive definite matrices, for "
                "example plus a multiple of eye()");
      EXPECT_EQ(error_of([&] { inv(x); }),
                "[inv] a matrix is singular: the pivot of row 1 is 0; pass "
                "matrices that have an inverse");
    });
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor v = ones({3}, mesh), x = ones({2, 3}, mesh),
                     square = ones({3, 3}, mesh);
    const auto begins = [](const std::function<void()>& call,
                           const std::string& text) {
      EXPECT_EQ(error_of(call).substr(0, text.size()), text);
    };
    begins([&] { inv({}); }, "[inv] input 0 of 1");
    begins([&] { qr(v); }, "[qr] f32[3](R) has no matrices; pass a tensor");
    begins([&] { svd(v); }, "[svd] f32[3](R) has no matrices; pass a tensor");
    begins([&] { det(x); },
           "[det] f32[2, 3](R) has 2 rows and 3 columns; pass square matrices");
    begins([&] { svd(cast(x, DType::kBF16)); },
           "[svd] does not take bf16; cast the matrices to f32");
    begins([&] { eigh(cast(square, DType::kI64)); }, "[eigh] ");
    begins([&] { solve(square, v, false); },
           "[solve] f32[3](R) is a vector for each matrix of f32[3, 3](R)");
    begins([&] { solve(square, x); }, "[solve] ");
    begins([&] { solve_triangular(square, v, true); },
           "[solve_triangular] f32[3](R) has no matrices");
    begins([&] { matrix_norm(x, "max"); },
           "[matrix_norm] the order is \"max\"; write \"fro\", \"nuc\"");
    begins([&] { matrix_norm(x, 3); },
           "[matrix_norm] the order is 3; write 1, 2 or infinity");
    begins(
        [&] {
          matrix_norm(x, 1, {0, -2});
        },
        "[matrix_norm] dimension 0 of f32[2, 3](R) is named twice");
    begins([&] { matrix_norm(x, 1, {0}); },
           "[matrix_norm] the list of dimensions has length 1");
    begins(
        [&] {
          norm(ones({2, 3, 4}, mesh), 2);
        },
        "[norm] f32[2, 3, 4](R) has 3 dimensions; write");
    begins([&] { matrix_power(square, std::numeric_limits<int64_t>::min()); },
           "[matrix_power] n is -9223372036854775808; write a larger one");
    begins([&] { matrix_power(x, 2); }, "[matrix_power] f32[2, 3](R) has 2");
  });
}

TEST(Linalg, OneVectorForOneByOneMatrices) {
  testing::on_mesh("x=1", [](const Mesh& mesh) {
    const DistTensor y = solve(full({1, 1, 1}, 2, mesh), full({1}, 6, mesh));
    EXPECT_EQ(y.shape(), (Shape{1, 1}));
    EXPECT_EQ(y.item(), 3);
  });
}

// Small numbers are no zeros.
TEST(Linalg, InverseOfSmallNumbers) {
  testing::on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor small = eye(2, 2, mesh, DType::kF64) * 1e-30;
    EXPECT_EQ(testing::values(inv(small) * 1e-30),
              (std::vector<double>{1, 0, 0, 1}));
  });
}

// More columns than are rotated one by one.
TEST(Linalg, SingularValuesOfTinyAndLargeNumbers) {
  testing::on_mesh("x=1", [](const Mesh& mesh) {
    for (const double size : {1e-200, 1e200}) {
      Array x = zeros_like({9, 9});
      for (int64_t i = 0; i < 9; ++i)
        x.at(i * 9 + 8 - i) = size * static_cast<double>(i + 1);
      const std::vector<double> s =
          testing::values(svdvals(testing::put(x, mesh)));
      for (size_t i = 0; i < 9; ++i)
        EXPECT_NEAR(s[i] / size, static_cast<double>(9 - i), 1e-12) << size;
    }
  });
}

TEST(Linalg, EigenvaluesOfLargeNumbers) {
  testing::on_mesh("x=1", [](const Mesh& mesh) {
    const DistTensor x =
        testing::put({{2, 2}, {1e308, 1e308, 1e308, -1e308}}, mesh);
    const auto [w, v] = eigh(x);
    EXPECT_NEAR(testing::values(w)[0] / 1e308, -std::sqrt(2), 1e-12);
    EXPECT_NEAR(testing::values(w)[1] / 1e308, std::sqrt(2), 1e-12);
    for (const double e : testing::values(v)) EXPECT_TRUE(std::abs(e) < 1);
  });
}

}  // namespace
}  // namespace dtensor::testing
