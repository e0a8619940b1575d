// SPDX-License-Identifier: Apache-2.0
// Portable kernels, for work limited by memory bandwidth. The source is written
// once: from it, g++ makes vectorised loops for the CPU, and nvcc makes kernels
// for GPUs. Include this in a .cc that both compile.
//
//   each(stream, n, DT_BODY(int64_t i) { out[i] = in[i] + 1; });
//   map(stream, n, out, DT_BODY(int64_t, float x) { return x + 1; }, in);
//   rows(stream, count, n, DT_BODY(Row& row, int64_t r) {
//     const auto sum = row.sum(n, [](auto x) { return x; }, in + r * n);
//     const auto scale = static_cast<float>(1 / sum);
//     row.map(n, out + r * n, [&](auto x) { return x * scale; }, in + r * n);
//   });
//
// A Row has these functions. n is the number of elements that they work on.
// - each(n, f, in...): calls f(j, in[j]...) for all j in [0, n).
// - reduce(n, zero, op, f, in...): combines f(j, in[j]...), starting with the
//   identity of op. Every lane gets the result.
// - map(n, out, f, in...): out = f(x...). out may be one of the inputs.
// - map_two(n, first, second, f, in...): as map(), for an f that returns a Two.
// - sum(n, f, in...): the sum of f(x...), or of both parts of a Two, as sum_t.
// - by_leaves(on): whether sums on the CPU are those of docs/reproducible.md.
// - update(n, out, f, p...), update_sum(n, f, p...): as map() and sum(), for an
//   f that gets references to the elements of each p. Those that are not const
//   are stored again. Each p may be null.
// - copy(n, to, from), fill(n, to, value), put(to, value), get(from).
// - sync(): call it between a read of an element and a change of the element.
// - fast<T>(): the row's fast memory, of the size passed to rows(), 16-byte
//   aligned. It contains whatever the previous row left there.
// The f of map, map_two, sum and the updates is generic: on a GPU, x is the
// value of an element, in its compute type; on the CPU, a register of such
// values (vec.h), or one value in a map() of integers or of several compute
// types. Only GPUs have map_at(n, out, f, in...): its f gets j first.
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
// Stream and Device are those of device.h. On a GPU, the functions return
// before the work has run.
#pragma once
#include <cstdint>

#include "dtensor/device/device.h"
#include "dtensor/device/values.h"

#if defined(__CUDACC__) || defined(DT_CUDA_EMULATED)
#define DT_BODY [=] __device__
#define DT_PORTABLE on_cuda
#include "dtensor/ops/kernels/portable/cuda_executor.cuh"  // IWYU pragma: export
#else
#define DT_BODY [=]
#define DT_PORTABLE on_host
#include "dtensor/ops/kernels/portable/host_executor.h"  // IWYU pragma: export
#endif

namespace dtensor::portable {

// Operators for reduce(). They have to be commutative; on each kind of device,
// the order in which values are combined depends only on sizes.
struct Sum {
  template <class A>
  DT_HD A operator()(const A& a, const A& b) const {
    return a + b;
  }
};
// The result of Max or Min is NaN if an operand is.
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
