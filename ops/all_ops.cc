// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/all_ops.h"

#include <map>

#include "dtensor/ops/op.h"

namespace dtensor {
namespace {

// A function-local static, because the OpFamily objects of other source files
// register before main(), in an unknown order.
std::map<std::string_view, OpList (*)()>& families() {
  static std::map<std::string_view, OpList (*)()> all;
  return all;
}

}  // namespace

OpFamily::OpFamily(std::string_view name, OpList (*make)()) {
  families().emplace(name, make);
}

const OpList& all_ops() {
  static const auto* list = [] {
    auto* all = new OpList;
    for (const auto& [name, make] : families()) {
      const OpList ops = make();
      all->insert(all->end(), ops.begin(), ops.end());
    }
    return all;
  }();
  return *list;
}

OpList op_family(std::string_view name) {
  const auto found = families().find(name);
  return found == families().end() ? OpList() : found->second();
}

const Op* find_op(std::string_view name) {
  static const auto* by_name = [] {
    auto* all = new std::map<std::string_view, const Op*>;
    for (const Op* op : all_ops()) all->emplace(op->name(), op);
    return all;
  }();
  const auto found = by_name->find(name);
  return found == by_name->end() ? nullptr : found->second;
}

}  // namespace dtensor
