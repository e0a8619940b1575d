// What cuBLASLt is told, with another one in its place: it multiplies on the
// host, refuses what the manual says is refused, and its algorithms take the
// time that a test gives them.
#include "dtensor/ops/kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/reference.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/device/cuda/launch.h"
#include "tests/cuda/random_gemm.h"

namespace dtensor {
namespace {

struct World {
  // Of each algorithm; 0: it fails when it is run.
  std::vector<float> times = {3, 1, 0, 2};
  bool capturing = false;
  bool memory = true;
  bool epilogues = true;  // has an algorithm for them

  float clock = 0;
  int syncs = 0, products = 0, last_algorithm = -1;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  uint32_t alignment[4] = {}, schemes = 0;
  std::set<const void*> workspaces, handles;
  std::set<cublasLtEpilogue_t> done;
};
World world;

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

}  // namespace

// Stands in for the device's.
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
size_t cublasLtGetVersion() { return 1; }
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
  *found = std::min(most, static_cast<int>(world.times.size()));
  if (!world.epilogues && dtensor::read<dtensor::LtProduct>(product).epilogue !=
                              CUBLASLT_EPILOGUE_DEFAULT)
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
  // What the manual says of epilogues.
  const auto aligned = [](const void* p) {
    return p && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  };
  if ((p.has_bias() || p.has_sum()) && !aligned(p.bias))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.has_aux() && (!aligned(p.aux) || p.aux_ld % 8 || p.aux_ld < lc.rows ||
                      (lc.count > 1 && (p.aux_next % 8 || p.aux_next == 0))))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      (get(beta, 0, p.scale) != 0 || lc.type != la.type ||
       lc.type == CUDA_R_64F || (p.has_sum() && lc.count != 1)))
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
        // Where nothing is kept nothing is read.
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
cudaError_t cudaGetLastError() { return cudaSuccess; }

}  // extern "C"

