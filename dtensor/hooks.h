// SPDX-License-Identifier: Apache-2.0
// Functions that run when a gradient is known. (nn/module.h has those that run
// after a module's forward.)
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Removes a hook. Dropping the handle leaves the hook in place.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove)
      : remove_(std::move(remove)) {}
  // Does nothing if the hook has been removed, or its owner destroyed.
  void remove() {
    if (const auto now = std::exchange(remove_, nullptr)) now();
  }

 private:
  std::function<void()> remove_;
};

// Hooks in the order in which they were added.
template <class Hook>
class Hooks {
 public:
  HookHandle add(Hook hook) {
    if (!list_) list_ = std::make_shared<List>();
    list_->push_back(std::make_shared<const Hook>(std::move(hook)));
    return HookHandle(
        [list = std::weak_ptr(list_), me = std::weak_ptr(list_->back())] {
          if (const auto l = list.lock()) std::erase(*l, me.lock());
        });
  }
  bool empty() const { return !list_ || list_->empty(); }
  // A copy, since a hook may add or remove hooks.
  std::vector<std::shared_ptr<const Hook>> all() const {
    return list_ ? *list_ : std::vector<std::shared_ptr<const Hook>>();
  }

 private:
  using List = std::vector<std::shared_ptr<const Hook>>;
  std::shared_ptr<List> list_;
};

// Calls `hook` with the complete gradient of x in every backward pass that
// reaches x, before the pass goes on from x, even if the gradient of x is
// wanted itself. The gradient may have any layout, such as a partial sum. The
// tensor that the hook returns replaces the gradient; an undefined one leaves
// it as it is. All ranks go through the graph in one order, so all must add the
// same hooks in the same order. Then hooks may communicate.
//
// Throws Error if x requires no gradient. Does nothing inside NoGrad, and in
// the first run of a function under checkpoint(), which records no gradients.
HookHandle register_hook(const DistTensor& x,
                         std::function<DistTensor(const DistTensor&)> hook);

}  // namespace dtensor
