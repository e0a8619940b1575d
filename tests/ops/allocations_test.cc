// SPDX-License-Identifier: Apache-2.0
// The pieces of memory that a warm call asks for.
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
// Inlined on its own, GCC takes it for the free() of another operator new.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { operator delete(p); }

namespace dtensor {
namespace {

// Those of one call of fn, after some that make decisions.
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
