// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/kernel_set.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// "Softmax" for dtensor::kernels::Softmax.
std::string text_of(const KernelName& name) {
  const std::unique_ptr<char, void (*)(void*)> whole(
      abi::__cxa_demangle(name.mangled, nullptr, nullptr, nullptr), std::free);
  const std::string text = whole ? whole.get() : name.mangled;
  return text.substr(text.rfind(':') + 1);
}

}  // namespace

const KernelSet::Entry& KernelSet::find(const KernelName& name) const {
  for (size_t i = name.hash;; ++i) {
    const Entry& e = entries_[i % kPlaces];
    if (e.name == name || !e.fn) return e;
  }
}

void KernelSet::set(const KernelName& name, Function fn) {
  auto& entry = const_cast<Entry&>(find(name));
  DT_CHECK(entry.fn || count_ + 1 < kPlaces, "kernels",
           "there are more than {} kernels; make kPlaces of KernelSet larger",
           kPlaces - 1);
  DT_CHECK(!entry.fn || text_of(entry.name) == text_of(name), "kernels",
           "{} and {} have the same hash; rename one of them",
           text_of(entry.name), text_of(name));
  if (!entry.fn) ++count_;
  entry = {name, fn};
}

void KernelSet::start(const KernelName& name, Stream s,
                      const void* args) const {
  const Entry& e = find(name);
  DT_CHECK(e.fn, "kernels", "this device has no kernel {}; run on another one",
           text_of(name));
  e.fn(s, args);
}

}  // namespace dtensor
