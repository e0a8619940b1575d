// SPDX-License-Identifier: Apache-2.0
// Visits the members of a plain struct without a list of their names:
//
//   for_members(x, [](auto& member) { ... });  // in the order of declaration
//
// For aggregates of up to 22 members without base classes and C arrays (use
// std::array).
#pragma once
#include <type_traits>

namespace dtensor {

namespace internal {
// Stands for the initial value of a member of any type. Only its type is used.
struct AnyValue {
  template <class T>
  operator T() const;
};

// An aggregate takes as many initial values as it has members.
template <class A, class... Values>
constexpr int count_members() {
  if constexpr (requires { A{Values{}..., AnyValue{}}; })
    return count_members<A, Values..., AnyValue>();
  else
    return sizeof...(Values);
}
}  // namespace internal

template <class A, class F>
void for_members(A& x, F&& f) {
  constexpr int n = internal::count_members<std::remove_const_t<A>>();
  const auto each = [&f](auto&... member) { (f(member), ...); };
#define DT_MEMBERS(count, ...) \
  if constexpr (n == count) {  \
    auto& [__VA_ARGS__] = x;   \
    each(__VA_ARGS__);         \
  } else
  DT_MEMBERS(1, a)
  DT_MEMBERS(2, a, b)
  DT_MEMBERS(3, a, b, c)
  DT_MEMBERS(4, a, b, c, d)
  DT_MEMBERS(5, a, b, c, d, e)
  DT_MEMBERS(6, a, b, c, d, e, g)
  DT_MEMBERS(7, a, b, c, d, e, g, h)
  DT_MEMBERS(8, a, b, c, d, e, g, h, i)
  DT_MEMBERS(9, a, b, c, d, e, g, h, i, j)
  DT_MEMBERS(10, a, b, c, d, e, g, h, i, j, k)
  DT_MEMBERS(11, a, b, c, d, e, g, h, i, j, k, l)
  DT_MEMBERS(12, a, b, c, d, e, g, h, i, j, k, l, m)
  DT_MEMBERS(13, a, b, c, d, e, g, h, i, j, k, l, m, o)
  DT_MEMBERS(14, a, b, c, d, e, g, h, i, j, k, l, m, o, p)
  DT_MEMBERS(15, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q)
  DT_MEMBERS(16, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r)
  DT_MEMBERS(17, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s)
  DT_MEMBERS(18, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, t)
  DT_MEMBERS(19, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, t, u)
  DT_MEMBERS(20, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v)
  DT_MEMBERS(21, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w)
  DT_MEMBERS(22, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w,
             y)
  DT_MEMBERS(23, a, b, c, d, e, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w,
             y, z)
  static_assert(n > 0 && n <= 23, "for_members() needs a line for this size");
#undef DT_MEMBERS
}

}  // namespace dtensor
