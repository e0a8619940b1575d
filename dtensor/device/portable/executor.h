// The text of a kernel whose speed is that of memory, written once: g++ makes
// loops of it, nvcc a kernel. Include this in a .cc that both compile (BUILD:
// portable_library).
//
//   each(stream, n, DT_BODY(int64_t i) { out[i] = in[i] + 1; });
//   map(stream, n, out, DT_BODY(int64_t, float x) { return x + 1; }, in);
//   rows(stream, count, n, DT_BODY(Row& row, int64_t r) {
//     const float sum = row.reduce(n, 0.f, Sum(), [&](int64_t, float x) {
//       return x;
//     }, in + r * n);
//     row.map(n, out + r * n, [&](int64_t, float x) { return x / sum; },
//             in + r * n);
//   });
//
// A body is a lambda that captures by value what a kernel's arguments may be:
// numbers, pointers to the device's memory, plain structs of them. It calls
// only what is DT_HD or constexpr, and allocates and throws nothing.
//
// A row is served by several threads (lanes), and its body is written as if for
// one: what is outside of the row's functions runs in each lane, with the same
// values, and writes no memory; what is inside is shared among them, in any
// order. Each of these functions ends when all lanes are done, and what was
// written is seen by the next one. A function given to one of them may change
// no variable outside of itself: use reduce().
//
// What such a file defines goes into the namespace DT_PORTABLE, which is
// another one for each compiler.
//
// Stream and Device are those of device.h; what is here returns before it ran.
#pragma once
#include <cstdint>

#include "dtensor/device/device.h"
#include "dtensor/device/portable/values.h"

#if defined(__CUDACC__) || defined(DT_CUDA_EMULATED)
#define DT_BODY [=] __device__
#define DT_PORTABLE on_cuda
#include "dtensor/device/portable/cuda_executor.cuh"  // IWYU pragma: export
#else
#define DT_BODY [=]
#define DT_PORTABLE on_host
#include "dtensor/device/portable/host_executor.h"  // IWYU pragma: export
#endif

namespace dtensor::portable {

// For reduce(). Commutative, as its operators have to be; the order in which
// values are combined depends on n alone.
struct Sum {
  template <class A>
  DT_HD A operator()(const A& a, const A& b) const {
    return a + b;
  }
};
// NaN wins.
struct Max {
  template <class A>
  DT_HD A operator()(const A& a, const A& b) const {
    return a > b || a != a ? a : b;
  }
};
struct Min {
  template <class A>
  DT_HD A operator()(const A& a, const A& b) const {
    return a < b || a != a ? a : b;
  }
};

}  // namespace dtensor::portable
