// SPDX-License-Identifier: Apache-2.0
// Element-wise functions as kernels, in tables for each storage type. The
// tables are spread over many files because nvcc compiles slowly.
#pragma once
#include <algorithm>
#include <cstdint>

#include "dtensor/ops/kernels/function_table.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/ops/kernels/portable/walk.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace pointwise {

// Submits the kernel of one function to the stream.
using Launch = void (*)(Stream, const double* params, const Pointwise&);

// unary_launch() returns the kernel of fn::UnaryFunctions[index], or of its
// k-th derivative times in[1]. binary_launch() returns that of
// fn::BinaryFunctions[index], or of its derivative `by` times in[2]. Null if
// there is no such kernel. M is a float type or, unless a derivative is meant,
// int32_t, int64_t or uint8_t (a bool).
template <class M, int k>
Launch unary_launch(int index);
template <class M, fn::By by>
Launch binary_launch(int index);

// Returns a walk over the output and K operands, in this order.
template <int K>
portable::Walk<K + 1> walk_of(const Pointwise&);

// f(x) or f(a, b), in the type that is stored.
template <class F, class M>
struct Value {
  double p[fn::kMaxParams];
  template <class... X>
  DT_HD auto operator()(X... x) const {
    using T = portable::compute_t<M>;
    const auto y = stored<T>(F::value(scalar_t<T>(portable::widened(x))..., p));
    if constexpr (fn::facts<F>().gives_bool)
      return y;
    else
      return portable::rounded<M>(y);
  }
};
// A derivative times the cotangent dy, which follows the operands.
template <class F, auto which, class M>
struct Slope {
  double p[fn::kMaxParams];
  template <class... X>
  DT_HD M operator()(X... x) const {
    return of(p, x...);
  }
  DT_HD static M of(const double* p, M x, M dy) {
    return portable::rounded<M>(
        fn::derivative<F, which>(portable::widened(x), p) *
        portable::widened(dy));
  }
  DT_HD static M of(const double* p, M a, M b, M dy) {
    return portable::rounded<M>(fn::derivative<F, which>(portable::widened(a),
                                                         portable::widened(b),
                                                         p) *
                                portable::widened(dy));
  }
};

// Both first derivatives times dy, computed together to read the operands once.
template <class F, class M>
struct Slopes {
  double p[fn::kMaxParams];
  DT_HD portable::Two<M> operator()(M a, M b, M dy) const {
    const auto x = portable::widened(a), y = portable::widened(b),
               u = portable::widened(dy);
    return {portable::rounded<M>(fn::derivative<F, fn::By::kA>(x, y, p) * u),
            portable::rounded<M>(fn::derivative<F, fn::By::kB>(x, y, p) * u)};
  }
};

template <class F, class M, int order>
constexpr bool is_here() {
  return has_kernel<F, portable::compute_t<M>, order>() &&
         (fn::facts<F>().rounds || !portable::is_half<M>);
}

// Derivative `which`, of an order from 2 on, of the function at `index` of a
// list. One kernel serves all functions: there are a thousand such derivatives,
// few programs compute one, and a kernel for each would take a quarter of the
// time in which nvcc compiles the plugin.
template <class M, auto which, int order, class List>
struct AnySlope;
template <class M, auto which, int order, class... F>
struct AnySlope<M, which, order, fn::FunctionList<F...>> {
  int index;
  double p[fn::kMaxParams];
  template <class... X>
  DT_HD M operator()(X... x) const {
    M y{};
    (void)((fn::index_of<F> == index && (y = slope<F>(x...), true)) || ...);
    return y;
  }

 private:
  template <class G, class... X>
  DT_HD M slope([[maybe_unused]] X... x) const {
    if constexpr (is_here<G, M, order>())
      return Slope<G, which, M>::of(p, x...);
    else
      return {};
  }
};

template <class F, class M>
void launch_slopes(Stream s, const double* params, const Pointwise& a) {
  Slopes<F, M> item{};
  std::copy_n(params, fn::facts<F>().num_params, item.p);
  const auto x = [&](int k) { return static_cast<const M*>(a.in[k]); };
  portable::map_two(s, walk_of<3>(a), static_cast<M*>(a.out),
                    static_cast<M*>(a.second), item, x(0), x(1), x(2));
}

// Each thread of a GPU computes W elements, or only one (see map_packs()).
template <int W, class Out, class M, int K, class Item>
void launch_item(Stream s, const Item& item, const Pointwise& a) {
  [&]<int... k>(std::integer_sequence<int, k...>) {
    portable::map_packs<W>(s, walk_of<K>(a), static_cast<Out*>(a.out), item,
                           static_cast<const M*>(a.in[k])...);
  }
  (std::make_integer_sequence<int, K>());
}

template <class F, class Item, class Out, class M, int K>
void launch(Stream s, const double* params, const Pointwise& a) {
  Item item{};
  std::copy_n(params, fn::facts<F>().num_params, item.p);
  launch_item<portable::kPack<Out, M>, Out, M, K>(s, item, a);
}

template <class F, class M, auto which, int order, int K, class List>
void launch_any(Stream s, const double* params, const Pointwise& a) {
  AnySlope<M, which, order, List> item{fn::index_of<F>, {}};
  std::copy_n(params, fn::facts<F>().num_params, item.p);
  launch_item<1, M, M, K>(s, item, a);
}

template <auto which>
inline constexpr bool gives_two = false;
template <>
inline constexpr bool gives_two<fn::By::kBoth> = true;
template <class F, class M, auto which, int order, int operands, class List>
constexpr Launch launch_of() {
  if constexpr (!is_here<F, M, order>()) {
    return nullptr;
  } else if constexpr (gives_two<which>) {
    return &launch_slopes<F, M>;
  } else if constexpr (order > 1) {
    return &launch_any<F, M, which, order, operands + 1, List>;
  } else if constexpr (order > 0) {
    return &launch<F, Slope<F, which, M>, M, M, operands + 1>;
  } else {
    using Out = std::conditional_t<fn::facts<F>().gives_bool, uint8_t, M>;
    return &launch<F, Value<F, M>, Out, M, operands>;
  }
}

template <class M, int k, class... F>
Launch find_unary(fn::FunctionList<F...> list, int index) {
  static constexpr Launch all[] = {
      launch_of<F, M, k, k, 1, decltype(list)>()...};
  return all[index];
}
template <class M, fn::By by, class... F>
Launch find_binary(fn::FunctionList<F...> list, int index) {
  static constexpr Launch all[] = {
      launch_of<F, M, by, fn::order_of(by), 2, decltype(list)>()...};
  return all[index];
}

}  // namespace pointwise
}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels

// Each use of these macros defines one table.
#define DT_UNARY_LAUNCHES(M, k)                           \
  namespace dtensor::kernels::DT_PORTABLE::pointwise {    \
  template <>                                             \
  Launch unary_launch<M, k>(int index) {                  \
    return find_unary<M, k>(fn::UnaryFunctions(), index); \
  }                                                       \
  }
#define DT_BINARY_LAUNCHES(M, by)                            \
  namespace dtensor::kernels::DT_PORTABLE::pointwise {       \
  template <>                                                \
  Launch binary_launch<M, by>(int index) {                   \
    return find_binary<M, by>(fn::BinaryFunctions(), index); \
  }                                                          \
  }
