// SPDX-License-Identifier: Apache-2.0
// Trains a language model on the bytes of a text, on any mesh.
//
// A dry run before the first step predicts the bytes that each step sends.
// While training runs, the collectives count the bytes that they copy. The
// counts must equal the prediction, except for bytes that the data decide.
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "dtensor/comm_table.h"
#include "dtensor/nn/checkpoint.h"
#include "dtensor/nn/grad_scaler.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/ops/experts.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/predicted.h"
#include "dtensor/rank_context.h"
#include "dtensor/text_file.h"
#include "dtensor/text_table.h"
#include "programs/bubble.h"
#include "programs/memory_report.h"
#include "programs/record_training.h"
#include "programs/step_time.h"
#include "programs/train_config.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  TrainConfig train;
  std::string text, eval, save, checkpoint;
  int64_t sample = 200;
  int64_t every = 100, keep = 0, check_replicas = 0;
  bool resume = false;
};

struct ParameterRow {
  std::string name;
  Shape shape, local_shape;
  std::string layout;
  int64_t bytes;
};

// The results of a training, which only rank 0 fills in.
struct Report {
  nn::TrainingReport training;
  std::vector<ParameterRow> parameters;  // with the parts of parameter_rows()
  BubbleReport bubble;
  double eval_loss = 0;
  std::string sample;
};

// Returns one number of each step's result.
std::vector<double> each(const Report& report, double nn::StepResult::*number) {
  std::vector<double> all;
  for (const nn::StepResult& r : report.training.steps)
    all.push_back(r.*number);
  return all;
}

int64_t skipped(const Report& report) {
  const auto& steps = report.training.steps;
  return std::count_if(steps.begin(), steps.end(),
                       [](const nn::StepResult& r) { return r.skipped; });
}

std::string dimensions(const Shape& s) {
  std::string text;
  for (int64_t n : s) text += (text.empty() ? "" : "x") + std::to_string(n);
  return text;
}

std::vector<ParameterRow> parameter_rows(const nn::LanguageModel& model) {
  std::vector<ParameterRow> rows;
  for (const nn::NamedParameter& p : model.named_parameters()) {
    // In a pipeline, other stages' parameters have no part on rank 0. So take
    // the part on the first rank of the parameter's own mesh, its stage.
    const Spec* spec = p.tensor.spec();
    const Shape part = spec->local_shape(spec->mesh().coordinate(0));
    rows.push_back({p.name, spec->shape(), part,
                    spec->layout().to_string(spec->mesh()),
                    numel(part) * size_of(spec->dtype())});
  }
  return rows;
}

std::string parameter_table(const std::vector<ParameterRow>& rows) {
  TextTable table("lllrr",
                  {"parameter", "shape", "layout", "local", "bytes per rank"});
  int64_t bytes = 0;
  for (const ParameterRow& r : rows) {
    table.add({r.name, dimensions(r.shape), r.layout, dimensions(r.local_shape),
               grouped(r.bytes)});
    bytes += r.bytes;
  }
  table.add({"total", "", "", "", grouped(bytes)});
  return table.to_string();
}

// Replaces control bytes other than newlines and tabs, since a terminal would
// act on them. Where char is signed, also replaces bytes beyond ASCII.
std::string printable(std::string text) {
  for (char& c : text)
    if ((c < ' ' && c != '\n' && c != '\t') || c == 127) c = '?';
  return text;
}

int64_t step_tokens(const TrainConfig& c) { return c.batch * c.model.seq; }

// Runs the steps of one rank. Rank 0 prints.
nn::TrainingReport train_steps(Runtime& rt, const Flags& flags,
                               const TextData& text, nn::Trainer& trainer) {
  const TrainConfig& config = flags.train;
  std::optional<std::string> last;
  if (flags.resume) last = trainer.resume();
  if (rt.rank() == 0 && flags.resume)
    fmt::print("{}\n\n", last ? fmt::format("resuming from {}", *last)
                              : "no checkpoint yet: starting from step 0");
  if (rt.rank() == 0 && last && config.lr_steps &&
      config.lr_steps != config.steps)
    fmt::print(
        "the learning rate falls over {} steps (as saved, or as --lr-steps "
        "says), but --steps is {}\n\n",
        config.lr_steps, config.steps);
  std::fflush(stdout);  // so that it precedes the progress lines
  return trainer.train(config.batches(text));
}

// Returns the mean cross-entropy of the text, cut into windows of seq bytes.
double evaluate(const nn::Trainer& trainer, const TrainConfig& config,
                const TextData& text) {
  const int64_t windows = text.size() / config.model.seq, rows = config.batch;
  return trainer.evaluate((windows + rows - 1) / rows, [&](int64_t i) {
    return text.consecutive(i * rows, std::min(rows, windows - i * rows),
                            config.model.seq);
  });
}

