// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cuda/gemm.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtensor/ops/cuda_plugin/launch.cuh"
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"
#include "dtensor/ops/kernels/cuda/gemm_calls.h"
#include "dtensor/ops/kernels/cuda/gemm_choices.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor::kernels::cuda {
namespace {

using dtensor::cuda::captured;
using dtensor::cuda::check;

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // for each stream
constexpr int kCandidates = 16;  // to time; cuBLASLt 13.1 proposes at most 8
constexpr int kRuns = 3;         // timed runs of each
constexpr size_t kPlans = 4096;  // plans to keep

void check_lt(cublasStatus_t status, const char* what) {
  DT_CHECK(status == CUBLAS_STATUS_SUCCESS, "gemm",
           "cuBLASLt failed with {} for {} (version {}); set "
           "CUBLASLT_LOG_LEVEL=5 to see the calls",
           cublasLtGetStatusString(status), what, cublasLtGetVersion());
}

// Everything that the choice of an algorithm depends on.
struct Key {
  GemmCall call;
  DType in, out;
  bool tf32, tuned;
  int device;
  uint32_t left_align, right_align, c_align;
  cublasLtEpilogue_t epilogue;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    uint64_t h = hash_mix(static_cast<uint64_t>(k.call.count),
                          static_cast<uint64_t>(k.device));
    for (const ColumnMajor* x : {&k.call.left, &k.call.right, &k.call.c})
      for (int64_t v : {x->rows, x->cols, x->ld, x->next,
                        static_cast<int64_t>(x->transposed)})
        h = hash_mix(h, static_cast<uint64_t>(v));
    h = hash_mix(h, uint64_t{k.left_align} << 40 |
                        uint64_t{k.right_align} << 20 | k.c_align);
    return hash_mix(h, static_cast<uint64_t>(k.in) << 16 |
                           static_cast<uint64_t>(k.out) << 8 |
                           static_cast<uint64_t>(k.tf32) |
                           static_cast<uint64_t>(k.tuned) << 1 |
                           static_cast<uint64_t>(k.epilogue) << 32);
  }
};

struct Plan {
  bool possible = false;
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t left, right, c;
  cublasLtMatmulAlgo_t algorithm;
  cublasLtEpilogue_t epilogue;
};

// The operands of one call.
struct Matrices {
  const void *left, *right;
  void* c;
  bool accumulate;
  const void* bias;  // or the address to which its gradient goes
  void* aux;
};

// Never destroyed, because threads may end later than static variables.
class Library {
 public:
  cublasLtHandle_t handle(int device) {
    std::lock_guard lock(mutex_);
    cublasLtHandle_t& handle = handles_[device];
    if (!handle) check_lt(cublasLtCreate(&handle), "a handle");
    return handle;
  }
  // One for each stream, because products of two streams run at the same time.
  void* workspace(cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    void*& block = workspaces_[stream];
    if (!block) {
      // If the stream is being captured, the graph must not own this memory.
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      check(cudaThreadExchangeStreamCaptureMode(&mode), "gemm");
      const cudaError_t error = cudaMalloc(&block, kWorkspaceBytes);
      check(cudaThreadExchangeStreamCaptureMode(&mode), "gemm");
      check(error, "allocation of cuBLASLt's workspace");
    }
    return block;
  }
  std::optional<Plan> find(const Key& key) {
    std::lock_guard lock(mutex_);
    const Plan* plan = plans_.find(key);
    return plan ? std::optional(*plan) : std::nullopt;
  }
  GemmChoices& choices() { return choices_; }
  // Keeps the plan; returns it, or the one that another thread kept first.
  Plan keep(const Key& key, const Plan& plan) {
    std::lock_guard lock(mutex_);
    if (const Plan* kept = plans_.find(key)) return *kept;
    return plans_.insert(key, plan);
  }

 private:
  std::mutex mutex_;
  std::map<int, cublasLtHandle_t> handles_;
  std::unordered_map<cudaStream_t, void*> workspaces_;
  BoundedCache<Key, Plan, KeyHash> plans_{"cuBLASLt's algorithms", kPlans};
  GemmChoices choices_{GemmChoices::users_folder()};
};
Library& library() {
  static auto* const library = new Library;
  return *library;
}

