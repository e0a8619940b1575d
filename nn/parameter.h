// SPDX-License-Identifier: Apache-2.0
// Named parameters, their initial values, and groups of parameters with their
// own optimizer options.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/assign.h"

namespace dtensor::nn {

// Names are dotted: "transformer.h.0.mlp.c_fc.weight".
using NamedParameter = NamedTensor;

// ---- Initial values ----

// Initial parameter values: a function of (seed, name, global index), so that a
// model has the same weights on every mesh and in every layout.
struct Init {
  enum class Kind : uint8_t { kZeros, kOnes, kNormal, kUniform, kNone };
  Kind kind = Kind::kZeros;
  double std =
      0;  // the standard deviation of kNormal, or the bound of kUniform

  static Init zeros() { return {}; }
  // Memory without values, for a parameter that is loaded next.
  static Init none() { return {Kind::kNone, 0}; }
  static Init ones() { return {Kind::kOnes, 0}; }
  static Init normal(double std) { return {Kind::kNormal, std}; }
  static Init uniform(double bound) { return {Kind::kUniform, bound}; }
  // Normal with std 1 / sqrt(fan_in). Pass the global fan-in: a rank that holds
  // part of the inputs then draws the same numbers as one device would.
  static Init fan_in(int64_t fan_in);
};

// Creates a parameter in its layout: no rank ever holds more than its part. The
// hash of the full name selects the random stream. Every dtype uses the random
// numbers of f32, so that f64, bf16 and f16 models start from the values of the
// f32 model, rounded if necessary.
DistTensor make_parameter(std::string_view name, const Shape&, const Mesh&,
                          const Layout&, DType, const Init&, uint64_t seed);

// ---- Groups ----

// Parameters with options of their own, as in torch.
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double lr_scale = 1;                      // multiplies the learning rate
  std::optional<double> weight_decay = {};  // the optimizer's if not set
  // The optimizer's state of these parameters, and their masters, are in the
  // host's memory between updates, as with torch's CPUOffloadPolicy and
  // DeepSpeed's ZeRO-Offload. But a GPU makes the update: it gets the state of
  // one parameter after the other (for SGD and AdamW of several, up to 4 MiB,
  // and for Muon, Shampoo and SOAP of all), and the bus carries the state
  // twice. Each value stays the same, bit by bit. Does nothing on a CPU.
  bool offload_state = false;
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
