// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/optimizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/capture.h"
#include "dtensor/gather.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/region.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"
#include "dtensor/trace.h"

namespace dtensor::nn {
namespace {

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

// The value that an update starts from: of a half float the master, else the
// parameter. The handle is a new one, so that copies which operators keep with
// it go when the update ends.
DistTensor value_of(const DistTensor& p, const DistTensor& master) {
  return master.defined() ? master.detach()
                          : DistTensor::wrap(updated_part(p), p.grad_spec());
}

// Checks the states that a class has made for a parameter, and gives each
// memory of its own.
void own(std::vector<NamedTensor>& states, const std::string& parameter,
         const Mesh& mesh) {
  std::set<std::string_view> names = {"master", "step"};
  for (auto& [name, value] : states) {
    DT_CHECK(!name.empty() && name.find('.') == name.npos &&
                 names.insert(name).second,
             "optimizer",
             "a state of {} is called \"{}\"; give each a name of its own, "
             "without dots, and other than master and step",
             parameter, name);
    DT_CHECK(value.defined() && value.mesh() == mesh &&
                 value.dtype() != DType::kBool,
             "optimizer",
             "the state {} of {} is {}; make a number tensor on the "
             "parameter's mesh {}",
             name, parameter,
             value.defined()
                 ? value.spec()->to_string() + " on " + value.mesh().to_string()
                 : "undefined",
             mesh.to_string());
    Layout layout = value.layout();
    layout.partials.clear();
    value = relayout(value, value.spec()->with(layout));
    if (!value.here()) continue;
    const Tensor& part = value.local();
    const bool shared =
        value.impl().use_count() > 1 || part.storage().use_count() > 1;
    value = DistTensor::wrap(shared || !part.contiguous() ? part.clone() : part,
                             value.spec());
  }
}

// Changes if one of the tensors is written to.
uint64_t versions(const std::vector<DistTensor>& all) {
  uint64_t sum = 0;
  for (const DistTensor& x : all) sum += x.impl()->version();
  return sum;
}

// Brings the new values of parameter `name` and its states to the layouts of
// the old ones. Then copies them there, unless `skip`.
void replace(const std::string& name, const std::vector<DistTensor>& old,
             std::vector<DistTensor> now, bool skip) {
  std::vector<SpecRef> to;
  for (size_t k = 0; k < old.size(); ++k) {
    const Spec* spec = old[k].spec();
    DT_CHECK(now[k].defined() && now[k].mesh() == spec->mesh() &&
                 now[k].shape() == spec->shape() &&
                 is_float(now[k].dtype()) == is_float(spec->dtype()),
             "optimizer",
             "the update of {} gives {} {}, but it must be {} on {} in any "
             "layout",
             name, k ? "a state that is" : "a value that is",
             now[k].defined() ? now[k].spec()->to_string() + " on " +
                                    now[k].mesh().to_string()
                              : "undefined",
             spec->to_string(), spec->mesh().to_string());
    to.push_back(spec->with(now[k].dtype()));
  }
  relayout(now, to);
  if (skip) return;
  // A new value may be a view of an old one. Copy it before that is written to.
  std::vector<Tensor> parts;
  for (size_t k = 0; k < old.size(); ++k) {
    const Tensor &from = now[k].local(), &there = old[k].local();
    const bool same = from.storage() == there.storage() &&
                      from.data() == there.data() &&
                      from.strides() == there.strides();
    const bool view = std::any_of(old.begin(), old.end(), [&](const auto& o) {
      return o.local().storage() == from.storage();
    });
    parts.push_back(same ? Tensor() : view ? from.clone() : from);
  }
  for (size_t k = 0; k < old.size(); ++k)
    if (parts[k].defined())
      old[k].local().copy_from(converted(parts[k], old[k].dtype()));
}

// A copy of the parameter in f32.
DistTensor master_of(const DistTensor& p) {
  const Scoped<MemoryKind> kind(RankContext::current().memory_kind,
                                MemoryKind::kState);
  return DistTensor::wrap(converted(updated_part(p), DType::kF32),
                          p.grad_spec()->with(DType::kF32));
}

// A batch ends once it has this many bytes: in an update, bytes of copies of
// parts that are not contiguous, and of state from the host; in
// gather_updated(), bytes of parameters on the rank that has the most of each.
constexpr int64_t kBucket = 4 << 20;

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
    // Bounds the memory of the copies, and of state from the host.
    if (b.kept.back().copied()) copied_ += p.bytes();
    if (slot.offload)
      for (const Tensor& t : state_of(slot)) copied_ += t.bytes();
    if (copied_ >= kBucket) update();
  }

