// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/gemm.h"

#include <dnnl.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "dtensor/device/copy.h"
#include "dtensor/ops/kernels/cpu/dots.h"
#include "dtensor/ops/kernels/cpu/gemm_bf16.h"
#include "dtensor/ops/kernels/cpu/gemm_f64.h"
#include "dtensor/ops/kernels/cpu/leaf_gemm.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/cpu/small_product.h"
#include "dtensor/ops/kernels/folded_gemm.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
namespace cpu {
namespace {

// Whether few_rows() takes these operands and is faster than the libraries. It
// reads the transpose of b, [n, k], once from memory. The library is faster for
// up to three rows of floats and several columns while that matrix stays in the
// cache, and for more than eight rows if sums are short: few_rows() ends each
// sum with additions across a register. bf16 has a lower limit of rows: oneDNN
// takes half as long for it as for floats.
template <class T, class TC>
bool is_few(int64_t m, int64_t n, int64_t k, Mat<const T> a, Mat<const T> b,
            Mat<TC> c, bool accumulate) {
  constexpr int64_t kCached = 1 << 20;            // bytes
  const bool wide = sizeof(TC) == sizeof(float);  // else c gets rounded floats
  const int64_t most = k < 256 ? 8 : std::is_same_v<T, bf16> ? 12 : 32;
  return m <= most && a.col == 1 && b.row == 1 &&
         !(wide && (accumulate || (c.col != 1 && n > 1))) &&
         (sizeof(T) < sizeof(float) || m >= 4 || n == 1 ||
          n * k * int64_t{sizeof(T)} >= kCached);
}
// Up to this m * n * k, a library call costs more than the product itself.
constexpr int64_t kTiny = 4096;
// Up to this many elements of b, SmallProduct is as fast as oneDNN, and faster
// than Eigen: both libraries allocate memory in each call.
constexpr int64_t kSmall = 1 << 15;

// Copies [m, n] items from strided memory to a contiguous array, or back.
template <class T>
void pack(int64_t m, int64_t n, const T* from, int64_t row, int64_t col, T* to,
          int64_t to_row, int64_t to_col) {
  copy_strided(sizeof(T), Shape{m, n}, to, Shape{to_row, to_col}, from,
               Shape{row, col});
}

// Whether the rows of a [m,n] matrix are contiguous and do not overlap.
bool row_major(int64_t m, int64_t n, int64_t row, int64_t col) {
  return (col == 1 || n == 1) && (row >= n || m == 1);
}

// An operand in a form that the libraries take: it, or its transpose, is
// row-major. Copies it if necessary.
template <class T>
struct Operand {
  const T* p;
  int64_t ld;
  bool transposed;
  Operand(ScratchSlot slot, int64_t m, int64_t n, Mat<const T> a) {
    if (row_major(m, n, a.row, a.col)) {
      *this = {a.p, m == 1 ? n : a.row, false};
    } else if (row_major(n, m, a.col, a.row)) {
      *this = {a.p, n == 1 ? m : a.col, true};
    } else {
      T* to = scratch<T>(slot, m * n);
      pack(m, n, a.p, a.row, a.col, to, n, int64_t{1});
      *this = {to, n, false};
    }
  }

