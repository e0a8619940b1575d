// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/optimizers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/capture.h"
#include "dtensor/gather.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/region.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"
#include "dtensor/trace.h"

namespace dtensor::nn {
namespace {

// Runs a kernel on this rank's device and stream.
template <class Kernel>
void run_kernel(const Kernel& kernel) {
  const RankContext& context = RankContext::current();
  kernels_of(*context.device).run(context.stream, kernel);
}

// Refuses options out of range; the names are those of torch.
void check_options(const char* what, double value, double below) {
  DT_CHECK(value >= 0 && value < below, "optimizer",
           "{} is {}; it must be at least 0 and below {}", what, value, below);
}

// Whether grad_spec() cuts at most one box out of the part that each rank
// holds. Then updated_part() is a view of that part.
bool cuts_boxes(const DistTensor& p) {
  const Spec *held = p.spec(), *updated = p.grad_spec();
  if (held == updated) return true;
  for (int64_t r = 0; r < p.mesh().num_ranks(); ++r) {
    const Coord at = p.mesh().coordinate(r);
    const Region from = held->region(at), to = updated->region(at);
    if (volume(to) == 0) continue;
    for (size_t d = 0; d < to.size(); ++d)
      if (from[d].size() != 1 || to[d].size() != 1 ||
          to[d][0].lo < from[d][0].lo || to[d][0].hi > from[d][0].hi)
        return false;
  }
  return true;
}

// The part of a parameter that this rank updates, in the parameter's memory.
Tensor updated_part(const DistTensor& p) {
  return redistribute_local(p.impl()->part(), p.spec(), p.grad_spec());
}

// The ids of the rows of parameter i that a step updates; undefined for all.
DistTensor rows_of(const UpdateOptions& options, size_t i) {
  return i < options.rows.size() ? options.rows[i] : DistTensor();
}

// The rows of a parameter that this rank holds for updates.
IntervalList rows_here(const DistTensor& p) {
  const Spec* spec = p.grad_spec();
  return spec->region(RankContext::current().coordinate(spec->mesh())).at(0);
}

DistTensor zeros_like(const DistTensor& p, DType t) {
  const Spec* spec = p.grad_spec()->with(t);
  const Tensor part = updated_part(p);
  return DistTensor::wrap(
      part.defined() ? Tensor::full(part.shape(), t, 0) : Tensor(), spec);
}

// A copy of the parameter in f32.
DistTensor master_of(const DistTensor& p) {
  const Scoped<MemoryKind> kind(RankContext::current().memory_kind,
                                MemoryKind::kState);
  return DistTensor::wrap(converted(updated_part(p), DType::kF32),
                          p.grad_spec()->with(DType::kF32));
}

// A batch ends once it has this many bytes: in an update, bytes of copies of
// parts that are not contiguous; in gather_updated(), bytes of parameters on
// the rank that has the most of each.
constexpr int64_t kBucket = 4 << 20;

// "2 are missing (a, b)", with at most 8 of the names.
std::string counted(const std::set<std::string>& names, std::string_view what) {
  constexpr int kShown = 8;
  std::string list;
  int n = 0;
  for (const std::string& name : names) {
    if (n++ == kShown) {
      list += ", ...";
      break;
    }
    list += (list.empty() ? "" : ", ") + name;
  }
  return fmt::format("{} {} {}{}", names.size(),
                     names.size() == 1 ? "is" : "are", what,
                     list.empty() ? "" : " (" + list + ")");
}

}  // namespace

// Collects the updates of a step, and runs together those with the same types
// of parameters and gradients.
class Optimizer::Batches {
 public:
  Batches(Optimizer& of, const UpdateOptions& options)
      : of_(of), options_(options) {}

