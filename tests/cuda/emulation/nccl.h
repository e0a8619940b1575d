// SPDX-License-Identifier: Apache-2.0
// NCCL on the emulation of CUDA's runtime, as much of it as link.cc uses. The
// members are threads of one process, with a GPU each. Calls do not block: a
// communicator is ncclInProgress until it has been asked twice, and only then
// does its stream get the work. The work runs when the other members' work is
// there, on the operands where they lie: a GPU that reaches another GPU's
// memory reads it itself, and fails if it touches memory that it may not touch.
//
// If calls do not fit together, where NCCL would hang or mix things up, all
// members return ncclInvalidUsage.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

#define NCCL_VERSION_CODE 22809

enum ncclResult_t {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress
};
enum ncclDataType_t {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclFloat16,
  ncclFloat32,
  ncclFloat64,
  ncclBfloat16
};
enum ncclRedOp_t { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg };

using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1 }

const char* ncclGetErrorString(ncclResult_t);
const char* ncclGetLastError(ncclComm_t);

ncclResult_t ncclGetUniqueId(ncclUniqueId*);
ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int size, ncclUniqueId,
                                    int rank, ncclConfig_t*);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllGather(const void* in, void* out, size_t count,
                           ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count,
                               ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count,
                           ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t);
ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t, int peer,
                      ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void*, size_t count, ncclDataType_t, int peer, ncclComm_t,
                      cudaStream_t);