 private:
  Operand(const T* p, int64_t ld, bool transposed)
      : p(p), ld(ld), transposed(transposed) {}
};

// Calls call(m, n, a, b, c, ldc, accumulate) with operands that the libraries
// take; m and n are swapped if the product is transposed.
// REQUIRES: sizes > 0.
template <class T, class TC, class Call>
void normalized(int64_t m, int64_t n, int64_t k, Mat<const T> a, Mat<const T> b,
                Mat<TC> c, bool accumulate, Call&& call) {
  if (!row_major(m, n, c.row, c.col)) {
    if (row_major(n, m, c.col, c.row))
      return normalized<T, TC>(n, m, k, b.transposed(), a.transposed(),
                               c.transposed(), accumulate, call);
    TC* to = scratch<TC>(kScratchPackC, m * n);
    if (accumulate) pack<TC>(m, n, c.p, c.row, c.col, to, n, 1);
    normalized<T, TC>(m, n, k, a, b, {to, n, 1}, accumulate, call);
    pack<TC>(m, n, to, n, 1, c.p, c.row, c.col);
    return;
  }
  call(m, n, Operand<T>(kScratchPackA, m, k, a),
       Operand<T>(kScratchPackB, k, n, b), c.p, m == 1 ? n : c.row, accumulate);
}

template <class T>
void clear(int64_t m, int64_t n, Mat<T> c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c.p[i * c.row + j * c.col] = T();
}

}  // namespace

template <class T>
void gemm2d(int64_t m, int64_t n, int64_t k, Mat<const T> a, Mat<const T> b,
            Mat<T> c, bool accumulate) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate) clear(m, n, c);
    return;
  }
  using Small = SmallProduct<T>;
  const int64_t padded = c.col == 1 ? Small::padded(n) * k : kSmall + 1;
  const bool tiny = m * n * k <= kTiny && padded <= kTiny;
  if constexpr (std::is_same_v<T, float>)
    if (!tiny && is_few(m, n, k, a, b, c, accumulate))
      return few_rows(m, n, k, a.p, a.row, b.p, b.col, c.p, c.row);
  // With fewer rows, SmallProduct takes too long to read or transpose b.
  if (tiny || (m > (b.col == 1 ? 8 : 32) && padded <= kSmall))
    return Small::run(m, n, k, a, b, c, accumulate);
  normalized<T, T>(
      m, n, k, a, b, c, accumulate,
      [k](int64_t m, int64_t n, const Operand<T>& a, const Operand<T>& b, T* c,
          int64_t ldc, bool accumulate) {
        if constexpr (std::is_same_v<T, float>) {
          const auto status = dnnl_sgemm(
              a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f,
              a.p, a.ld, b.p, b.ld, accumulate ? 1.0f : 0.0f, c, ldc);
          DT_CHECK(status == dnnl_success, "gemm",
                   "oneDNN's dnnl_sgemm failed with status {}, which is an "
                   "error in dtensor; report it",
                   static_cast<int>(status));
        } else {
          gemm_f64(a.transposed, b.transposed, m, n, k, a.p, a.ld, b.p, b.ld,
                   accumulate, c, ldc);
        }
      });
}
template void gemm2d<float>(int64_t, int64_t, int64_t, Mat<const float>,
                            Mat<const float>, Mat<float>, bool);
template void gemm2d<double>(int64_t, int64_t, int64_t, Mat<const double>,
                             Mat<const double>, Mat<double>, bool);

namespace {

// Integers are multiplied as unsigned, so that they wrap around.
template <class T>
void gemm_integers(int64_t m, int64_t n, int64_t k, Mat<const T> a,
                   Mat<const T> b, Mat<T> c, bool accumulate) {
  if (!accumulate) clear(m, n, c);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p) {
      const T x = a.p[i * a.row + p * a.col];
      const T* bp = b.p + p * b.row;
      T* cp = c.p + i * c.row;
      if (b.col == 1 && c.col == 1)
        for (int64_t j = 0; j < n; ++j) cp[j] += x * bp[j];
      else
        for (int64_t j = 0; j < n; ++j) cp[j * c.col] += x * bp[j * b.col];
    }
}

// Converts a matrix of a half type to floats, in the order of its memory.
template <class T>
Mat<const float> widened(ScratchSlot slot, int64_t m, int64_t n,
                         Mat<const T> a) {
  if (a.row == 1 && a.col != 1)
    return widened(slot, n, m, a.transposed()).transposed();
  float* to = scratch<float>(slot, m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; j += kChunk)
      fetch(a.p + i * a.row + j * a.col, a.col, std::min(kChunk, n - j),
            to + i * n + j);
  return {to, n, 1};
}

