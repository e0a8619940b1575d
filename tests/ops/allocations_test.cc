// SPDX-License-Identifier: Apache-2.0
// Counts the allocations (operator new) of calls whose Decision
// (ops/decision.h) is cached.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/runtime.h"
#include "tests/nothrow_new.h"

namespace {
thread_local int64_t allocations = 0;
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
// noinline: if GCC inlines only this delete, it warns that free() gets memory
// that another operator new allocated.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { operator delete(p); }

namespace dtensor {
namespace {

// The allocations of one call of fn, after three calls that fill the caches.
template <class Fn>
int64_t allocations_of(Fn&& fn) {
  for (int i = 0; i < 3; ++i) fn();
  const int64_t before = allocations;
  fn();
  return allocations - before;
}

TEST(Allocations, OfAWarmCall) {
  run(1, [&](Runtime& rt) {
    const DistTensor x = ones({8, 8}, rt.mesh({{"dp", 1}})).set_requires_grad();
    // The result and its storage.
    const DistTensor y = x.detach();
    EXPECT_EQ(allocations_of([&] { mul(y, 2.0); }), 2);
    // The list of gradients, four results with their storage, a view and two
    // nodes.
    EXPECT_EQ(allocations_of([&] { grad(sum(mul(x, 2.0)), {x}); }), 12);
  });
}

}  // namespace
}  // namespace dtensor