void train_rank(Runtime& rt, const Flags& flags, const TextData& text,
                const TextData* eval, Report& report) {
  const bool is_rank_0 = rt.rank() == 0;
  const auto model = flags.train.make_model(rt.mesh());
  nn::TrainerOptions options = flags.train.trainer_options(text);
  if (!flags.checkpoint.empty())
    options.checkpoints = caller_path(flags.checkpoint);
  options.save_every = flags.every;
  options.keep = flags.keep;
  options.check_copies_every = flags.check_replicas;
  nn::Trainer trainer(*model, options);
  if (is_rank_0) {
    report.parameters = parameter_rows(*model);
    fmt::print("{}\n", parameter_table(report.parameters));
    std::fflush(stdout);
  }
  nn::TrainingReport training = train_steps(rt, flags, text, trainer);
  double eval_loss = 0;
  if (eval) {
    const Scoped<std::string> phase(rt.context().phase, "eval");
    eval_loss = evaluate(trainer, flags.train, *eval);
  }
  std::vector<int64_t> sample;
  const Scoped<std::string> phase(rt.context().phase, "sample");
  if (flags.sample)
    sample = nn::generate(
        *model,
        {.tokens = flags.sample,
         .sampling = {.seed = static_cast<uint64_t>(flags.train.seed)}});
  if (!flags.save.empty()) nn::save_pretrained(*model, caller_path(flags.save));
  if (!is_rank_0) return;
  if (nn::axis_that(nn::kSplitsStages, rt.mesh()) >= 0)
    report.bubble = bubble_report(flags.train, rt.mesh(), training.pipeline);
  report.training = std::move(training);
  report.eval_loss = eval_loss;
  for (int64_t token : sample)
    report.sample += static_cast<char>(static_cast<unsigned char>(token));
}

Json to_json(const Report& report, const Flags& flags, const Mesh& mesh,
             const std::vector<CommRow>& rows, Json memory) {
  Json parameters = Json::array();
  for (const ParameterRow& p : report.parameters)
    parameters.push_back(
        {{"name", p.name},
         {"shape", std::vector<int64_t>(p.shape.begin(), p.shape.end())},
         {"local_shape",
          std::vector<int64_t>(p.local_shape.begin(), p.local_shape.end())},
         {"layout", p.layout},
         {"bytes_per_rank", p.bytes}});
  const std::vector<double> seconds = each(report, &nn::StepResult::seconds);
  Json json = {{"losses", each(report, &nn::StepResult::loss)},
               {"grad_norms", each(report, &nn::StepResult::grad_norm)},
               {"first_step", report.training.first_step},
               {"loss_scale", report.training.steps.back().loss_scale},
               {"skipped_steps", skipped(report)},
               {"strategy", flags.train.strategy(mesh)},
               {"memory", std::move(memory)},
               {"parameters", std::move(parameters)},
               {"collectives", comm_json(rows, true)},
               {"tokens_per_second",
                tokens_per_second(seconds, step_tokens(flags.train))},
               {"exposed_communication_seconds",
                typical(each(report, &nn::StepResult::exposed))},
               {"sample", report.sample},
               {"eval_loss", nullptr}};
  if (!flags.eval.empty()) json["eval_loss"] = report.eval_loss;
  if (nn::axis_that(nn::kSplitsStages, mesh) >= 0)
    json["bubble"] = bubble_json(report.bubble);
  return json;
}

