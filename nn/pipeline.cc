// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/pipeline.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <tuple>

#include "dtensor/autograd.h"
#include "dtensor/gather.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/split_grad.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"
#include "dtensor/trace.h"

namespace dtensor::nn {
namespace {

bool is_on(const Mesh& mesh) {
  return RankContext::current().coordinate_or_null(mesh) != nullptr;
}

// Starts to move x. On ranks of neither mesh the result is complete at once,
// with a spec only.
DistTensor sent(const DistTensor& x, const Spec* to) {
  if (!is_on(x.mesh()) && !is_on(to->mesh())) return DistTensor::wrap({}, to);
  return x.redistribute_async(to->mesh(), to->layout());
}

DistTensor only_spec(const Spec* spec) { return DistTensor::wrap({}, spec); }
// The spec of the sum of a parameter's gradients (GradOptions::keep_exact).
const Spec* sum_spec(const DistTensor& p) {
  return has_exact_sums(p.dtype()) ? p.grad_spec()->with(DType::kExact)
                                   : p.grad_spec();
}

std::vector<SpecRef> specs_of(const std::vector<DistTensor>& list) {
  std::vector<SpecRef> specs;
  for (const DistTensor& x : list) specs.push_back(x.spec());
  return specs;
}

// The spec in which a stage receives output number k of the previous stage.
const Spec* arrival(const PipelineStage& stage, const Spec* made, size_t k) {
  if (k > 0) return spec_onto(stage.mesh, made);
  if (!stage.input) {
    DT_CHECK(same_axes(stage.mesh, made->mesh()), "pipeline",
             "a stage on mesh {} is followed by one on {}, whose axes have "
             "other names, sizes or order; set PipelineStage::input of the "
             "second to the layout in which it receives x, such as \"{}\"",
             made->mesh().to_string(), stage.mesh.to_string(),
             Layout::replicated(made->shape()).to_string(stage.mesh));
    return spec_onto(stage.mesh, made);
  }
  const Layout layout = stage.input->resolve(stage.mesh, made->shape());
  DT_CHECK(layout.partials.empty(), "pipeline",
           "PipelineStage::input on mesh {} is partial; write R or S<dim> for "
           "each axis",
           stage.mesh.to_string());
  return Spec::get(stage.mesh, made->shape(), layout, made->dtype());
}

}  // namespace

Pipeline::Pipeline(PipelineSchedule schedule, std::vector<PipelineStage> stages,
                   const std::vector<StageTimes>& times)
    : schedule_(checked(std::move(schedule), "pipeline")),
      stages_(std::move(stages)) {
  DT_CHECK(std::ssize(stages_) == schedule_.stages(), "pipeline",
           "the number of stages is {}, but that of the schedule is {}; pass "
           "one PipelineStage for each stage of the schedule",
           stages_.size(), schedule_.stages());
  for (size_t s = 0; s < stages_.size(); ++s) {
    for (const DistTensor& p : stages_[s].parameters)
      DT_CHECK(p.mesh() == stages_[s].mesh, "pipeline",
               "a parameter of stage {} is {} on mesh {}, but the stage is on "
               "{}; make it there",
               s, p.spec()->to_string(), p.mesh().to_string(),
               stages_[s].mesh.to_string());
    for (const DistTensor& b : stages_[s].borrows) {
      int64_t owners = 0;
      for (size_t o = 0; o < stages_.size(); ++o)
        for (const DistTensor& p : stages_[o].parameters)
          owners += p.same_as(b) && o != s;
      DT_CHECK(owners == 1, "pipeline",
               "stage {} borrows {}, which the parameters of other stages list "
               "{} times; list it exactly once, in one other stage",
               s, b.spec()->to_string(), owners);
    }
  }
  std::vector<std::tuple<double, int64_t, int64_t, PipelineTask>> finished;
  for (const auto& list : simulate(schedule_, times).tasks)
    for (const TimedTask& t : list)
      finished.emplace_back(t.finish, t.task.slot,
                            schedule_.position(t.task.stage), t.task);
  // This puts a task behind those that make its inputs: they finish no later
  // than the task does, and have an earlier slot.
  std::sort(finished.begin(), finished.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a), std::get<2>(a)) <
           std::tie(std::get<0>(b), std::get<1>(b), std::get<2>(b));
  });
  for (const auto& f : finished) order_.push_back(std::get<3>(f));
}

