// SPDX-License-Identifier: Apache-2.0
#include "programs/train_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "dtensor/nn/architecture.h"
#include "dtensor/nn/grad_scaler.h"
#include "dtensor/nn/models.h"
#include "dtensor/placement/error.h"
#include "programs/report/schedule_file.h"

namespace dtensor::examples {

void add_train_flags(Program& program, TrainConfig& c) {
  std::vector<std::string> models;
  for (const nn::Architecture& a : nn::architectures())
    if (a.head_kind != nn::Architecture::Head::kNone)
      models.emplace_back(a.name);
  program.add("--model", &c.model.name, "the architecture", models);
  program.add("--layers", &c.model.layers, "the number of blocks", 1);
  program.add("--hidden", &c.model.hidden, "width, a multiple of heads", 1);
  program.add("--heads", &c.model.heads, "query heads", 1);
  program.add("--kv-heads", &c.model.kv_heads,
              "key and value heads, not for gpt (default: as many as heads)",
              1);
  program.add("--ffn", &c.model.ffn,
              "width of the MLP, or of an expert (default: 4 x hidden for gpt, "
              "else 8/3 x hidden)",
              1);
  program.add("--experts", &c.model.experts,
              "experts in each layer of mixtral (default: 8)", 1);
  program.add("--top-k", &c.model.top_k,
              "experts that a token is sent to (default: 2, or all)", 1);
  program.add("--router-loss", &c.router_loss,
              "weight of the loss that balances mixtral's experts (default: "
              "0.001)");
  program.add("--seq", &c.model.seq, "bytes in a window", 1);
  program.add("--batch", &c.batch, "windows in a step, split over dp and ep",
              1);
  program.add("--steps", &c.steps, "updates", 1);
  program.add("--lr", &c.lr, "the highest learning rate");
  program.add("--lr-steps", &c.lr_steps,
              "steps over which the learning rate falls to a tenth, where it "
              "stays (default: --steps; with --resume: as it was saved)",
              1);
  program.add("--warmup", &c.warmup,
              "steps of warm-up (default: 10, at most a tenth of --lr-steps)");
  program.add("--weight-decay", &c.weight_decay, "weight decay of matrices");
  program.add("--clip", &c.clip,
              "the largest norm of the gradient, 0: no limit");
  program.add("--seed", &c.seed, "the seed of weights, batches and sample");
  program.add("--dtype", &c.dtype, "the type of parameters and activations",
              {"f32", "f64", "bf16", "f16"});
  program.add("--zero", &c.zero,
              "ZeRO over fsdp, or else dp, or else ep: 1 shards the "
              "optimizer's state, 2 also gradients (with pp they are sent in "
              "each micro-batch), 3 also parameters",
              0, 3);
  program.add("--gather-budget", &c.gather_budget,
              "bytes of parameters that --zero 3 may hold, or gather ahead, "
              "besides those in use (default: those of a block; of two with "
              "--recompute block)",
              0);
  program.add("--accumulate", &c.accumulate,
              "micro-batches in a step (with an axis pp, use --micro-batches)",
              1);
  program.add("--micro-batches", &c.micro_batches,
              "micro-batches in a step of a pipeline (default: twice the size "
              "of axis pp)",
              1);
  program.add("--schedule", &c.schedule,
              report::schedule_help() + " (default: 1f1b)");
  program.add("--chunks", &c.chunks,
              "stages at each position along pp, for interleaved", 1, 4096);
  program.add("--recompute", &c.recompute,
              "recompute whole blocks, or everything between the products of "
              "a block, in the backward pass; or offload activations: a GPU "
              "moves those of a block to the host's memory until then",
              {"none", "block", "attention", "offload"});
  program.add("--recompute-memory", &c.recompute_memory,
              "the most bytes that a rank may need: recomputes (or offloads, "
              "with --recompute offload) as little as possible, block by block",
              1);
  program.add("--offload-state", &c.offload_state,
              "keep the optimizer's state in the host's memory between "
              "updates, on GPUs");
  program.add("--sequence-parallel", &c.sequence_parallel,
              "split activations between blocks along the sequence over tp");
  program.add("--context", &c.context,
              "how attention is computed if cp splits the sequence: keys and "
              "values in a ring, or an all-to-all that splits heads",
              {"auto", "ring", "all-to-all"});
  program.add("--context-memory", &c.context_memory,
              "bytes that a rank may hold for one attention and its gradient: "
              "--context auto takes the cheaper way that fits, or else the one "
              "that holds less (default: no limit)",
              1);
  program.add("--grad-wire", &c.wire,
              "type that gradients are sent in (default: their own)",
              {"f32", "f64", "bf16", "f16"});
  program.add("--loss-scale", &c.loss_scale,
              "the initial loss scale; a step with overflowing gradients is "
              "skipped and halves it, 0: no scaling (default: 65536 in f16, "
              "else 0; with --resume: as it was saved)");
  program.add("--layout", &c.layouts,
              "PATTERN=PLACEMENTS of parameters, such as '*.c_fc.weight=R,S1'; "
              "may be repeated");
}

template <auto field>
static constexpr AxisFlag axis_flag(std::string_view flag, nn::Splits splits) {
  return {flag, splits,
          [](const TrainConfig& c) { return c.*field != TrainConfig().*field; },
          [](TrainConfig& c) { c.*field = TrainConfig().*field; }};
}

std::span<const AxisFlag> axis_flags() {
  using C = TrainConfig;
  static constexpr AxisFlag kFlags[] = {
      axis_flag<&C::schedule>("--schedule", nn::kSplitsStages),
      axis_flag<&C::micro_batches>("--micro-batches", nn::kSplitsStages),
      axis_flag<&C::chunks>("--chunks", nn::kSplitsStages),
      axis_flag<&C::sequence_parallel>("--sequence-parallel",
                                       nn::kSplitsMatrices),
      axis_flag<&C::context>("--context", nn::kSplitsSequences),
      axis_flag<&C::context_memory>("--context-memory", nn::kSplitsSequences)};
  return kFlags;
}

std::string_view axis_name_of(nn::Splits splits) {
  const auto all = nn::model_axes();
  return std::find_if(all.begin(), all.end(),
                      [&](const auto& a) { return a.splits & splits; })
      ->name;
}

// The axis that --zero splits over: one that splits parameters or, if there is
// none, one that splits the batch.
static std::string_view zero_axis(const Mesh& mesh) {
  int axis = nn::axis_that(nn::kSplitsParameters, mesh);
  if (axis < 0) axis = nn::axis_that(nn::kSplitsBatch, mesh);
  DT_CHECK(axis >= 0, "--zero",
           "mesh {} has no axis fsdp, dp or ep to split over; write --mesh "
           "dp=2 or the like, or --zero 0",
           mesh.to_string());
  return mesh.axis_name(axis);
}

nn::ParallelPlan TrainConfig::plan(const Mesh& mesh) const {
  nn::ParallelPlan plan;
  for (const std::string& text : layouts) {
    const size_t at = text.find('=');
    DT_CHECK(
        at != text.npos && at > 0 && at + 1 < text.size(), "--layout",
        "'{}' is not PATTERN=PLACEMENTS; write '*.c_fc.weight=R,S1' or the "
        "like",
        text);
    plan.emplace_back(text.substr(0, at), Placements(text.substr(at + 1)));
  }
  for (auto& entry : nn::default_plan(model, mesh))
    plan.push_back(std::move(entry));
  plan.context = parse_context(context);
  plan.context_bytes = context_memory;
  if (sequence_parallel) plan = nn::sequence_parallel(std::move(plan));
  plan.pipeline_chunks = std::max<int64_t>(chunks, 1);
  if (zero == 0) return plan;
  return nn::zero(std::move(plan), static_cast<int>(zero), zero_axis(mesh));
}

std::string TrainConfig::strategy(const Mesh& mesh) const {
  std::string text = mesh.to_string();
  if (zero) text += fmt::format(", zero {}", zero);
  if (sequence_parallel) text += ", sequence parallel";
  if (nn::axis_that(nn::kSplitsSequences, mesh) >= 0)
    text += ", context " + context;
  const bool offload = recompute == "offload";
  if (recompute != "none" && recompute_blocks_.empty())
    text += offload ? ", offload activations" : ", recompute " + recompute;
  for (const nn::Recompute what :
       {nn::Recompute::kBlock, nn::Recompute::kAttention,
        nn::Recompute::kOffload})
    if (const auto n = std::count(recompute_blocks_.begin(),
                                  recompute_blocks_.end(), what))
      text += fmt::format(", {} in {} of {} blocks",
                          offload ? "offload activations"
                                  : fmt::format("recompute {}", nn::name(what)),
                          n, recompute_blocks_.size());
  if (offload_state) text += ", offload state";
  if (nn::axis_that(nn::kSplitsStages, mesh) >= 0) {
    const nn::PipelineSchedule& s = pipeline();
    text += fmt::format(", {} of {} micro-batches", s.name, s.micros);
    if (s.chunks > 1) text += fmt::format(" in {} chunks", s.chunks);
  }
  if (accumulate > 1) text += fmt::format(", accumulate {}", accumulate);
  return text;
}

void TrainConfig::validate(const Mesh& mesh) {
  model.dtype = parse_dtype(dtype);
  if (loss_scale == -1)
    loss_scale =
        model.dtype == DType::kF16 ? nn::GradScalerOptions().init_scale : 0;
  const bool experts = nn::architecture(model.name).experts();
  DT_CHECK(experts || router_loss < 0, "--router-loss",
           "it is for {}, but this model is a {}; leave it out",
           nn::architecture_names([](const auto& a) { return a.experts(); }),
           model.name);
  if (experts) model.router_loss = router_loss < 0 ? 0.001 : router_loss;
  model.validate();
  DT_CHECK(!experts || !cuda_graph, "--cuda-graph",
           "the data decide how many tokens a {}'s ranks exchange, but a graph "
           "always replays the same exchange; leave it out",
           model.name);
  DT_CHECK(loss_scale == 0 || !cuda_graph, "--cuda-graph",
           "the loss scale of {} changes, but a graph always replays the same "
           "one; leave it out, or write --loss-scale 0 with --dtype bf16",
           loss_scale);
  const int64_t most = lr_steps ? lr_steps : steps;
  DT_CHECK(warmup <= most, "--warmup",
           "it is {}, but {} is {}; write at most {}", warmup,
           lr_steps ? "--lr-steps" : "--steps", most, most);
  for (const AxisFlag& f : axis_flags())
    DT_CHECK(!f.given(*this) || nn::axis_that(f.splits, mesh) >= 0, f.flag,
             "mesh {0} has no axis {1}; write --mesh {1}=2 or the like, or "
             "leave {2} out",
             mesh.to_string(), axis_name_of(f.splits), f.flag);
  DT_CHECK(context_memory == 0 || context == "auto", "--context-memory",
           "it is for --context auto, but this is --context {}; leave it out",
           context);
  DT_CHECK(
      recompute_memory == 0 || recompute == "none" || recompute == "offload",
      "--recompute-memory",
      "it chooses what is recomputed, and so does --recompute {}; leave one "
      "out",
      recompute);
  DT_CHECK(!cuda_graph || recompute != "offload", "--cuda-graph",
           "a graph keeps the memory of activations; leave it out, or "
           "--recompute offload");
  DT_CHECK(!cuda_graph || !offload_state, "--cuda-graph",
           "a graph keeps the memory of the optimizer's state; leave it out, "
           "or --offload-state");
  DT_CHECK(zero == 3 || gather_budget < 0, "--gather-budget",
           "it is for --zero 3, but this is --zero {}; leave it out", zero);
  DT_CHECK(
      accumulate <= batch, "--accumulate",
      "there are {} micro-batches, but --batch is {}; write at most {}, or "
      "a larger --batch",
      accumulate, batch, batch);
  plan(mesh);
  if (nn::axis_that(nn::kSplitsStages, mesh) >= 0) validate_pipeline(mesh);
}

void TrainConfig::validate_pipeline(const Mesh& mesh) {
  schedule = schedule.empty() ? "1f1b" : report::schedule_of(schedule);
  const auto fits = [&](const char* flag, const char* of) {
    DT_CHECK(micro_batches <= batch, flag,
             "there are {} micro-batches, but --batch is {}; write a larger "
             "--batch, or {}at most {}",
             micro_batches, batch, of, batch);
  };
  // Before make_schedule() makes tasks for each micro-batch.
  fits("--micro-batches", "");
  const int64_t places = mesh.axis_size(nn::axis_that(nn::kSplitsStages, mesh));
  pipeline_ =
      report::read_schedule(schedule, places,
                            nn::is_schedule_name(schedule) && micro_batches == 0
                                ? std::min(batch, 2 * places)
                                : micro_batches,
                            chunks);
  chunks = pipeline_->chunks;
  micro_batches = pipeline_->micros;
  fits("--schedule", "name a file with ");
  DT_CHECK(accumulate == 1, "--accumulate",
           "mesh {} has an axis pp, so --micro-batches says how a batch is "
           "cut; leave this out, or write --micro-batches {} in its place",
           mesh.to_string(), accumulate);
  DT_CHECK(!cuda_graph, "--cuda-graph",
           "a pipeline cannot be replayed as a graph; leave it out");
  nn::cut_pipeline(model, mesh, chunks);
}

std::unique_ptr<nn::LanguageModel> TrainConfig::make_model(
    const Mesh& mesh) const {
  auto made =
      nn::make_model(model, mesh, plan(mesh), static_cast<uint64_t>(seed));
  if (recompute_blocks_.empty())
    made->set_recompute(nn::parse_recompute(recompute));
  else
    made->set_recompute(recompute_blocks_);
  return made;
}

nn::TrainerOptions TrainConfig::trainer_options(const TextData& text) const {
  nn::TrainerOptions options{
      .steps = steps,
      .lr = lr,
      .lr_steps = lr_steps,
      .warmup = warmup,
      .weight_decay = weight_decay,
      .clip = clip,
      .micro_batches = accumulate,
      .loss_scale = loss_scale,
      .gather_budget = gather_budget,
      .cuda_graph = cuda_graph,
      .offload_state = offload_state,
      .schedule = pipeline_,
      .data = {{"batch", batch},
               {"seq", model.seq},
               {"seed", seed},
               {"text bytes", text.size()}},
  };
  if (!wire.empty()) options.wire_dtype = parse_dtype(wire);
  return options;
}

nn::Batches TrainConfig::batches(const TextData& text) const {
  return [this, &text](int64_t step) {
    return text.windows(batch, model.seq, static_cast<uint64_t>(seed), step);
  };
}

void TrainConfig::fit_memory(const RunOptions& options) {
  if (recompute_memory == 0) return;
  RunOptions quiet = options;  // the runs of a search are not recorded
  quiet.observers.clear();
  quiet.finish = {};
  recompute_blocks_ = nn::recompute_within(
      recompute_memory, model.layers,
      [&](const std::vector<nn::Recompute>& blocks) {
        TrainConfig config = *this;
        config.recompute_blocks_ = blocks;
        return predict(config, quiet).memory.peak;
      },
      recompute == "offload");
}

nn::Prediction predict(const TrainConfig& config, const RunOptions& options,
                       const std::function<void(const OpRan&)>& on_op) {
  const TextData text = TextData::none();
  return nn::predict(options, {config.batch, config.model.seq},
                     [&](Runtime& rt) {
                       const auto model = config.make_model(rt.mesh());
                       return nn::Trainer(*model, config.trainer_options(text))
                           .predict(config.batches(text), on_op);
                     });
}

}  // namespace dtensor::examples
