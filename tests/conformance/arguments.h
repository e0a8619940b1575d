// SPDX-License-Identifier: Apache-2.0
// The arguments of a case, as an entry of the call table asks for them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "tests/conformance/cases.h"

namespace dtensor::conformance {

// Thrown by an entry for a form of the operator that the library does not
// have. The case counts as skipped, with these words.
class NotHere : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Tensors = std::map<std::string, DistTensor>;

// Every argument has a position and a name, as in torch; `at` beyond the last
// one (kNamed) is a name alone. A null counts as not given.
inline constexpr size_t kNamed = 1000;

class Arguments {
 public:
  Arguments(const Case& c, const Tensors& tensors, const Mesh& mesh)
      : case_(c), tensors_(tensors), mesh_(mesh) {}

  const Mesh& mesh() const { return mesh_; }
  size_t count() const { return case_.args.size(); }
  bool has(size_t at, std::string_view name = "") const;
  bool is_tensor(size_t at, std::string_view name = "") const;
  bool is_list(size_t at, std::string_view name = "") const;
  bool is_text(size_t at, std::string_view name = "") const;

  // Throw Error when the argument is missing or something else. The second
  // form: `otherwise` when it is not given.
  DistTensor tensor(size_t at, std::string_view name = "") const;
  double number(size_t at, std::string_view name = "") const;
  double number(size_t at, std::string_view name, double otherwise) const;
  int64_t integer(size_t at, std::string_view name = "") const;
  int64_t integer(size_t at, std::string_view name, int64_t otherwise) const;
  bool flag(size_t at, std::string_view name, bool otherwise) const;
  std::string text(size_t at, std::string_view name,
                   std::string_view otherwise) const;
  DType dtype(size_t at, std::string_view name, DType otherwise) const;
  // A list, or one alone.
  std::vector<int64_t> integers(size_t at, std::string_view name = "") const;
  // "dim": a list, one alone, or not given: all of them, as {}.
  std::vector<int> dims(size_t at, std::string_view name) const;
  std::vector<DistTensor> tensors(size_t at, std::string_view name = "") const;
  // From the position on, a list or as many arguments as there are: reshape(x,
  // [2, 3]) and reshape(x, 2, 3).
  Shape shape(size_t at) const;
  const nlohmann::json& raw(size_t at, std::string_view name = "") const;
  DistTensor to_tensor(const nlohmann::json&) const;

  // What the entry never asked for; an entry that drops an argument is wrong.
  std::vector<std::string> unread() const;

 private:
  const nlohmann::json* find(size_t at, std::string_view name) const;
  const nlohmann::json& need(size_t at, std::string_view name,
                             std::string_view what) const;
  const Case& case_;
  const Tensors& tensors_;
  const Mesh mesh_;
  mutable std::set<size_t> read_;
  mutable std::set<std::string, std::less<>> read_names_;
};

using Call = std::function<std::vector<DistTensor>(const Arguments&)>;
// By torch's name of the operator.
using CallTable = std::map<std::string, Call, std::less<>>;

}  // namespace dtensor::conformance
