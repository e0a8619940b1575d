// The arguments of one call of an operator, whatever their type (see
// fields.h), held in place.
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

namespace dtensor {

class Spec;

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

  // The arguments as the type that they were given in. Throws Error when it was
  // another one, or none.
  template <Arguments A>
  const A& as() const {
    if (type_ != &kType<A>) wrong_type(kType<A>);
    return *reinterpret_cast<const A*>(bytes_);
  }
  // Null instead of an Error.
  template <Arguments A>
  const A* get() const {
    return type_ == &kType<A> ? reinterpret_cast<const A*>(bytes_) : nullptr;
  }
  bool empty() const { return type_ == nullptr; }

  // Do calls with either take the same decision?
  bool decide_as(const Attrs& o) const {
    return type_ == o.type_ && like == o.like &&
           (!type_ || type_->same(bytes_, o.bytes_));
  }
  uint64_t hash() const;  // of what decides

  std::vector<std::string_view> names() const;
  // "dim=1, lo=0, hi=5, step=2"; shapes as 2x3, "" without arguments.
  std::string to_string() const;
  // One member by its name, as to_string() prints it. Throws Error, headed by
  // `where`, when there is no such member or no such value.
  void set(std::string_view name, std::string_view text,
           std::string_view where);

  // A layout to go by: where a gradient's forward had its input, for operators
  // that return to it. It decides.
  const Spec* like = nullptr;
  // Of random numbers: new at every call, no decision depends on it.
  uint64_t seed[2] = {0, 0};
  const uint64_t* seed_at = nullptr;  // see kernels::RandomKey
  // What this call leaves for its gradient and is no tensor of a known size:
  // from Op::new_state(), filled by compute(), let go of with the graph. No
  // decision depends on it.
  std::shared_ptr<void> state;

 private:
  // What can be done with a type of arguments.
  struct Type {
    const Fields* fields;
    bool (*same)(const std::byte*, const std::byte*);
    uint64_t (*hash)(const std::byte*, uint64_t);
    // Of member i.
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
    [](const std::byte* a, uint64_t h) { return hash_fields(cast<A>(a), h); },
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
