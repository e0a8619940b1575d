// SPDX-License-Identifier: Apache-2.0
#include "programs/predict_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm_table.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/predicted.h"
#include "dtensor/program/record.h"
#include "dtensor/rank_context.h"
#include "dtensor/text_table.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::ordered_json;

// Limits of the search for a larger mesh whose memory suffices: the ranks of a
// mesh, the meshes to try, and how many times the memory may be exceeded.
constexpr int64_t kMostRanks = 1024, kMostTries = 6, kMostTimes = 64;

struct Question {
  const std::string& dir;
  const nn::LoadOptions& load;
  const nn::EngineOptions& engine;
  int64_t prompt;
};

// The bytes that one rank holds as long as the engine exists.
struct Held {
  int64_t rank = 0, weights = 0, cache = 0;
  int64_t bytes() const { return weights + cache; }
};

// A part of the prediction: one step, or all steps of a prompt.
struct Part {
  std::string name;
  int64_t texts = 1, tokens = 1;  // tokens of all texts together
  std::vector<std::vector<CommEvent>> events = {};  // by simulated rank
  int64_t work_ps = 0;  // the sum over the stages, which work one by one
  std::shared_ptr<Record> record = nullptr;

  std::vector<CommEvent> all_events() const { return merge_events(events); }
  int64_t communication_ps(const CostTable& cost) const {
    std::set<int64_t> paid;
    int64_t sum = 0;
    for (const CommEvent& e : all_events()) sum += price(e, cost, paid);
    return sum;
  }
};

struct Needs {
  Held most;  // the rank with the highest peak
  int64_t peak = 0;
};

// Returns the bytes of the tensors' parts, by rank of the run.
std::vector<int64_t> bytes_by_rank(int64_t world,
                                   const std::vector<DistTensor>& tensors) {
  std::map<const Spec*, int64_t> count;  // most parameters are alike
  for (const DistTensor& t : tensors) ++count[t.spec()];
  std::vector<int64_t> bytes(static_cast<size_t>(world), 0);
  for (const auto& [spec, n] : count)
    for (int64_t i = 0; i < spec->mesh().num_ranks(); ++i)
      bytes[static_cast<size_t>(spec->mesh().world_rank(i))] +=
          n * numel(spec->local_shape(spec->mesh().coordinate(i))) *
          size_of(spec->dtype());
  return bytes;
}

std::vector<DistTensor> cached_in(const nn::LanguageModel& model,
                                  const nn::KvCache& cache) {
  std::vector<DistTensor> all;
  for (size_t i = 0; i < model.attention_layers().size(); ++i)
    for (const DistTensor& x : {cache.layer(static_cast<int64_t>(i)).k,
                                cache.layer(static_cast<int64_t>(i)).v})
      all.push_back(x);
  return all;
}

// Runs fn(), and adds the collectives and the work of this rank to `part`.
void observe(const nn::LanguageModel& model, Part& part,
             const std::function<void()>& fn) {
  RankContext& context = RankContext::current();
  const CommRecord record;
  const OnOp observe(context, [&](const OpRan& op) {
    // This rank does not run the operators of other stages.
    if (op.out[0].here()) part.work_ps += op.choice.work_ps;
  });
  std::optional<Observing> shown;
  if (part.record) shown.emplace(context, *part.record);
  if (shown) part.record->step_begins(context, model.named_parameters());
  fn();
  if (shown) part.record->ended(context);
  part.events.emplace_back(record.events().begin(), record.events().end());
}

// Makes the model on one rank of a dry run, and calls fn() with it.
void on_rank(const RunOptions& options, const Mesh& mesh, int64_t rank,
             const Question& q,
             const std::function<void(const nn::LanguageModel&)>& fn) {
  run(options, [&](Runtime& rt) {
    rt.context().world_rank = rank;
    fn(*nn::from_pretrained(q.dir, mesh, q.load));
  });
}