namespace dtensor::kernels::cuda {
namespace {

class CublasLtTest : public testing::Test {
 protected:
  CublasLtTest() { world = World(); }
};

Stream stream(uintptr_t i) { return {reinterpret_cast<void*>(i)}; }

// n x n x n of f32, contiguous, on memory of its own.
struct Square {
  explicit Square(int64_t n)
      : a(static_cast<size_t>(n * n + 1), 1),
        b(static_cast<size_t>(n * n + 1), 1),
        c(static_cast<size_t>(n * n + 1), 5) {
    g.m = g.n = g.k = g.a_m = g.b_k = g.c_m = n;
    g.a_k = g.b_n = g.c_n = 1;
    g.a = a.data(), g.b = b.data(), g.c = c.data();
  }
  bool run(uintptr_t on = 1) {
    return cublaslt_gemm(stream(on), DType::kF32, DType::kF32, g);
  }
  std::vector<float> a, b, c;
  Gemm g;
};

cudaDataType cuda_type(DType t) {
  return t == DType::kF32   ? CUDA_R_32F
         : t == DType::kF64 ? CUDA_R_64F
                            : CUDA_R_16BF;
}

TEST_F(CublasLtTest, IsTheProduct) {
  std::mt19937 rng(2);
  const std::pair<DType, DType> types[] = {{DType::kF32, DType::kF32},
                                           {DType::kF64, DType::kF64},
                                           {DType::kBF16, DType::kBF16},
                                           {DType::kBF16, DType::kF32}};
  int taken = 0, left_alone = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto [in, out] = types[rng() % 4];
    const RandomGemm random(rng);
    Gemm g = random.g;
    // -1, 0 and 1, whose sums are whole numbers in any type.
    const auto values = [&](int64_t n) {
      std::vector<double> v(static_cast<size_t>(n));
      for (double& x : v) x = static_cast<double>(rng() % 3) - 1;
      return v;
    };
    const auto as = [&](const std::vector<double>& v, DType t) {
      std::vector<double> bytes(v.size());  // at least as many
      for (size_t j = 0; j < v.size(); ++j)
        set(bytes.data(), static_cast<int64_t>(j), cuda_type(t), v[j]);
      return bytes;
    };
    const auto a = values(random.a_size), b = values(random.b_size);
    auto want = values(random.c_size);
    const auto a_in = as(a, in), b_in = as(b, in);
    auto c_out = as(want, out);
    const auto before = c_out;
    g.a = a_in.data(), g.b = b_in.data(), g.c = c_out.data();
    if (!cublaslt_gemm(stream(1), in, out, g)) {
      ++left_alone;
      ASSERT_EQ(0, memcmp(before.data(), c_out.data(), before.size() * 8));
      continue;
    }
    ++taken;
    g.a = a.data(), g.b = b.data(), g.c = want.data();
    reference::gemm(g);
    for (int64_t j = 0; j < random.c_size; ++j)
      ASSERT_EQ(get(c_out.data(), j, cuda_type(out)),
                want[static_cast<size_t>(j)])
          << "case " << i << ", element " << j;
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(left_alone, 100);
  EXPECT_EQ(cublaslt_declined(), 0);
}

constexpr Epilogue::Kind kEpilogues[] = {Epilogue::kBias, Epilogue::kGeluTanh,
                                         Epilogue::kSumB};

// Of whole numbers, so that any type has their sums.
TEST_F(CublasLtTest, EpiloguesAreDoneOrLeftAlone) {
  std::mt19937 rng(3);
  int taken = 0, left_alone = 0;
  for (int i = 0; i < 6000; ++i) {
    const DType t =
        std::array{DType::kF32, DType::kF64, DType::kBF16}[rng() % 3];
    const cudaDataType type = cuda_type(t);
    Gemm g;
    g.epilogue.kind = kEpilogues[rng() % 3];
    const bool sums = g.epilogue.kind == Epilogue::kSumB;
    const auto one_of = [&](std::initializer_list<int64_t> sizes) {
      return sizes.begin()[rng() % sizes.size()];
    };
    g.m = one_of({1, 3, 8}), g.n = one_of({1, 3, 8, 16}),
    g.k = one_of({1, 2, 5});
    OperandLayout a(rng), b(rng);
    std::vector<std::pair<int64_t, int64_t*>> c;
    const int dims = static_cast<int>(rng() % 3);
    g.batch = g.a_batch_strides = g.b_batch_strides = g.c_batch_strides =
        Shape::filled(dims, 0);
    for (int d = 0; d < dims; ++d) {
      g.batch[d] = one_of({1, 2, 3});
      a.add(g.batch[d], g.a_batch_strides[d]);
      if (sums || rng() % 2) b.add(g.batch[d], g.b_batch_strides[d]);
      if (!sums) c.push_back({g.batch[d], &g.c_batch_strides[d]});
    }
    a.add(g.m, g.a_m), a.add(g.k, g.a_k);
    b.add(g.k, g.b_k), b.add(g.n, g.b_n);
    // Mostly as an operator's output lies.
    c.push_back({g.m, &g.c_m}), c.push_back({g.n, &g.c_n});
    if (rng() % 4 == 0) std::shuffle(c.begin(), c.end(), rng);
    int64_t c_size = 1;
    for (size_t d = c.size(); d-- > 0;) {
      *c[d].second = c_size;
      c_size *= c[d].first;
    }
    const auto values = [&](int64_t n) {
      std::vector<double> v(static_cast<size_t>(n));
      for (double& x : v) x = static_cast<double>(rng() % 3) - 1;
      return v;
    };
    const auto va = values(a.lay_out()), vb = values(b.lay_out()),
               bias = values(g.n);
    std::vector<double> c64(static_cast<size_t>(c_size), 7),
        aux64 = c64, sum64(static_cast<size_t>(g.n), 7);
    // At an address that is a multiple of 16, or is not.
    const auto as = [&](const std::vector<double>& v, const int64_t off) {
      std::vector<double> bytes(v.size() + 2);
      for (size_t j = 0; j < v.size(); ++j)
        set(bytes.data(), static_cast<int64_t>(j) + off, type, v[j]);
      return bytes;
    };
    const int64_t off = rng() % 4 == 0;
    const auto in_a = as(va, 0), in_b = as(vb, 0), in_bias = as(bias, off);
    auto out = as(c64, 0), out_aux = as(aux64, off), out_sum = as(sum64, off);
    const auto at = [&](std::vector<double>& v) {
      return reinterpret_cast<char*>(v.data()) + off * size_of(t);
    };
    const bool no_bias =
        g.epilogue.kind == Epilogue::kGeluTanh && rng() % 2 == 0;
    g.a = in_a.data(), g.b = in_b.data(), g.c = out.data();
    g.epilogue.bias =
        no_bias ? nullptr : at(const_cast<std::vector<double>&>(in_bias));
    g.epilogue.aux = at(out_aux), g.epilogue.b_sum = at(out_sum);
    const auto before = out, before_aux = out_aux, before_sum = out_sum;
    if (!cublaslt_gemm(stream(1), t, t, g)) {
      ++left_alone;
      ASSERT_EQ(before, out);
      ASSERT_EQ(before_aux, out_aux);
      ASSERT_EQ(before_sum, out_sum);
      continue;
    }
    ++taken;
    g.a = va.data(), g.b = vb.data(), g.c = c64.data();
    g.epilogue.bias = no_bias ? nullptr : bias.data();
    g.epilogue.aux = aux64.data(), g.epilogue.b_sum = sum64.data();
    reference::gemm(g);
    const auto expect = [&](const std::vector<double>& got, int64_t off,
                            const std::vector<double>& want) {
      for (size_t j = 0; j < want.size(); ++j)
        ASSERT_NEAR(get(got.data(), static_cast<int64_t>(j) + off, type),
                    want[j], 0.01 * std::abs(want[j]))
            << "case " << i << ", epilogue " << int{g.epilogue.kind}
            << ", element " << j;
    };
    expect(out, 0, c64);
    expect(out_aux, off, aux64);
    expect(out_sum, off, sum64);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(taken, 500);
  EXPECT_GT(left_alone, 500);
  EXPECT_EQ(world.done,
            (std::set{CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX,
                      CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_BGRADA,
                      CUBLASLT_EPILOGUE_BGRADB}));
}

// A layer of a model, [64, 32] times [32, 128], contiguous.
struct Layer {
  explicit Layer(Epilogue::Kind kind, bool row_major = true) {
    g.m = 64, g.n = 128, g.k = 32;
    g.a_m = 32, g.a_k = 1;
    g.b_k = 1, g.b_n = 32;
    g.c_m = row_major ? 128 : 1, g.c_n = row_major ? 1 : 64;
    g.a = memory[0], g.b = memory[1], g.c = memory[2];
    g.epilogue = {kind, memory[3], memory[4], memory[5]};
  }
  bool run(DType t) { return cublaslt_gemm(stream(1), t, t, g); }
  Gemm g;
  alignas(64) static inline double memory[6][64 * 128];
};

TEST_F(CublasLtTest, ALayerOfAModelIsOneCall) {
  for (DType t : {DType::kBF16, DType::kF16})
    for (Epilogue::Kind kind : kEpilogues) EXPECT_TRUE(Layer(kind).run(t));
  EXPECT_TRUE(Layer(Epilogue::kBias).run(DType::kF32));
  EXPECT_TRUE(Layer(Epilogue::kSumB).run(DType::kF32));
  // The bias of a column; an approximation of gelu; no kernels.
  EXPECT_FALSE(Layer(Epilogue::kBias, false).run(DType::kBF16));
  EXPECT_FALSE(Layer(Epilogue::kGeluTanh).run(DType::kF32));
  EXPECT_FALSE(Layer(Epilogue::kBias).run(DType::kF64));
  Layer once(Epilogue::kBias);
  world.products = 0;
  ASSERT_TRUE(once.run(DType::kBF16));
  EXPECT_EQ(world.products, 1);
}

TEST_F(CublasLtTest, WithoutAnAlgorithmForTheEpilogueTheProductIsLeft) {
  world.epilogues = false;
  const int64_t before = cublaslt_declined();
  Layer layer(Epilogue::kBias);
  layer.g.m = 63;
  EXPECT_FALSE(layer.run(DType::kBF16));
  EXPECT_EQ(world.products, 0);
  EXPECT_EQ(cublaslt_declined(), before);
  layer.g.epilogue = {};
  EXPECT_TRUE(layer.run(DType::kBF16));
}

TEST_F(CublasLtTest, TheFastestIsKeptForAllStreams) {
  Square square(10);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.last_algorithm, 1);
  EXPECT_EQ(world.syncs, 1);
  world.products = 0;
  world.times = {1, 9, 1, 1};
  Square again(10);
  ASSERT_TRUE(again.run(2));
  EXPECT_EQ(world.last_algorithm, 1);
  EXPECT_EQ(world.syncs, 1);
  EXPECT_EQ(world.products, 1);
  EXPECT_EQ(world.workspaces.size(), 2u) << "one for each stream";
}

TEST_F(CublasLtTest, WhatIsAddedToIsAddedToOnce) {
  Square square(11);
  square.g.accumulate = true;
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.syncs, 1);
  EXPECT_EQ(square.c[0], 5 + 11);
  // Without memory to try it on: not timed.
  world.memory = false;
  Square other(12);
  other.g.accumulate = true;
  ASSERT_TRUE(other.run());
  EXPECT_EQ(world.syncs, 1);
  EXPECT_EQ(world.last_algorithm, 0);
  EXPECT_EQ(other.c[0], 5 + 12);
}

TEST_F(CublasLtTest, NothingIsTimedWhileAGraphIsCaptured) {
  world.capturing = true;
  Square square(13);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.syncs, 0);
  EXPECT_EQ(world.products, 1);
  EXPECT_EQ(world.last_algorithm, 0);
  world.capturing = false;
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.syncs, 0) << "equal calls give equal bits";
}

