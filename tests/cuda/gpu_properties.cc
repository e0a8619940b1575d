// SPDX-License-Identifier: Apache-2.0
// Saves the facts about this GPU that plans of its work depend on, so that
// plans can be made later without it:
//
//   gpu_properties DIR
//
//   DIR/cudnn_device.json    cuDNN's description of the device, for
//                            Graph::set_device_properties() of cudnn-frontend
//   DIR/cublaslt.jsonl       of the benchmark's products, a line each: the
//                            algorithms that cuBLASLt proposes, the best first,
//                            and the time of each
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>
#if __has_include(<cudnn_frontend.h>)
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
#endif

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;
constexpr int kAlgorithms = 16, kRuns = 5;

void check(cudaError_t e, const char* what) {
  DT_CHECK(e == cudaSuccess, what, "CUDA says: {}", cudaGetErrorString(e));
}
void check(cublasStatus_t s, const char* what) {
  DT_CHECK(s == CUBLAS_STATUS_SUCCESS, what, "cuBLASLt says: {}",
           cublasLtGetStatusString(s));
}

std::ofstream open(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  DT_CHECK(file.good(), "gpu_properties",
           "{} cannot be written; name a folder that exists", path);
  return file;
}

#if __has_include(<cudnn_frontend.h>)
std::string save_cudnn(const std::string& path) {
  cudnnHandle_t handle = nullptr;
  DT_CHECK(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS, "cudnnCreate",
           "cuDNN {} makes no handle", cudnnGetVersion());
  cudnn_frontend::DeviceProperties device;
  auto e = device.set_handle(handle).set_device_id(0).build();
  std::vector<uint8_t> bytes;
  if (e.is_good()) e = device.serialize(bytes);
  cudnnDestroy(handle);
  DT_CHECK(e.is_good(), "gpu_properties", "cuDNN {} says: {}",
           cudnnGetVersion(), e.get_message());
  open(path).write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
  return fmt::format("cuDNN {}: {} bytes", cudnnGetVersion(), bytes.size());
}
#else
std::string save_cudnn(const std::string&) {
  return "no cuDNN: built without cudnn_frontend.h";
}
#endif

// A product of bf16, as cuBLASLt takes it: column-major.
struct Product {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// The benchmark's products: squares, two layers of GPT-2, and a layer of Llama.
std::vector<Product> products() {
  static constexpr std::array<int64_t, 3> kSizes[] = {
      {2048, 2048, 2048},    {4096, 4096, 4096}, {8192, 8192, 8192},
      {16384, 16384, 16384}, {8192, 8192, 2048}, {2048, 8192, 8192},
      {11008, 4096, 4096},   {4096, 4096, 11008}};
  std::vector<Product> all;
  for (const auto& [m, n, k] : kSizes)
    for (const auto& [a, b] : {std::pair(false, false), std::pair(true, false),
                               std::pair(false, true)})
      all.push_back({m, n, k, a, b});
  return all;
}

class Algorithms {
 public:
  Algorithms() {
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    check(cudaMalloc(&workspace_, kWorkspace), "cudaMalloc");
    // As large as the largest operand of products(). Random values, since a GPU
    // multiplies zeros faster.
    std::mt19937 rng(1);
    std::vector<uint16_t> values(size_t{1} << 22);
    for (uint16_t& v : values)  // bf16 of either sign, from 0.5 to 1
      v = static_cast<uint16_t>(0x3f00 | (rng() & 0x807f));
    const size_t bytes = values.size() * sizeof values[0];
    for (void** x : {&a_, &b_, &c_}) {
      check(cudaMalloc(x, kMost), "cudaMalloc");
      for (size_t at = 0; at < kMost; at += bytes)
        check(cudaMemcpy(static_cast<char*>(*x) + at, values.data(), bytes,
                         cudaMemcpyHostToDevice),
              "cudaMemcpy");
    }
    for (cudaEvent_t* e : {&start_, &end_})
      check(cudaEventCreate(e), "cudaEventCreate");
  }
  Algorithms(const Algorithms&) = delete;
  Algorithms& operator=(const Algorithms&) = delete;

