// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/comm_table.h"
#include "dtensor/data_check.h"
#include "dtensor/graph.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/checkpoint.h"
#include "dtensor/nn/grad_scaler.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/nn/pipeline_model.h"
#include "dtensor/nn/sparse_tables.h"
#include "dtensor/nn/step_checks.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/progress.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/replicas.h"
#include "dtensor/runtime.h"
#include "dtensor/trace.h"

namespace dtensor::nn {
namespace {

// "h.0" of "h.0.ln_1.weight", the element of a list; empty if there is none.
std::string block_of(std::string_view path) {
  for (size_t begin = 0, dot; (dot = path.find('.', begin)) != path.npos;
       begin = dot + 1) {
    const std::string_view name = path.substr(begin, dot - begin);
    if (!name.empty() && name.find_first_not_of("0123456789") == name.npos)
      return std::string(path.substr(0, dot));
  }
  return {};
}

// The bytes of the parameters of the largest block or, in a model without
// lists, of the largest module. A parameter counts as operators see it
// (gathered, in the case of gather_on_use()), on the rank that has most of it.
int64_t block_bytes(const Module& model) {
  std::map<std::string, int64_t> blocks, owners;
  for (const NamedParameter& p : model.named_parameters()) {
    const std::string block = block_of(p.name), &name = p.name;
    (block.empty() ? owners[name.substr(0, name.rfind('.'))] : blocks[block]) +=
        p.tensor.use_spec()->largest_part_bytes();
  }
  int64_t most = 0;
  for (const auto& [name, bytes] : blocks.empty() ? owners : blocks)
    most = std::max(most, bytes);
  return most;
}

int64_t rows_of(const Batch& b) {
  DT_CHECK(
      b.inputs.ndim() > 0 && b.targets.ndim() > 0, "trainer",
      "inputs have shape {}, and targets {}; give both a dimension of rows",
      to_string(b.inputs.shape()), to_string(b.targets.shape()));
  return b.inputs.shape()[0];
}

constexpr const char* kLrSteps = "learning rate steps";

// The value with this name; null if there is none.
const CheckpointValue* find(const CheckpointValues& values,
                            const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? nullptr : &found->second;
}

// The value as C++ code, so that values of two types differ.
std::string to_text(const CheckpointValue* value) {
  if (!value) return "(none)";
  constexpr const char* kForms[] = {"{}", "{}u", "\"{}\""};
  const auto form = fmt::runtime(kForms[value->index()]);
  return std::visit([&](auto& x) { return fmt::format(form, x); }, *value);
}

std::unique_ptr<Optimizer> make_optimizer(const Module& model,
                                          const TrainerOptions& options) {
  std::vector<ParameterGroup> all =
      decay_matrices(model.named_parameters()).groups();
  for (ParameterGroup& g : all) g.offload_state = options.offload_state;
  const ParameterGroups groups = std::move(all);
  if (!options.optimizer)
    return std::make_unique<AdamW>(
        groups, AdamWOptions{.weight_decay = options.weight_decay});
  std::unique_ptr<Optimizer> made = options.optimizer(groups);
  DT_CHECK(made, "trainer",
           "the function `optimizer` returned null; return an optimizer of the "
           "given parameters, or leave it out");
  return made;
}

GradScalerOptions scaler_options(double loss_scale) {
  GradScalerOptions options{.enabled = loss_scale > 0};
  if (options.enabled) options.init_scale = loss_scale;
  return options;
}

// Modules do not train inside.
class Evaluating {
 public:
  explicit Evaluating(Module& model)
      : model_(model), training_(model.training()) {
    model_.eval();
  }
  ~Evaluating() { model_.train(training_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  Module& model_;
  const bool training_;
};

}  // namespace

// The state of a Trainer, and its training step.
class Trainer::Engine {
 public:
  // `language` is `model` if that is a language model, else null.
  Engine(Module& model, const LanguageModel* language, Loss loss,
         TrainerOptions options);

  StepResult step(const Batches&);
  DistTensor spread(const Tensor& rows, const Mesh&) const;
  int zero() const { return model.plan() ? model.plan()->zero_stage : 0; }

