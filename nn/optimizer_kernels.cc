// SPDX-License-Identifier: Apache-2.0
// SGD and AdamW, and the functions that a class of optimizers overrides.
#include <cmath>

#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor::nn {
namespace {

// Runs a kernel on this rank's device and stream.
template <class Kernel>
void run_kernel(const Kernel& kernel) {
  const RankContext& context = RankContext::current();
  kernels_of(*context.device).run(context.stream, kernel);
}

}  // namespace

DistTensor Optimizer::update(ParameterUpdate&) {
  fail("optimizer",
       "a class of optimizers was made with states, but does not override "
       "update(); override it, or call the constructor for a kernel");
}

std::vector<DistTensor> Optimizer::update_all(std::span<ParameterUpdate> all) {
  std::vector<DistTensor> values;
  for (ParameterUpdate& u : all) values.push_back(update(u));
  return values;
}

void Optimizer::update_parts(const Parts&) {
  fail("optimizer",
       "a class of optimizers was made for a kernel, but does not override "
       "update_parts(); override it, or update()");
}

Optimizer::Rates Optimizer::rates(double lr, int64_t) const { return {lr}; }

SGD::SGD(const ParameterGroups& parameters, const SGDOptions& options)
    : Optimizer(parameters, options.weight_decay,
                options.momentum == 0
                    ? std::vector<std::string>{}
                    : std::vector<std::string>{"momentum_buffer"}),
      options_(options) {
  check_option("momentum", options.momentum, 1);
}

void SGD::update_parts(const Parts& u) {
  run_kernel(kernels::Sgd{.param_type = u.param,
                          .grad_type = u.grad,
                          .momentum = options_.momentum,
                          .nesterov = options_.nesterov,
                          .grad_scale = u.grad_scale,
                          .clip = u.clip,
                          .parts = u.parts});
}

AdamW::AdamW(const ParameterGroups& parameters, const AdamWOptions& options)
    : Optimizer(parameters, options.weight_decay, {"exp_avg", "exp_avg_sq"}),
      options_(options) {
  check_option("beta1", options.beta1, 1);
  check_option("beta2", options.beta2, 1);
  check_option("eps", options.eps, 1e300);
}

void AdamW::update_parts(const Parts& u) {
  run_kernel(kernels::AdamW{.param_type = u.param,
                            .grad_type = u.grad,
                            .beta1 = options_.beta1,
                            .beta2 = options_.beta2,
                            .eps = options_.eps,
                            .grad_scale = u.grad_scale,
                            .clip = u.clip,
                            .parts = u.parts});
}

Optimizer::Rates AdamW::rates(double lr, int64_t step) const {
  const auto t = static_cast<double>(step);
  return {lr, 1 - std::pow(options_.beta1, t), 1 - std::pow(options_.beta2, t)};
}

}  // namespace dtensor::nn
