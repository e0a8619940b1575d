// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/fake_cublaslt.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "dtensor/ops/cuda_plugin/launch.cuh"
#include "dtensor/placement/error.h"
#include "tests/ops/reference.h"

namespace dtensor {

World world;

namespace {

struct LtMatrix {
  cudaDataType type;
  int32_t count = 1;
  int64_t rows, cols, ld, next = 0;
};
struct LtProduct {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t op[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *bias = nullptr, *aux = nullptr;
  int64_t aux_ld = 0, aux_next = 0;
  bool has_aux() const { return epilogue & 128; }
  bool has_bias() const { return epilogue & 4; }
  bool has_sum() const { return epilogue & (256 | 512); }
};
static_assert(sizeof(LtMatrix) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(LtProduct) <= sizeof(cublasLtMatmulDescOpaque_t));
template <class T, class Opaque>
T read(const Opaque* from) {
  T t;
  memcpy(static_cast<void*>(&t), from, sizeof t);
  return t;
}
template <class T, class Opaque>
void write(Opaque* to, const T& t) {
  memcpy(static_cast<void*>(to), &t, sizeof t);
}

}  // namespace

double get(const void* p, int64_t i, cudaDataType type) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(p)[i];
    case CUDA_R_32F:
      return static_cast<const float*>(p)[i];
    default:
      return static_cast<float>(static_cast<const bf16*>(p)[i]);
  }
}
void set(void* p, int64_t i, cudaDataType type, double x) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(p)[i] = x;
      break;
    case CUDA_R_32F:
      static_cast<float*>(p)[i] = static_cast<float>(x);
      break;
    default:
      static_cast<bf16*>(p)[i] = bf16(static_cast<float>(x));
  }
}

// Replace the functions of the CUDA device.
cudaStream_t cuda::enter(Stream s) {
  return static_cast<cudaStream_t>(s.handle);
}
void cuda::check(cudaError_t e, const char* what) {
  DT_CHECK(e == cudaSuccess, what, "error {}", static_cast<int>(e));
}

}  // namespace dtensor

