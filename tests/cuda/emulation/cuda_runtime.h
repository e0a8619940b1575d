// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime on the host, without a GPU or a toolkit. It has as much as
// dtensor's plugin and kernels use, and each call does what NVIDIA's manual
// says. Environment variables:
//   CUDA_EMULATION_DEVICES=n     the number of GPUs; 2 unless set
//   CUDA_EMULATION_MEMORY=bytes  the memory of each GPU; 2 GiB unless set
//   CUDA_EMULATION_DRIVER=12080  the driver knows CUDA 12.8; CUDART_VERSION
//                                unless set
//   CUDA_EMULATION_FAILS=1:500   GPU 1 fails at its 500th piece of work
//   CUDA_EMULATION_APART=01,10   GPU 0 does not reach the memory of GPU 1, and
//                                GPU 1 does not reach that of GPU 0
//
// A stream's work runs in order, and as late as possible: when the host waits
// for the stream, or for another stream that waits for it, or when the host has
// given nothing for a while. So if a wait is missing, a program computes with
// results that do not exist yet. New and freed memory is full of NaNs once the
// stream has reached the allocation or the free.
//
// On standard error, a program prints each free of memory that it does not have
// and, at its end, what it has not freed.
//
// While no work runs, a host that touches a GPU's memory dies with a message. A
// GPU that touches memory of another GPU whose pool grants it no access, or
// memory that does not exist, fails with cudaErrorIllegalAddress.
//
// The emulation does not notice:
// - a host that touches a GPU's memory while that GPU, or one that reaches its
//   memory, runs something (one piece of work runs at a time);
// - a GPU that touches memory of the host, pinned or not;
// - a GPU that touches its own memory where none is allocated, unless NaNs show
//   it (only the first 64 MiB are filled with them); --config=asan does notice;
// - a missing order of two pieces of work that run in the right order all the
//   same (equal calls of one thread always give the same order);
// - the effects of a GPU's memory model, caches, limits of registers and
//   (except with --config=ubsan) alignment on a kernel.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "tests/cuda/emulation/block.h"

#define CUDART_VERSION 13000

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorECCUncorrectable = 214,
  cudaErrorNvlinkUncorrectable = 220,
  cudaErrorContained = 226,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchTimeout = 702,
  cudaErrorAssert = 710,
  cudaErrorHardwareStackError = 714,
  cudaErrorIllegalInstruction = 715,
  cudaErrorMisalignedAddress = 716,
  cudaErrorInvalidAddressSpace = 717,
  cudaErrorInvalidPc = 718,
  cudaErrorLaunchFailure = 719,
  cudaErrorTensorMemoryLeak = 721,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
  cudaErrorUnknown = 999
};
const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetLastError();

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaMemPool_t = struct CUmemPoolHandle_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;

// Devices.
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
};
cudaError_t cudaDriverGetVersion(int*);
cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDevice(int*);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceSynchronize();

// Memory.
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaMemPoolAttr {
  cudaMemPoolReuseAllowInternalDependencies = 3,
  cudaMemPoolAttrReleaseThreshold = 4,
  cudaMemPoolAttrReservedMemCurrent = 5,
  cudaMemPoolAttrUsedMemCurrent = 7
};
enum cudaMemLocationType {
  cudaMemLocationTypeInvalid,
  cudaMemLocationTypeDevice
};
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
enum cudaMemAccessFlags {
  cudaMemAccessFlagsProtNone,
  cudaMemAccessFlagsProtRead,
  cudaMemAccessFlagsProtReadWrite = 3
};
struct cudaMemAccessDesc {
  cudaMemLocation location;
  cudaMemAccessFlags flags;
};
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMallocHost(void**, size_t bytes);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaMallocAsync(void**, size_t bytes, cudaStream_t);
cudaError_t cudaFreeAsync(void*, cudaStream_t);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t bytes);
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*,
                                 size_t n);

// Streams and events.
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);

// Graphs.
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus*,
                                     unsigned long long* id);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);

// Kernels.
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int);
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace emulation {

cudaError_t launch(const cudaLaunchConfig_t&, const void* kernel,
                   std::function<void()> body);
// Runs `body` as a kernel without threads of its own.
cudaError_t launch(cudaStream_t, std::function<void()> body);

}  // namespace emulation

template <class... Parameters, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c,
                               void (*kernel)(Parameters...), Args&&... args) {
  return emulation::launch(
      *c, reinterpret_cast<const void*>(kernel),
      [kernel, ... all = Parameters(std::forward<Args>(args))] {
        kernel(all...);
      });
}
