// Initial parameter values: a function of (seed, name, global index), so that a
// model has the same weights on every mesh and in every layout.
#pragma once
#include <cstdint>
#include <string_view>

#include "dtensor/dist_tensor.h"

namespace dtensor::nn {

struct Init {
  enum class Kind : uint8_t { kZeros, kOnes, kNormal };
  Kind kind = Kind::kZeros;
  double std = 0;  // the standard deviation of kNormal

  static Init zeros() { return {}; }
  static Init ones() { return {Kind::kOnes, 0}; }
  static Init normal(double std) { return {Kind::kNormal, std}; }
  // Normal with std 1 / sqrt(fan_in). Pass the global fan-in: a rank that holds
  // part of the inputs then draws the same numbers as one device would.
  static Init fan_in(int64_t fan_in);
};

// Creates a parameter in its layout: no rank ever holds more than its part. The
// random stream is the hash of the full name. Numbers are drawn in f32 for
// every dtype, so that f64, bf16 and f16 models start from the values of the
// f32 model.
DistTensor make_parameter(std::string_view name, const Shape&, const Mesh&,
                          const Layout&, DType, const Init&, uint64_t seed);

}  // namespace dtensor::nn
