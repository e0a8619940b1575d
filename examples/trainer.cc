#include "examples/trainer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "dtensor/autograd.h"
#include "dtensor/data_check.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/clip.h"
#include "dtensor/nn/models.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/comm_table.h"
#include "dtensor/redistribute.h"
#include "dtensor/replicas.h"
#include "dtensor/trace.h"

namespace dtensor::examples {
namespace {

// The bytes of the largest transformer block, as operators see it, on the rank
// that has the most of it. Blocks are numbered: "transformer.h.0.".
int64_t block_bytes(const nn::Module& model) {
  std::map<std::string, int64_t> blocks;
  for (const nn::NamedParameter& p : model.named_parameters()) {
    const size_t digit = p.name.find_first_of("0123456789");
    if (digit == std::string::npos) continue;
    blocks[p.name.substr(0, p.name.find('.', digit))] +=
        p.tensor.use_spec()->largest_part_bytes();
  }
  int64_t most = 0;
  for (const auto& [name, bytes] : blocks) most = std::max(most, bytes);
  return most;
}

// The values that decide the data of a step; they must be equal on resuming.
CheckpointValues data_values(const TrainConfig& config, const TextData& text) {
  return {{"batch", config.batch},
          {"seq", config.model.seq},
          {"seed", config.seed},
          {"text bytes", text.size()}};
}

int64_t lr_steps(const TrainConfig& config) {
  return config.lr_steps ? config.lr_steps : config.steps;
}

constexpr const char* kLrSteps = "learning rate steps";

nn::GradScalerOptions scaler_options(const TrainConfig& config) {
  nn::GradScalerOptions options{.enabled = config.loss_scale > 0};
  if (options.enabled) options.init_scale = config.loss_scale;
  return options;
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const Mesh& mesh)
    : config_(config),
      mesh_(mesh),
      model_(nn::make_model(config.model, mesh, config.plan(mesh),
                            static_cast<uint64_t>(config.seed))),
      optimizer_(nn::decay_matrices(model_->named_parameters()),
                 {.weight_decay = config.weight_decay}),
      scaler_(scaler_options(config)),
      schedule_{config.lr, lr_steps(config), config.warmup},
      first_mesh_(mesh),
      last_mesh_(mesh),
      micros_(config.accumulate) {
  model_->set_recompute(nn::parse_recompute(config.recompute));
  set_gather_budget();
  // The bucket size of torch's DDP; smaller for stages 2 and 3, whose purpose
  // is to hold less.
  constexpr int64_t kBucket = 25 << 20;
  bucket_bytes_ =
      config.zero < 2 ? kBucket : std::min(block_bytes(*model_), kBucket);
  if (mesh.has_axis("pp")) make_pipeline();
}

void Trainer::make_pipeline() {
  const nn::PipelineSchedule& schedule = config_.pipeline();
  const nn::PipelineCut cut =
      nn::cut_pipeline(config_.model, mesh_, schedule.chunks);
  first_mesh_ = cut.meshes.front();
  last_mesh_ = cut.meshes.back();
  micros_ = schedule.micros;
  const std::vector<nn::PipelineStage> stages = nn::pipeline_stages(
      *model_, cut,
      [this](int64_t m) { return targets_[static_cast<size_t>(m)]; });
  for (const DistTensor& p : optimizer_.parameters())
    for (size_t s = 0; s < stages.size(); ++s)
      for (size_t k = 0; k < stages[s].parameters.size(); ++k)
        if (stages[s].parameters[k].same_as(p)) places_.emplace_back(s, k);
  pipeline_ = std::make_unique<nn::Pipeline>(
      schedule, stages, nn::stage_times(config_.model, cut));
}

std::optional<DType> Trainer::wire() const {
  if (config_.wire.empty()) return std::nullopt;
  return parse_dtype(config_.wire);
}

void Trainer::set_gather_budget() const {
  int64_t bytes = config_.gather_budget;
  // A recomputed block is gathered again; half of the budget then holds it
  // until its gradient has been taken.
  if (bytes < 0)
    bytes = block_bytes(*model_) *
            (model_->recompute() == nn::Recompute::kBlock ? 2 : 1);
  RankContext::current().gather_budget = bytes;
}

// Every rank has the whole batch and keeps its own rows.
DistTensor Trainer::spread(const Tensor& rows, const Mesh& mesh) {
  return DistTensor::from_global(rows, mesh,
                                 nn::batch_layout(mesh, rows.shape()));
}

Trainer::Windows Trainer::micro_batch(const Batch& batch, int64_t m) const {
  const int64_t rows = batch.inputs.shape()[0], n = micros_;
  const int64_t lo = m * rows / n, hi = (m + 1) * rows / n;
  return {spread(batch.inputs.slice(0, lo, hi), first_mesh_),
          spread(batch.targets.slice(0, lo, hi), last_mesh_),
          static_cast<double>(hi - lo) / static_cast<double>(rows)};
}

std::vector<DistTensor> Trainer::gradients(const MicroBatches& micro_batches,
                                           DistTensor& loss) const {
  const int64_t n = config_.accumulate;
  std::vector<DistTensor> sum;
  for (int64_t m = 0; m < n; ++m) {
    DistTensor part;
    double share = 0;
    {  // ends before grad(), which can then free the windows early
      const Windows windows = micro_batches(m);
      const TraceSpan span("forward");
      part = model_->loss(windows.inputs, windows.targets);
      share = windows.share;
    }
    const bool last = m + 1 == n;
    // The gradient is that of the mean over all windows.
    GradOptions options{.keep_partial = !last,
                        .cotangent = full({}, share * scaler_.get_scale(),
                                          mesh_, {}, part.dtype()),
                        .release_graph = true,
                        .bucket_bytes = config_.zero == 1 ? 0 : bucket_bytes_,
                        .add_to = std::move(sum)};
    options.wire_dtype = wire();
    sum = grad(part, optimizer_.parameters(), std::move(options));
    const NoGrad no_grad;
    const DistTensor weighted = n == 1 ? part.detach() : part.detach() * share;
    loss = loss.defined() ? loss + weighted : weighted;
  }
  return sum;
}

std::vector<DistTensor> Trainer::pipeline_gradients(
    const MicroBatches& micro_batches, DistTensor& loss) {
  std::vector<DistTensor> inputs;
  std::vector<double> shares, scaled;
  targets_.clear();
  for (int64_t m = 0; m < micros_; ++m) {
    Windows windows = micro_batches(m);
    inputs.push_back(std::move(windows.inputs));
    targets_.push_back(std::move(windows.targets));
    shares.push_back(windows.share);
    scaled.push_back(windows.share * scaler_.get_scale());
  }
  // If gradients are sharded, they are sent in each micro-batch.
  nn::PipelineResult result =
      pipeline_->run(inputs, scaled,
                     {.wire_dtype = wire(),
                      .bucket_bytes = config_.zero < 2 ? 0 : bucket_bytes_});
  const NoGrad no_grad;
  for (size_t m = 0; m < shares.size(); ++m) {
    const DistTensor weighted = result.losses[m] * shares[m];
    loss = loss.defined() ? loss + weighted : weighted;
  }
  loss = nn::onto(mesh_, loss);
  tasks_ = std::move(result.tasks);
  std::vector<DistTensor> grads;
  for (const auto& [stage, which] : places_)
    grads.push_back(result.grads[stage][which]);
  return grads;
}

Tensor Trainer::run(const MicroBatches& micro_batches, double lr) {
  DistTensor loss;
  const std::vector<DistTensor> grads =
      pipeline_ ? pipeline_gradients(micro_batches, loss)
                : gradients(micro_batches, loss);
  const nn::GradNorm norm =
      nn::grad_norm(grads, config_.clip, 1 / scaler_.get_scale());
  scaler_.step(optimizer_, grads, {.lr = lr, .clip = norm.clip}, norm);
  scaler_.update();
  const Scoped<std::string> phase(RankContext::current().phase, "report");
  const Tensor report = Tensor::empty({2}, DType::kF64);
  report.slice(0, 0, 1).copy_from(
      converted(loss.full(), DType::kF64).reshape({1}));
  report.slice(0, 1, 2).copy_from(norm.norm.reshape({1}));
  return report;
}

Tensor Trainer::replay(const Batch& batch, double lr) {
  const bool first = !graph_;
  for (int64_t m = 0; m < config_.accumulate; ++m) {
    Windows now = micro_batch(batch, m);
    if (first) {
      windows_.push_back(std::move(now));
      continue;
    }
    const Windows& place = windows_[static_cast<size_t>(m)];
    Tensor(place.inputs.local()).copy_from(now.inputs.local());
    Tensor(place.targets.local()).copy_from(now.targets.local());
  }
  if (first)
    graph_ = std::make_unique<Graph>([&] {
      report_ =
          run([&](int64_t m) { return windows_[static_cast<size_t>(m)]; }, lr);
    });
  optimizer_.set_replay_lr(lr);
  graph_->replay();
  return report_;
}

StepResult Trainer::step(int64_t i, const TextData& text) {
  RankContext& context = RankContext::current();
  const TraceSpan span(context, "step", i);
  const Batch batch = text.windows(config_.batch, config_.model.seq,
                                   static_cast<uint64_t>(config_.seed), i);
  const double lr = schedule_.at(i);
  // By then the plans exist, as does the order in which --zero 3 gathers ahead.
  constexpr int64_t kBeforeGraph = 2;
  const bool replays =
      config_.cuda_graph && !context.dry_run && steps_run_++ >= kBeforeGraph;
  const Tensor report =
      replays ? replay(batch, lr)
              : run([&](int64_t m) { return micro_batch(batch, m); }, lr);
  // The host waits for the device once in a step: here.
  const Scoped<std::string> phase(context.phase, "report");
  const std::vector<double> values = read_checked(context, mesh_, report);
  return {values[0], values[1], replays,
          scaler_.is_enabled() && !std::isfinite(values[1])};
}

void Trainer::save(const std::string& dir, int64_t i, const TextData& text,
                   int64_t keep) const {
  CheckpointValues values = data_values(config_, text);
  values[kLrSteps] = lr_steps(config_);
  values.merge(scaler_.state());
  nn::save_checkpoint(dir, *model_, optimizer_,
                      {.step = i,
                       .data_position = i * config_.batch,
                       .values = std::move(values)},
                      {.background = true, .keep = keep});
}

int64_t Trainer::load(const std::string& checkpoint) {
  const nn::TrainingState at =
      nn::load_checkpoint(checkpoint, *model_, optimizer_);
  scaler_.load_state(at.values);
  return at.step;
}

void Trainer::check_copies() const {
  std::vector<NamedTensor> all = model_->named_parameters();
  for (const nn::OptimizerState& s : optimizer_.state())
    all.push_back({s.name, s.value});
  check_replicas(all);
}

double Trainer::evaluate(const TextData& text) const {
  NoGrad no_grad;
  const int64_t seq = config_.model.seq;
  const int64_t windows = text.size() / seq;
  double sum = 0;
  for (int64_t first = 0; first < windows; first += config_.batch) {
    const int64_t rows = std::min(config_.batch, windows - first);
    const Batch batch = text.consecutive(first, rows, seq);
    const DistTensor loss = model_->text_loss(spread(batch.inputs, mesh_),
                                              spread(batch.targets, mesh_));
    sum += static_cast<double>(rows) * loss.item();
  }
  return sum / static_cast<double>(windows);
}

void check_goes_on(const std::string& checkpoint, TrainConfig& config,
                   const TextData& text) {
  const nn::TrainingState saved =
      nn::training_state(CheckpointReader(checkpoint));
  for (const auto& [name, value] : data_values(config, text)) {
    const auto found = saved.values.find(name);
    const auto* before = found == saved.values.end()
                             ? nullptr
                             : std::get_if<int64_t>(&found->second);
    const int64_t now = std::get<int64_t>(value);
    DT_CHECK(before && *before == now, "--resume",
             "{} was saved with {} {}, but this training has {}; give the same "
             "flags, except for the mesh and the strategy",
             checkpoint, name, before ? std::to_string(*before) : "(none)",
             now);
  }
  DT_CHECK(saved.step < config.steps, "--resume",
           "{} has {} steps of {}; there is nothing left to do, so write a "
           "larger --steps",
           checkpoint, saved.step, config.steps);
  for (const auto& [name, value] :
       nn::GradScaler(scaler_options(config)).state())
    DT_CHECK(
        saved.values.contains(name), "--resume",
        "{} was saved without a loss scale; write --loss-scale 0 to resume "
        "without one",
        checkpoint);
  if (config.lr_steps) return;
  const auto found = saved.values.find(kLrSteps);
  const auto* before = found == saved.values.end()
                           ? nullptr
                           : std::get_if<int64_t>(&found->second);
  DT_CHECK(before, "--resume",
           "{} does not say over how many steps its learning rate falls; "
           "write --lr-steps {}, or as many as that training had",
           checkpoint, config.steps);
  config.lr_steps = *before;
}

MemoryUse memory_use(const Allocator::Stats& stats) {
  MemoryUse use;
  for (size_t k = 0; k < kMemoryKinds; ++k)
    use.kinds[k] = stats.kinds[k].peak_bytes;
  use.peak = stats.peak_bytes;
  return use;
}

MemoryUse largest(const MemoryUse& a, const MemoryUse& b) {
  MemoryUse use;
  for (size_t k = 0; k < kMemoryKinds; ++k)
    use.kinds[k] = std::max(a.kinds[k], b.kinds[k]);
  use.peak = std::max(a.peak, b.peak);
  return use;
}

// For each position along pp, the rank with the largest parts: the last one of
// those with the most of a sequence (in zig-zag order that is not always the
// last rank).
static std::vector<int64_t> largest_ranks(const Mesh& mesh,
                                          const TrainConfig& config) {
  const Layout windows =
      nn::batch_layout(mesh, {config.batch, config.model.seq});
  struct Largest {
    int64_t tokens = -1, rank = 0;
  };
  std::map<int64_t, Largest> at;  // by position
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    const Coord c = mesh.coordinate(r);
    const int64_t place = mesh.has_axis("pp") ? c[mesh.axis("pp")] : 0;
    IntervalList tokens;
    windows.dims[1].intervals(mesh, c, tokens);
    if (const int64_t n = length(tokens); n >= at[place].tokens)
      at[place] = {n, mesh.world_rank(r)};
  }
  std::vector<int64_t> ranks;
  for (const auto& [place, largest] : at) ranks.push_back(largest.rank);
  return ranks;
}

Prediction predict(const TrainConfig& config, const RunOptions& options,
                   const Trace& trace) {
  Prediction p;
  RunOptions dry = options;
  dry.dry_run = true;
  std::vector<std::vector<CommEvent>> events;
  const auto predict_one = [&](Runtime& rt) {
    RankContext& context = rt.context();
    Trainer trainer(config, rt.mesh());
    int64_t parameter_bytes = 0;
    p.parameters = 0;
    for (const DistTensor& t : trainer.model().parameters()) {
      p.parameters += numel(t.shape());
      if (t.here()) parameter_bytes += t.local().bytes();
    }
    p.parameter_bytes = std::max(p.parameter_bytes, parameter_bytes);
    context.allocator->reset_peak();
    context.record = true;
    // Operators of other stages are traced on the ranks of those stages.
    if (trace)
      op_trace(context) = [&](const OpCall& call) {
        if (call.out[0].here()) trace(call);
      };
    trainer.step(0, TextData::none());
    op_trace(context) = {};
    events.push_back(std::move(context.events));
    context.record = false;
    // Parameters are gathered ahead in the order of the previous step, so
    // memory is that of a second step.
    if (config.zero == 3) trainer.step(1, TextData::none());
    p.memory = largest(p.memory, memory_use(context.allocator->stats()));
  };
  const Mesh mesh = options.mesh.empty() ? Mesh({{"ranks", options.world}})
                                         : Mesh::parse(options.mesh);
  for (const int64_t rank : largest_ranks(mesh, config))
    run(dry, [&](Runtime& rt) {
      rt.context().world_rank = rank;
      predict_one(rt);
    });
  p.events = merge_events(events);
  return p;
}

}  // namespace dtensor::examples
