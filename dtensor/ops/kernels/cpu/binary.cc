#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "dtensor/ops/functions.h"
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// --- The functions on scalars; bool arrives as uint8_t ----------------------
// Integers wrap: signed overflow is undefined, so sums and products go through
// the unsigned type.
template <class T, bool integer = std::is_integral_v<T>>
struct Wrap {
  using type = T;
};
template <class T>
struct Wrap<T, true> {
  using type = std::make_unsigned_t<T>;
};
template <class T>
using wrap_t = typename Wrap<T>::type;

template <class T>
T value(fn::Add, T a, T b) {
  return static_cast<T>(wrap_t<T>(a) + wrap_t<T>(b));
}
template <class T>
T value(fn::Sub, T a, T b) {
  return static_cast<T>(wrap_t<T>(a) - wrap_t<T>(b));
}
template <class T>
T value(fn::Mul, T a, T b) {
  return static_cast<T>(wrap_t<T>(a) * wrap_t<T>(b));
}
template <class T>
T value(fn::Div, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if (b == T(-1)) return static_cast<T>(wrap_t<T>(0) - wrap_t<T>(a));
  }
  return static_cast<T>(a / b);
}
template <class T>
T value(fn::Pow, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b < 0)
      return a == 1 ? T(1) : a == T(-1) ? (b % 2 ? T(-1) : T(1)) : T(0);
    wrap_t<T> r = 1, x = static_cast<wrap_t<T>>(a);
    for (; b > 0; b = static_cast<T>(b / 2), x *= x)
      if (b % 2) r *= x;
    return static_cast<T>(r);
  } else {
    return std::pow(a, b);
  }
}
template <class T>
T value(fn::Maximum, T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
T value(fn::Minimum, T a, T b) {
  return a < b || a != a ? a : b;
}
template <class T>
uint8_t value(fn::Eq, T a, T b) {
  return a == b;
}
template <class T>
uint8_t value(fn::Ne, T a, T b) {
  return a != b;
}
template <class T>
uint8_t value(fn::Lt, T a, T b) {
  return a < b;
}
template <class T>
uint8_t value(fn::Le, T a, T b) {
  return a <= b;
}
template <class T>
uint8_t value(fn::Gt, T a, T b) {
  return a > b;
}
template <class T>
uint8_t value(fn::Ge, T a, T b) {
  return a >= b;
}
template <class T>
uint8_t value(fn::LogicalAnd, T a, T b) {
  return (a != 0) & (b != 0);
}
template <class T>
uint8_t value(fn::LogicalOr, T a, T b) {
  return (a != 0) | (b != 0);
}

// --- Contiguous loops -------------------------------------------------------
template <class F, class T>
void loop(int64_t n, const void* a, const void* b, void* out) {
  using R = decltype(value(F(), T(), T()));
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  auto* o = static_cast<R*>(out);
  if constexpr (std::is_floating_point_v<T> && std::is_same_v<F, fn::Pow>) {
    using V = Vec<T>;
    int64_t i = 0;
    for (; i + V::n <= n; i += V::n)
      store(o + i, pow_any(load(x + i), load(y + i)));
    if (const int64_t m = n - i)
      store_n(o + i, pow_any(load_n(x + i, m, T(1)), load_n(y + i, m)), m);
  } else {
    // `out` may be an input itself, element for element.
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = value(F(), x[i], y[i]);
  }
}
using Loop = void (*)(int64_t, const void*, const void*, void*);

template <class T, class... F>
Loop find(fn::FunctionList<F...>, int index) {
  static constexpr Loop loops[] = {&loop<F, T>...};
  return loops[index];
}

// Around a loop on T: strides, and storage S that is not T.
template <class S>
void run(int index, const Pointwise& p) {
  using T = std::conditional_t<std::is_same_v<S, bool>, uint8_t, compute_t<S>>;
  using M = std::conditional_t<std::is_same_v<S, bool>, uint8_t, S>;
  const Walk<2> w(p.shape, {&p.strides[0], &p.strides[1]});
  if (w.empty) return;
  const Loop f = find<T>(fn::BinaryFunctions(), index);
  const auto* a = static_cast<const M*>(p.in[0]);
  const auto* b = static_cast<const M*>(p.in[1]);
  auto* out = static_cast<char*>(p.out);
  const bool narrows = !std::is_same_v<M, T> && !fn::gives_bool(index);
  const int64_t item = fn::gives_bool(index) ? 1 : sizeof(M);
  const int64_t n = w.inner(), sa = w.inner_stride(0), sb = w.inner_stride(1);
  const bool direct = std::is_same_v<M, T> && sa == 1 && sb == 1;
  T ba[kChunk], bb[kChunk], bo[kChunk];
  w.rows([&](const int64_t(&o)[2]) {
    if (direct) {
      f(n, a + o[0], b + o[1], out);
      out += n * item;
      return;
    }
    const T *pa = nullptr, *pb = nullptr;
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t m = std::min(kChunk, n - i);
      // A broadcast operand fills its buffer once.
      if (i == 0 || sa != 0) pa = fetch(a + o[0] + i * sa, sa, m, ba);
      if (i == 0 || sb != 0) pb = fetch(b + o[1] + i * sb, sb, m, bb);
      if (narrows) {
        f(m, pa, pb, bo);
        if constexpr (std::is_same_v<S, bf16>)
          narrow(bo, m, reinterpret_cast<bf16*>(out));
      } else {
        f(m, pa, pb, out);
      }
      out += m * item;
    }
  });
}