  // `flat` and `grad` are the memory that the parts point to: `all`, or if
  // `ranges` are given, the rows `ids` in each of them. After the update,
  // `flat` is copied to p if it is a copy. `before` is the version of p
  // before the update.
  void add(const kernels::OptimPart& all, Slot& slot, uint64_t before,
           const Tensor& p, const Tensor& flat, const Tensor& grad,
           const Tensor& ids, const IntervalList& ranges) {
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const Batch& b) {
          return b.param == p.dtype() && b.grad == grad.dtype();
        });
    Batch& b = found == all_.end() ? all_.emplace_back() : *found;
    b.param = p.dtype();
    b.grad = grad.dtype();
    Kept kept{&slot, before, p, flat, grad, ids, all.n};
    if (ids.defined()) {
      kernels::OptimPart part = all;
      part.n = grad.shape()[1];
      part.rows = {.count = ids.numel(),
                   .ids = ids.ptr<int64_t>(),
                   .stride = flat.strides()[0]};
      kept.elements = 0;
      for (const Interval& range : ranges) {
        part.rows.lo = range.lo;
        part.rows.hi = range.hi;
        b.parts.push_back(part);
        part.rows.at += range.size();
        kept.elements += std::min(range.size(), ids.numel()) * part.n;
      }
    } else {
      b.parts.push_back(all);
    }
    b.kept.push_back(std::move(kept));
    // Bounds the memory of the copies.
    if (b.kept.back().copied()) copied_ += p.bytes();
    if (copied_ >= kBucket) update();
  }

  void update() {
    copied_ = 0;
    for (Batch& b : all_) {
      if (b.parts.empty()) continue;
      of_.update(
          {b.param, b.grad, b.parts, options_.grad_scale,
           options_.clip.defined() ? options_.clip.ptr<double>() : nullptr});
      RankContext& context = RankContext::current();
      for (Observer* o : context.observers) o->ran(context, ran(b));
      for (const Kept& k : b.kept) {
        if (k.copied()) k.p.copy_from(k.flat);
        k.slot->version += k.p.storage()->version() - k.before;
      }
      b.parts.clear();
      b.kept.clear();
    }
  }

 private:
  struct Kept {
    Slot* slot;
    uint64_t before;
    Tensor p, flat, grad, ids;
    int64_t elements;  // the most that are updated
    bool copied() const { return flat.data() != p.data(); }
  };
  struct Batch {
    DType param, grad;
    std::vector<kernels::OptimPart> parts;
    std::vector<Kept> kept;
  };
  KernelRan ran(const Batch& b) const {
    KernelRan kernel{.name = of_.kernel_name(), .tensors = std::ssize(b.kept)};
    for (const Kept& k : b.kept) {
      const auto touches = [&](MemoryKind kind, const Tensor& t) {
        kernel.touches[static_cast<size_t>(kind)] +=
            k.elements * size_of(t.dtype());
      };
      touches(MemoryKind::kParameters, k.p);
      touches(MemoryKind::kGradients, k.grad);
      for (const DistTensor& s : k.slot->state)
        touches(MemoryKind::kState, s.local());
      if (k.slot->master.defined())
        touches(MemoryKind::kState, k.slot->master.local());
    }
    return kernel;
  }

  Optimizer& of_;
  const UpdateOptions& options_;
  std::vector<Batch> all_;
  int64_t copied_ = 0;  // bytes
};

