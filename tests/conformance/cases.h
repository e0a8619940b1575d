// SPDX-License-Identifier: Apache-2.0
// Operator cases with a known answer, as a folder holds them: cases.jsonl, one
// case a line, and tensors.safetensors, which names every tensor. Read here
// byte by byte, without the library's own reader.
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

// An Array whose integers are exact, if they are known.
struct Value : Array {
  Value() = default;
  Value(Array a) : Array(std::move(a)) {}
  std::vector<int64_t> integers;  // the values of an i64; v rounds them
};
Value value_of(const Tensor&);
// On the calling rank's device.
Tensor tensor_of(const Value&);

struct Case {
  std::string id, op;
  int tier = 1;
  nlohmann::json args, kwargs;
  std::vector<std::string> inputs;   // that args and kwargs name, in order
  std::vector<std::string> outputs;  // empty where the call has to throw
  // Output -> its cotangent; input -> its gradient.
  std::map<std::string, std::string> cotangents, gradients;
  double rtol = 0, atol = 0;
  bool throws = false;
};

class Cases {
 public:
  // Throws Error that says what is wrong with the folder.
  explicit Cases(const std::string& folder);
  const std::vector<Case>& all() const { return cases_; }
  // Throws Error when the file has no such tensor, or one of a type that the
  // library has not (known() tells).
  const Value& tensor(const std::string& name) const;
  bool known(const std::string& name) const;

 private:
  void read_tensors(const std::string& path);
  std::vector<Case> cases_;
  std::map<std::string, Value> tensors_;
  std::map<std::string, std::string> foreign_;  // name -> its type
};

// What a rank holds of `whole` under a layout. Parts of a sum are numbers
// c_i x with small integers c_i that add up to one, other ones for every
// `which`; never (1, 0, 0), which hides a rule that takes f(x) + f(0).
Value part_of(const Value& whole, const Spec*, const Coord&, int which);

// Empty when `got` is `want` within the tolerance (NaN equals NaN, integers and
// booleans are exact); else a sentence. `worst` grows to the largest error.
std::string difference(const Value& got, const Value& want, double rtol,
                       double atol, double& worst);

}  // namespace dtensor::conformance
