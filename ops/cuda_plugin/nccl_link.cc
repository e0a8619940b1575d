// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "dtensor/comm/nccl/link.h"
#include "dtensor/ops/cuda_plugin/launch.cuh"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// How long members wait for each other when they destroy a link.
constexpr std::chrono::seconds kGoodbye{10};

// NCCL's calls return at once. A call that is still in progress has not failed.
void check(ncclResult_t result, ncclComm_t comm, std::string_view what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail("nccl", "{} failed: NCCL says {} ({}); NCCL_DEBUG=INFO shows more", what,
       ncclGetErrorString(result), ncclGetLastError(comm));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kBool:
    case DType::kI8:
      return ncclUint8;
    case DType::kExact:
      break;
  }
  fail("nccl", "NCCL does not have dtype {}; cast to another one",
       static_cast<int>(dtype));
}

// Handles all reductions that check_reducible() accepts. For bytes that are 0
// or 1, `any` is the maximum, and `all` and the product are the minimum.
ncclRedOp_t op_of(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kAvg:
      return ncclAvg;
    case ReduceOp::kProd:
      return dtype == DType::kBool ? ncclMin : ncclProd;
    case ReduceOp::kMax:
    case ReduceOp::kAny:
      return ncclMax;
    case ReduceOp::kMin:
    case ReduceOp::kAll:
      return ncclMin;
    default:
      fail("nccl",
           "NCCL has no reduction {}; write sum, avg, max, min, prod, any or "
           "all",
           name(op));
  }
}

class Link final : public NcclLink {
 public:
  Link(const ncclUniqueId& id, int size, int rank, Stream stream) {
    cuda::enter(stream);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check(ncclCommInitRankConfig(&comm_, size, id, rank, &config), nullptr,
          "linking a group");
  }
  ~Link() override {
    if (!comm_) return;
    // Errors are not reported any more: the host has waited for earlier work,
    // or that work has failed. Other members may be gone and not answer. A link
    // that has failed, or has not settled within kGoodbye, is aborted, because
    // ncclCommDestroy() would wait forever, or refuse and leak memory.
    ncclResult_t state = ncclCommFinalize(comm_);
    const auto end = std::chrono::steady_clock::now() + kGoodbye;
    while (state == ncclInProgress && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
    }
    if (state == ncclSuccess)
      (void)ncclCommDestroy(comm_);
    else
      (void)ncclCommAbort(comm_);
  }

  bool settled() override {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), comm_, "querying errors");
    check(state, comm_, "communication");
    return state != ncclInProgress;
  }

  void all_gather(Stream s, const void* in, void* out, int64_t bytes) override {
    check(ncclAllGather(in, out, static_cast<size_t>(bytes), ncclUint8, comm_,
                        cuda::enter(s)),
          comm_, "all-gather");
  }
  void reduce_scatter(Stream s, ReduceOp op, DType dtype, const void* in,
                      void* out, int64_t n) override {
    check(ncclReduceScatter(in, out, static_cast<size_t>(n), type_of(dtype),
                            op_of(op, dtype), comm_, cuda::enter(s)),
          comm_, "reduce-scatter");
  }
  void all_reduce(Stream s, ReduceOp op, DType dtype, void* data,
                  int64_t n) override {
    check(ncclAllReduce(data, data, static_cast<size_t>(n), type_of(dtype),
                        op_of(op, dtype), comm_, cuda::enter(s)),
          comm_, "all-reduce");
  }

  void begin_group() override {
    check(ncclGroupStart(), comm_, "a group of calls");
  }
  void end_group() override {
    check(ncclGroupEnd(), comm_, "a group of calls");
  }
  void drop_group() noexcept override { (void)ncclGroupEnd(); }
  void send(Stream s, const void* data, int64_t bytes, int to) override {
    check(ncclSend(data, static_cast<size_t>(bytes), ncclUint8, to, comm_,
                   cuda::enter(s)),
          comm_, "send");
  }
  void receive(Stream s, void* data, int64_t bytes, int from) override {
    check(ncclRecv(data, static_cast<size_t>(bytes), ncclUint8, from, comm_,
                   cuda::enter(s)),
          comm_, "receive");
  }

  void abort() noexcept override {
    if (comm_) (void)ncclCommAbort(comm_);
    comm_ = nullptr;
  }

 private:
  ncclComm_t comm_ = nullptr;
};

class Library final : public NcclLibrary {
 public:
  Gpu gpu(Stream stream) override {
    cuda::enter(stream);
    int index = 0;
    cuda::check(cudaGetDevice(&index), "querying the device of a stream");
    cudaDeviceProp properties;
    cuda::check(cudaGetDeviceProperties(&properties, index),
                "querying the properties of a device");
    static_assert(sizeof(properties.uuid.bytes) == std::tuple_size_v<Gpu>);
    Gpu gpu;
    std::memcpy(gpu.data(), properties.uuid.bytes, gpu.size());
    // NCCL also distinguishes GPUs by host, and the user may name the host.
    if (const char* host = std::getenv("NCCL_HOSTID"))
      for (size_t i = 0; host[i]; ++i) gpu[i % gpu.size()] ^= host[i];
    return gpu;
  }
  Id make_id() override {
    static_assert(sizeof(ncclUniqueId) == std::tuple_size_v<Id>);
    ncclUniqueId made;
    check(ncclGetUniqueId(&made), nullptr, "making a group id");
    Id id;
    std::memcpy(id.data(), &made, sizeof(made));
    return id;
  }
  std::unique_ptr<NcclLink> link(const Id& id, int size, int rank,
                                 Stream stream) override {
    ncclUniqueId made;
    std::memcpy(&made, id.data(), sizeof(made));
    return std::make_unique<Link>(made, size, rank, stream);
  }
};

}  // namespace

NcclLibrary& nccl_library() {
  // Never destroyed, like devices.
  static auto* const library = new Library;
  return *library;
}

}  // namespace dtensor