// One call of Pipeline::run().
class Pipeline::Run {
 public:
  Run(Pipeline& of, const std::vector<DistTensor>& inputs,
      std::span<const double> shares, const PipelineOptions& options)
      : of_(of),
        schedule_(of.schedule_),
        shares_(shares),
        options_(options),
        began_(Clock::now()) {
    const auto stages = of.stages_.size();
    state_.resize(stages);
    RankContext& ctx = RankContext::current();
    const Scoped<std::string_view> op(ctx.op, "tied");
    for (size_t s = 0; s < stages; ++s) {
      State& state = state_[s];
      state.micros.resize(inputs.size());
      state.leaves = of.stages_[s].parameters;
      for (const DistTensor& b : of.stages_[s].borrows)
        state.borrowed.push_back(sent(b.detach(), borrowed_spec(s, b)));
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      state_[0].micros[i].x = {inputs[i]};
  }

  PipelineResult run() {
    for (size_t s = 0; s < state_.size(); ++s)
      for (size_t k = 0; k < state_[s].borrowed.size(); ++k)
        state_[s].leaves.push_back(lent(s, k));
    for (State& state : state_) state.sums.resize(state.leaves.size());
    size_t posted = 0;
    const auto post = [&](size_t end) {
      for (; posted < end; ++posted) transfer(of_.order_[posted]);
    };
    for (size_t i = 0; i < of_.order_.size(); ++i) {
      const PipelineTask& t = of_.order_[i];
      if (!is_on(stage(t.stage).mesh)) continue;
      // Starts all transfers that come before the one of this task's result.
      // The rank's second thread carries them out while this one computes.
      post(i);
      work(t);
      post(i + 1);
    }
    // Waits until everything that this rank sent has left.
    for (const DistTensor& x : on_their_way_) x.impl()->part();
    return finish();
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Tensors = StageForward::Tensors;
  // One micro-batch at one stage.
  struct Micro {
    Tensors x, y;    // the stage's inputs and outputs
    Tensors gy, gx;  // their gradients
    std::optional<SplitGrad> split;
    Specs made;  // the specs of y
  };
  struct State {
    std::vector<Micro> micros;
    std::vector<DistTensor> borrowed, leaves, sums;
  };

  const PipelineStage& stage(int64_t s) const {
    return of_.stages_[static_cast<size_t>(s)];
  }
  Micro& micro(int64_t s, int64_t i) {
    return state_[static_cast<size_t>(s)].micros[static_cast<size_t>(i)];
  }
  bool is_last(int64_t s) const { return s + 1 == schedule_.stages(); }

  const Spec* borrowed_spec(size_t s, const DistTensor& p) const {
    const Mesh& mesh = of_.stages_[s].mesh;
    DT_CHECK(same_axes(mesh, p.mesh()), "pipeline",
             "stage {} on mesh {} borrows {} of mesh {}, which has other axes; "
             "use meshes with the same axes",
             s, mesh.to_string(), p.spec()->to_string(), p.mesh().to_string());
    return spec_onto(mesh, p.use_spec());
  }

  // Makes the received copy of a borrowed tensor a parameter like the owner's:
  // operators may move the copy if they may move the owner's, and its gradient
  // has the same layout. (If the owner's is gathered on use, the copy arrives
  // gathered, and operators do not move it.)
  DistTensor lent(size_t s, size_t k) {
    const DistTensor& p = of_.stages_[s].borrows[k];
    DistTensor b =
        state_[s].borrowed[k].as_parameter(gathers(p) ? Keep::kStay : p.keep());
    if (p.grad_spec() != p.use_spec())
      b.set_grad_layout(p.grad_spec()->layout());
    return b;
  }

  // Runs stage s on x, for micro-batch i.
  Tensors outputs(int64_t s, const Tensors& x, int64_t i) {
    const Mesh& mesh = stage(s).mesh;
    Tensors list =
        stage(s).forward(x, i, state_[static_cast<size_t>(s)].borrowed);
    DT_CHECK(!list.empty() && (list.size() == 1 || !is_last(s)), "pipeline",
             "stage {} returns {} tensors; {}", s, list.size(),
             is_last(s) ? "the last stage has to return its loss alone"
                        : "return at least one");
    for (const DistTensor& y : list)
      DT_CHECK(y.mesh() == mesh, "pipeline",
               "stage {} returns {} on mesh {}, but the stage is on {}; "
               "redistribute it to that mesh",
               s, y.spec()->to_string(), y.mesh().to_string(),
               mesh.to_string());
    return list;
  }

  // The specs of a stage's outputs for a micro-batch. Ranks that ran the stage
  // know them; other ranks run the stage without data.
  const Specs& made(int64_t s, int64_t i) {
    Micro& m = micro(s, i);
    if (!m.made.empty()) return m.made;
    const Specs in = s == 0 ? specs_of(m.x) : came(s, i);
    Specs& known = of_.made_[{s, in}];
    if (known.empty()) {
      // With gradients as on the stage's ranks, because NoGrad would let
      // operators choose other layouts (see choose()).
      Tensors x;
      for (const Spec* spec : in) x.push_back(only_spec(spec));
      known = specs_of(outputs(s, x, i));
    }
    return m.made = known;
  }
  Specs came(int64_t s, int64_t i) {
    Specs specs = made(s - 1, i);
    for (size_t k = 0; k < specs.size(); ++k)
      specs[k] = arrival(stage(s), specs[k], k);
    return specs;
  }

  // Sends the results of a task to the stage that needs them, if this rank
  // takes part in that transfer.
  void transfer(const PipelineTask& t) {
    const bool forward = t.work == PipelineWork::kForward;
    if (t.work == PipelineWork::kWeight || (forward && is_last(t.stage)) ||
        (!forward && t.stage == 0))
      return;
    const int64_t to = t.stage + (forward ? 1 : -1);
    const bool here = is_on(stage(t.stage).mesh);
    if (!here && !is_on(stage(to).mesh)) return;
    Micro &from = micro(t.stage, t.micro), &next = micro(to, t.micro);
    RankContext& ctx = RankContext::current();
    const Scoped<std::string_view> op(ctx.op, "pipeline");
    const Scoped<std::string> phase(ctx.phase,
                                    forward ? "forward" : "backward");
    if (forward) {
      const Specs made_here = made(t.stage, t.micro), specs = came(to, t.micro);
      for (size_t k = 0; k < specs.size(); ++k)
        next.x.push_back(sent(
            here ? from.y[k].detach() : only_spec(made_here[k]), specs[k]));
      await(next.x);
    } else {
      const Specs g = came(t.stage, t.micro), made_there = made(to, t.micro);
      const Tensors gx = std::exchange(from.gx, {});
      for (size_t k = 0; k < g.size(); ++k)
        next.gy.push_back(sent(here ? gx[k] : only_spec(g[k]),
                               cotangent_spec(made_there[k], g[k])));
      await(next.gy);
    }
  }

  // Remembers transfers that this rank only sends; run() waits for them at the
  // end.
  void await(const Tensors& list) {
    for (const DistTensor& x : list)
      if (!is_on(x.mesh())) on_their_way_.push_back(x);
  }

  void work(const PipelineTask& t) {
    Micro& m = micro(t.stage, t.micro);
    if (t.work == PipelineWork::kForward && t.stage > 0)
      for (const DistTensor& x : m.x) x.impl()->part();
    if (t.work == PipelineWork::kBackward && !is_last(t.stage))
      for (const DistTensor& g : m.gy) g.impl()->part();
    const double start = now();
    if (t.work == PipelineWork::kForward)
      forward(t, m);
    else if (t.work == PipelineWork::kBackward)
      backward(t, m);
    else
      weight(t, m);
    tasks_.push_back({t, start, now()});
  }

  void forward(const PipelineTask& t, Micro& m) {
    const TraceSpan span("forward", t.micro);
    if (t.stage > 0)
      for (DistTensor& x : m.x) x.set_requires_grad();
    m.y = outputs(t.stage, m.x, t.micro);
    m.made = of_.made_[{t.stage, specs_of(m.x)}] = specs_of(m.y);
    if (is_last(t.stage)) losses_.emplace_back(t.micro, m.y[0].detach());
  }

  void backward(const PipelineTask& t, Micro& m) {
    State& s = state_[static_cast<size_t>(t.stage)];
    const TraceSpan span("backward", t.micro);
    const Tensors y = std::exchange(m.y, {});
    Tensors inputs = std::exchange(m.x, {}), g = std::exchange(m.gy, {});
    if (is_last(t.stage))
      g = {full({}, shares_[static_cast<size_t>(t.micro)], y[0].mesh(), {},
                y[0].dtype())};
    if (t.stage == 0) inputs.clear();  // their gradient is not needed
    if (inputs.empty() && s.leaves.empty()) return;
    if (schedule_.weight_tasks) {
      m.split.emplace(y, g, inputs, s.leaves);
      m.gx = m.split->now();
      return;
    }
    GradOptions options = options_for(s);
    options.release_graph = true;
    options.wire_from = inputs.size();
    Tensors& sums = sends_each() ? options.add_arrived : options.add_to;
    sums.insert(sums.begin(), inputs.size(), {});
    Tensors all = inputs;
    all.insert(all.end(), s.leaves.begin(), s.leaves.end());
    Tensors grads = grad(y, g, all, std::move(options));
    const auto weights = grads.begin() + std::ssize(inputs);
    s.sums.assign(weights, grads.end());
    m.gx.assign(grads.begin(), weights);
    if (!sends_each()) m.gx = settle(inputs, std::move(m.gx));
  }

  void weight(const PipelineTask& t, Micro& m) {
    State& s = state_[static_cast<size_t>(t.stage)];
    const TraceSpan span("weight", t.micro);
    if (!m.split) return;
    s.sums = m.split->later(options_for(s));
    m.split.reset();
  }

  // Whether gradients are sent in each micro-batch.
  bool sends_each() const { return options_.bucket_bytes > 0; }

  // The options for the gradients of one micro-batch: they are added to the
  // stage's sums, which move into the options.
  GradOptions options_for(State& s) const {
    Tensors sums = std::exchange(s.sums, {});
    if (sends_each())
      return {.bucket_bytes = options_.bucket_bytes,
              .wire_dtype = options_.wire_dtype,
              .keep_exact = true,
              .add_arrived = std::move(sums)};
    return {
        .keep_partial = true, .keep_exact = true, .add_to = std::move(sums)};
  }

  // Brings the summed gradients to their layouts and collects the result.
  PipelineResult finish() {
    PipelineResult result;
    for (size_t s = 0; s < state_.size(); ++s) {
      State& state = state_[s];
      if (is_on(of_.stages_[s].mesh)) {
        if (!sends_each())
          state.sums = settle(state.leaves, std::move(state.sums),
                              options_.wire_dtype, true);
      } else {
        for (size_t k = 0; k < state.leaves.size(); ++k)
          state.sums[k] = only_spec(sum_spec(state.leaves[k]));
      }
    }
    for (size_t s = 0; s < state_.size(); ++s)
      for (size_t k = 0; k < state_[s].borrowed.size(); ++k) give_back(s, k);
    for (size_t s = 0; s < state_.size(); ++s) {
      state_[s].sums.resize(of_.stages_[s].parameters.size());
      for (size_t k = 0; k < state_[s].sums.size(); ++k)
        state_[s].sums[k] =
            settled(state_[s].sums[k], state_[s].leaves[k].dtype());
      result.grads.push_back(std::move(state_[s].sums));
    }
    const auto last = schedule_.stages() - 1;
    result.losses.resize(state_[0].micros.size());
    for (auto& [i, loss] : losses_)
      result.losses[static_cast<size_t>(i)] = loss;
    for (size_t i = 0; i < result.losses.size(); ++i)
      if (!result.losses[i].defined())
        result.losses[i] = only_spec(made(last, static_cast<int64_t>(i))[0]);
    result.tasks = std::move(tasks_);
    return result;
  }

  // Sends the gradient of borrowed tensor k of stage s to its owner, and adds
  // it there.
  void give_back(size_t s, size_t k) {
    const NoGrad no_grad;
    RankContext& ctx = RankContext::current();
    const Scoped<std::string_view> op(ctx.op, "tied");
    const Scoped<std::string> phase(ctx.phase, "backward");
    const DistTensor& p = of_.stages_[s].borrows[k];
    const DistTensor& g = state_[s].sums[of_.stages_[s].parameters.size() + k];
    for (size_t o = 0; o < state_.size(); ++o)
      for (size_t i = 0; i < of_.stages_[o].parameters.size(); ++i) {
        if (o == s || !of_.stages_[o].parameters[i].same_as(p)) continue;
        DistTensor& sum = state_[o].sums[i];
        const DistTensor home = sent(g, p.grad_spec()->with(g.dtype()));
        home.impl()->part();
        if (is_on(p.mesh())) sum = add_cotangents(sum, home);
      }
  }

  double now() const {
    return std::chrono::duration<double>(Clock::now() - began_).count();
  }

  Pipeline& of_;
  const PipelineSchedule& schedule_;
  const std::span<const double> shares_;
  const PipelineOptions options_;
  const Clock::time_point began_;
  std::vector<State> state_;
  std::vector<DistTensor> on_their_way_;
  std::vector<std::pair<int64_t, DistTensor>> losses_;
  std::vector<TimedTask> tasks_;
};

PipelineResult Pipeline::run(const std::vector<DistTensor>& inputs,
                             std::span<const double> shares,
                             const PipelineOptions& options) {
  DT_CHECK(options.bucket_bytes >= 0, "pipeline",
           "bucket_bytes is {}; write 0 or more", options.bucket_bytes);
  DT_CHECK(std::ssize(inputs) == schedule_.micros &&
               std::ssize(shares) == schedule_.micros,
           "pipeline",
           "the numbers of inputs, shares and micro-batches are {}, {} and {}; "
           "give one input and one share for each micro-batch",
           inputs.size(), shares.size(), schedule_.micros);
  for (const DistTensor& x : inputs)
    DT_CHECK(x.mesh() == stages_[0].mesh, "pipeline",
             "input {} is {} on mesh {}, but the first stage is on {}; "
             "redistribute it to that mesh",
             &x - inputs.data(), x.spec()->to_string(), x.mesh().to_string(),
             stages_[0].mesh.to_string());
  return Run(*this, inputs, shares, options).run();
}

}  // namespace dtensor::nn
