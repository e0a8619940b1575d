#include "dtensor/nn/optimizer.h"

#include <map>
#include <set>
#include <utility>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/autograd.h"
#include "dtensor/runtime/gather.h"
#include "dtensor/runtime/rank_context.h"
#include "dtensor/runtime/redistribute.h"

namespace dtensor::nn {
namespace {

// torch names its options alike; a negative one is a typing error there too.
void check_options(const char* what, double value, double below) {
  DT_CHECK(value >= 0 && value < below, "optimizer",
           "{} is {}; it must be at least 0 and below {}", what, value, below);
}

// What this rank updates of a parameter: a window on what it holds.
Tensor updated_part(const DistTensor& p) {
  return redistribute_local(p.impl()->part(), p.spec(), p.grad_spec());
}

DistTensor zeros_like(const DistTensor& p, DType t) {
  const Spec* spec = p.grad_spec()->with(t);
  const Tensor part = updated_part(p);
  return DistTensor::wrap(
      part.defined() ? Tensor::full(part.shape(), t, 0) : Tensor(), spec);
}

// The value in f32, on memory of its own.
DistTensor master_of(const DistTensor& p) {
  const Scoped<MemoryKind> kind(RankContext::current().memory_kind,
                                MemoryKind::kState);
  return DistTensor::wrap(converted(updated_part(p), DType::kF32),
                          p.grad_spec()->with(DType::kF32));
}

std::string listed(const std::set<std::string>& names) {
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
  return all;
}

}  // namespace

Optimizer::Optimizer(const ParameterGroups& groups, double weight_decay,
                     std::vector<std::string> state)
    : state_names_(std::move(state)) {
  const Scoped<MemoryKind> kind(RankContext::current().memory_kind,
                                MemoryKind::kState);
  std::set<std::string> names;
  for (const ParameterGroup& group : groups.groups()) {
    check_options("lr_scale", group.lr_scale, 1e300);
    const double decay = group.weight_decay.value_or(weight_decay);
    check_options("weight decay", decay, 1e300);
    for (const auto& [name, p] : group.parameters) {
      DT_CHECK(is_float(p.dtype()), "optimizer", "parameter {} is {}, no float",
               name, p.spec()->to_string());
      DT_CHECK(names.insert(name).second, "optimizer",
               "two parameters are called {}; list each once, with a name of "
               "its own",
               name);
      Slot slot{name, group.lr_scale, decay, {}, {}};
      for (size_t i = 0; i < state_names_.size(); ++i)
        slot.state.push_back(zeros_like(p, kernels::stat_of(p.dtype())));
      if (is_half_float(p.dtype())) slot.master = master_of(p);
      slot.version = p.impl()->version();
      slots_.push_back(std::move(slot));
      parameters_.push_back(p);
    }
  }
}

void Optimizer::step(const std::vector<DistTensor>& grads,
                     const UpdateOptions& options) {
  DT_CHECK(grads.size() == parameters_.size(), "optimizer",
           "{} gradients for {} parameters", grads.size(), parameters_.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    const Spec* p = parameters_[i].grad_spec();
    const Spec* g = grads[i].spec();
    DT_CHECK(g == p || g == p->with(DType::kF32), "optimizer",
             "the gradient of {} is {} and the parameter's is to be {}; write "
             "gradient.redistribute(parameter.grad_spec()->layout())",
             slots_[i].name, g->to_string(), p->to_string());
  }
  DT_CHECK(!options.clip.defined() || (options.clip.dtype() == DType::kF64 &&
                                       options.clip.numel() == 1),
           "optimizer",
           "clip is {}{}; it is one number of f64, as grad_norm() gives it",
           name(options.clip.dtype()), to_string(options.clip.shape()));
  RankContext& context = RankContext::current();
  const Scoped<std::string> phase(context.phase, "update");
  end_gather_step(context);
  ++steps_;
  for (size_t i = 0; i < grads.size(); ++i) {
    Slot& slot = slots_[i];
    ++slot.step;
    const Tensor p = updated_part(parameters_[i]);
    if (!p.defined() || p.numel() == 0) continue;
    // Somebody wrote to it since: what is in the master is of the past.
    if (slot.master.defined() && slot.version != p.storage()->version())
      slot.master = master_of(parameters_[i]);
    const Tensor flat = p.to_contiguous();
    update(
        {.param = flat,
         .grad = grads[i].local().to_contiguous(),
         .state = slot.state,
         .master = slot.master.defined() ? slot.master.local().mutable_data()
                                         : nullptr,
         .lr = options.lr * slot.lr_scale,
         .weight_decay = slot.weight_decay,
         .grad_scale = options.grad_scale,
         .clip = options.clip.defined() ? options.clip.ptr<double>() : nullptr,
         .step = slot.step});
    if (!p.contiguous()) Tensor(p).copy_from(flat);
    slot.version = p.storage()->version();
  }
  gather_updated();
}

// Every rank gets the parts that others have updated.
void Optimizer::gather_updated() {
  // So much at once, in bytes of what the rank that has the most gathers.
  constexpr int64_t kBucket = 4 << 20;
  RankContext& context = RankContext::current();
  const Scoped<std::string_view> op(context.op, "optimizer");
  const Scoped<MemoryKind> kind(context.memory_kind, MemoryKind::kGathered);
  const NoGrad no_grad;
  for (size_t i = 0; i < parameters_.size();) {
    std::vector<DistTensor> parts;
    std::vector<const Spec*> to;
    std::vector<size_t> which;
    for (int64_t bytes = 0; i < parameters_.size() && bytes < kBucket; ++i) {
      const DistTensor& p = parameters_[i];
      if (p.grad_spec() == p.spec()) continue;
      parts.push_back(DistTensor::wrap(updated_part(p), p.grad_spec()));
      to.push_back(p.spec());
      which.push_back(i);
      bytes += p.spec()->largest_part_bytes();
    }
    const std::vector<DistTensor> whole = relayout(std::move(parts), to);
    for (size_t k = 0; k < which.size(); ++k) {
      const Tensor& part = parameters_[which[k]].impl()->part();
      if (!part.defined()) continue;
      Tensor(part).copy_from(whole[k].local());
      slots_[which[k]].version = part.storage()->version();
    }
  }
}

std::vector<OptimizerState> Optimizer::state() const {
  std::vector<OptimizerState> all;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    for (size_t k = 0; k < state_names_.size(); ++k)
      all.push_back({slot.name + "." + state_names_[k], slot.state[k]});
    if (slot.master.defined()) {
      // What was written to the parameter since is not in it yet.
      DistTensor master = slot.master;
      if (slot.version != parameters_[i].impl()->version())
        master = master_of(parameters_[i]);
      all.push_back({slot.name + ".master", master});
    }
    const DistTensor step = DistTensor::from_local(
        Tensor::from<int64_t>({}, &slot.step), parameters_[i].mesh(), {}, {});
    all.push_back({slot.name + ".step", step});
  }
  return all;
}