  void update() {
    copied_ = 0;
    for (Batch& b : all_) {
      if (b.parts.empty()) continue;
      of_.update_parts(
          {b.param, b.grad, b.parts, options_.grad_scale,
           options_.clip.defined() ? options_.clip.ptr<double>() : nullptr});
      RankContext& context = RankContext::current();
      for (Observer* o : context.observers) o->ran(context, ran(b));
      for (const Kept& k : b.kept) {
        if (k.copied()) k.p.copy_from(k.flat);
        k.slot->version += k.p.storage()->version() - k.before;
        put_away(*k.slot);
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
      for (const Tensor& t : state_of(*k.slot)) touches(MemoryKind::kState, t);
    }
    return kernel;
  }

  // This rank's parts of the states and the master.
  static std::vector<Tensor> state_of(const Slot& slot) {
    std::vector<Tensor> parts;
    for (const NamedTensor& s : slot.states) parts.push_back(s.tensor.local());
    if (slot.master.defined()) parts.push_back(slot.master.local());
    return parts;
  }

  Optimizer& of_;
  const UpdateOptions& options_;
  std::vector<Batch> all_;
  int64_t copied_ = 0;  // bytes
};

void Optimizer::check_option(std::string_view name, double value,
                             double below) {
  DT_CHECK(value >= 0 && value < below, "optimizer",
           "{} is {}; it must be at least 0 and below {}", name, value, below);
}

DistTensor& ParameterUpdate::state(std::string_view name) {
  std::string names;
  for (NamedTensor& s : states) {
    if (s.name == name) return s.tensor;
    names += (names.empty() ? "" : ", ") + s.name;
  }
  fail("optimizer", "a parameter {} has no state {}; its states are: {}",
       parameter.spec()->to_string(), name, names.empty() ? "none" : names);
}

Optimizer::Optimizer(const ParameterGroups& groups, double weight_decay,
                     const std::vector<std::string>& state)
    : Optimizer(groups, weight_decay, [&](const DistTensor& value) {
        std::vector<NamedTensor> zeros;
        for (const std::string& name : state)
          zeros.push_back({name, zeros_like(value)});
        return zeros;
      }) {
  by_operators_ = false;
}

Optimizer::Optimizer(const ParameterGroups& groups, double weight_decay,
                     States states) {
  const NoGrad no_grad;
  const Scoped<MemoryKind> kind(RankContext::current().memory_kind,
                                MemoryKind::kState);
  std::set<std::string> names;
  std::map<const DistTensor::Impl*, std::string> listed;
  std::set<std::pair<const Spec*, const Spec*>> cut;  // of parameters so far
  for (const ParameterGroup& group : groups.groups()) {
    check_option("lr_scale", group.lr_scale, 1e300);
    const double decay = group.weight_decay.value_or(weight_decay);
    check_option("weight decay", decay, 1e300);
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
      Slot slot{name, p.dtype(), group.lr_scale, decay, group.offload_state,
                {},   {}};
      if (is_half_float(p.dtype())) slot.master = master_of(p);
      if (states) slot.states = states(value_of(p, slot.master));
      own(slot.states, name, p.mesh());
      slot.version = p.impl()->version();
      put_away(slot);
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
    DT_CHECK(p->dtype() == slots_[i].type, "optimizer",
             "{} is {} now, but was {} when the optimizer was made; call "
             "Module::to() before that, or make a new optimizer",
             slots_[i].name, p->to_string(), name(slots_[i].type));
    const DistTensor ids = rows_of(options, i);
    if (ids.defined()) {
      DT_CHECK(!by_operators_, "optimizer",
               "rows of {} are given, but an update by operators is one of all "
               "rows; leave UpdateOptions::rows out, or use SGD or AdamW",
               slots_[i].name);
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
  if (by_operators_)
    update_by_operators(grads, options);
  else
    update_by_kernels(grads, options);
  gather_updated(options);
}

void Optimizer::update_by_kernels(const std::vector<DistTensor>& grads,
                                  const UpdateOptions& options) {
  if (options.skip) return;
  const Tensor rates =
      RankContext::current().capture ? rates_of_replays(options.lr) : Tensor();
  if (!rates.defined()) ++steps_;
  Batches batches(*this, options);
  for (size_t i = 0; i < grads.size(); ++i) {
    Slot& slot = slots_[i];
    if (!rates.defined()) ++slot.step;
    const Tensor p = updated_part(parameters_[i]);
    if (!p.defined() || p.numel() == 0 || grads[i].local().numel() == 0)
      continue;
    // (In a graph, begin_replay() does this before each replay.)
    if (!rates.defined()) refresh_master(slot, parameters_[i], p);
    const uint64_t before = p.storage()->version();
    const auto state = [&](size_t k) -> void* {
      return k < slot.states.size()
                 ? slot.states[k].tensor.local().mutable_data()
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
}

void Optimizer::update_by_operators(const std::vector<DistTensor>& grads,
                                    const UpdateOptions& options) {
  DT_CHECK(!RankContext::current().capture, "optimizer",
           "an update by operators cannot be in a graph's step, because its "
           "rate and its step number would not change; step without a graph "
           "(in a Trainer, leave cuda_graph out), or use SGD or AdamW");
  const NoGrad no_grad;
  if (!options.skip) ++steps_;
  // Updates to come, the parts that they change, the tensors to write to, and
  // the versions of all that they may not write to.
  std::vector<ParameterUpdate> updates;
  std::vector<Tensor> parts;
  std::vector<std::vector<DistTensor>> old;
  std::vector<uint64_t> given;
  const auto seen = [&](size_t k) {
    return versions(old[k]) + versions({grads[updates[k].index]});
  };
  const auto run = [&] {
    if (updates.empty()) return;
    for (size_t k = 0; k < updates.size(); ++k) given.push_back(seen(k));
    std::vector<DistTensor> values = update_all(updates);
    DT_CHECK(values.size() == updates.size(), "optimizer",
             "update_all() returned {} for {}; return one value for each",
             quantity(std::ssize(values), "value", "values"),
             quantity(std::ssize(updates), "parameter", "parameters"));
    for (size_t k = 0; k < updates.size(); ++k) {
      ParameterUpdate& u = updates[k];
      Slot& slot = slots_[u.index];
      DT_CHECK(given[k] == seen(k), "optimizer",
               "the update of {} wrote to its arguments in place; return new "
               "tensors, as in p - g * lr, so that a step can be skipped",
               slot.name);
      std::vector<DistTensor> now = {std::exchange(values[k], {})};
      for (const NamedTensor& s : u.states) now.push_back(s.tensor);
      const size_t index = u.index;
      u = {};
      const uint64_t before = parts[k].storage()->version();
      replace(slot.name, old[k], std::move(now), options.skip);
      if (slot.master.defined() && !options.skip)
        parts[k].copy_from(
            converted(slot.master.local(), parameters_[index].dtype()));
      slot.version += parts[k].storage()->version() - before;
      put_away(slot);
    }
    updates.clear(), parts.clear(), old.clear(), given.clear();
  };
  for (size_t i = 0; i < grads.size(); ++i) {
    Slot& slot = slots_[i];
    const DistTensor& p = parameters_[i];
    const int64_t step = slot.step + 1;
    if (!options.skip) slot.step = step;
    if (!p.here()) continue;
    parts.push_back(updated_part(p));
    refresh_master(slot, p, parts.back());
    ParameterUpdate u{.parameter = value_of(p, slot.master),
                      .gradient = grads[i].detach(),
                      .lr = options.lr * slot.lr_scale,
                      .weight_decay = slot.weight_decay,
                      .step = step,
                      .index = i,
                      .states = {}};
    const DType type = u.parameter.dtype();
    u.gradient = cast(u.gradient, type);
    if (options.grad_scale != 1) u.gradient = u.gradient * options.grad_scale;
    if (options.clip.defined())
      u.gradient = u.gradient *
                   DistTensor::wrap(converted(options.clip, type).reshape({}),
                                    Spec::replicated(p.mesh(), {}, type));
    old.push_back({u.parameter});
    for (const auto& [name, value] : slot.states) {
      u.states.push_back({name, value.detach()});
      old.back().push_back(value);
    }
    updates.push_back(std::move(u));
    if (!together()) run();
  }
  run();
}

void Optimizer::put_away(const Slot& slot) {
  if (!slot.offload) return;
  const auto put = [](const DistTensor& x) {
    if (x.defined() && x.here()) x.impl()->local.storage()->offload();
  };
  for (const NamedTensor& s : slot.states) put(s.tensor);
  put(slot.master);
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
    for (const NamedTensor& s : slot.states)
      all.push_back({slot.name + "." + s.name, s.tensor, parameters_[i]});
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

}  // namespace dtensor::nn
