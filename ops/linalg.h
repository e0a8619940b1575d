// SPDX-License-Identifier: Apache-2.0
// Factorisations of matrices, and functions that need one. The functions have
// the names that torch has in torch.linalg.
//
// The last two dimensions of a tensor are a matrix, and the others count the
// matrices. These may be split in any way, and then nothing is sent. A matrix
// that is split is gathered, and each rank computes whole factors, except where
// a function says more. Factors are f32 or f64; functions that need one throw
// Error for other types. All functions throw Error if shapes do not fit. Every
// rank of the mesh calls them.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/reduce.h"

namespace dtensor {

// ---- Factors ----

// The lower triangle l with l l^T = x, or with `upper` the upper triangle u
// with u^T u = x. x is symmetric: only that triangle of x is read, and the
// gradient is symmetric. Every rank throws Error unless all matrices are
// positive definite.
//
// If the rows of x are split, or the columns, or both, they stay so in the
// result, unless a gather is cheaper, as for small matrices. The blocks are
// those of right-looking elimination (as in ScaLAPACK's pdpotrf). Over p ranks
// with n / p rows each, rank r receives r (r + 1) / 2 blocks of (n / p)^2
// elements: at most half of a gather, n^2 (p - 1) / p. On a mesh of q by q
// ranks, rank (i, j) receives 2 j + 1 blocks of (n / q)^2 if i > j, j if i = j,
// and none if i < j. Each block of the diagonal takes two messages. The
// gradient multiplies and solves with all columns, so it sends a few times n^2.
DistTensor cholesky(const DistTensor& x, bool upper = false);

struct Qr {
  DistTensor q, r;
};
// x = q r for a matrix [m, n]. q [m, min(m, n)] has orthonormal columns, and r
// is an upper triangle, with the signs of LAPACK on any mesh. The gradient is
// finite only if the first min(m, n) columns are independent.
//
// If m >= n and the rows are split over p ranks, they stay so in q, and each
// rank receives at most p matrices [n, n], of which p - 1 are factors R of
// other ranks' rows (Demmel et al., SIAM J. Sci. Comput. 34, 2012), and never
// more than in a gather of x. The gradient sends a few matrices [n, n].
Qr qr(const DistTensor& x);

struct Eigh {
  DistTensor values, vectors;
};
// The eigenvalues [..., n] of symmetric matrices, smallest first, and their
// eigenvectors in the columns of a matrix. The first element of a vector that
// has at least 9/10 of the largest one's size is positive. Only the lower
// triangle of x is read, or the upper one, and the gradient is symmetric. It
// has NaNs if two eigenvalues are equal and the vectors have a cotangent.
Eigh eigh(const DistTensor& x, bool upper = false);
DistTensor eigvalsh(const DistTensor& x, bool upper = false);

struct Svd {
  DistTensor u, s, vh;
};
// x = u diag(s) vh for a matrix [m, n] and k = min(m, n). u [m, k] and vh
// [k, n] have orthonormal columns and rows, and s [k] is not negative, largest
// first. The signs are those of eigh() for the rows of vh; if n > m, for the
// columns of u. The gradient has NaNs if two singular values are equal, or one
// is 0, and u or vh has a cotangent. If the longer dimension is split, it stays
// so in u or vh, and as much is sent as by qr().
Svd svd(const DistTensor& x);
DistTensor svdvals(const DistTensor& x);

// ---- Equations ----

// Solves a x = b, or x a = b if `left` is false, for an upper or lower triangle
// a [..., n, n]. The other triangle is not read, nor with `unitriangular` the
// diagonal, which counts as 1. The matrices broadcast. Columns of b may be
// split (rows, if `left` is false). A 0 on the diagonal gives infinities and
// NaNs.
//
// If the rows of a are split (columns, if `left` is false), those of x stay
// split alike, unless a gather is cheaper: the ranks solve in turns, and each
// receives the rows of x that were solved before its own. If the columns are
// split, a is first moved to split rows, n^2 / p elements for each rank.
DistTensor solve_triangular(const DistTensor& a, const DistTensor& b,
                            bool upper, bool left = true,
                            bool unitriangular = false);
// Solves a x = b, or x a = b if `left` is false. As in torch, b is a vector for
// each matrix if it is one vector, or has the shape of `a` without the last
// dimension; else it is a matrix, and the others broadcast. Every rank throws
// Error if a matrix is singular.
DistTensor solve(const DistTensor& a, const DistTensor& b, bool left = true);
// The inverse. Every rank throws Error if a matrix is singular.
DistTensor inv(const DistTensor& x);
inline DistTensor inverse(const DistTensor& x) { return inv(x); }

// ---- Functions of square matrices ----

// The determinant. Its gradient is finite for singular matrices, too, but not
// its second derivative.
DistTensor det(const DistTensor& x);

struct SlogDet {
  DistTensor sign, logabsdet;
};
// The sign of the determinant and the logarithm of its size; 0 and -inf for a
// singular matrix.
SlogDet slogdet(const DistTensor& x);

// exp(x) = 1 + x + x^2 / 2 + ...
DistTensor matrix_exp(const DistTensor& x);
// The product of n times x. A negative n takes the inverse.
DistTensor matrix_power(const DistTensor& x, int64_t n);

// ---- Norms of matrices ----

// The norm of the matrices in two dimensions, which are removed unless keepdim.
// `order` is "fro", the root of the sum of squares, or "nuc", the sum of the
// singular values; or 2 and -2 for the largest and smallest singular value, 1
// and -1 for the largest and smallest sum of |x| in a column, and inf and -inf
// for that in a row.
DistTensor matrix_norm(const DistTensor& x, std::string_view order = "fro",
                       std::vector<int> dims = {-2, -1}, bool keepdim = false);
DistTensor matrix_norm(const DistTensor& x, double order,
                       std::vector<int> dims = {-2, -1}, bool keepdim = false);
// The root of the sum of all squares.
inline DistTensor norm(const DistTensor& x) { return vector_norm(x); }
// torch.linalg.norm: matrix_norm() over two dimensions, or all of a matrix, and
// vector_norm() over one.
DistTensor norm(const DistTensor& x, double order, std::vector<int> dims = {},
                bool keepdim = false);

}  // namespace dtensor
