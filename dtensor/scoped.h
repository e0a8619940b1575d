// SPDX-License-Identifier: Apache-2.0
// Sets a variable for the duration of a scope.
#pragma once
#include <utility>

namespace dtensor {

template <class T>
class Scoped {
 public:
  Scoped(T& slot, T value) : slot_(slot), old_(std::move(slot)) {
    slot_ = std::move(value);
  }
  ~Scoped() { slot_ = std::move(old_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& slot_;
  T old_;
};

}  // namespace dtensor