Optimizer::Optimizer(const ParameterGroups& groups, double weight_decay,
                     std::vector<std::string> state)
    : state_names_(std::move(state)) {
  const Scoped<MemoryKind> kind(RankContext::current().memory_kind,
                                MemoryKind::kState);
  std::set<std::string> names;
  std::map<const DistTensor::Impl*, std::string> listed;
  std::set<std::pair<const Spec*, const Spec*>> cut;  // of parameters so far
  for (const ParameterGroup& group : groups.groups()) {
    check_options("lr_scale", group.lr_scale, 1e300);
    const double decay = group.weight_decay.value_or(weight_decay);
    check_options("weight decay", decay, 1e300);
    for (const auto& [name, p] : group.parameters) {
      DT_CHECK(is_float(p.dtype()), "optimizer",
               "parameter {} is {}, but only floats can be updated; leave it "
               "out, or make it a float",
               name, p.spec()->to_string());
      const bool fresh_cut = cut.insert({p.spec(), p.grad_spec()}).second;
      DT_CHECK(!fresh_cut || cuts_boxes(p), "optimizer",
               "parameter {} is {}, but its gradient is laid out as {}, which "
               "does not cut one box out of each rank's part; call "
               "set_grad_layout() with the parameter's own layout, split "
               "further over other axes",
               name, p.spec()->to_string(), p.grad_spec()->to_string());
      DT_CHECK(names.insert(name).second, "optimizer",
               "two parameters are called {}; list each once, under a name of "
               "its own",
               name);
      const auto [first, fresh] = listed.emplace(p.impl().get(), name);
      DT_CHECK(fresh, "optimizer",
               "parameters {} and {} are one tensor, {}, and would be updated "
               "twice; list it once",
               first->second, name, p.spec()->to_string());
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
           "the number of gradients is {}, but that of parameters is {}; pass "
           "one gradient for each parameter",
           grads.size(), parameters_.size());
  DT_CHECK(options.rows.size() <= grads.size(), "optimizer",
           "rows of {} parameters are given, but there are {}; pass undefined "
           "rows, or none, for an update of all rows",
           options.rows.size(), grads.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    const Spec* p = parameters_[i].grad_spec();
    const Spec* g = grads[i].spec();
    const DistTensor ids = rows_of(options, i);
    if (ids.defined()) {
      DT_CHECK(
          p->ndim() == 2, "optimizer",
          "rows of {} are given, but it is {}; pass rows only for a matrix",
          slots_[i].name, p->to_string());
      const Spec* want =
          Spec::replicated(p->mesh(), {numel(ids.shape())}, DType::kI64);
      DT_CHECK(ids.spec() == want, "optimizer",
               "the rows of {} are {} on {}, but must be {} on {}; pass "
               "used_rows(parameter, ids).ids",
               slots_[i].name, ids.spec()->to_string(), ids.mesh().to_string(),
               want->to_string(), p->mesh().to_string());
      p = rows_spec(parameters_[i], ids.size(0));
    }
    DT_CHECK(g == p || g == p->with(DType::kF32), "optimizer",
             "the gradient of {} is {} on {}, but it must be {} on {}, or that "
             "in f32; pass the gradients in the order of parameters(), and "
             "redistribute() or cast() this one to {}",
             slots_[i].name, g->to_string(), g->mesh().to_string(),
             p->to_string(), p->mesh().to_string(),
             ids.defined() ? "rows_spec(parameter, number of rows)"
                           : "parameter.grad_spec()");
  }
  DT_CHECK(!options.clip.defined() || (options.clip.dtype() == DType::kF64 &&
                                       options.clip.numel() == 1),
           "optimizer",
           "clip is {}{}, but it must be a factor in f64; pass "
           "grad_norm(grads, max_norm).clip",
           name(options.clip.dtype()), to_string(options.clip.shape()));
  RankContext& context = RankContext::current();
  const Scoped<std::string> phase(context.phase, "update");
  const TraceSpan span(context, "update");
  end_gather_step(context);
  const Tensor rates = context.capture && !options.skip
                           ? rates_of_replays(options.lr)
                           : Tensor();
  if (!rates.defined() && !options.skip) ++steps_;
  Batches batches(*this, options);
  for (size_t i = 0; i < grads.size() && !options.skip; ++i) {
    Slot& slot = slots_[i];
    if (!rates.defined()) ++slot.step;
    const Tensor p = updated_part(parameters_[i]);
    if (!p.defined() || p.numel() == 0 || grads[i].local().numel() == 0)
      continue;
    // (In a graph, begin_replay() does this before each replay.)
    if (!rates.defined()) refresh_master(slot, parameters_[i], p);
    const uint64_t before = p.storage()->version();
    const auto state = [&](size_t k) -> void* {
      return k < slot.state.size() ? slot.state[k].local().mutable_data()
                                   : nullptr;
    };
    const DistTensor rows = rows_of(options, i);
    const bool in_place = rows.defined() && p.strides()[1] == 1;
    const Tensor flat = in_place ? p : p.to_contiguous(),
                 grad = grads[i].local().to_contiguous(),
                 ids = rows.defined() ? rows.local().to_contiguous() : Tensor();
    batches.add(
        {.n = p.numel(),
         .param = flat.mutable_data(),
         .grad = grad.data(),
         .m = state(0),
         .v = state(1),
         .master = slot.master.defined() ? slot.master.local().mutable_data()
                                         : nullptr,
         .lr = rates.defined() ? slot.lr_scale : options.lr * slot.lr_scale,
         .weight_decay = slot.weight_decay,
         .step = slot.step,
         .rates = rates.defined() ? rates.ptr<double>() + i * kRates : nullptr},
        slot, before, p, flat, grad, ids,
        rows.defined() ? rows_here(parameters_[i]) : IntervalList());
  }
  batches.update();
  gather_updated(options);
}

void Optimizer::refresh_master(Slot& slot, const DistTensor& p,
                               const Tensor& part) {
  const uint64_t version = part.storage()->version();
  // In place, because a graph keeps using this memory.
  if (slot.master.defined() && slot.version != version)
    slot.master.local().copy_from(master_of(p).local());
  slot.version = version;
}

// Returns device memory from which each replay of a graph reads its rates: one
// row for each parameter.
Tensor Optimizer::rates_of_replays(double lr) {
  const Tensor rates = Capture::written_before_replay(
      {std::ssize(slots_), static_cast<int64_t>(kRates)}, DType::kF64);
  RankContext::current().capture->before_replay(
      [this, rates, lr] { begin_replay(rates, replay_lr_.value_or(lr)); });
  return rates;
}

void Optimizer::begin_replay(const Tensor& rates, double lr) {
  ++steps_;
  std::vector<double> rows;
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    ++slot.step;
    const auto row = this->rates(lr, slot.step);
    rows.insert(rows.end(), row.begin(), row.end());
    const Tensor p = updated_part(parameters_[i]);
    if (!p.defined() || p.numel() == 0) continue;
    refresh_master(slot, parameters_[i], p);
    p.storage()->bump_version();
    slot.version = p.storage()->version();
  }
  rates.device().from_host(rates.stream(), rates.mutable_data(), rows.data(),
                           rates.bytes());
}