void Optimizer::load_state(const std::vector<OptimizerState>& values) {
  std::map<std::string, const DistTensor*> given;
  for (const OptimizerState& s : values)
    DT_CHECK(given.emplace(s.name, &s.value).second, "optimizer",
             "the state {} is given twice", s.name);
  const std::vector<OptimizerState> own = state();
  std::set<std::string> missing, unknown;
  for (const auto& [name, value] : given) unknown.insert(name);
  for (const OptimizerState& s : own)
    if (!unknown.erase(s.name)) missing.insert(s.name);
  DT_CHECK(
      missing.empty() && unknown.empty(), "optimizer",
      "the state does not fit these parameters: {} {} missing, and {} {} "
      "unknown",
      missing.size(), missing.empty() ? "are" : "(" + listed(missing) + ")",
      unknown.size(), unknown.empty() ? "are" : "(" + listed(unknown) + ")");
  std::vector<DistTensor> from;
  std::vector<const Spec*> to;
  for (const OptimizerState& s : own) {
    const DistTensor& v = *given[s.name];
    DT_CHECK(v.shape() == s.value.shape() &&
                 is_float(v.dtype()) == is_float(s.value.dtype()) &&
                 v.dtype() != DType::kBool,
             "optimizer", "the state {} is {} and is to be {}", s.name,
             v.spec()->to_string(), s.value.spec()->to_string());
    from.push_back(v);
    to.push_back(s.value.spec()->with(v.dtype()));
  }
  const NoGrad no_grad;
  const std::vector<DistTensor> here = relayout(std::move(from), to);
  if (RankContext::current().dry_run) return;
  size_t at = 0;
  const auto take = [&](const DistTensor& target) {
    const Tensor& part = here[at++].impl()->part();
    if (part.defined())
      target.impl()->local.copy_from(converted(part, target.dtype()));
  };
  steps_ = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    for (const DistTensor& s : slot.state) take(s);
    if (slot.master.defined()) take(slot.master);
    slot.version = parameters_[i].impl()->version();
    const Tensor& step = here[at++].impl()->part();
    if (step.defined()) slot.step = step.integer_at(0);
    steps_ = std::max(steps_, slot.step);
  }
}

SGD::SGD(const ParameterGroups& parameters, const SGDOptions& options)
    : Optimizer(parameters, options.weight_decay,
                options.momentum == 0
                    ? std::vector<std::string>{}
                    : std::vector<std::string>{"momentum_buffer"}),
      options_(options) {
  check_options("momentum", options.momentum, 1);
}

void SGD::update(const Update& u) {
  kernels::Sgd call;
  call.lr = u.lr;
  call.momentum = options_.momentum;
  call.weight_decay = u.weight_decay;
  call.nesterov = options_.nesterov;
  call.grad_scale = u.grad_scale;
  call.clip = u.clip;
  const RankContext& context = RankContext::current();
  kernels_of(*context.device)
      .sgd(context.stream, u.param.dtype(), u.grad.dtype(), u.param.numel(),
           call, u.param.mutable_data(), u.grad.data(),
           u.state.empty() ? nullptr : u.state[0].local().mutable_data(),
           u.master);
}

AdamW::AdamW(const ParameterGroups& parameters, const AdamWOptions& options)
    : Optimizer(parameters, options.weight_decay, {"exp_avg", "exp_avg_sq"}),
      options_(options) {
  check_options("beta1", options.beta1, 1);
  check_options("beta2", options.beta2, 1);
  check_options("eps", options.eps, 1e300);
}

void AdamW::update(const Update& u) {
  kernels::AdamW call;
  call.lr = u.lr;
  call.beta1 = options_.beta1;
  call.beta2 = options_.beta2;
  call.eps = options_.eps;
  call.weight_decay = u.weight_decay;
  call.step = u.step;
  call.grad_scale = u.grad_scale;
  call.clip = u.clip;
  const RankContext& context = RankContext::current();
  kernels_of(*context.device)
      .adamw(context.stream, u.param.dtype(), u.grad.dtype(), u.param.numel(),
             call, u.param.mutable_data(), u.grad.data(),
             u.state[0].local().mutable_data(),
             u.state[1].local().mutable_data(), u.master);
}

}  // namespace dtensor::nn