  // Describes a product's algorithms in a line of JSON.
  std::string describe(const Product& p) {
    cublasLtMatmulDescOpaque_t product;
    check(cublasLtMatmulDescInit(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "a product");
    const auto set = [&](cublasLtMatmulDescAttributes_t what, bool transposed) {
      const cublasOperation_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
      check(cublasLtMatmulDescSetAttribute(&product, what, &op, sizeof op),
            "a product");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b);
    const auto matrix = [](int64_t rows, int64_t cols, bool transposed) {
      if (transposed) std::swap(rows, cols);
      cublasLtMatrixLayoutOpaque_t layout;
      check(cublasLtMatrixLayoutInit(&layout, CUDA_R_16BF,
                                     static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(cols), rows),
            "a matrix");
      return layout;
    };
    auto a = matrix(p.m, p.k, p.transpose_a),
         b = matrix(p.k, p.n, p.transpose_b), c = matrix(p.m, p.n, false);
    cublasLtMatmulPreferenceOpaque_t preference;
    check(cublasLtMatmulPreferenceInit(&preference), "a preference");
    const uint64_t bytes = kWorkspace;
    check(cublasLtMatmulPreferenceSetAttribute(
              &preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
              sizeof bytes),
          "a preference");
    cublasLtMatmulHeuristicResult_t results[kAlgorithms];
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, &product, &a, &b, &c, &c,
                                         &preference, kAlgorithms, results,
                                         &found),
          "its choice of algorithms");
    std::string text = fmt::format(
        R"({{"m": {}, "n": {}, "k": {}, "transpose": [{}, {}], "algorithms": [)",
        p.m, p.n, p.k, p.transpose_a, p.transpose_b);
    for (int i = 0; i < found; ++i)
      text += fmt::format("{}{}", i ? ", " : "",
                          describe(product, a, b, c, results[i]));
    return text + "]}\n";
  }

 private:
  static constexpr size_t kMost = size_t{2} * 16384 * 16384;

  std::string describe(cublasLtMatmulDescOpaque_t& product,
                       cublasLtMatrixLayoutOpaque_t& a,
                       cublasLtMatrixLayoutOpaque_t& b,
                       cublasLtMatrixLayoutOpaque_t& c,
                       const cublasLtMatmulHeuristicResult_t& result) {
    const float one = 1, zero = 0;
    float ms = 0;
    // Run 0 loads the kernel, and is not timed.
    for (int run = 0; run <= kRuns; ++run) {
      if (run == 1) check(cudaEventRecord(start_), "cudaEventRecord");
      const cublasStatus_t status =
          cublasLtMatmul(handle_, &product, &one, a_, &a, b_, &b, &zero, c_, &c,
                         c_, &c, &result.algo, workspace_, kWorkspace, nullptr);
      if (status != CUBLAS_STATUS_SUCCESS)
        return fmt::format(R"({{"refused": "{}"}})",
                           cublasLtGetStatusString(status));
    }
    check(cudaEventRecord(end_), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&ms, start_, end_), "cudaEventElapsedTime");
    std::string words;
    for (uint64_t word : result.algo.data)
      words += fmt::format("{:016x}", word);
    return fmt::format(
        R"({{"us": {:.1f}, "waves": {:.2f}, "workspace": {}, "algo": "{}"}})",
        1e3 * ms / kRuns, result.wavesCount, result.workspaceSize, words);
  }

  cublasLtHandle_t handle_ = nullptr;
  void *workspace_ = nullptr, *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

int save(const std::string& folder) {
  const std::string cudnn = save_cudnn(folder + "/cudnn_device.json");
  Algorithms algorithms;
  std::ofstream file = open(folder + "/cublaslt.jsonl");
  const auto all = products();
  for (const Product& p : all) file << algorithms.describe(p) << std::flush;
  fmt::print("{}; cuBLASLt {}: {} products\n", cudnn, cublasLtGetVersion(),
             all.size());
  return 0;
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--help") {
    fmt::print(
        "usage: gpu_properties DIR\n\nSaves what cuDNN and cuBLASLt tell of "
        "this GPU in the folder DIR.\n");
    return 0;
  }
  try {
    DT_CHECK(argc == 2 && argv[1][0] != '-', "gpu_properties",
             "write one argument, a folder; see --help");
    return dtensor::save(argv[1]);
  } catch (const dtensor::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
