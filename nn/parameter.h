// A parameter with its name, and parameters that are updated alike.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/named_tensor.h"

namespace dtensor::nn {

// Names are dotted: "transformer.h.0.mlp.c_fc.weight".
using NamedParameter = NamedTensor;

// As in torch: what its parameters do not share with the others.
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double lr_scale = 1;  // multiplies the rate of every update
  std::optional<double> weight_decay = {};  // else the optimizer's
};

// What an optimizer is made for: groups, or parameters that are one group.
// Without names, a parameter is called by its position ("0", "1", ...).
class ParameterGroups {
 public:
  ParameterGroups(std::vector<ParameterGroup> groups)
      : groups_(std::move(groups)) {}
  ParameterGroups(std::initializer_list<ParameterGroup> groups)
      : groups_(groups) {}
  ParameterGroups(std::vector<NamedParameter> all) {
    groups_.push_back({.parameters = std::move(all)});
  }
  ParameterGroups(const std::vector<DistTensor>& all) {
    groups_.emplace_back();
    for (const DistTensor& p : all)
      groups_[0].parameters.push_back(
          {std::to_string(groups_[0].parameters.size()), p});
  }
  ParameterGroups(std::initializer_list<DistTensor> all)
      : ParameterGroups(std::vector<DistTensor>(all)) {}

  const std::vector<ParameterGroup>& groups() const { return groups_; }

 private:
  std::vector<ParameterGroup> groups_;
};

// The usual choice: matrices (embeddings included) decay, vectors do not. The
// matrices come first.
inline ParameterGroups decay_matrices(std::vector<NamedParameter> all) {
  ParameterGroup matrices, vectors;
  vectors.weight_decay = 0;
  for (NamedParameter& p : all)
    (p.tensor.ndim() >= 2 ? matrices : vectors)
        .parameters.push_back(std::move(p));
  return {std::move(matrices), std::move(vectors)};
}

// parameter = value, in place and unrecorded, brought to the parameter's layout
// and type. An optimizer of one's own is
//   assign(w, w - g * lr);
// Raises the version. Throws Error when the shapes differ. Collective unless
// the layouts are the same.
void assign(const DistTensor& parameter, const DistTensor& value);

}  // namespace dtensor::nn
