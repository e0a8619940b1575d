// SPDX-License-Identifier: Apache-2.0
// The arguments of one call of an operator: a struct of any type that fits the
// description in fields.h, stored inline.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "dtensor/ops/fields.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

class Attrs {
 public:
  Attrs() = default;
  // Implicit, so that a call reads apply1(op, inputs, SliceArgs{0, 2, 5, 1}).
  template <Arguments A>
  Attrs(const A& a) : type_(&kType<A>) {
    static_assert(internal::num_members<A>() == A::kFields.size(),
                  "kFields names every member once");
    static_assert(sizeof(A) <= kBytes && std::is_trivially_copyable_v<A>);
    std::memcpy(bytes_, &a, sizeof(A));
  }

  // The arguments, as the struct that the constructor got. Throws Error if that
  // was not an A, or if there are no arguments.
  template <Arguments A>
  const A& as() const {
    if (type_ != &kType<A>) wrong_type(kType<A>);
    return *reinterpret_cast<const A*>(bytes_);
  }
  // Like as(), but returns null instead of throwing.
  template <Arguments A>
  const A* get() const {
    return type_ == &kType<A> ? reinterpret_cast<const A*>(bytes_) : nullptr;
  }
  bool empty() const { return type_ == nullptr; }

  // True if a call with these arguments and one with `o` share a decision (the
  // cached choice of layouts, decision.h), if all else is the same.
  bool decide_as(const Attrs& o) const {
    return type_ == o.type_ && like == o.like &&
           (!type_ || type_->same(bytes_, o.bytes_));
  }
  uint64_t hash() const;  // of what decide_as() compares
  // Folds into h the arguments that affect decisions or, if `decides` is false,
  // those that do not. Unlike hash(), this is equal in all processes.
  uint64_t fold_into(uint64_t h, bool decides) const {
    return type_ && (decides || type_->has_values)
               ? type_->hash(bytes_, h, decides)
               : h;
  }

  // The names of the members, in order.
  std::vector<std::string_view> names() const;
  // "dim=1, lo=0, hi=5, step=2". Shapes print as 2x3; "" without arguments.
  std::string to_string() const;
  // Sets the member `name` from text in the format of to_string(). Throws Error
  // if there is no such member, or the text does not fit its type. The error
  // begins with "[where]", except for a wrong name of a dtype.
  void set(std::string_view name, std::string_view text,
           std::string_view where);

  // For an operator whose output is a gradient that gets the layout of an input
  // of the forward pass: the spec of that input. It affects the decision.
  SpecRef like;
  // The seed and stream of random numbers, new at every call. They do not
  // affect the decision.
  uint64_t seed[2] = {0, 0};
  const uint64_t* seed_at = nullptr;  // see kernels::RandomKey
  // Data, other than outputs, that compute() leaves for gradient(), such as
  // tensors whose sizes depend on values. Op::new_state() makes it, and it is
  // released with the graph. It does not affect the decision.
  std::shared_ptr<void> state;

 private:
  // The functions for one struct of arguments.
  struct Type {
    const Fields* fields;
    bool (*same)(const std::byte*, const std::byte*);
    uint64_t (*hash)(const std::byte*, uint64_t, bool decides);
    bool has_values;  // some members do not affect decisions
    // These two access member i.
    std::string (*print)(const std::byte*, size_t i);
    void (*read)(std::byte*, size_t i, std::string_view text,
                 std::string_view where);
  };
  template <class A>
  static const A& cast(const std::byte* b) {
    return *reinterpret_cast<const A*>(b);
  }
  template <class A>
  static const Type kType;

  [[noreturn]] void wrong_type(const Type& asked) const;
  static std::string print(int64_t);
  static std::string print(double);
  static std::string print(bool);
  static std::string print(DType);
  static std::string print(const Shape&);
  static void read(int64_t&, std::string_view text, std::string_view where);
  static void read(double&, std::string_view text, std::string_view where);
  static void read(bool&, std::string_view text, std::string_view where);
  static void read(DType&, std::string_view text, std::string_view where);
  static void read(Shape&, std::string_view text, std::string_view where);
  static void read(Triple&, std::string_view text, std::string_view where);

  static constexpr size_t kBytes = 96;
  const Type* type_ = nullptr;
  alignas(8) std::byte bytes_[kBytes];
};

template <class A>
const Attrs::Type Attrs::kType = {
    &A::kFields,
    [](const std::byte* a, const std::byte* b) {
      return same_fields(cast<A>(a), cast<A>(b));
    },
    [](const std::byte* a, uint64_t h, bool decides) {
      return hash_fields(cast<A>(a), h, decides);
    },
    A::kFields.has_values(),
    [](const std::byte* a, size_t which) {
      std::string text;
      size_t i = 0;
      internal::visit_members(cast<A>(a), [&](const auto& m) {
        if (i++ == which) text = print(m);
      });
      return text;
    },
    [](std::byte* a, size_t which, std::string_view text,
       std::string_view where) {
      size_t i = 0;
      internal::visit_members(*reinterpret_cast<A*>(a), [&](auto& m) {
        if (i++ == which) read(m, text, where);
      });
    }};

}  // namespace dtensor
