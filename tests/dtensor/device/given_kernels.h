// SPDX-License-Identifier: Apache-2.0
// A base class for Kernels that gives each call to one function, given():
//
//   class Counted final : public GivenKernels<Counted> {
//    public:
//     template <class Kernel>
//     void given(Stream s, const Kernel& kernel) const {
//       ++calls;
//       kernels.run(s, kernel);
//     }
//   };
#pragma once
#include <array>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"
#include "tests/dtensor/device/all_kernels.h"
#include "tests/dtensor/device/members.h"

namespace dtensor::kernels {

template <class Self>
class GivenKernels : public Kernels {
 private:
  void start(const KernelName& name, Stream s, const void* args) const final {
    const auto& self = static_cast<const Self&>(*this);
#define DT_GIVE(A)              \
  if (name == kernel_name<A>()) \
    return self.given(s, *static_cast<const A*>(args));
    DT_KERNELS(DT_GIVE)
#undef DT_GIVE
    fail("given_kernels", "all_kernels.h lacks the kernel {}", name.mangled);
  }
};

// Copies of the arrays in host memory that a call reads, so that it can be run
// later.
class HostArrays {
 public:
  // Makes the spans of a struct refer to copies, which last as long as a copy
  // of this object. Calls pointer(p) for each pointer (to device memory) in the
  // struct and in these arrays.
  template <class T, class F>
  void keep(T& x, F&& pointer) {
    if constexpr (std::is_pointer_v<T>) {
      pointer(x);
    } else if constexpr (std::is_aggregate_v<T>) {
      for_each(x, [&](auto& part) { keep(part, pointer); });
    } else if constexpr (requires { typename T::element_type; }) {
      auto copy = std::make_shared<std::vector<typename T::value_type>>(
          x.begin(), x.end());
      for (auto& element : *copy) keep(element, pointer);
      x = *copy;
      kept_.push_back(std::move(copy));
    } else {
      static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                    std::is_same_v<T, Shape>);
    }
  }
  template <class T>
  void keep(T& x) {
    keep(x, [](auto*&) {});
  }

 private:
  template <class T, size_t n, class F>
  static void for_each(std::array<T, n>& x, F&& f) {
    for (T& element : x) f(element);
  }
  template <class T, class F>
  static void for_each(T& x, F&& f) {
    for_members(x, f);
  }

  std::vector<std::shared_ptr<const void>> kept_;
};

}  // namespace dtensor::kernels