// Predicts by dry runs. The constructor finds the rank that holds the most in
// each stage of a pipeline, and the other functions run only these ranks.
class Prediction {
 public:
  Prediction(const RunOptions& options, const Mesh& mesh, const Question& q)
      : options_(options), mesh_(mesh), q_(q) {
    on_rank(options_, mesh, mesh.world_rank(mesh.num_ranks() - 1), q_,
            [&](const nn::LanguageModel& model) {
              config_ = model.config();
              const nn::Engine engine(model, q_.engine);
              parameters_ = 0;
              for (const DistTensor& p : model.parameters())
                parameters_ += numel(p.shape());
              find_largest(bytes_by_rank(options_.world, model.parameters()),
                           bytes_by_rank(options_.world,
                                         cached_in(model, engine.cache())));
            });
  }

  const nn::ModelConfig& config() const { return config_; }
  int64_t parameters() const { return parameters_; }

  // The memory of a step with as many tokens as possible: up to `chunk` tokens
  // of prompts, and one token of each text whose prompt has no room left.
  Needs needs() const {
    Needs most;
    for (const Held& held : stages_)
      on_rank(options_, mesh_, held.rank, q_,
              [&](const nn::LanguageModel& model) {
                nn::EngineOptions options = q_.engine;
                options.share = false;  // so that each prompt is computed
                nn::Engine engine(model, options);
                RankContext& context = RankContext::current();
                context.allocator->reset_peak();
                int64_t room = options.chunk;
                for (int64_t i = 0; i < options.texts; ++i) {
                  engine.add({.prompt = prompt(room > 0 ? q_.prompt : 1),
                              .tokens = 1,
                              .sampling = {.temperature = 0}});
                  room -= std::min(room, q_.prompt);
                }
                engine.step();
                const int64_t peak = memory_use(*context.allocator).peak;
                if (peak > most.peak) most = {held, peak};
              });
    return most;
  }

  // Observes the steps of a prompt, and the step of one token of a single text.
  void alone(Part& of_prompt, Part& of_token) const {
    nn::EngineOptions one = q_.engine;
    one.texts = 1;
    one.cache_tokens = 0;
    for (const Held& held : stages_)
      on_rank(options_, mesh_, held.rank, q_,
              [&](const nn::LanguageModel& model) {
                nn::Engine engine(model, one);
                const auto add = [&](int64_t tokens) {
                  engine.add({.prompt = prompt(tokens),
                              .tokens = 1,
                              .sampling = {.temperature = 0}});
                };
                add(q_.prompt);
                observe(model, of_prompt, [&] {
                  while (engine.step()) {
                  }
                });
                add(1);
                observe(model, of_token, [&] { engine.step(); });
              });
  }

  // Observes a step with the next token of all texts.
  void together(Part& of_token) const {
    for (const Held& held : stages_)
      on_rank(options_, mesh_, held.rank, q_,
              [&](const nn::LanguageModel& model) {
                nn::Engine engine(model, q_.engine);
                for (int64_t i = 0; i < q_.engine.texts; ++i)
                  engine.add({.prompt = prompt(1),
                              .tokens = 1,
                              .sampling = {.temperature = 0}});
                observe(model, of_token, [&] { engine.step(); });
              });
  }

 private:
  static std::vector<int64_t> prompt(int64_t tokens) {
    return std::vector<int64_t>(static_cast<size_t>(tokens), 0);
  }

  void find_largest(const std::vector<int64_t>& weights,
                    const std::vector<int64_t>& cache) {
    const int axis = nn::axis_that(nn::kSplitsStages, mesh_);
    std::map<int64_t, Held> stages;
    for (int64_t r = 0; r < mesh_.num_ranks(); ++r) {
      const auto world = static_cast<size_t>(mesh_.world_rank(r));
      const Held held{mesh_.world_rank(r), weights[world], cache[world]};
      const int64_t stage = axis < 0 ? 0 : mesh_.coordinate(r)[axis];
      const auto [at, added] = stages.emplace(stage, held);
      if (!added && held.bytes() >= at->second.bytes()) at->second = held;
    }
    for (const auto& [stage, held] : stages) stages_.push_back(held);
  }

  const RunOptions options_;
  const Mesh mesh_;
  const Question& q_;
  nn::ModelConfig config_;
  int64_t parameters_ = 0;
  std::vector<Held> stages_;
};

RunOptions dry_options(const Program& program, const Mesh& mesh) {
  RunOptions options;
  options.world = mesh.num_ranks();
  options.dry_run = true;
  options.cost = program.cost(mesh);
  return options;
}

