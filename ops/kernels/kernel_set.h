// SPDX-License-Identifier: Apache-2.0
// A table of kernels, to which each source adds its own.
#pragma once
#include <array>
#include <cstddef>

#include "dtensor/ops/kernels/kernels.h"

namespace dtensor {

class KernelSet final : public Kernels {
 public:
  using Function = void (*)(Stream, const void* args);
  // Adds a kernel, or replaces it.
  void set(const KernelName&, Function);
  bool has(const KernelName& name) const override { return find(name).fn; }
  // The number of kernels.
  size_t size() const { return count_; }

 private:
  void start(const KernelName&, Stream, const void* args) const override;

  struct Entry {
    KernelName name;
    Function fn = nullptr;
  };
  // Returns the entry of this name; if there is none, the empty one that it
  // would get.
  const Entry& find(const KernelName&) const;

  // About three times as many as there are kernels, so that few share a place.
  static constexpr size_t kPlaces = 128;
  std::array<Entry, kPlaces> entries_;
  size_t count_ = 0;
};

// Runs fn(stream, args) for arguments of type Args.
template <class Args, void (*fn)(Stream, const Args&)>
void run_kernel(Stream s, const void* args) {
  fn(s, *static_cast<const Args*>(args));
}

}  // namespace dtensor
