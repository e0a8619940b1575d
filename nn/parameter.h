// SPDX-License-Identifier: Apache-2.0
// Named parameters, and groups of parameters with their own optimizer options.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/assign.h"

namespace dtensor::nn {

// Names are dotted: "transformer.h.0.mlp.c_fc.weight".
using NamedParameter = NamedTensor;

// Parameters with options of their own, as in torch.
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double lr_scale = 1;                      // multiplies the learning rate
  std::optional<double> weight_decay = {};  // the optimizer's if not set
};

// The argument of an optimizer: groups, or parameters that form one group.
// Parameters without names are named by their position ("0", "1", ...).
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

// The usual choice: parameters of two or more dimensions (embeddings included)
// decay, others do not. The first group has those that decay.
inline ParameterGroups decay_matrices(std::vector<NamedParameter> all) {
  ParameterGroup matrices, vectors;
  vectors.weight_decay = 0;
  for (NamedParameter& p : all)
    (p.tensor.ndim() >= 2 ? matrices : vectors)
        .parameters.push_back(std::move(p));
  return {std::move(matrices), std::move(vectors)};
}

using dtensor::assign;
// Sets each parameter to the value of the same name, which may be on another
// mesh of the run, in one exchange: for example, those of a model that answers
// to those of a trainer. The message is as small as the planner finds. Throws
// Error, with nothing changed, if a name is missing, unknown or given twice, or
// if shapes differ. Collective over all meshes of parameters and values; on
// ranks outside of a mesh, its tensors have no part.
void assign(const std::vector<NamedParameter>& parameters,
            const std::vector<NamedTensor>& values);

}  // namespace dtensor::nn