// Makes a flag's folder and checks that it can be written to, so that errors
// show before the training and not after it.
void make_folder(std::string_view flag, const std::string& folder) {
  const std::string path = caller_path(folder);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && access(path.c_str(), W_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  DT_CHECK(!error, flag, "cannot write to {}: {}; name another folder", folder,
           error.message());
}

// Throws Error if this training cannot resume from the checkpoint. If no flag
// gives the number of steps over which the learning rate falls, takes the
// number from the checkpoint.
void check_goes_on(const std::string& checkpoint, TrainConfig& config,
                   const TextData& text) {
  nn::TrainerOptions options = config.trainer_options(text);
  nn::check_resume("--resume", checkpoint, options);
  config.lr_steps = options.lr_steps;
  const nn::TrainingState saved =
      nn::training_state(CheckpointReader(checkpoint));
  DT_CHECK(saved.step < config.steps, "--resume",
           "{} was saved after {}, but --steps is {}, so there is "
           "nothing left to do; write a larger --steps",
           checkpoint, quantity(saved.step, "step", "steps"), config.steps);
  if (config.loss_scale == 0) return;
  for (const auto& [name, value] : nn::GradScaler().state())
    DT_CHECK(
        saved.values.contains(name), "--resume",
        "{} was saved without a loss scale; write --loss-scale 0 to resume "
        "without one",
        checkpoint);
}

// Checks the checkpoint flags as far as possible before ranks start, and makes
// the folder. See check_goes_on() for what it takes from a checkpoint.
void check_checkpoint_flags(const Program& program, Flags& flags,
                            const TextData& text) {
  const bool given = !flags.checkpoint.empty();
  DT_CHECK(given || !flags.resume, "--resume",
           "there is no --checkpoint to resume from; name its folder");
  for (const char* flag : {"--every", "--keep"})
    DT_CHECK(given || !program.given(flag), flag,
             "there is no --checkpoint to save to; name a folder");
  if (!given || program.dry_run()) return;
  make_folder("--checkpoint", flags.checkpoint);
  const std::string folder = caller_path(flags.checkpoint);
  const std::optional<std::string> last = latest_checkpoint(folder);
  DT_CHECK(!last || flags.resume, "--checkpoint",
           "{} exists from an earlier training; write --resume to continue "
           "from it, or name another folder",
           last.value_or(""));
  for (const std::string& left : unfinished_checkpoints(folder))
    if (program.is_main_process())
      fmt::print(stderr, "left over from an interrupted save: {}\n", left);
  if (last) check_goes_on(*last, flags.train, text);
}

// Throws Error if the ranks here need more memory than this machine has, since
// the system would kill the training.
void check_memory(const nn::Prediction& p, int64_t ranks) {
  struct sysinfo info;
  if (sysinfo(&info) != 0) return;
  const double have = static_cast<double>(info.totalram) * info.mem_unit;
  const double need =
      static_cast<double>(p.memory.peak) * static_cast<double>(ranks);
  DT_CHECK(
      need <= have, "train",
      "{} up to {:.3f} GB, but this machine has {:.3f} GB; make the model or "
      "the batch smaller, or add --dry-run",
      quantity(ranks, "rank needs", "ranks need"), need / 1e9, have / 1e9);
}

void print_header(const Flags& flags, const Mesh& mesh, const TextData& text,
                  const nn::Prediction& p) {
  const TrainConfig& c = flags.train;
  fmt::print("{}: {} parameters in {}, {} bytes of them per rank\n",
             c.title(mesh), grouped(p.parameters), c.dtype,
             grouped(p.parameter_bytes));
  fmt::print("text: {}, {} bytes, entropy {:.3f} nats per byte\n\n",
             text.name(), grouped(text.size()), text.entropy());
}

// If `rows` has bytes that depend on the data (of experts), prints how they
// were counted.
void note_data(std::span<const CommRow> rows, std::string_view of) {
  for (const CommRow& r : rows)
    if (data_decide_bytes(r.op))
      return fmt::print("(bytes of experts: {})\n\n", of);
}

void train(Program& program, const Flags& flags, const TextData& text,
           const TextData* eval, const nn::Prediction& prediction) {
  RunOptions options = program.run_options();
  options.record = false;  // the report already has the events of a step
  options.finish = {};
  options.observers.clear();
  if (auto record = program.another_record(
          flags.train.title(program.mesh()) + ", rank 0 of the run",
          program.mesh()))
    options.observers.push_back(std::move(record));
  Report report;
  run(options, [&](Runtime& rt) { train_rank(rt, flags, text, eval, report); });
  if (!program.is_main_process()) return;

  const nn::TrainingReport& ran = report.training;
  const std::vector<CommRow> rows = comm_rows(ran.events);
  const std::vector<double> seconds = each(report, &nn::StepResult::seconds);
  fmt::print(
      "\ncollectives of a step, with the most bytes that a rank "
      "receives:\n{}\n",
      comm_table(ran.events, true));
  note_data(rows, "those of the first step; the data decide them");
  fmt::print("{}\n", memory_table(prediction.memory, &ran.memory));
  fmt::print("loss {:.4f} -> {:.4f}, {:.0f} tokens/s\n", ran.steps.front().loss,
             ran.steps.back().loss,
             tokens_per_second(seconds, step_tokens(flags.train)));
  fmt::print(
      "a step takes {:.1f} ms, including {:.1f} ms of communication that does "
      "not overlap with work\n",
      1e3 * typical(seconds),
      1e3 * typical(each(report, &nn::StepResult::exposed)));
  if (flags.train.loss_scale > 0)
    fmt::print(
        "the loss scale is {}; {} of {} steps were skipped because their "
        "gradients overflowed\n",
        ran.steps.back().loss_scale, skipped(report), std::ssize(ran.steps));
  if (nn::axis_that(nn::kSplitsStages, program.mesh()) >= 0)
    fmt::print("{}\n", bubble_text(report.bubble));
  if (eval)
    fmt::print("eval loss on {}: {:.6f} nats per byte\n", eval->name(),
               report.eval_loss);
  if (!flags.save.empty()) fmt::print("saved to {}\n", flags.save);
  if (!flags.checkpoint.empty())
    fmt::print("checkpoints in {}\n", flags.checkpoint);
  if (flags.sample) fmt::print("\nsample:\n{}\n", printable(report.sample));
  program.write_json(to_json(report, flags, program.mesh(), rows,
                             memory_json(prediction.memory, &ran.memory)));
  nn::check_agreement(prediction, ran);
  fmt::print("\npredicted and counted bytes agree\n");
}

int train_main(int argc, char** argv) {
  Flags flags;
  Program program({.about = "Trains a language model on the bytes of a text.",
                   .mesh = "dp=2,tp=2"});
  add_train_flags(program, flags.train);
  program.add("--cuda-graph", &flags.train.cuda_graph,
              "make the third step a CUDA graph, and replay it");
  program.add("--text", &flags.text,
              "the text to train on (default: Debian's licence texts)",
              TextKind::kFile);
  program.add("--sample", &flags.sample, "bytes of text to generate");
  program.add("--eval", &flags.eval, "a text to report the loss of",
              TextKind::kFile);
  program.add("--save", &flags.save,
              "the folder for config.json and model.safetensors",
              TextKind::kFolder);
  program.add("--checkpoint", &flags.checkpoint,
              "the folder to save the training in, and to resume it from",
              TextKind::kFolder);
  program.add("--every", &flags.every,
              "steps between two checkpoints; the last step is saved too", 1);
  program.add("--keep", &flags.keep,
              "how many of the last checkpoints to keep, 0: all");
  program.add("--resume", &flags.resume,
              "resume from the last checkpoint, if there is one; on any mesh");
  program.add("--check-replicas", &flags.check_replicas,
              "steps between two checks that the copies of parameters and "
              "state are equal, 0: no checks");
  std::optional<TextData> text, eval;
  nn::Prediction prediction;
  const auto prepare = [&] {
    TrainConfig& config = flags.train;
    config.validate(program.mesh());
    text =
        flags.text.empty() ? TextData::licences() : TextData::file(flags.text);
    text->require(config.model.seq + 1);
    if (!flags.eval.empty()) {
      DT_CHECK(
          config.model.seq >= 2, "--eval",
          "windows of {} byte have nothing to predict; write --seq 2 or more",
          config.model.seq);
      eval = TextData::file(flags.eval);
      eval->require(config.model.seq);
    }
    if (!flags.save.empty() && !program.dry_run())
      make_folder("--save", flags.save);
    check_checkpoint_flags(program, flags, *text);
    // The prediction finds settings that do not fit together before any rank
    // starts.
    const RunOptions options = program.run_options();
    // (Dry runs accept --cuda-graph, but have no device and make no graph.)
    DT_CHECK(!config.cuda_graph || options.device || program.dry_run(),
             "--cuda-graph",
             "it is for --device cuda, but this is --device cpu; leave it out, "
             "or write --device cuda");
    const auto on_gpus = [&](bool given, const char* flag) {
      DT_CHECK(!given || options.device || program.dry_run(), flag,
               "it moves tensors of GPUs to the host's memory, but this is "
               "--device cpu, which has no other; leave it out, or write "
               "--device cuda");
    };
    on_gpus(config.recompute == "offload", "--recompute");
    on_gpus(config.offload_state, "--offload-state");
    config.fit_memory(options);
    describe(program.record().get(), config, program.mesh());
    prediction = predict(config, options);
    // A GPU's allocator itself throws if the memory does not suffice.
    if (!program.dry_run() && !options.device)
      check_memory(prediction, program.ranks_here());
  };
  return program.main(argc, argv, prepare, [&] {
    print_header(flags, program.mesh(), *text, prediction);
    if (!program.dry_run())
      return train(program, flags, *text, eval ? &*eval : nullptr, prediction);
    const std::vector<CommRow> rows = comm_rows(prediction.events);
    fmt::print(
        "collectives of a step, with the most bytes that a rank "
        "receives:\n{}\n",
        comm_table(prediction.events, false));
    note_data(
        rows,
        "as if tokens were spread evenly over them; the data decide them");
    fmt::print("{}\n", memory_table(prediction.memory, nullptr));
    const CostTable cost = program.cost(program.mesh());
    const Predicted time = predicted(prediction, cost);
    fmt::print("{}\n", to_string(time, cost));
    Json json = {{"strategy", flags.train.strategy(program.mesh())},
                 {"collectives", comm_json(rows, false)},
                 {"memory", memory_json(prediction.memory, nullptr)},
                 {"peak_bytes", prediction.memory.peak},
                 {"time", to_json(time)}};
    if (nn::axis_that(nn::kSplitsStages, program.mesh()) >= 0)
      json["bubble"] = bubble_json(bubble_report(flags.train, program.mesh()));
    program.write_json(json);
  });
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  return dtensor::examples::train_main(argc, argv);
}
