// SPDX-License-Identifier: Apache-2.0
// The arguments of an operator, declared as a struct with named members:
//
//   struct SliceArgs {
//     static constexpr Fields kFields = {"dim", "lo", "hi", "step"};
//     int64_t dim, lo, hi, step;
//   };
//
// kFields has one name per member, in order. Members are int64_t, double, bool,
// DType, Shape or Triple. Comparing, hashing, printing and reading use this
// list. There are at most Fields::kMost members.
//
// A number that only compute() needs, such as a temperature, is listed as
// value("temperature"). Calls that differ only in such numbers share a decision
// (the cached choice of layouts, decision.h), so a program may pass a new
// number at every step. If 0 means that there is no such number, it is listed
// as value_or_zero("length"): calls with it and without it have separate
// decisions.
#pragma once
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// Up to three numbers of 32 bits, such as the strides of the dimensions of
// space. A Shape would take more of an operator's few bytes of arguments.
class Triple {
 public:
  Triple() = default;
  Triple(const Shape& s) {
    for (int64_t x : s) push_back(x);
  }
  operator Shape() const {
    Shape s;
    for (int i = 0; i < n_; ++i) s.push_back((*this)[i]);
    return s;
  }
  int size() const { return n_; }
  int64_t operator[](int i) const { return x_[static_cast<size_t>(i)]; }
  // Throws Error if there are three numbers already, or x has over 32 bits.
  void push_back(int64_t x);
  bool operator==(const Triple&) const = default;

 private:
  int32_t n_ = 0;
  std::array<int32_t, 3> x_{};
};

struct Field {
  constexpr Field() = default;
  constexpr Field(const char* n) : name(n) {}
  std::string_view name;
  bool decides = true;  // false: decisions do not depend on it
  // If `decides` is false: whether they depend on it being 0.
  bool zero_decides = false;
};
constexpr Field value(const char* name) {
  Field f(name);
  f.decides = false;
  return f;
}
constexpr Field value_or_zero(const char* name) {
  Field f = value(name);
  f.zero_decides = true;
  return f;
}

class Fields {
 public:
  static constexpr size_t kMost = 9;
  constexpr Fields(std::initializer_list<Field> list) {
    for (const Field& f : list) fields_[size_++] = f;
  }
  constexpr size_t size() const { return size_; }
  constexpr bool has_values() const {
    for (size_t i = 0; i < size_; ++i)
      if (!fields_[i].decides) return true;
    return false;
  }
  constexpr const Field& operator[](size_t i) const { return fields_[i]; }

 private:
  std::array<Field, kMost> fields_{};
  size_t size_ = 0;
};

template <class A>
concept Arguments = std::is_aggregate_v<A> && requires {
  { A::kFields } -> std::convertible_to<const Fields&>;
};

namespace internal {

struct Anything {
  template <class T>
  operator T() const;
};
template <class A, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { A{((void)I, Anything())...}; };
}
// The number of members of an aggregate.
template <class A, size_t N = Fields::kMost + 1>
constexpr size_t num_members() {
  if constexpr (N == 0 || takes<A>(std::make_index_sequence<N>()))
    return N;
  else
    return num_members<A, N - 1>();
}

// Calls fn(member) for each member, in order.
template <class A, class Fn>
void visit_members(A& a, Fn&& fn) {
  constexpr size_t kCount = num_members<std::remove_const_t<A>>();
  auto all = [&](auto&... member) { (fn(member), ...); };
  if constexpr (kCount == 1) {
    auto& [m0] = a;
    all(m0);
  } else if constexpr (kCount == 2) {
    auto& [m0, m1] = a;
    all(m0, m1);
  } else if constexpr (kCount == 3) {
    auto& [m0, m1, m2] = a;
    all(m0, m1, m2);
  } else if constexpr (kCount == 4) {
    auto& [m0, m1, m2, m3] = a;
    all(m0, m1, m2, m3);
  } else if constexpr (kCount == 5) {
    auto& [m0, m1, m2, m3, m4] = a;
    all(m0, m1, m2, m3, m4);
  } else if constexpr (kCount == 6) {
    auto& [m0, m1, m2, m3, m4, m5] = a;
    all(m0, m1, m2, m3, m4, m5);
  } else if constexpr (kCount == 7) {
    auto& [m0, m1, m2, m3, m4, m5, m6] = a;
    all(m0, m1, m2, m3, m4, m5, m6);
  } else if constexpr (kCount == 8) {
    auto& [m0, m1, m2, m3, m4, m5, m6, m7] = a;
    all(m0, m1, m2, m3, m4, m5, m6, m7);
  } else if constexpr (kCount == 9) {
    auto& [m0, m1, m2, m3, m4, m5, m6, m7, m8] = a;
    all(m0, m1, m2, m3, m4, m5, m6, m7, m8);
  }
}

inline uint64_t hash_of(int64_t x) { return static_cast<uint64_t>(x); }
inline uint64_t hash_of(bool x) { return x; }
inline uint64_t hash_of(DType x) { return static_cast<uint64_t>(x); }
inline uint64_t hash_of(double x) { return std::bit_cast<uint64_t>(x); }
inline uint64_t hash_of(const Shape& s) {
  uint64_t h = static_cast<uint64_t>(s.size());
  for (int64_t n : s) h = hash_mix(h, static_cast<uint64_t>(n));
  return h;
}
template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}
// Compares bits, so a NaN is equal to itself.
inline bool same(double a, double b) { return hash_of(a) == hash_of(b); }

}  // namespace internal

// Folds into h the members that affect decisions or, if `decides` is false,
// those that do not.
template <Arguments A>
uint64_t hash_fields(const A& a, uint64_t h, bool decides = true) {
  size_t i = 0;
  internal::visit_members(a, [&](const auto& m) {
    const Field& f = A::kFields[i++];
    if (f.decides == decides)
      h = hash_mix(h, internal::hash_of(m));
    else if (decides && f.zero_decides)
      h = hash_mix(h, internal::same(m, std::remove_cvref_t<decltype(m)>{}));
  });
  return h;
}
// Compares the members that affect decisions.
template <Arguments A>
bool same_fields(const A& a, const A& b) {
  // Compares member by member, because structs may have padding.
  const void* other[Fields::kMost];
  size_t i = 0, k = 0;
  bool equal = true;
  internal::visit_members(b, [&](const auto& m) { other[i++] = &m; });
  internal::visit_members(a, [&](const auto& m) {
    using T = std::remove_cvref_t<decltype(m)>;
    const Field& f = A::kFields[k];
    const T& of_b = *static_cast<const T*>(other[k++]);
    if (f.decides)
      equal = equal && internal::same(m, of_b);
    else if (f.zero_decides)
      equal = equal && internal::same(m, T{}) == internal::same(of_b, T{});
  });
  return equal;
}

}  // namespace dtensor