// --- where ------------------------------------------------------------------
template <class T>
void where_items(const Pointwise& p) {
  const Walk<3> w(p.shape, {&p.strides[0], &p.strides[1], &p.strides[2]});
  if (w.empty) return;
  const auto* c = static_cast<const uint8_t*>(p.in[0]);
  const auto* a = static_cast<const T*>(p.in[1]);
  const auto* b = static_cast<const T*>(p.in[2]);
  auto* out = static_cast<T*>(p.out);
  const int64_t n = w.inner();
  const int64_t sc = w.inner_stride(0), sa = w.inner_stride(1),
                sb = w.inner_stride(2);
  uint8_t bc[kChunk];
  T ba[kChunk], bb[kChunk];
  w.rows([&](const int64_t(&o)[3]) {
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t m = std::min(kChunk, n - i);
      const uint8_t* pc = fetch(c + o[0] + i * sc, sc, m, bc);
      const T* pa = fetch(a + o[1] + i * sa, sa, m, ba);
      const T* pb = fetch(b + o[2] + i * sb, sb, m, bb);
#pragma GCC ivdep
      for (int64_t j = 0; j < m; ++j) out[j] = pc[j] ? pa[j] : pb[j];
      out += m;
    }
  });
}

// --- cast -------------------------------------------------------------------
template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, uint8_t>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> &&
                       std::is_integral_v<To>) {
    // The first value too large: a power of two, exact in every float.
    constexpr From end =
        sizeof(To) == 4 ? From(2147483648.0) : From(9223372036854775808.0);
    if (x >= end) return std::numeric_limits<To>::max();
    if (x < -end) return std::numeric_limits<To>::min();
    return x != x ? To(0) : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
void cast_items(const Pointwise& p) {
  using C = compute_t<From>;
  const Walk<1> w(p.shape, {&p.strides[0]});
  if (w.empty) return;
  const auto* x = static_cast<const From*>(p.in[0]);
  auto* out = static_cast<To*>(p.out);
  const int64_t n = w.inner(), s = w.inner_stride(0);
  C buf[kChunk];
  w.rows([&](const int64_t(&o)[1]) {
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t m = std::min(kChunk, n - i);
      const C* px = fetch(x + o[0] + i * s, s, m, buf);
      if constexpr (std::is_same_v<To, bf16>) {
        if constexpr (std::is_same_v<C, float>) {
          narrow(px, m, out);
        } else {
          for (int64_t j = 0; j < m; ++j)
            out[j] = bf16(static_cast<float>(px[j]));
        }
      } else {
#pragma GCC ivdep
        for (int64_t j = 0; j < m; ++j) out[j] = convert<To>(px[j]);
      }
      out += m;
    }
  });
}

// f.template operator()<T>() with bool as uint8_t.
template <class F>
void visit_stored(DType t, F&& f) {
  visit(t, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>)
      f.template operator()<uint8_t>();
    else
      f.template operator()<T>();
  });
}

}  // namespace

void CpuKernels::binary(Stream, int index, DType in, const Pointwise& p) const {
  if (index < 0 || index >= fn::kNumBinary)
    fail("binary", "no function {}", index);
  if (in == DType::kBool && !fn::gives_bool(index))
    fail(fn::binary_name_of(index), "no kernel for bool");
  visit(in, [&]<class S>() { run<S>(index, p); });
}

void CpuKernels::where(Stream, DType t, const Pointwise& p) const {
  switch (size_of(t)) {
    case 1:
      return where_items<uint8_t>(p);
    case 2:
      return where_items<uint16_t>(p);
    case 4:
      return where_items<uint32_t>(p);
    default:
      return where_items<uint64_t>(p);
  }
}

void CpuKernels::cast(Stream, DType from, DType to, const Pointwise& p) const {
  visit_stored(from, [&]<class From>() {
    visit_stored(to, [&]<class To>() { cast_items<From, To>(p); });
  });
}

}  // namespace dtensor::kernels
