// For kernels limited by memory bandwidth. The source is written once: g++
// makes loops of it, and nvcc kernels. Include this in a .cc that both compile
// (BUILD: portable_library).
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
// A body is a lambda that captures by value, and only what can be a kernel
// argument: numbers, pointers to the device's memory, and plain structs of
// them. It calls only DT_HD and constexpr functions, and neither allocates nor
// throws.
//
// Several threads (lanes) serve a row, but the body is written as for one
// thread. Code outside the row's functions runs in every lane with the same
// values, and must not write memory. Work inside the row's functions is divided
// among the lanes, in any order. Each of these functions ends when all lanes
// are done, and the next one sees the memory that it wrote. A function passed
// to one of them must not change variables outside of itself: use reduce().
//
// Put the definitions of such a file into the namespace DT_PORTABLE, which is a
// different one for each compiler.
//
// Stream and Device are those of device.h. The functions return before the work
// has run.
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

// Operators for reduce(). They have to be commutative; the order in which
// values are combined depends only on n.
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
