// SPDX-License-Identifier: Apache-2.0
// Operator cases with known answers, read from a folder: cases.jsonl has one
// case a line, and tensors.safetensors has the tensors that cases name. They
// are read byte by byte, without the library's own reader.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/spec.h"
#include "tests/array.h"

namespace dtensor::conformance {

using testing::Array;

// An Array that also has exact integers, if it is of type i64.
struct Value : Array {
  Value() = default;
  Value(Array a) : Array(std::move(a)) {}
  std::vector<int64_t> integers;  // the values of an i64 tensor; v rounds them
};
Value value_of(const Tensor&);
// A tensor with these values, on the calling rank's device.
Tensor tensor_of(const Value&);

struct Case {
  std::string id, op;
  int tier = 1;
  nlohmann::json args, kwargs;
  std::vector<std::string> inputs;   // those named in args and kwargs, in order
  std::vector<std::string> outputs;  // empty if the call has to throw
  // From an output's name to its cotangent's; from an input's name to its
  // gradient's.
  std::map<std::string, std::string> cotangents, gradients;
  double rtol = 0, atol = 0;
  bool throws = false;
};

class Cases {
 public:
  // Throws Error, which says what is wrong, if the folder cannot be read.
  explicit Cases(const std::string& folder);
  const std::vector<Case>& all() const { return cases_; }
  // Throws Error if the file has no such tensor, or if it is of a type that the
  // library does not have (then known() is false).
  const Value& tensor(const std::string& name) const;
  bool known(const std::string& name) const;

 private:
  void read_tensors(const std::string& path);
  std::vector<Case> cases_;
  std::map<std::string, Value> tensors_;
  std::map<std::string, std::string> foreign_;  // name -> unknown type
};

// The part of `whole` that a rank holds under a spec. The parts of a sum are
// numbers c_i x, with small integers c_i that add up to 1 and that differ for
// every `which`. They are never (1, 0, 0), which would hide a rule that takes
// f(x) + f(0) for f of a sum.
Value part_of(const Value& whole, const Spec*, const Coord&, int which);

// "" if `got` is `want` within the tolerance (NaN equals NaN; integers and
// bools must be equal); otherwise a sentence. Raises `worst` to the largest
// error.
std::string difference(const Value& got, const Value& want, double rtol,
                       double atol, double& worst);

}  // namespace dtensor::conformance
