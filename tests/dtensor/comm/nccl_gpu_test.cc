// SPDX-License-Identifier: Apache-2.0
// NCCL itself, where there is a GPU: a member alone, and a rank on each GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm/nccl.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/gpu.h"
#include "tests/dtensor/message_passing.h"

namespace dtensor {
namespace {

class NcclGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!gpu()) GTEST_SKIP() << no_gpu();
  }
};

// Waits until the link has done with the last call.
void settle(NcclLink& link) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!link.settled()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_F(NcclGpu, AMemberAloneKeepsWhatItHas) {
  Device& device = *gpu();
  const Stream s = device.open_stream();
  const std::unique_ptr<NcclLink> link =
      cuda_nccl().link(cuda_nccl().make_id(), 1, 0, s);
  settle(*link);
  const std::vector<float> values = {1, -2, 3.5, 4};
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  void *a = device.allocate(bytes, s), *b = device.allocate(bytes, s);
  const auto read = [&](const void* from) {
    std::vector<float> host(values.size());
    device.to_host(s, host.data(), from, bytes);
    return host;
  };
  device.from_host(s, a, values.data(), bytes);
  link->all_gather(s, a, b, bytes);
  settle(*link);
  EXPECT_EQ(read(b), values);
  device.from_host(s, b, std::vector<float>(4).data(), bytes);
  link->reduce_scatter(s, ReduceOp::kSum, DType::kF32, a, b, 4);
  settle(*link);
  EXPECT_EQ(read(b), values);
  link->all_reduce(s, ReduceOp::kMax, DType::kF32, b, 4);
  settle(*link);
  EXPECT_EQ(read(b), values);
  device.release(a, bytes, s);
  device.release(b, bytes, s);
}

// NCCL takes one GPU for two if two processes say that they are on different
// hosts.
TEST_F(NcclGpu, AnotherHostHasOtherGpus) {
  const Stream s = gpu()->open_stream();
  const auto of_host = [&](const char* name) {
    setenv("NCCL_HOSTID", name, 1);
    const NcclLibrary::Gpu gpu = cuda_nccl().gpu(s);
    unsetenv("NCCL_HOSTID");
    return gpu;
  };
  EXPECT_EQ(cuda_nccl().gpu(s), of_host(""));
  EXPECT_NE(cuda_nccl().gpu(s), of_host("a"));
  EXPECT_EQ(of_host("a"), of_host("a"));
  EXPECT_NE(of_host("a"), of_host("b"));
}

// Moves a tensor between all layouts, with a rank on each GPU. Its sums are
// exact in any order.
void move_on_each(const BackendFactory& backend) {
  const int64_t n = cuda_devices();
  constexpr const char* kLayouts[] = {"R", "S0", "S1", "P", "P(max)"};
  std::vector<float> values(7 * 8);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) - 11;
  RunOptions options;
  options.world = n;
  options.backend = backend;
  options.device = [](int64_t rank) -> Device& {
    return cuda(static_cast<int>(rank));
  };
  run(options, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const Tensor whole = Tensor::from({7, 8}, values.data());
    for (const char* from : kLayouts)
      for (const char* to : kLayouts) {
        const DistTensor x = DistTensor::from_global(whole, mesh, "R")
                                 .redistribute(from)
                                 .redistribute(to);
        EXPECT_EQ(x.full().to_doubles(),
                  std::vector<double>(values.begin(), values.end()))
            << from << " to " << to << " on " << n << " GPUs";
      }
  });
}

TEST_F(NcclGpu, ARankOnEachMovesAsTheCpuDoes) {
  move_on_each(
      [](int64_t world) { return nccl_backend(world, world, nullptr); });
}

// The ranks agree by messages, as ranks of different processes do.
TEST_F(NcclGpu, AsDoProcesses) {
  move_on_each([](int64_t world) {
    return testing::backend_over_messages(
        world, 1, [](int64_t all, int64_t ranks, ProcessJob* job) {
          return nccl_backend(all, ranks, job);
        });
  });
}

}  // namespace
}  // namespace dtensor