// Finds a mesh on which a rank needs at most `memory` bytes: with more ranks
// along tp, and other axes as they are. Returns it and the bytes that a rank
// needs there; nullopt if none of the tried meshes suffices.
std::optional<std::pair<Mesh, int64_t>> larger_mesh(const Program& program,
                                                    const Question& q,
                                                    int64_t needed,
                                                    int64_t memory) {
  const Mesh& mesh = program.mesh();
  std::vector<MeshAxis> axes;
  for (int a = 0; a < mesh.num_axes(); ++a)
    axes.push_back({mesh.axis_name(a), mesh.axis_size(a)});
  auto tp = std::find_if(axes.begin(), axes.end(),
                         [](const MeshAxis& a) { return a.name == "tp"; });
  if (tp == axes.end()) tp = axes.insert(tp, {"tp", 1});
  const int64_t others = mesh.num_ranks() / tp->size;
  // Start at the size that would suffice if all memory shrank with tp. Norms,
  // for example, are on every rank and do not shrink.
  const double times =
      static_cast<double>(needed) / static_cast<double>(memory);
  if (times > kMostTimes) return {};
  const auto least =
      static_cast<int64_t>(static_cast<double>(tp->size) * times);
  tp->size = std::max(tp->size + 1, least);
  for (int64_t i = 0; i < kMostTries && tp->size * others <= kMostRanks; ++i) {
    const Mesh larger(axes);
    const int64_t peak =
        Prediction(dry_options(program, larger), larger, q).needs().peak;
    if (peak <= memory) return std::pair(larger, peak);
    tp->size += std::max<int64_t>(1, tp->size / 4);
  }
  return {};
}

double seconds(int64_t ps) { return static_cast<double>(ps) / 1e12; }

// Each report function prints a table, or a line, and adds the same to `json`.
void report_memory(const Needs& needs, Json& json) {
  const int64_t activations = needs.peak - needs.most.bytes();
  TextTable memory("lr", {"memory of a rank", "bytes"});
  memory.add({"weights", grouped(needs.most.weights)});
  memory.add({"cache", grouped(needs.most.cache)});
  memory.add({"activations", grouped(activations)});
  memory.add({"peak", grouped(needs.peak)});
  fmt::print("{}\n", memory.to_string());
  json["memory"] = {{"weights", needs.most.weights},
                    {"cache", needs.most.cache},
                    {"activations", activations}};
  json["peak_bytes"] = needs.peak;
}

void report_speed(std::span<const Part, 3> parts, const CostTable& cost,
                  Json& json) {
  TextTable speed("lrrrrrr", {"", "tokens", "bytes received", "work ms",
                              "communication ms", "ms", "tokens/s"});
  const std::array<const char*, 3> names = {"prompt", "token", "batch"};
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    const std::vector<CommEvent> events = p.all_events();
    // The stages work one after the other, so their times add up.
    const Predicted time{most_received(events), p.work_ps,
                         p.communication_ps(cost)};
    const double rate =
        static_cast<double>(p.tokens) / seconds(time.total_ps());
    const auto ms = [](int64_t ps) {
      return fmt::format("{:.3f}", 1e3 * seconds(ps));
    };
    speed.add({p.name, grouped(p.tokens), grouped(time.bytes), ms(time.work_ps),
               ms(time.communication_ps), ms(time.total_ps()),
               fmt::format("{:.1f}", rate)});
    json[names[i]] = {{"texts", p.texts},
                      {"tokens", p.tokens},
                      {"bytes", time.bytes},
                      {"work_seconds", seconds(time.work_ps)},
                      {"communication_seconds", seconds(time.communication_ps)},
                      {"seconds", seconds(time.total_ps())},
                      {"tokens_per_second", rate},
                      {"collectives", comm_json(comm_rows(events), false)}};
  }
  fmt::print("{}\n{}", basis_of_times(cost), speed.to_string());
}