// Gathers the parts that other ranks have updated.
void Optimizer::gather_updated(const UpdateOptions& options) {
  RankContext& context = RankContext::current();
  const Scoped<std::string_view> op(context.op, "optimizer");
  const Scoped<MemoryKind> kind(context.memory_kind, MemoryKind::kGathered);
  const NoGrad no_grad;
  for (size_t i = 0; i < parameters_.size();) {
    std::vector<DistTensor> whole;
    std::vector<SpecRef> to;
    std::vector<size_t> which;
    for (int64_t bytes = 0; i < parameters_.size() && bytes < kBucket; ++i) {
      const DistTensor& p = parameters_[i];
      if (p.grad_spec() == p.spec()) continue;
      if (const DistTensor ids = rows_of(options, i); ids.defined()) {
        const uint64_t before = p.impl()->version();
        const DistTensor own =
            DistTensor::wrap(updated_part(p), p.grad_spec()).as_parameter();
        copy_into(p, embedding(own, ids, {.zeros_outside = true}), 0, ids);
        slots_[i].version += p.impl()->version() - before;
        continue;
      }
      whole.push_back(DistTensor::wrap(updated_part(p), p.grad_spec()));
      to.push_back(p.spec());
      which.push_back(i);
      bytes += p.spec()->largest_part_bytes();
    }
    relayout(whole, to);
    for (size_t k = 0; k < which.size(); ++k) {
      const Tensor& part = parameters_[which[k]].impl()->part();
      if (!part.defined()) continue;
      const uint64_t before = part.storage()->version();
      part.copy_from(whole[k].local());
      slots_[which[k]].version += part.storage()->version() - before;
    }
  }
}

