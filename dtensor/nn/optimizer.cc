#include "dtensor/nn/optimizer.h"

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/rank_context.h"

namespace dtensor::nn {
namespace {

// torch names its options alike; a negative one is a typing error there too.
void check_options(const char* what, double value, double below) {
  DT_CHECK(value >= 0 && value < below, "optimizer",
           "{} is {}; it must be at least 0 and below {}", what, value, below);
}

}  // namespace

Optimizer::Optimizer(std::vector<DistTensor> parameters)
    : parameters_(std::move(parameters)), masters_(parameters_.size()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i].local();
    DT_CHECK(is_float(p.dtype()), "optimizer",
             "parameter {} is {}, not a float", i, name(p.dtype()));
    // The kernels walk a part from end to end.
    DT_CHECK(p.contiguous(), "optimizer",
             "the local part of parameter {} is not contiguous; make it with "
             "as_parameter() on a tensor of its own",
             i);
    if (p.dtype() != DType::kBF16) continue;
    masters_[i] = Tensor::empty(p.shape(), DType::kF32);
    p.device().cast(p.stream(), p.shape(), DType::kF32, masters_[i].data(),
                    masters_[i].strides(), p.dtype(), p.data(), p.strides());
  }
}

void Optimizer::step(const std::vector<DistTensor>& grads,
                     const UpdateOptions& options) {
  DT_CHECK(grads.size() == parameters_.size(), "optimizer",
           "{} gradients for {} parameters", grads.size(), parameters_.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    const Spec* p = parameters_[i].spec();
    const Spec* g = grads[i].spec();
    DT_CHECK(g == p || g == p->with(DType::kF32), "optimizer",
             "gradient {} is {} and its parameter {}; write "
             "gradient.redistribute(parameter.layout())",
             i, g->to_string(), p->to_string());
  }
  ++steps_;
  for (size_t i = 0; i < grads.size(); ++i) {
    const Tensor& p = parameters_[i].local();
    if (p.numel() == 0) continue;
    // Autograd notices when a graph from before the update is used after it.
    p.storage()->bump_version();
    update(i, p, grads[i].local().to_contiguous(), options);
  }
}

Tensor Optimizer::state_like(size_t i) const {
  const Tensor& p = parameters_[i].local();
  return Tensor::full(p.shape(), kernels::stat_of(p.dtype()), 0);
}

void* Optimizer::master(size_t i) const {
  return masters_[i].defined() ? masters_[i].data() : nullptr;
}

SGD::SGD(std::vector<DistTensor> parameters, const SGDOptions& options)
    : Optimizer(std::move(parameters)), options_(options) {
  check_options("momentum", options.momentum, 1);
  check_options("weight decay", options.weight_decay, 1e300);
  if (options_.momentum == 0) return;
  for (size_t i = 0; i < this->parameters().size(); ++i)
    momentum_.push_back(state_like(i));
}

void SGD::update(size_t i, const Tensor& param, const Tensor& grad,
                 const UpdateOptions& options) {
  kernels::Sgd call;
  call.lr = options.lr;
  call.momentum = options_.momentum;
  call.weight_decay = decay(i, options_.weight_decay);
  call.nesterov = options_.nesterov;
  call.grad_scale = options.grad_scale;
  const RankContext& context = RankContext::current();
  kernels_of(*context.device)
      .sgd(context.stream, param.dtype(), grad.dtype(), param.numel(), call,
           param.data(), grad.data(),
           momentum_.empty() ? nullptr : momentum_[i].data(), master(i));
}

AdamW::AdamW(std::vector<DistTensor> parameters, const AdamWOptions& options)
    : Optimizer(std::move(parameters)), options_(options) {
  check_options("beta1", options.beta1, 1);
  check_options("beta2", options.beta2, 1);
  check_options("eps", options.eps, 1e300);
  check_options("weight decay", options.weight_decay, 1e300);
  for (size_t i = 0; i < this->parameters().size(); ++i) {
    m_.push_back(state_like(i));
    v_.push_back(state_like(i));
  }
}

void AdamW::update(size_t i, const Tensor& param, const Tensor& grad,
                   const UpdateOptions& options) {
  kernels::AdamW call;
  call.lr = options.lr;
  call.beta1 = options_.beta1;
  call.beta2 = options_.beta2;
  call.eps = options_.eps;
  call.weight_decay = decay(i, options_.weight_decay);
  call.step = steps();
  call.grad_scale = options.grad_scale;
  const RankContext& context = RankContext::current();
  kernels_of(*context.device)
      .adamw(context.stream, param.dtype(), grad.dtype(), param.numel(), call,
             param.data(), grad.data(), m_[i].data(), v_[i].data(), master(i));
}

}  // namespace dtensor::nn
