// SPDX-License-Identifier: Apache-2.0
// SGD and AdamW, as in torch.optim.
#pragma once
#include <string_view>

#include "dtensor/nn/optimizer.h"

namespace dtensor::nn {

struct SGDOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class SGD : public Optimizer {
 public:
  explicit SGD(const ParameterGroups&, const SGDOptions& = {});

 private:
  std::string_view kernel_name() const override { return "sgd"; }
  void update_parts(const Parts&) override;
  SGDOptions options_;
};

// Weight decay applies to every parameter unless its group says otherwise, as
// in torch; see decay_matrices().
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

class AdamW : public Optimizer {
 public:
  explicit AdamW(const ParameterGroups&, const AdamWOptions& = {});

 private:
  std::string_view kernel_name() const override { return "adamw"; }
  void update_parts(const Parts&) override;
  Rates rates(double lr, int64_t step) const override;
  AdamWOptions options_;
};

}  // namespace dtensor::nn