TEST_F(CublasLtTest, WithoutAnAlgorithmItIsAnothersWork) {
  world.times = {};
  Square square(14);
  EXPECT_FALSE(square.run());
  EXPECT_FALSE(square.run());
  EXPECT_EQ(cublaslt_declined(), 2);
  EXPECT_EQ(square.c[0], 5);
}

TEST_F(CublasLtTest, IsToldHowTheMatricesLie) {
  alignas(64) static float memory[3][1024];
  Gemm g;
  g.m = g.n = g.k = g.a_m = g.b_k = g.c_m = 16;
  g.a_k = g.b_n = g.c_n = 1;
  g.a = memory[0] + 1, g.b = memory[1] + 8, g.c = memory[2];
  ASSERT_TRUE(cublaslt_gemm(stream(1), DType::kF32, DType::kF32, g));
  // The transpose of c is that of b times that of a.
  EXPECT_EQ(world.alignment[0], 16u);
  EXPECT_EQ(world.alignment[1], 4u);
  EXPECT_EQ(world.alignment[2], 16u);
  EXPECT_EQ(world.alignment[3], 16u);
  EXPECT_EQ(world.schemes, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  // Of a batch: all of its matrices.
  g.a = memory[0];
  g.batch = {2};
  g.a_batch_strides = {258}, g.b_batch_strides = {256},
  g.c_batch_strides = {256};
  ASSERT_TRUE(cublaslt_gemm(stream(1), DType::kF32, DType::kF32, g));
  EXPECT_EQ(world.alignment[1], 8u);
}

TEST_F(CublasLtTest, Tf32IsAskedFor) {
  Square square(15);
  ASSERT_TRUE(square.run());
  EXPECT_EQ(world.compute, CUBLAS_COMPUTE_32F);
  allow_tf32(true);
  ASSERT_TRUE(square.run());
  allow_tf32(false);
  EXPECT_EQ(world.compute, CUBLAS_COMPUTE_32F_FAST_TF32);
}

}  // namespace
}  // namespace dtensor::kernels::cuda