  Module& model;
  const LanguageModel* const language;
  const Loss loss;
  TrainerOptions options;
  const Mesh mesh;
  const std::unique_ptr<Optimizer> optimizer;
  GradScaler scaler;
  int64_t next = 0, data_position = 0;
  // Whether this trainer resumed or saved the folder's latest checkpoint.
  bool continues = false;
  int64_t items = 0;  // tokens, or rows, of the latest step

 private:
  struct Windows {
    DistTensor inputs, targets;
    double share;  // the share of the step's rows, from 0 to 1
  };
  Windows micro_batch(const Batch&, int64_t m) const;
  // Returns the gradients of the parameters, and sets `total` to the loss. Both
  // are over all micro-batches.
  using MicroBatches = std::function<Windows(int64_t m)>;
  std::vector<DistTensor> gradients(const MicroBatches&, DistTensor& total);
  std::vector<DistTensor> pipeline_gradients(const MicroBatches&,
                                             DistTensor& total);
  void make_pipeline();
  // Enqueues a whole step on the device. Returns a device tensor with the loss
  // and the norm.
  Tensor run(const MicroBatches&, double lr);
  Tensor replay(const Batch&, double lr);

  SparseTables tables_;
  int64_t bucket_bytes_;
  // The meshes of a micro-batch's inputs and targets.
  Mesh first_mesh_, last_mesh_;
  int64_t micros_;
  // With an axis pp: the pipeline; for each of the optimizer's parameters, its
  // stage and its position in the stage; and the targets and the timed tasks of
  // the latest step.
  std::unique_ptr<Pipeline> pipeline_;
  std::vector<std::pair<size_t, size_t>> places_;
  std::vector<DistTensor> targets_;
  std::vector<TimedTask> tasks_;
  int64_t steps_run_ = 0;
  // With a graph: the tensors that a replay reads and writes.
  std::vector<Windows> windows_;
  Tensor report_;
  std::unique_ptr<Graph> graph_;
};

Trainer::Engine::Engine(Module& m, const LanguageModel* lm, Loss l,
                        TrainerOptions o)
    : model(m),
      language(lm),
      loss(std::move(l)),
      options(std::move(o)),
      mesh(m.mesh()),
      optimizer(make_optimizer(m, options)),
      scaler(scaler_options(options.loss_scale)),
      tables_(options, m, *optimizer, lm != nullptr),
      first_mesh_(mesh),
      last_mesh_(mesh),
      micros_(options.micro_batches) {
  DT_CHECK(
      options.steps >= 1 && options.micro_batches >= 1 &&
          options.save_every >= 1,
      "trainer",
      "steps is {}, micro_batches {} and save_every {}; write 1 or more for "
      "each",
      options.steps, options.micro_batches, options.save_every);
  // The bucket size of PyTorch's DDP. With ZeRO's stages 2 and 3, a bucket has
  // at most the bytes of the largest block: their purpose is to save memory.
  constexpr int64_t kBucket = 25 << 20;
  bucket_bytes_ = zero() < 2 ? kBucket : std::min(block_bytes(model), kBucket);
  if (language && axis_that(kSplitsStages, mesh) >= 0) make_pipeline();
  DT_CHECK(!options.cuda_graph || !pipeline_, "trainer",
           "a pipeline cannot be replayed as a graph; leave cuda_graph out");
  DT_CHECK(!options.cuda_graph || !optimizer->by_operators(), "trainer",
           "an update by operators cannot be replayed as a graph; leave "
           "cuda_graph out, or use SGD or AdamW");
  DT_CHECK(!options.cuda_graph || !options.offload_state, "trainer",
           "a graph keeps the memory of the optimizer's state; leave "
           "cuda_graph or offload_state out");
  DT_CHECK(!options.cuda_graph || !scaler.is_enabled(), "trainer",
           "loss_scale is {}, but a graph cannot skip a step whose gradients "
           "overflow; set loss_scale to 0, or cuda_graph to false",
           options.loss_scale);
  if (!options.checkpoints.empty()) claim_checkpoints(options.checkpoints);
}

void Trainer::Engine::make_pipeline() {
  if (!options.schedule)
    options.schedule = make_schedule(
        "1f1b", mesh.axis_size(axis_that(kSplitsStages, mesh)), micros_);
  const PipelineSchedule& schedule = *options.schedule;
  const PipelineCut cut =
      cut_pipeline(language->config(), mesh, schedule.chunks);
  first_mesh_ = cut.meshes.front();
  last_mesh_ = cut.meshes.back();
  micros_ = schedule.micros;
  const std::vector<PipelineStage> stages = pipeline_stages(
      *language, cut,
      [this](int64_t m) { return targets_[static_cast<size_t>(m)]; });
  for (const DistTensor& p : optimizer->parameters())
    for (size_t s = 0; s < stages.size(); ++s)
      for (size_t k = 0; k < stages[s].parameters.size(); ++k)
        if (stages[s].parameters[k].same_as(p)) places_.emplace_back(s, k);
  pipeline_ = std::make_unique<Pipeline>(schedule, stages,
                                         stage_times(language->config(), cut));
}

DistTensor Trainer::Engine::spread(const Tensor& rows, const Mesh& on) const {
  return DistTensor::from_global(
      rows, on,
      language ? Placements(batch_layout(on, rows.shape()))
               : batch_placements(on));
}

Trainer::Engine::Windows Trainer::Engine::micro_batch(const Batch& batch,
                                                      int64_t m) const {
  const int64_t rows = batch.inputs.shape()[0], n = micros_;
  const int64_t lo = m * rows / n, hi = (m + 1) * rows / n;
  return {spread(batch.inputs.slice(0, lo, hi), first_mesh_),
          spread(batch.targets.slice(0, lo, hi), last_mesh_),
          static_cast<double>(hi - lo) / static_cast<double>(rows)};
}

std::vector<DistTensor> Trainer::Engine::gradients(
    const MicroBatches& micro_batches, DistTensor& total) {
  std::vector<DistTensor> sum;
  for (int64_t m = 0; m < micros_; ++m) {
    DistTensor part;
    std::vector<DistTensor> to;
    double share = 0;
    {  // a scope of its own, so that grad() can free the windows early
      const Windows windows = micro_batches(m);
      const TraceSpan span("forward");
      const RowsRecord rows;
      part = loss(windows.inputs, windows.targets);
      share = windows.share;
      to = tables_.inputs(rows);
    }
    if (m > 0) sum.resize(to.size());
    const bool last = m + 1 == micros_;
    // The gradients of the micro-batches, weighted by their shares, add up to
    // the gradient of the mean loss over all rows.
    GradOptions grad_options{.keep_partial = !last,
                             .cotangent = full({}, share * scaler.get_scale(),
                                               mesh, {}, part.dtype()),
                             .release_graph = true,
                             .bucket_bytes = zero() == 1 ? 0 : bucket_bytes_,
                             .add_to = std::move(sum)};
    grad_options.wire_dtype = options.wire_dtype;
    sum = grad(part, to, std::move(grad_options));
    tables_.keep_rows(sum);
    const NoGrad no_grad;
    const DistTensor weighted =
        micros_ == 1 ? part.detach() : part.detach() * share;
    total = total.defined() ? total + weighted : weighted;
  }
  return sum;
}

std::vector<DistTensor> Trainer::Engine::pipeline_gradients(
    const MicroBatches& micro_batches, DistTensor& total) {
  std::vector<DistTensor> inputs;
  std::vector<double> shares, scaled;
  targets_.clear();
  for (int64_t m = 0; m < micros_; ++m) {
    Windows windows = micro_batches(m);
    inputs.push_back(std::move(windows.inputs));
    targets_.push_back(std::move(windows.targets));
    shares.push_back(windows.share);
    scaled.push_back(windows.share * scaler.get_scale());
  }
  // With ZeRO stages 2 and 3, gradients are sent in each micro-batch.
  PipelineResult result =
      pipeline_->run(inputs, scaled,
                     {.wire_dtype = options.wire_dtype,
                      .bucket_bytes = zero() < 2 ? 0 : bucket_bytes_});
  const NoGrad no_grad;
  for (size_t m = 0; m < shares.size(); ++m) {
    const DistTensor weighted = result.losses[m] * shares[m];
    total = total.defined() ? total + weighted : weighted;
  }
  total = onto(mesh, total);
  tasks_ = std::move(result.tasks);
  std::vector<DistTensor> grads;
  for (const auto& [stage, which] : places_)
    grads.push_back(result.grads[stage][which]);
  return grads;
}

Tensor Trainer::Engine::run(const MicroBatches& micro_batches, double lr) {
  DistTensor total;
  auto grads = pipeline_ ? pipeline_gradients(micro_batches, total)
                         : gradients(micro_batches, total);
  const std::vector<DistTensor> rows = tables_.finish(grads);
  const GradNorm norm = grad_norm(grads, options.clip, 1 / scaler.get_scale());
  scaler.step(*optimizer, grads, {.lr = lr, .clip = norm.clip, .rows = rows},
              norm);
  scaler.update();
  const Scoped<std::string> phase(RankContext::current().phase, "report");
  const Tensor report = Tensor::empty({2}, DType::kF64);
  report.slice(0, 0, 1).copy_from(
      converted(total.full(), DType::kF64).reshape({1}));
  report.slice(0, 1, 2).copy_from(norm.norm.reshape({1}));
  return report;
}

Tensor Trainer::Engine::replay(const Batch& batch, double lr) {
  const bool first = !graph_;
  for (int64_t m = 0; m < micros_; ++m) {
    Windows now = micro_batch(batch, m);
    if (first) {
      windows_.push_back(std::move(now));
      continue;
    }
    const Windows& place = windows_[static_cast<size_t>(m)];
    place.inputs.local().copy_from(now.inputs.local());
    place.targets.local().copy_from(now.targets.local());
  }
  if (first)
    graph_ = std::make_unique<Graph>([&] {
      report_ =
          run([&](int64_t m) { return windows_[static_cast<size_t>(m)]; }, lr);
    });
  optimizer->set_replay_lr(lr);
  graph_->replay();
  return report_;
}

StepResult Trainer::Engine::step(const Batches& batches) {
  RankContext& context = RankContext::current();
  const TraceSpan span(context, "step", next);
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const int64_t exposed = context.exposed_ns;
  const Batch batch = batches(next);
  const int64_t rows = rows_of(batch);
  DT_CHECK(rows >= micros_ && rows == batch.targets.shape()[0], "trainer",
           "in the batch of step {}, the numbers of inputs, targets and "
           "micro-batches are {}, {} and {}; give each input a target, and "
           "each micro-batch an input",
           next, rows, batch.targets.shape()[0], micros_);
  const CosineSchedule cosine{
      .lr = options.lr,
      .steps = options.lr_steps ? options.lr_steps : options.steps,
      .warmup = options.warmup};
  const double lr = options.rate ? options.rate(next) : cosine.at(next);
  // After this many steps, all plans exist, and so does the order in which ZeRO
  // stage 3 gathers ahead.
  constexpr int64_t kBeforeGraph = 2;
  const bool replays =
      options.cuda_graph && !context.dry_run && steps_run_++ >= kBeforeGraph;
  const Tensor report =
      replays ? replay(batch, lr)
              : run([&](int64_t m) { return micro_batch(batch, m); }, lr);
  // Here the host waits for the device. (With a loss scale, it has waited for
  // the norm already.)
  const Scoped<std::string> phase(context.phase, "report");
  const std::vector<double> values = read_checked(context, mesh, report);
  ++next;
  data_position += rows;
  items = language ? batch.inputs.numel() : rows;
  return {values[0],
          values[1],
          scaler.get_scale(),
          replays,
          scaler.is_enabled() && !std::isfinite(values[1]),
          std::chrono::duration<double>(Clock::now() - start).count(),
          static_cast<double>(context.exposed_ns - exposed) / 1e9,
          pipeline_times(tasks_)};
}

Trainer::Trainer(Module& model, Loss loss, TrainerOptions options)
    : engine_(std::make_unique<Engine>(model, nullptr, std::move(loss),
                                       std::move(options))) {
  set_gather_budget();
}

Trainer::Trainer(LanguageModel& model, TrainerOptions options)
    : engine_(std::make_unique<Engine>(
          model, &model,
          [&model](const DistTensor& inputs, const DistTensor& targets) {
            return model.loss(inputs, targets);
          },
          std::move(options))) {
  set_gather_budget();
}

Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;

StepResult Trainer::step(const Batches& b) { return engine_->step(b); }
int64_t Trainer::next_step() const { return engine_->next; }
const TrainerOptions& Trainer::options() const { return engine_->options; }

// Whether the model recomputes a whole block.
static bool recomputes_blocks(const LanguageModel& model) {
  for (int64_t i = 0; i < model.config().layers; ++i)
    if (model.recompute(i) == Recompute::kBlock) return true;
  return false;
}

void Trainer::set_gather_budget() const {
  const Engine& e = *engine_;
  int64_t bytes = e.options.gather_budget;
  // A block that is recomputed is gathered again. Half of the budget then holds
  // it until its gradient has been computed.
  if (bytes < 0)
    bytes = block_bytes(e.model) *
            (e.language && recomputes_blocks(*e.language) ? 2 : 1);
  RankContext::current().gather_budget = bytes;
}

std::optional<std::string> Trainer::resume() {
  Engine& e = *engine_;
  DT_CHECK(!e.options.checkpoints.empty(), "resume",
           "there is no folder to resume from; set the option checkpoints");
  // A dry run loads nothing.
  if (RankContext::current().dry_run) return std::nullopt;
  const std::optional<std::string> last =
      latest_checkpoint(e.options.checkpoints);
  if (!last) return last;
  check_resume("resume", *last, e.options);
  load(*last);
  e.continues = true;
  return last;
}

// Runs a step, the one that observers are to show.
template <class Step>
static void show(const Module& model, Step&& step) {
  RankContext& context = RankContext::current();
  for (Observer* o : context.observers)
    o->step_begins(context, model.named_parameters());
  step();
  for (Observer* o : context.observers) o->ended(context);
}

TrainingReport Trainer::train(const Batches& batches) {
  Engine& e = *engine_;
  const TrainerOptions& o = e.options;
  RankContext& context = RankContext::current();
  const bool saves = !o.checkpoints.empty() && !context.dry_run;
  if (saves && e.next == 0 && !e.continues)
    if (const auto last = latest_checkpoint(o.checkpoints))
      fail("train",
           "{} exists from an earlier training; call resume() to continue from "
           "it, or name another folder",
           *last);
  Progress progress(o.steps);
  TrainingReport report;
  report.first_step = e.next;
  std::vector<CommEvent> first;
  context.allocator->reset_peak();
  while (e.next < o.steps) {
    const int64_t i = e.next;
    std::optional<CommRecord> record;
    if (context.record || o.check_bytes) record.emplace();
    StepResult r;
    if (i == report.first_step)
      show(e.model, [&] { r = step(batches); });
    else
      r = step(batches);
    if (record && i == report.first_step)
      first.assign(record->events().begin(), record->events().end());
    else if (o.check_bytes && !r.replayed)
      check_same_step(i, context.world_rank, first, record->events());
    record.reset();
    // A step that went wrong is not saved. (With a scale this small, the scale
    // cannot be the reason why gradients are not finite.)
    constexpr double kLeastScale = 1e-4;
    DT_CHECK(
        std::isfinite(r.loss) && (std::isfinite(r.grad_norm) ||
                                  (r.skipped && r.loss_scale >= kLeastScale)),
        "train",
        "step {} has loss {}, gradient norm {} and loss scale {}; check its "
        "data, or try a smaller lr or clip (clip 0 is no limit)",
        i, r.loss, r.grad_norm, r.loss_scale);
    report.steps.push_back(r);
    if (o.check_copies_every && e.next % o.check_copies_every == 0)
      check_copies();
    if (saves && (e.next == o.steps || e.next % o.save_every == 0)) save();
    if (o.progress && context.world_rank == 0 && !context.dry_run)
      progress.show(e.next,
                    fmt::format("loss {:.4f}  {:.0f} {}/s", r.loss,
                                static_cast<double>(e.items) / r.seconds,
                                e.language ? "tokens" : "rows"));
  }
  finish_saves();
  for (Observer* o : context.observers) o->ended(context);
  Totals totals = merge(Totals{.events = std::move(first),
                               .memory = memory_use(*context.allocator)});
  report.events = std::move(totals.events);
  report.memory = totals.memory;
  for (size_t i = report.steps.size() > 1; i < report.steps.size(); ++i) {
    report.pipeline.span += report.steps[i].pipeline.span;
    report.pipeline.busy += report.steps[i].pipeline.busy;
  }
  report.pipeline = longest(report.pipeline);
  const std::vector<CommRow> rows = comm_rows(report.events);
  // Compares the planned bytes of each row with the counted ones.
  if (o.check_bytes && !context.dry_run) check_agreement(rows, rows);
  return report;
}

double Trainer::evaluate(int64_t count, const Batches& batches) const {
  DT_CHECK(count > 0, "evaluate",
           "{} batches are to be evaluated; write 1 or more", count);
  const Engine& e = *engine_;
  const NoGrad no_grad;
  const Evaluating evaluating(e.model);
  double sum = 0;
  int64_t all = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Batch batch = batches(i);
    const int64_t rows = rows_of(batch);
    const DistTensor inputs = e.spread(batch.inputs, e.mesh),
                     targets = e.spread(batch.targets, e.mesh);
    const DistTensor loss = e.language ? e.language->text_loss(inputs, targets)
                                       : e.loss(inputs, targets);
    sum += static_cast<double>(rows) * loss.item();
    all += rows;
  }
  return sum / static_cast<double>(all);
}

void Trainer::save() const {
  Engine& e = *engine_;
  CheckpointValues values = e.options.data;
  values[kLrSteps] = e.options.lr_steps ? e.options.lr_steps : e.options.steps;
  values.merge(e.scaler.state());
  save_checkpoint(e.options.checkpoints, e.model, *e.optimizer,
                  {.step = e.next,
                   .data_position = e.data_position,
                   .values = std::move(values)},
                  {.background = true, .keep = e.options.keep});
  e.continues = true;
}

void Trainer::load(const std::string& checkpoint) {
  Engine& e = *engine_;
  const TrainingState at = load_checkpoint(checkpoint, e.model, *e.optimizer);
  e.scaler.load_state(at.values);
  e.data_position = at.data_position;
  e.next = at.step;
}

void Trainer::check_copies() const {
  std::vector<NamedTensor> all = engine_->model.named_parameters();
  for (const OptimizerState& s : engine_->optimizer->state())
    all.push_back({s.name, s.value});
  check_replicas(all);
}

Prediction Trainer::predict(const Batches& batches,
                            const std::function<void(const OpRan&)>& on_op) {
  Engine& e = *engine_;
  RankContext& context = RankContext::current();
  DT_CHECK(context.dry_run, "predict",
           "this run is not a dry run; set RunOptions::dry_run");
  Prediction p;
  for (const DistTensor& t : e.model.parameters()) {
    p.parameters += numel(t.shape());
    if (t.here()) p.parameter_bytes += t.local().bytes();
  }
  context.allocator->reset_peak();
  {
    const CommRecord record;
    // This rank does not run the operators of other stages: leave them out.
    const OnOp observe(context, [&](const OpRan& op) {
      if (!op.out[0].here()) return;
      p.work_ps += op.choice.work_ps;
      if (on_op) on_op(op);
    });
    show(e.model, [&] { step(batches); });
    p.events.assign(record.events().begin(), record.events().end());
  }
  // ZeRO stage 3 gathers parameters ahead in the order of the previous step, so
  // the peak of the memory must include a second step.
  if (e.zero() == 3) step(batches);
  for (Observer* o : context.observers) o->ended(context);
  p.memory = memory_use(*context.allocator);
  return p;
}

void check_resume(std::string_view where, const std::string& checkpoint,
                  TrainerOptions& options) {
  const CheckpointValues saved =
      training_state(CheckpointReader(checkpoint)).values;
  for (const auto& [name, now] : options.data) {
    const CheckpointValue* before = find(saved, name);
    DT_CHECK(before && *before == now, where,
             "{} was saved with {} {}, but this training has {}; pass what it "
             "was saved with, so that training goes on with the same data",
             checkpoint, name, to_text(before), to_text(&now));
  }
  if (options.lr_steps || options.rate) return;
  const CheckpointValue* steps = find(saved, kLrSteps);
  const auto* before = steps ? std::get_if<int64_t>(steps) : nullptr;
  DT_CHECK(before, where,
           "{} does not say over how many steps its learning rate falls; set "
           "lr_steps to {}, or to as many as that training had",
           checkpoint, options.steps);
  options.lr_steps = *before;
}

}  // namespace dtensor::nn
