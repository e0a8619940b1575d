// SPDX-License-Identifier: Apache-2.0
// That the device under test has each kernel, and how a set of kernels is made.
#include "dtensor/ops/kernels/kernel_set.h"

#include <gtest/gtest.h>

#include "tests/dtensor/device/all_kernels.h"
#include "tests/ops/kernels/testing.h"
#include "tests/testing.h"

namespace dtensor::kernels {

// Kernels that no device has.
struct Nothing {
  int* at = nullptr;
};
struct Other {
  int* at = nullptr;
};
template <>
void link_kernel<Nothing>() {}
template <>
void link_kernel<Other>() {}

namespace {

using testing::error_of;

template <int value>
void put(Stream, const void* args) {
  *static_cast<const Nothing*>(args)->at = value;
}

TEST(KernelSet, TheDeviceHasEachKernel) {
  size_t count = 0;
#define DT_HAS(A)                                        \
  EXPECT_TRUE(under_test().has(kernel_name<A>())) << #A; \
  ++count;
  DT_KERNELS(DT_HAS)
#undef DT_HAS
  EXPECT_FALSE(under_test().has(kernel_name<Nothing>()));
  // The list has each kernel of the device.
  if (const auto* all = dynamic_cast<const KernelSet*>(&under_test())) {
    EXPECT_EQ(all->size(), count);
  }
}

TEST(KernelSet, RunsTheFunctionThatWasSetLast) {
  KernelSet set;
  set.set(kernel_name<Nothing>(), put<1>);
  EXPECT_TRUE(set.has(kernel_name<Nothing>()));
  EXPECT_FALSE(set.has(kernel_name<Other>()));
  int here = 0;
  set.run({}, Nothing{&here});
  EXPECT_EQ(here, 1);
  set.set(kernel_name<Nothing>(), put<2>);
  set.run({}, Nothing{&here});
  EXPECT_EQ(here, 2);
  EXPECT_EQ(set.size(), 1u);
}

TEST(KernelSet, NamesTheKernelThatIsMissing) {
  EXPECT_EQ(error_of([] { KernelSet().run({}, Other{}); }),
            "[kernels] this device has no kernel Other; run on another one");
}

TEST(KernelSet, KernelsWithOneHashAreRefused) {
  KernelSet set;
  const auto& name = kernel_name<Nothing>();
  set.set(name, put<1>);
  EXPECT_EQ(
      error_of([&] {
        set.set({name.hash, kernel_name<Other>().mangled}, put<2>);
      }),
      "[kernels] Nothing and Other have the same hash; rename one of them");
}

TEST(KernelSet, IsFullWithOneFreePlace) {
  KernelSet set;
  for (size_t i = 1; i < 128; ++i) set.set({i, "x"}, put<1>);
  EXPECT_EQ(set.size(), 127u);
  EXPECT_FALSE(set.has({1000, "y"}));
  EXPECT_EQ(error_of([&] {
              set.set({1000, "y"}, put<1>);
            }),
            "[kernels] there are more than 127 kernels; make kPlaces of "
            "KernelSet larger");
}

}  // namespace
}  // namespace dtensor::kernels