struct Types {
  cudaDataType in, out, scale;
  cublasComputeType_t compute;
};
std::optional<Types> types_of(DType in, DType out, bool tf32) {
  if (in == DType::kF32 && out == in)
    return Types{CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                 tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
  if (in == DType::kF64 && out == in)
    return Types{CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
  if (is_half_float(in) && (out == in || out == DType::kF32)) {
    const cudaDataType half = in == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
    return Types{half, out == in ? half : CUDA_R_32F, CUDA_R_32F,
                 CUBLAS_COMPUTE_32F};
  }
  return {};
}

cublasLtMatrixLayoutOpaque_t layout_of(const ColumnMajor& x, cudaDataType type,
                                       int64_t count) {
  cublasLtMatrixLayoutOpaque_t layout;
  check_lt(
      cublasLtMatrixLayoutInit(&layout, type, static_cast<uint64_t>(x.rows),
                               static_cast<uint64_t>(x.cols), x.ld),
      "a matrix");
  if (count == 1) return layout;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t what, auto value) {
    check_lt(
        cublasLtMatrixLayoutSetAttribute(&layout, what, &value, sizeof value),
        "a batch");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(count));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, x.next);
  return layout;
}

// nullopt if cuBLASLt does not take these types, or is not precise enough for
// them: its gelu_tanh is good for 16-bit types only.
std::optional<cublasLtEpilogue_t> epilogue_of(const Epilogue& e, DType in,
                                              DType out, bool swapped) {
  if (e.kind == Epilogue::kNone) return CUBLASLT_EPILOGUE_DEFAULT;
  if (in != out || in == DType::kF64) return {};
  switch (e.kind) {
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kSumB:
      return swapped ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
    default:
      if (!is_half_float(in)) return {};
      return e.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                    : CUBLASLT_EPILOGUE_GELU_AUX;
  }
}

template <class T>
void set(Plan& plan, cublasLtMatmulDescAttributes_t what, const T& value) {
  check_lt(
      cublasLtMatmulDescSetAttribute(&plan.product, what, &value, sizeof value),
      "a product");
}

bool has_aux(cublasLtEpilogue_t e) {
  return e == CUBLASLT_EPILOGUE_GELU_AUX ||
         e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
// Whether the epilogue has a bias, or the gradient of one. REQUIRES: it is not
// the default epilogue, which has none.
bool has_bias(cublasLtEpilogue_t e) { return e != CUBLASLT_EPILOGUE_GELU_AUX; }
void point(Plan& plan, const void* bias, const void* aux) {
  if (bias) set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (has_aux(plan.epilogue))
    set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
}

Plan describe(const Key& key, const Types& types) {
  Plan plan;
  plan.left = layout_of(key.call.left, types.in, key.call.count);
  plan.right = layout_of(key.call.right, types.in, key.call.count);
  plan.c = layout_of(key.call.c, types.out, key.call.count);
  check_lt(cublasLtMatmulDescInit(&plan.product, types.compute, types.scale),
           "a product");
  const auto transpose = [&](cublasLtMatmulDescAttributes_t which,
                             const ColumnMajor& x) {
    set(plan, which, x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, key.call.left);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, key.call.right);
  plan.epilogue = key.epilogue;
  if (plan.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return plan;
  set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, plan.epilogue);
  if (has_aux(plan.epilogue)) {
    set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.call.c.ld);
    if (key.call.count > 1)
      set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
          key.call.c.next);
  }
  // The choice of an algorithm depends on the alignment of these pointers.
  // takes_epilogue() requires the alignment assumed here.
  void* const aligned = reinterpret_cast<void*>(16);
  point(plan, has_bias(plan.epilogue) ? aligned : nullptr, aligned);
  return plan;
}

// The algorithms that cuBLASLt proposes, best first.
std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle,
                                             const Key& key, Plan& plan) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check_lt(cublasLtMatmulPreferenceInit(&preference), "a preference");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what,
                          auto value) {
    check_lt(cublasLtMatmulPreferenceSetAttribute(&preference, what, &value,
                                                  sizeof value),
             "a preference");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  // Partial sums are added in the compute type, and rounded once.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.left_align);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.right_align);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_align);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_align);
  cublasLtMatmulHeuristicResult_t results[kCandidates];
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, &plan.product, &plan.left, &plan.right, &plan.c, &plan.c,
      &preference, kCandidates, results, &found);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
      status == CUBLAS_STATUS_INVALID_VALUE)
    return algorithms;
  check_lt(status, "the choice of algorithms");
  for (int i = 0; i < found; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(results[i].algo);
  return algorithms;
}

// d = left * right, or left * right + c with m.accumulate. d has c's layout,
// and may be c.
cublasStatus_t multiply(cublasLtHandle_t handle, Plan& plan, DType out,
                        const Matrices& m, void* d, void* workspace,
                        cudaStream_t stream) {
  if (plan.epilogue != CUBLASLT_EPILOGUE_DEFAULT) point(plan, m.bias, m.aux);
  static constexpr float kOne = 1, kZero = 0;
  static constexpr double kOne64 = 1, kZero64 = 0;
  const bool wide = out == DType::kF64;
  const void* alpha = wide ? static_cast<const void*>(&kOne64) : &kOne;
  const void* beta =
      wide ? static_cast<const void*>(m.accumulate ? &kOne64 : &kZero64)
           : (m.accumulate ? &kOne : &kZero);
  return cublasLtMatmul(handle, &plan.product, alpha, m.left, &plan.left,
                        m.right, &plan.right, beta, m.c, &plan.c, d, &plan.c,
                        &plan.algorithm, workspace, kWorkspaceBytes, stream);
}