template <class T, class TC>
void gemm_halves(int64_t m, int64_t n, int64_t k, Mat<const T> a,
                 Mat<const T> b, Mat<TC> c, bool accumulate) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate) clear(m, n, c);
    return;
  }
  constexpr bool kWide = std::is_same_v<TC, float>;
  const bool few = is_few(m, n, k, a, b, c, accumulate);
  if constexpr (std::is_same_v<T, bf16>) {
    bool done = false;
    if (!few)
      normalized<T, TC>(
          m, n, k, a, b, c, accumulate,
          [&](int64_t m, int64_t n, const Operand<T>& a, const Operand<T>& b,
              TC* c, int64_t ldc, bool accumulate) {
            done = gemm_bf16(a.transposed, b.transposed, m, n, k, a.p, a.ld,
                             b.p, b.ld, accumulate, dtype_of<TC>, c, ldc);
          });
    if (done) return;
  }
  const auto fa = widened(kScratchRows, m, k, a);
  const auto multiply = [&](Mat<float> to, bool add) {
    if (few)  // each row of the transpose of b is read once
      few_rows(m, n, k, fa.p, fa.row, b.p, b.col, to.p, to.row);
    else
      gemm2d<float>(m, n, k, fa, widened(kScratchTable, k, n, b), to, add);
  };
  if constexpr (kWide) {
    multiply(c, accumulate);
  } else {
    float* fc = scratch<float>(kScratchProduct, m * n);
    multiply({fc, n, 1}, false);
    for (int64_t i = 0; i < m; ++i) {
      const float* from = fc + i * n;
      if (c.col == 1 && !accumulate) {
        narrow(from, n, c.p + i * c.row);
      } else {
        for (int64_t j = 0; j < n; ++j) {
          TC& to = c.p[i * c.row + j * c.col];
          to = TC(accumulate ? static_cast<float>(to) + from[j] : from[j]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace cpu

namespace {

using namespace cpu;

// Calls product(m, n, k, a, b, c, accumulate) for each product of the batch.
template <class T, class TC, class Product>
void for_each(const FoldedGemm& f, Product&& product) {
  const Gemm& g = f.g;
  const T* const pa = static_cast<const T*>(g.a);
  const T* const pb = static_cast<const T*>(g.b);
  TC* const pc = static_cast<TC*>(g.c);
  for_each_product(std::span(f.batch, static_cast<size_t>(f.nb)),
                   [&](int64_t a, int64_t b, int64_t c, bool first) {
                     product(g.m, g.n, g.k, Mat<const T>{pa + a, g.a_m, g.a_k},
                             Mat<const T>{pb + b, g.b_k, g.b_n},
                             Mat<TC>{pc + c, g.c_m, g.c_n},
                             g.accumulate || !first);
                   });
}

// Whether several products are added to one result. If so, products of half
// types are first summed in f32, so that the result is rounded once.
bool sums_batches(const FoldedGemm& f) {
  for (int i = 0; i < f.nb; ++i)
    if (f.batch[i].c == 0) return true;
  return false;
}
template <class T>
void gemm_rounding_once(const Gemm& g) {
  Gemm wide = g;
  wide.epilogue = {};    // the caller applies it
  Shape sizes, strides;  // those of c, without summed dimensions
  for (int i = 0; i < g.batch.size(); ++i) {
    wide.c_batch_strides[i] = 0;
    if (g.c_batch_strides[i] == 0) continue;
    sizes.push_back(g.batch[i]);
    strides.push_back(g.c_batch_strides[i]);
  }
  sizes.push_back(g.m);
  sizes.push_back(g.n);
  strides.push_back(g.c_m);
  strides.push_back(g.c_n);
  const Shape dense = contiguous_strides(sizes);
  int next = 0;
  for (int i = 0; i < g.batch.size(); ++i)
    if (g.c_batch_strides[i] != 0) wide.c_batch_strides[i] = dense[next++];
  wide.c_m = g.n;
  wide.c_n = 1;
  const auto count = static_cast<size_t>(numel(sizes));
  std::vector<float> sum(count);
  std::vector<T> rounded(count);
  if (g.accumulate) {
    copy_strided(2, sizes, rounded.data(), dense, g.c, strides);
    for (size_t i = 0; i < count; ++i) sum[i] = static_cast<float>(rounded[i]);
  }
  wide.c = sum.data();
  wide.c_type = DType::kF32;
  defined_kernels().run({}, wide);
  narrow(sum.data(), static_cast<int64_t>(count), rounded.data());
  copy_strided(2, sizes, g.c, strides, rounded.data(), dense);
}

template <class T>
void gemm_of_halves(const FoldedGemm& f, const Gemm& g) {
  if (g.c_type == DType::kF32)
    for_each<T, float>(f, gemm_halves<T, float>);
  else if (sums_batches(f))
    gemm_rounding_once<T>(g);
  else
    for_each<T, T>(f, gemm_halves<T, T>);
}

// A product of half types goes through floats.
template <class T>
void leaves(const FoldedGemm& f) {
  using A = portable::compute_t<T>;
  for_each<T, T>(f, [](int64_t m, int64_t n, int64_t k, Mat<const T> a,
                       Mat<const T> b, Mat<T> c, bool accumulate) {
    if constexpr (std::is_same_v<T, A>) {
      leaf_gemm(m, n, k, a, b, c, accumulate);
    } else {
      float* sums = scratch<float>(kScratchProduct, m * n);
      // Small products of floats are faster; see leaf_gemm().
      if (k <= kLeaf)
        leaf_gemm<float>(m, n, k, widened(kScratchRows, m, k, a),
                         widened(kScratchTable, k, n, b), {sums, n, 1}, false);
      else
        leaf_gemm(m, n, k, a, b, Mat<float>{sums, n, 1}, false);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          T& to = c.p[i * c.row + j * c.col];
          const float sum = sums[i * n + j];
          to = T(accumulate ? static_cast<float>(to) + sum : sum);
        }
    }
  });
}
template <class T>
void exact_leaves(const FoldedGemm& f) {
  thread_local std::vector<int64_t> ends;
  Leaves leaves{f.g.k, f.g.leaf_ends};
  if (const int64_t per = f.leaves_per) {
    ends.clear();
    for (int64_t begin = 0; begin < f.g.k; begin += per)
      for (int64_t at = kLeaf; at < per + kLeaf; at += kLeaf)
        ends.push_back(begin + std::min(at, per));
    leaves.ends = ends;
  }
  for_each<T, Exact>(
      f, [&leaves](int64_t m, int64_t n, int64_t /*k*/, Mat<const T> a,
                   Mat<const T> b, Mat<Exact> c, bool accumulate) {
        leaf_gemm_exact(m, n, leaves, a, b, c, accumulate);
      });
}

// Calls fn with the float type of the operands.
template <class Fn>
void visit_leaves(DType t, bool exact, Fn&& fn) {
  DT_CHECK(is_float(t) && !(exact && t == DType::kF64), "gemm",
           "there is no reproducible {} of {}; use f32, bf16 or f16",
           exact ? "gradient" : "product", name(t));
  visit(t, [&]<class T>() {
    if constexpr (portable::is_floating<T>) fn.template operator()<T>();
  });
}

void multiply_leaves(const Gemm& g, const FoldedGemm& f) {
  static_assert(kLeaf == Gemm::kLeaf);
  const bool exact = g.c_type == DType::kExact;
  visit_leaves(g.type, exact, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>)
      if (exact) return exact_leaves<T>(f);
    leaves<T>(f);
  });
}

void multiply(const Gemm& g) {
  const FoldedGemm f(g);
  if (f.empty) return;
  if (g.by_leaves) return multiply_leaves(g, f);
  switch (g.type) {
    case DType::kF32:
      return for_each<float, float>(f, gemm2d<float>);
    case DType::kF64:
      return for_each<double, double>(f, gemm2d<double>);
    case DType::kBF16:
      return gemm_of_halves<bf16>(f, g);
    case DType::kF16:
      return gemm_of_halves<f16>(f, g);
    case DType::kI32:
      return for_each<uint32_t, uint32_t>(f, gemm_integers<uint32_t>);
    case DType::kI64:
      return for_each<uint64_t, uint64_t>(f, gemm_integers<uint64_t>);
    case DType::kBool:
    case DType::kI8:
    case DType::kExact:
      break;
  }
  fail("gemm",
       "there is no matrix product of {}; cast its inputs to i32, i64 or a "
       "float type",
       name(g.type));
}

}  // namespace

DT_KERNEL(Gemm)
void run(Stream s, const Gemm& g) {
  DT_CHECK(
      g.type == g.c_type ||
          (is_half_float(g.type) && g.c_type == DType::kF32) ||
          (g.by_leaves && g.c_type == DType::kExact),
      "gemm",
      "does not take {} with a result of {}, which is an error in dtensor; "
      "report it",
      name(g.type), name(g.c_type));
  multiply(g);
  if (g.epilogue.kind != Epilogue::kNone)
    defined_kernels().run(s, FinishGemm{g});
}

}  // namespace dtensor::kernels
