// //:generate: continues texts with a checkpoint of transformers.
#include <fmt/format.h>

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "dtensor/nn/engine.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/nn/text/tokenizer.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "examples/token_ids.h"

namespace dtensor::examples {
namespace {

struct Args {
  std::string model, prompt, ids, dtype = "auto";
  int64_t tokens = 64, texts = 8, chunk = 256;
  // Negative: as generation_config.json says.
  double temperature = -1, top_p = -1, min_p = -1, repetition_penalty = -1,
         presence_penalty = 0, frequency_penalty = 0;
  int64_t top_k = -1, seed = 0;
  bool no_cache = false, ignore_eos = false;
};

using Ids = std::vector<std::vector<int64_t>>;

nn::Sampling sampling_of(const Args& a, nn::Sampling s) {
  const auto set = [](auto& to, auto value) {
    if (value >= 0) to = value;
  };
  set(s.temperature, a.temperature);
  set(s.top_k, a.top_k);
  set(s.top_p, a.top_p);
  set(s.min_p, a.min_p);
  set(s.repetition_penalty, a.repetition_penalty);
  s.presence_penalty = a.presence_penalty;
  s.frequency_penalty = a.frequency_penalty;
  s.seed = static_cast<uint64_t>(a.seed);
  return s;
}

Ids rows_of(const Tensor& ids) {
  const int64_t n = ids.shape()[1];
  Ids rows(static_cast<size_t>(ids.shape()[0]));
  for (int64_t i = 0; i < ids.numel(); ++i)
    rows[static_cast<size_t>(i / n)].push_back(ids.integer_at(i));
  return rows;
}

// Continues all texts at once, and calls shown() with each token of the first.
Ids continue_all(const nn::LanguageModel& model, const Args& args,
                 const Ids& prompts, const nn::GenerationConfig& defaults,
                 const std::function<void(int64_t)>& shown) {
  const nn::Sampling sampling = sampling_of(args, defaults.sampling);
  const std::vector<int64_t> stop =
      args.ignore_eos ? std::vector<int64_t>() : defaults.stop;
  Ids out(prompts.size());
  if (args.no_cache) {
    for (size_t i = 0; i < prompts.size(); ++i)
      out[i] = nn::generate(model, {.tokens = args.tokens,
                                    .prompt = prompts[i],
                                    .sampling = sampling,
                                    .stop = stop,
                                    .cache = false});
    if (shown)
      for (const int64_t id : out[0]) shown(id);
    return out;
  }
  nn::Engine engine(
      model, {.texts = std::min<int64_t>(args.texts, std::ssize(prompts)),
              .chunk = args.chunk});
  for (size_t i = 0; i < prompts.size(); ++i)
    engine.add({.prompt = prompts[i],
                .tokens = args.tokens,
                .sampling = sampling,
                .stop = stop,
                .on_token = [&out, &shown, i](const nn::DrawnToken& t) {
                  out[i].push_back(t.id);
                  if (i == 0 && shown) shown(t.id);
                  return true;
                }});
  while (engine.step()) {
  }
  return out;
}

void generate(const Args& args, const Program& program) {
  const std::string file = args.model + "/tokenizer.json";
  std::optional<nn::Tokenizer> tokenizer;
  if (args.ids.empty() || std::filesystem::exists(file))
    tokenizer = nn::Tokenizer::from_pretrained(args.model);
  const int64_t vocab = nn::read_config(args.model + "/config.json").vocab;
  const Ids prompts = args.ids.empty()
                          ? Ids{tokenizer->encode(args.prompt)}
                          : rows_of(read_token_ids(args.ids, vocab));
  const nn::GenerationConfig defaults = nn::read_generation_config(args.model);
  Ids out;
  run(program.run_options(), [&](Runtime& rt) {
    nn::LoadOptions options;
    if (args.dtype != "auto") options.dtype = parse_dtype(args.dtype);
    const auto model = nn::from_pretrained(args.model, rt.mesh(), options);
    const bool first = rt.rank() == 0;
    std::optional<nn::TextStream> stream;
    std::function<void(int64_t)> shown;
    if (first && tokenizer && prompts.size() == 1) {
      stream.emplace(*tokenizer);
      shown = [&stream](int64_t id) {
        fmt::print("{}", stream->push(id));
        std::fflush(stdout);
      };
    }
    Ids mine = continue_all(*model, args, prompts, defaults, shown);
    if (stream) fmt::print("{}\n", stream->finish());
    if (first) out = std::move(mine);
  });
  nlohmann::ordered_json json = {{"ids", out}};
  if (tokenizer)
    for (const std::vector<int64_t>& ids : out)
      json["text"].push_back(tokenizer->decode(ids));
  if (prompts.size() > 1 || !tokenizer)
    for (size_t i = 0; i < out.size(); ++i)
      fmt::print("{}: {}\n", i,
                 tokenizer ? json["text"][i].get<std::string>()
                           : fmt::format("{}", fmt::join(out[i], " ")));
  program.write_json(json);
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  using namespace dtensor;
  examples::Args a;
  Program program({.about = "Continues a text, or several at once, with a "
                            "checkpoint of transformers. Flags that are not "
                            "given are as generation_config.json says.",
                   .mesh = "tp=1"});
  program.add("--model", &a.model,
              "a folder with config.json, model.safetensors and tokenizer.json",
              TextKind::kFolder);
  program.add("--prompt", &a.prompt, "the text to continue");
  program.add(
      "--ids", &a.ids,
      "instead: a safetensors file with input_ids [b, s], the tokens of "
      "b texts",
      TextKind::kFile);
  program.add("--tokens", &a.tokens, "the most tokens to generate", 1);
  program.add("--temperature", &a.temperature,
              "divides the logits; 0: always the likeliest token");
  program.add("--top-k", &a.top_k, "draw from the k likeliest tokens; 0: all");
  program.add("--top-p", &a.top_p,
              "draw from the likeliest tokens whose probabilities sum to this");
  program.add("--min-p", &a.min_p,
              "draw from tokens with at least this share of the likeliest's "
              "probability");
  program.add("--repetition-penalty", &a.repetition_penalty,
              "divides the positive logits of tokens that the text has, and "
              "multiplies the others");
  program.add("--presence-penalty", &a.presence_penalty,
              "subtracted from the logits of tokens that were generated", -1e6);
  program.add("--frequency-penalty", &a.frequency_penalty,
              "the same, for each time", -1e6);
  program.add("--seed", &a.seed, "the seed of the draws");
  program.add("--ignore-eos", &a.ignore_eos,
              "go on after a token that ends the text");
  program.add("--dtype", &a.dtype,
              "the type of parameters and activations; auto: the checkpoint's",
              {"auto", "f32", "f64", "bf16", "f16"});
  program.add("--batch", &a.texts, "the most texts that are continued at once",
              1);
  program.add("--chunk", &a.chunk, "the most tokens of prompts in a step", 1);
  program.add("--no-cache", &a.no_cache,
              "compute the whole text again for each token");
  return program.main(
      argc, argv,
      [&] {
        DT_CHECK(!a.model.empty(), "--model",
                 "it is missing; write --model DIR");
        DT_CHECK(a.prompt.empty() != a.ids.empty(), "--prompt",
                 "write either --prompt TEXT or --ids FILE");
      },
      [&] { examples::generate(a, program); });
}