void report_fit(const Program& program, const Question& q, int64_t peak,
                const GenerationFlags& flags, Json& json) {
  const int64_t have = parse_memory(flags.memory);
  const bool fits = peak <= have;
  json["memory_bytes"] = have;
  json["fits"] = fits;
  fmt::print("\n{} bytes of {} are needed: it {}\n", grouped(peak),
             grouped(have), fits ? "fits" : "does not fit");
  if (fits) return;
  const auto larger = larger_mesh(program, q, peak, have);
  if (larger) {
    json["fits_on"] = {{"mesh", larger->first.to_string()},
                       {"peak_bytes", larger->second}};
    fmt::print("it fits on {}, with {} bytes\n", larger->first.to_string(),
               grouped(larger->second));
  } else {
    fmt::print("take fewer texts at once, shorter texts, or another mesh\n");
  }
}

}  // namespace

void GenerationFlags::add_to(Program& program) {
  program.add("--prompt-tokens", &prompt,
              "in a dry run: the tokens of a prompt");
  program.add("--memory", &memory,
              "in a dry run: the memory of a rank, such as 80GB; says whether "
              "it suffices");
}

void GenerationFlags::check(const Program& program) const {
  for (const char* flag : {"--prompt-tokens", "--memory"})
    DT_CHECK(program.dry_run() || !program.given(flag), flag,
             "it is for --dry-run, which needs only config.json; add "
             "--dry-run, or leave it out");
  if (program.given("--memory")) parse_memory(memory);
}

int64_t parse_memory(const std::string& text) {
  static const std::map<std::string, double, std::less<>> kUnits = {
      {"", 1e9},       {"MB", 1e6},     {"GB", 1e9},    {"TB", 1e12},
      {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
  }
  if (end < text.size() && text[end] == ' ') ++end;
  const auto unit = kUnits.find(text.substr(std::min(end, text.size())));
  const double bytes = unit == kUnits.end() ? 0 : number * unit->second;
  DT_CHECK(end > 0 && bytes >= 1 && bytes < 0x1p62, "--memory",
           "'{}' cannot be read as an amount of memory; write a positive "
           "number of MB, GB, TB, MiB, GiB or TiB, such as 80GB, of at most "
           "4000000TB",
           text);
  return static_cast<int64_t>(bytes);
}

void predict_generation(Program& program, const std::string& dir,
                        const nn::LoadOptions& load,
                        const nn::EngineOptions& engine,
                        const GenerationFlags& flags) {
  const Mesh& mesh = program.mesh();
  const RunOptions options = dry_options(program, mesh);
  const int64_t length =
      engine.length ? engine.length : nn::read_config(dir + "/config.json").seq;
  const Question q{
      dir, load, engine,
      flags.prompt ? flags.prompt : std::min<int64_t>(512, (length + 1) / 2)};
  DT_CHECK(q.prompt <= length, "--prompt-tokens",
           "a prompt of {} tokens is longer than a text, which has at most {}; "
           "write fewer tokens",
           q.prompt, length);
  const Prediction prediction(options, mesh, q);
  const nn::ModelConfig& config = prediction.config();
  const Needs needs = prediction.needs();

  std::array<Part, 3> parts = {
      {{"a prompt", 1, q.prompt},
       {"a token", 1, 1},
       {"a token of each", engine.texts, engine.texts}}};
  for (Part& p : parts)
    p.record = program.another_record(
        fmt::format("{} on {}, {}", config.name, mesh.to_string(), p.name),
        mesh);
  prediction.alone(parts[0], parts[1]);
  prediction.together(parts[2]);

  const int64_t cached =
      engine.cache_tokens ? engine.cache_tokens : engine.texts * length;
  fmt::print(
      "{} on {}: {} parameters in {}\n{} texts of at most {} tokens, {} tokens "
      "in the cache\n\n",
      config.name, mesh.to_string(), grouped(prediction.parameters()),
      name(config.dtype), grouped(engine.texts), grouped(length),
      grouped(cached));

  Json json = {{"parameters", prediction.parameters()},
               {"dtype", name(config.dtype)},
               {"texts", engine.texts},
               {"length", length},
               {"cache_tokens", cached}};
  report_memory(needs, json);
  report_speed(parts, options.cost, json);
  if (!flags.memory.empty()) report_fit(program, q, needs.peak, flags, json);
  program.write_json(json);
}

}  // namespace dtensor::examples
