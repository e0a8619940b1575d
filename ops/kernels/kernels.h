// SPDX-License-Identifier: Apache-2.0
// The kernels of one device, which compute on memory that the device holds.
//
//   kernels_of(device).run(stream, kernels::Softmax{.x = x, .y = y});
//
// A kernel consists of a struct of its arguments, and of a function for each
// kind of device (portable/portable_kernels.h). The struct is in the header of
// its family (ops/kernels/rows.h and so on), and its comment is the kernel's
// contract. Include that header, too.
#pragma once
#include <cstddef>
#include <typeinfo>

#include "dtensor/device/device.h"

namespace dtensor {

namespace kernels {
inline namespace on_host {
// The CPU's source of a kernel defines this (DT_KERNEL). Code that runs the
// kernel refers to it, so that a static library gives the program that source,
// and a program does not link if the CPU lacks the kernel.
template <class Args>
void link_kernel();
}  // namespace on_host
}  // namespace kernels

// Names a kernel. A library that is linked apart, such as the CUDA plugin, has
// the same names.
struct KernelName {
  size_t hash = 0;           // of the type, 0 for none
  const char* mangled = "";  // the type's name
  void (*linked)() = nullptr;
  bool operator==(const KernelName& o) const { return hash == o.hash; }
};
// The name of the kernel with these arguments.
template <class Args>
const KernelName& kernel_name() {
#ifdef __CUDACC__  // the plugin has none of the CPU's kernels
  void (*const linked)() = nullptr;
#else
  void (*const linked)() = &kernels::link_kernel<Args>;
#endif
  static const KernelName name{typeid(Args).hash_code(), typeid(Args).name(),
                               linked};
  return name;
}

class Kernels : public KernelTable {
 public:
  virtual ~Kernels() = default;
  // Runs a kernel. Throws Error if the device has none for these arguments.
  template <class Args>
  void run(Stream s, const Args& args) const {
    start(kernel_name<Args>(), s, &args);
  }
  // Whether the device has the kernel.
  virtual bool has(const KernelName&) const = 0;

 private:
  // `args` points to the struct of this name.
  virtual void start(const KernelName&, Stream, const void* args) const = 0;
};

// The CPU's kernels, and those of a dry run, which do nothing.
const Kernels& cpu_kernels();
const Kernels& no_kernels();
// The device's own kernels, or those of its kind. Throws Error if the build has
// none for it.
const Kernels& kernels_of(const Device&);

}  // namespace dtensor