// Events, to measure the time between them.
class Events {
 public:
  explicit Events(size_t n) : events_(n) {
    for (cudaEvent_t& e : events_) check(cudaEventCreate(&e), "gemm");
  }
  ~Events() {
    for (cudaEvent_t e : events_) cudaEventDestroy(e);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  cudaEvent_t operator[](size_t i) const { return events_[i]; }

 private:
  std::vector<cudaEvent_t> events_;
};

// GPU memory that is allocated and freed in stream order. data() is null if the
// allocation fails.
class Scratch {
 public:
  Scratch(size_t bytes, cudaStream_t stream) : stream_(stream) {
    if (cudaMallocAsync(&data_, bytes, stream) == cudaSuccess) return;
    data_ = nullptr;
    (void)cudaGetLastError();
  }
  ~Scratch() {
    if (data_) cudaFreeAsync(data_, stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
};

// Times all candidates on this call's matrices and returns the index of the
// fastest. With m.accumulate, the results go to scratch memory, so that c stays
// as it is. Returns nullopt if that memory cannot be allocated.
std::optional<size_t> fastest(cublasLtHandle_t handle, const Key& key,
                              Plan plan, const Matrices& m, void* workspace,
                              cudaStream_t stream,
                              const std::vector<cublasLtMatmulAlgo_t>& all) {
  std::optional<Scratch> scratch;
  void* d = m.c;
  if (m.accumulate) {
    const ColumnMajor& c = key.call.c;
    const int64_t extent =
        (key.call.count - 1) * c.next + (c.cols - 1) * c.ld + c.rows;
    scratch.emplace(static_cast<size_t>(extent * size_of(key.out)), stream);
    d = scratch->data();
    if (!d) return {};
  }
  const Events events(2 * all.size());
  std::vector<bool> ran(all.size(), true);
  for (size_t i = 0; i < all.size(); ++i) {
    plan.algorithm = all[i];
    // Run 0 loads the kernel, and is not timed.
    for (int run = 0; run <= kRuns && ran[i]; ++run) {
      if (run == 1) check(cudaEventRecord(events[2 * i], stream), "gemm");
      ran[i] = multiply(handle, plan, key.out, m, d, workspace, stream) ==
               CUBLAS_STATUS_SUCCESS;
    }
    if (ran[i]) check(cudaEventRecord(events[2 * i + 1], stream), "gemm");
  }
  check(cudaStreamSynchronize(stream), "gemm");
  size_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < all.size(); ++i) {
    float time = 0;
    if (!ran[i]) continue;
    check(cudaEventElapsedTime(&time, events[2 * i], events[2 * i + 1]),
          "gemm");
    if (time < least) {
      least = time;
      best = i;
    }
  }
  return best;
}

// Everything that the speed of the key's candidates depends on, in one line.
std::string text_of(const Key& key) {
  cudaDeviceProp gpu;
  check(cudaGetDeviceProperties(&gpu, key.device), "gemm");
  std::string text = fmt::format(
      "{} with {} SMs, cuBLASLt {}, {} MiB: {} to {}{}, epilogue {}, aligned "
      "to {} {} {}, {} x",
      gpu.name, gpu.multiProcessorCount, cublasLtGetVersion(),
      kWorkspaceBytes >> 20, name(key.in), name(key.out),
      key.tf32 ? " by tf32" : "", static_cast<int>(key.epilogue),
      key.left_align, key.right_align, key.c_align, key.call.count);
  for (const ColumnMajor* x : {&key.call.left, &key.call.right, &key.call.c})
    text += fmt::format(" [{}, {}]{} ld {} next {}", x->rows, x->cols,
                        x->transposed ? "^T" : "", x->ld, x->next);
  return text;
}

// The index of the candidate to use with CudaOptions::tune_gemm.
size_t tuned(cublasLtHandle_t handle, const Key& key, const Plan& plan,
             const Matrices& m, cudaStream_t stream,
             const std::vector<cublasLtMatmulAlgo_t>& all) {
  const std::string product = text_of(key);
  const int proposals = static_cast<int>(all.size());
  GemmChoices& choices = library().choices();
  if (const auto kept = choices.find(product, proposals))
    return static_cast<size_t>(*kept);
  if (captured(stream)) return 0;
  const auto best =
      fastest(handle, key, plan, m, library().workspace(stream), stream, all);
  if (!best) return 0;
  return static_cast<size_t>(
      choices.keep(product, static_cast<int>(*best), proposals));
}

Plan plan_of(cublasLtHandle_t handle, const Key& key, const Types& types,
             const Matrices& m, cudaStream_t stream) {
  if (const auto kept = library().find(key)) return *kept;
  Plan plan = describe(key, types);
  const auto all = candidates(handle, key, plan);
  plan.possible = !all.empty();
  if (plan.possible) plan.algorithm = all[0];
  // tuned() runs without the library's lock, to avoid a deadlock: the stream
  // may have to wait for another rank's work, and that rank for the lock.
  if (key.tuned && all.size() > 1)
    plan.algorithm = all[tuned(handle, key, plan, m, stream, all)];
  return library().keep(key, plan);
}

// The common alignment of all matrices of an operand, which begin at `data` and
// at multiples of strides from there.
uint32_t alignment(const void* data, int64_t item_size, int64_t next,
                   std::span<const GemmBatch> repeats,
                   int64_t GemmBatch::*stride) {
  auto bits = reinterpret_cast<uintptr_t>(data) |
              static_cast<uintptr_t>(next * item_size);
  for (const GemmBatch& d : repeats)
    bits |= static_cast<uintptr_t>(d.*stride * item_size);
  // The widest load. A larger alignment would let the algorithm, and thus the
  // bits, depend on the allocator.
  constexpr uintptr_t kMost = 16;
  return uint32_t{1} << std::countr_zero(bits | kMost);
}

}  // namespace

bool cublaslt_gemm(Stream s, const Gemm& g) {
  const DType in = g.type, out = g.c_type;
  const bool tf32 = in == DType::kF32 && options.load().tf32;
  const std::optional<Types> types = types_of(in, out, tf32);
  if (!types) return false;
  const FoldedGemm folded(g);
  const std::optional<GemmCalls> calls = gemm_calls(folded);
  // Several calls that add to a half type would each round.
  if (!calls || (calls->sums && is_half_float(out))) return false;
  const Epilogue& e = g.epilogue;
  const auto epilogue = epilogue_of(e, in, out, calls->swapped);
  if (!epilogue ||
      (e.kind != Epilogue::kNone && !takes_epilogue(*calls, folded, g)))
    return false;

  const cudaStream_t stream = dtensor::cuda::enter(s);
  const int64_t in_size = size_of(in), out_size = size_of(out);
  const auto repeats = calls->repeats();
  const bool swapped = calls->swapped;
  Key key{calls->call, in, out, tf32, options.load().tune_gemm,
          0,           0,  0,   0,    *epilogue};
  check(cudaGetDevice(&key.device), "gemm");
  key.left_align =
      alignment(swapped ? g.b : g.a, in_size, calls->call.left.next, repeats,
                swapped ? &GemmBatch::b : &GemmBatch::a);
  key.right_align =
      alignment(swapped ? g.a : g.b, in_size, calls->call.right.next, repeats,
                swapped ? &GemmBatch::a : &GemmBatch::b);
  key.c_align =
      alignment(g.c, out_size, calls->call.c.next, repeats, &GemmBatch::c);
  const cublasLtHandle_t handle = library().handle(key.device);
  const void* const bias = e.kind == Epilogue::kSumB ? e.b_sum : e.bias;
  const Matrices first{
      swapped ? g.b : g.a, swapped ? g.a : g.b, g.c, g.accumulate, bias, e.aux};
  Plan plan = plan_of(handle, key, *types, first, stream);
  if (!plan.possible) {
    // If an epilogue is not available, the product alone may be.
    constexpr const char* kWith[] = {"", " with bias", " with gelu",
                                     " with bgrad"};
    declined.count(fmt::format("{} product{}", name(in), kWith[e.kind]));
    return false;
  }

  void* const workspace = library().workspace(stream);
  const auto at = [](const void* p, int64_t offset, int64_t size) {
    return static_cast<const char*>(p) + offset * size;
  };
  for_each_product(repeats, [&](int64_t a, int64_t b, int64_t c, bool first) {
    const char *left = at(g.a, a, in_size), *right = at(g.b, b, in_size);
    if (swapped) std::swap(left, right);
    void* to = static_cast<char*>(g.c) + c * out_size;
    void* aux = e.aux ? static_cast<char*>(e.aux) + c * out_size : nullptr;
    check_lt(multiply(handle, plan, out,
                      {left, right, to, g.accumulate || !first, bias, aux}, to,
                      workspace, stream),
             "a product");
  });
  return true;
}

}  // namespace dtensor::kernels::cuda
