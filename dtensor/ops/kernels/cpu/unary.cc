#include <algorithm>
#include <limits>

#include "dtensor/ops/functions.h"
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/cpu/unary_loops.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// Strides and bf16 around a contiguous loop: pieces of kChunk elements go
// through buffers where they are not already contiguous in the compute type.
template <class S>
void run(UnaryLoop<compute_t<S>> loop, int order, const double* p,
         const Pointwise& a) {
  using C = compute_t<S>;
  const Shape& dy_strides = order > 0 ? a.strides[1] : a.strides[0];
  const Walk<2> w(a.shape, {&a.strides[0], &dy_strides});
  if (w.empty) return;
  const auto* x = static_cast<const S*>(a.in[0]);
  const auto* dy = static_cast<const S*>(order > 0 ? a.in[1] : a.in[0]);
  auto* out = static_cast<S*>(a.out);
  const int64_t n = w.inner(), sx = w.inner_stride(0), sy = w.inner_stride(1);
  const bool direct = std::is_same_v<S, C> && sx == 1 && sy == 1;
  C bx[kChunk], by[kChunk], bo[kChunk];
  w.rows([&](const int64_t(&o)[2]) {
    if constexpr (std::is_same_v<S, C>) {
      if (direct) {
        loop(p, n, x + o[0], dy + o[1], out);
        out += n;
        return;
      }
    }
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t m = std::min(kChunk, n - i);
      const C* px = fetch(x + o[0] + i * sx, sx, m, bx);
      const C* py = order > 0 ? fetch(dy + o[1] + i * sy, sy, m, by) : nullptr;
      if constexpr (std::is_same_v<S, C>) {
        loop(p, m, px, py, out);
      } else {
        loop(p, m, px, py, bo);
        narrow(bo, m, out);
      }
      out += m;
    }
  });
}

template <class T, class F>
void integer_function(const double* p, const Pointwise& a) {
  const Walk<1> w(a.shape, {&a.strides[0]});
  if (w.empty) return;
  const auto* x = static_cast<const T*>(a.in[0]);
  auto* out = static_cast<T*>(a.out);
  const int64_t n = w.inner(), s = w.inner_stride(0);
  w.rows([&](const int64_t(&o)[1]) {
    for (int64_t i = 0; i < n; ++i) *out++ = F::value(x[o[0] + i * s], p);
  });
}

template <class T, class... F>
void integer_unary(fn::FunctionList<F...>, int index, const double* params,
                   const Pointwise& a) {
  // A parameter beyond the type's range (Clamp's infinities) means its end.
  double p[2] = {};
  for (int i = 0; i < fn::num_params_of(index); ++i) {
    const double low = static_cast<double>(std::numeric_limits<T>::min());
    const double high = sizeof(T) == 4 ? 2147483647.0 : 9223372036854774784.0;
    p[i] = std::clamp(params[i], low, high);
  }
  using Function = void (*)(const double*, const Pointwise&);
  auto get = []<class G>() -> Function {
    if constexpr (fn::internal::integral<G>())
      return &integer_function<T, G>;
    else
      return nullptr;
  };
  static const Function table[] = {get.template operator()<F>()...};
  table[index](p, a);
}

}  // namespace

void CpuKernels::unary(Stream, int index, int order, DType t,
                       const double* params, const Pointwise& a) const {
  // Not check(), which would look the name up every time.
  if (index < 0 || index >= fn::kNumUnary)
    fail("unary", "no function {}", index);
  if (order < 0 || order > 2)
    fail(fn::name_of(index), "no derivative of order {}: there are 0, 1 and 2",
         order);
  switch (t) {
    case DType::kF32:
      return run<float>(unary_f32(index, order), order, params, a);
    case DType::kF64:
      return run<double>(unary_f64(index, order), order, params, a);
    case DType::kBF16:
      return run<bf16>(unary_f32(index, order), order, params, a);
    case DType::kI32:
    case DType::kI64:
      if (order == 0 && fn::integral_of(index)) {
        if (t == DType::kI32)
          return integer_unary<int32_t>(fn::UnaryFunctions(), index, params, a);
        return integer_unary<int64_t>(fn::UnaryFunctions(), index, params, a);
      }
      [[fallthrough]];
    default:
      fail(fn::name_of(index), "no kernel of order {} for {}", order, name(t));
  }
}

}  // namespace dtensor::kernels