using dtensor::world;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = reinterpret_cast<cublasLtHandle_t>(&world);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "no"; }
size_t cublasLtGetVersion() { return world.version; }
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t to,
                                                 size_t, cudaDataType type,
                                                 uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  dtensor::write(to, dtensor::LtMatrix{type, 1, static_cast<int64_t>(rows),
                                       static_cast<int64_t>(cols), ld, 0});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t to, cublasLtMatrixLayoutAttribute_t what,
    const void* value, size_t bytes) {
  auto layout = dtensor::read<dtensor::LtMatrix>(to);
  if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == 4)
    memcpy(&layout.count, value, bytes);
  else if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == 8)
    memcpy(&layout.next, value, bytes);
  else
    return CUBLAS_STATUS_INVALID_VALUE;
  dtensor::write(to, layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t to, size_t,
                                               cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  world.compute = compute;
  dtensor::write(to, dtensor::LtProduct{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t what,
    const void* value, size_t bytes) {
  auto product = dtensor::read<dtensor::LtProduct>(to);
  void* field = nullptr;
  size_t size = 8;
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
      field = &product.op[what == CUBLASLT_MATMUL_DESC_TRANSB];
      size = 4;
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      field = &product.epilogue;
      size = 4;
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      field = &product.bias;
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      field = &product.aux;
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      field = &product.aux_ld;
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      field = &product.aux_next;
      break;
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(field, value, bytes);
  dtensor::write(to, product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t,
                                                     size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t what,
    const void* value, size_t bytes) {
  const bool wide = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (wide ? 8 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
  if (wide) return CUBLAS_STATUS_SUCCESS;
  uint32_t x;
  memcpy(&x, value, 4);
  if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    world.schemes = x;
  else
    world.alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = x;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t, int most, cublasLtMatmulHeuristicResult_t* to,
    int* found) {
  constexpr int kMost = 8;
  *found = std::min({most, kMost, static_cast<int>(world.times.size())});
  const auto p = dtensor::read<dtensor::LtProduct>(product);
  const bool tn = p.op[0] == CUBLAS_OP_T && p.op[1] == CUBLAS_OP_N;
  if ((p.has_sum() && tn) ||
      (!world.epilogues && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT))
    *found = 0;
  for (int i = 0; i < *found; ++i) {
    to[i] = {};
    to[i].algo.data[0] = static_cast<uint64_t>(i);
  }
  return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout,
                              void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t, cudaStream_t) {
  using dtensor::get;
  const auto p = dtensor::read<dtensor::LtProduct>(product);
  const auto la = dtensor::read<dtensor::LtMatrix>(a_layout),
             lb = dtensor::read<dtensor::LtMatrix>(b_layout),
             lc = dtensor::read<dtensor::LtMatrix>(c_layout),
             ld = dtensor::read<dtensor::LtMatrix>(d_layout);
  for (const auto& l : {la, lb, lc, ld})
    if (l.ld < l.rows || l.count != lc.count)
      return CUBLAS_STATUS_INVALID_VALUE;
  const bool ta = p.op[0] == CUBLAS_OP_T, tb = p.op[1] == CUBLAS_OP_T;
  const int64_t k = ta ? la.rows : la.cols;
  if ((ta ? la.cols : la.rows) != lc.rows ||
      (tb ? lb.rows : lb.cols) != lc.cols || (tb ? lb.cols : lb.rows) != k)
    return CUBLAS_STATUS_INVALID_VALUE;
  // The manual's conditions for epilogues.
  const auto aligned = [](const void* p) {
    return p && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  };
  if ((p.has_bias() || p.has_sum()) && !aligned(p.bias))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.has_aux() && (!aligned(p.aux) || p.aux_ld % 8 || p.aux_ld < lc.rows ||
                      (lc.count > 1 && (p.aux_next % 8 || p.aux_next == 0))))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      (get(beta, 0, p.scale) != 0 || (p.has_sum() && lc.count != 1)))
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto chosen = static_cast<size_t>(algorithm->data[0]);
  world.last_algorithm = static_cast<int>(chosen);
  if (world.times[chosen] == 0) return CUBLAS_STATUS_EXECUTION_FAILED;
  world.clock += world.times[chosen];
  world.workspaces.insert(workspace);
  world.done.insert(p.epilogue);
  ++world.products;
  const auto left = [&](int64_t i, int64_t m, int64_t l) {
    return get(a, i * la.next + (ta ? l + m * la.ld : m + l * la.ld), la.type);
  };
  const auto right = [&](int64_t i, int64_t l, int64_t n) {
    return get(b, i * lb.next + (tb ? n + l * lb.ld : l + n * lb.ld), lb.type);
  };
  if (p.has_sum()) {
    const bool of_left = p.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (int64_t j = 0; j < (of_left ? lc.rows : lc.cols); ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += of_left ? left(0, j, l) : right(0, l, j);
      dtensor::set(p.bias, j, lc.type, sum);
    }
  }
  const double one = get(alpha, 0, p.scale), keep = get(beta, 0, p.scale);
  for (int64_t i = 0; i < lc.count; ++i)
    for (int64_t m = 0; m < lc.rows; ++m)
      for (int64_t n = 0; n < lc.cols; ++n) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) sum += left(i, m, l) * right(i, l, n);
        if (p.has_bias()) sum += get(p.bias, m, lc.type);
        if (p.has_aux()) {
          dtensor::set(p.aux, i * p.aux_next + m + n * p.aux_ld, lc.type, sum);
          sum = dtensor::kernels::reference::gelu_tanh(sum);
        }
        const int64_t at = i * lc.next + m + n * lc.ld;
        // If beta is 0, c is not read.
        const double old = keep == 0 ? 0 : keep * get(c, at, lc.type);
        dtensor::set(d, at, ld.type, one * sum + old);
      }
  return CUBLAS_STATUS_SUCCESS;
}

cudaError_t cudaMalloc(void** p, size_t) {
  *p = malloc(1);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t) {
  *p = malloc(bytes);
  if (world.memory) return cudaSuccess;
  free(*p);
  return cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
  free(p);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = reinterpret_cast<cudaEvent_t>(new float(0));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete reinterpret_cast<float*>(e);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t) {
  *reinterpret_cast<float*>(e) = world.clock;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* time, cudaEvent_t from,
                                 cudaEvent_t to) {
  *time = *reinterpret_cast<float*>(to) - *reinterpret_cast<float*>(from);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  ++world.syncs;
  return world.capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t,
                                  cudaStreamCaptureStatus* status) {
  *status = world.capturing ? cudaStreamCaptureStatusActive
                            : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* gpu, int) {
  *gpu = {};
  world.gpu.copy(gpu->name, sizeof gpu->name - 1);
  gpu->multiProcessorCount = world.multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

}  // extern "C"
