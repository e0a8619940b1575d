// SPDX-License-Identifier: Apache-2.0
// The arguments of a case, as the entries of the call table read them.
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

// An entry of the call table throws this for a form of the operator that the
// library does not have. The case counts as skipped, with this text as reason.
class NotHere : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using Tensors = std::map<std::string, DistTensor>;

// As in torch, an argument has a position `at` and a name. An argument that has
// only a name has the position kNamed. A null counts as not given.
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

  // These throw Error if the argument is missing or has another type. The forms
  // with `otherwise` return that if it is missing.
  DistTensor tensor(size_t at, std::string_view name = "") const;
  double number(size_t at, std::string_view name = "") const;
  double number(size_t at, std::string_view name, double otherwise) const;
  int64_t integer(size_t at, std::string_view name = "") const;
  int64_t integer(size_t at, std::string_view name, int64_t otherwise) const;
  bool flag(size_t at, std::string_view name, bool otherwise) const;
  std::string text(size_t at, std::string_view name,
                   std::string_view otherwise) const;
  DType dtype(size_t at, std::string_view name, DType otherwise) const;
  // A list of integers; a single integer counts as a list.
  std::vector<int64_t> integers(size_t at, std::string_view name = "") const;
  std::vector<int64_t> integers(size_t at, std::string_view name,
                                std::vector<int64_t> otherwise) const;
  // "dim" of a reduction: a list, or a single integer; {}, which means all
  // dimensions, if it is not given.
  std::vector<int> dims(size_t at, std::string_view name) const;
  // A list, or, as in block_diag(x, y), all arguments from position `at` on.
  std::vector<DistTensor> tensors(size_t at, std::string_view name = "") const;
  // The shape from position `at` on: a list, as in reshape(x, [2, 3]), or all
  // arguments that follow, as in reshape(x, 2, 3).
  Shape shape(size_t at) const;
  const nlohmann::json& raw(size_t at, std::string_view name = "") const;
  DistTensor to_tensor(const nlohmann::json&) const;

  // The arguments that the entry has not read. An entry that ignores an
  // argument is wrong.
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
// Entries by torch's name of the operator.
using CallTable = std::map<std::string, Call, std::less<>>;

}  // namespace dtensor::conformance
