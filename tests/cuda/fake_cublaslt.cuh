// SPDX-License-Identifier: Apache-2.0
// Replaces cuBLASLt: multiplies on the host, and its algorithms take the time
// that a test gives them. It refuses what the manual says is refused, and
// proposes what cuBLASLt 13.1 proposed on an H200: at most 8 algorithms however
// many are asked for, and epilogues for all types, but no sum of an operand
// where only the left one is transposed.
#pragma once
#include <cublasLt.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace dtensor {

struct World {
  // The time of each algorithm; one with 0 fails when it is run.
  std::vector<float> times = {3, 1, 0, 2};
  bool capturing = false;
  bool memory = true;
  bool epilogues = true;  // has an algorithm for them
  size_t version = 130100;
  std::string gpu = "NVIDIA H200";
  int multiprocessors = 132;

  float clock = 0;
  int syncs = 0, products = 0, last_algorithm = -1;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  uint32_t alignment[4] = {}, schemes = 0;
  std::set<const void*> workspaces, handles;
  std::set<cublasLtEpilogue_t> done;
};
extern World world;

// Element i of an array of that type.
double get(const void* p, int64_t i, cudaDataType type);
void set(void* p, int64_t i, cudaDataType type, double x);

}  // namespace dtensor