std::vector<OptimizerState> Optimizer::state() const {
  std::vector<OptimizerState> all;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    for (size_t k = 0; k < state_names_.size(); ++k)
      all.push_back(
          {slot.name + "." + state_names_[k], slot.state[k], parameters_[i]});
    if (slot.master.defined()) {
      // The master lacks values that a program has written to the parameter
      // since the last update.
      DistTensor master = slot.master;
      if (slot.version != parameters_[i].impl()->version())
        master = master_of(parameters_[i]);
      all.push_back({slot.name + ".master", master, parameters_[i]});
    }
    const DistTensor step = DistTensor::from_local(
        Tensor::from<int64_t>({}, &slot.step), parameters_[i].mesh(), {}, {});
    all.push_back({slot.name + ".step", step, parameters_[i]});
  }
  return all;
}

void Optimizer::load_state(const std::vector<OptimizerState>& values) {
  std::map<std::string, const DistTensor*> given;
  for (const OptimizerState& s : values)
    DT_CHECK(given.emplace(s.name, &s.value).second, "optimizer",
             "the state {} is given twice; pass it once", s.name);
  const std::vector<OptimizerState> own = state();
  std::set<std::string> missing, unknown;
  for (const auto& [name, value] : given) unknown.insert(name);
  for (const OptimizerState& s : own)
    if (!unknown.erase(s.name)) missing.insert(s.name);
  DT_CHECK(
      missing.empty() && unknown.empty(), "optimizer",
      "the state does not fit this optimizer: {} and {}; load the state of an "
      "optimizer of the same class, with the same options and parameters",
      counted(missing, "missing"), counted(unknown, "unknown"));
  std::vector<DistTensor> here;
  std::vector<SpecRef> to;
  for (const OptimizerState& s : own) {
    const DistTensor& v = *given[s.name];
    DT_CHECK(v.shape() == s.value.shape() &&
                 is_float(v.dtype()) == is_float(s.value.dtype()) &&
                 v.dtype() != DType::kBool,
             "optimizer",
             "the state {} is {}, but this optimizer has {}; load the state of "
             "an optimizer with the same parameters",
             s.name, v.spec()->to_string(), s.value.spec()->to_string());
    here.push_back(v);
    to.push_back(s.value.spec()->with(v.dtype()));
  }
  const NoGrad no_grad;
  relayout(here, to);
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
  run_kernel(kernels::Sgd{.param_type = u.param,
                          .grad_type = u.grad,
                          .momentum = options_.momentum,
                          .nesterov = options_.nesterov,
                          .grad_scale = u.grad_scale,
                          .clip = u.clip,
                          .parts = u.parts});
}

std::array<double, Optimizer::kRates> SGD::rates(double lr, int64_t) const {
  return {lr};
}

AdamW::AdamW(const ParameterGroups& parameters, const AdamWOptions& options)
    : Optimizer(parameters, options.weight_decay, {"exp_avg", "exp_avg_sq"}),
      options_(options) {
  check_options("beta1", options.beta1, 1);
  check_options("beta2", options.beta2, 1);
  check_options("eps", options.eps, 1e300);
}

void AdamW::update(const Update& u) {
  run_kernel(kernels::AdamW{.param_type = u.param,
                            .grad_type = u.grad,
                            .beta1 = options_.beta1,
                            .beta2 = options_.beta2,
                            .eps = options_.eps,
                            .grad_scale = u.grad_scale,
                            .clip = u.clip,
                            .parts = u.parts});
}

std::array<double, Optimizer::kRates> AdamW::rates(double lr,
                                                   int64_t step) const {
  const auto t = static_cast<double>(step);
  return {lr, 1 - std::pow(options_.beta1, t), 1 - std::pow(options_.beta2, t)};
}

}  // namespace dtensor::nn
