// SPDX-License-Identifier: Apache-2.0
// //:generate: continues texts with a checkpoint of transformers.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "dtensor/nn/engine.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/nn/text/text_pieces.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "dtensor/text_file.h"
#include "programs/checkpoint_flags.h"
#include "programs/predict_generation.h"
#include "programs/text_flags.h"
#include "programs/token_ids.h"

namespace dtensor::examples {
namespace {

struct Args {
  CheckpointFlags model;
  std::string prompt, ids;
  int64_t texts = 8, chunk = 256;
  TextFlags text = TextFlags(64);
  bool no_cache = false;
  GenerationFlags dry;
};

using Ids = std::vector<std::vector<int64_t>>;

struct Prompts {
  std::optional<nn::Tokenizer> tokenizer = {};  // if the folder has one
  Ids rows = {};                                // empty with --prompt-tokens
};

// A text that is being continued.
struct Continued {
  std::vector<int64_t> ids = {};
  std::string text = {};
  std::optional<nn::TextPieces> pieces = {};  // if there is a tokenizer
};

Ids rows_of(const Tensor& ids) {
  const int64_t n = ids.shape()[1];
  Ids rows(static_cast<size_t>(ids.shape()[0]));
  for (int64_t i = 0; i < ids.numel(); ++i)
    rows[static_cast<size_t>(i / n)].push_back(ids.integer_at(i));
  return rows;
}

int64_t longest_of(const Ids& prompts) {
  int64_t longest = 0;
  for (const auto& p : prompts)
    longest = std::max<int64_t>(longest, std::ssize(p));
  return longest;
}

// Reads the prompts of --prompt or --ids. Throws Error if they cannot be read,
// or if the cache has no place for them and their continuations.
Prompts read_prompts(const Args& args) {
  const std::string& dir = args.model.dir;
  Prompts p;
  std::error_code ignored;
  if (!args.prompt.empty() || !args.text.stop.empty() ||
      std::filesystem::exists(dir + "/tokenizer.json", ignored))
    p.tokenizer = nn::Tokenizer::from_pretrained(dir);
  if (!args.prompt.empty())
    p.rows = {p.tokenizer->encode(args.prompt)};
  else if (!args.ids.empty())
    p.rows = rows_of(
        read_token_ids(args.ids, nn::read_config(dir + "/config.json").vocab));
  // Without a cache, a text may be longer than the model's sequence.
  if (!args.no_cache)
    args.model.check_length("--tokens", args.text.tokens,
                            std::max(longest_of(p.rows), args.dry.prompt));
  return p;
}

// Options for prompts of at most `longest` tokens, and their continuations.
nn::EngineOptions engine_options(const Args& args, int64_t prompts,
                                 int64_t longest) {
  return {.texts = std::min(args.texts, prompts),
          .length = longest + args.text.tokens,
          .chunk = args.chunk};
}

// Continues all prompts. Calls shown() with each new piece of the first text.
std::vector<Continued> continue_all(
    const nn::LanguageModel& model, const Args& args, const Ids& prompts,
    const nn::GenerationConfig& defaults, const nn::Tokenizer* tokenizer,
    const std::function<void(const std::string&)>& shown) {
  std::vector<Continued> out(prompts.size());
  const auto show = [&](size_t i, const std::string& text) {
    out[i].text += text;
    if (i == 0) shown(text);
  };
  std::vector<nn::TextRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (tokenizer) out[i].pieces.emplace(*tokenizer, args.text.stop);
    nn::TextRequest& r = requests.emplace_back(args.text.request(defaults));
    r.prompt = prompts[i];
    r.on_token = [&show, &one = out[i], i](const nn::DrawnToken& t) {
      one.ids.push_back(t.id);
      if (one.pieces) show(i, one.pieces->push(t).text);
      return !one.pieces || !one.pieces->stopped();
    };
  }
  if (args.no_cache) {
    for (const nn::TextRequest& r : requests)
      nn::generate(model, {.tokens = r.tokens,
                           .prompt = r.prompt,
                           .sampling = r.sampling,
                           .stop = r.stop,
                           .on_token = r.on_token,
                           .cache = false});
  } else {
    nn::Engine engine(
        model, engine_options(args, std::ssize(prompts), longest_of(prompts)));
    for (nn::TextRequest& r : requests) engine.add(std::move(r));
    while (engine.step()) {
    }
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i].pieces) show(i, out[i].pieces->finish().text);
  return out;
}

void generate(const Args& args, const Prompts& read, Program& program) {
  const auto& [tokenizer, prompts] = read;
  if (program.dry_run()) {
    const bool given = !prompts.empty();
    const int64_t prompt = given ? longest_of(prompts) : args.dry.prompt;
    return predict_generation(
        program, args.model.dir, args.model.load(),
        engine_options(args, given ? std::ssize(prompts) : args.texts, prompt),
        {prompt, args.dry.memory});
  }
  const nn::GenerationConfig defaults =
      nn::read_generation_config(args.model.dir);
  std::vector<Continued> out;
  run(program.run_options(), [&](Runtime& rt) {
    const auto model =
        nn::from_pretrained(args.model.dir, rt.mesh(), args.model.load());
    const bool first = rt.rank() == 0,
               streams = first && tokenizer && prompts.size() == 1;
    auto mine = continue_all(*model, args, prompts, defaults,
                             tokenizer ? &*tokenizer : nullptr,
                             [&](const std::string& text) {
                               if (!streams) return;
                               fmt::print("{}", text);
                               std::fflush(stdout);
                             });
    if (streams) fmt::print("\n");
    if (first) out = std::move(mine);
  });
  nlohmann::ordered_json json = {{"ids", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < out.size(); ++i) {
    json["ids"].push_back(out[i].ids);
    if (tokenizer) json["text"].push_back(out[i].text);
    if (prompts.size() > 1 || !tokenizer)
      fmt::print("{}: {}\n", i,
                 tokenizer ? out[i].text
                           : fmt::format("{}", fmt::join(out[i].ids, " ")));
  }
  program.write_json(json);
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  using namespace dtensor;
  examples::Args a;
  examples::Prompts prompts;
  Program program({.about = "Continues a text, or several at once, with a "
                            "checkpoint of transformers. Flags that are not "
                            "given are as generation_config.json says.",
                   .mesh = "tp=1"});
  a.model.add_to(program, "model.safetensors, and mostly tokenizer.json");
  program.add("--prompt", &a.prompt, "the text to continue");
  program.add(
      "--ids", &a.ids,
      "instead: a safetensors file with input_ids [b, s], the tokens of "
      "b texts",
      TextKind::kFile);
  a.text.add_to(program, "the most tokens to generate", 1);
  program.add("--batch", &a.texts, "the most texts that are continued at once",
              1, nn::EngineOptions::kMostTexts);
  program.add("--chunk", &a.chunk, "the most tokens of prompts in a step", 1);
  program.add("--no-cache", &a.no_cache,
              "compute the whole text again for each token");
  a.dry.add_to(program);
  return program.main(
      argc, argv,
      [&] {
        a.model.check();
        a.ids = caller_path(a.ids);
        a.text.check();
        a.dry.check(program);
        DT_CHECK(!a.no_cache || !program.dry_run(), "--no-cache",
                 "a dry run is about texts with a cache; leave it out");
        const int given = !a.prompt.empty() + !a.ids.empty() +
                          program.given("--prompt-tokens");
        DT_CHECK(given == 1, "--prompt",
                 "{} of --prompt, --ids and --prompt-tokens are given; write "
                 "either --prompt TEXT or --ids FILE, or in a dry run "
                 "--prompt-tokens N",
                 given);
        prompts = examples::read_prompts(a);
      },
      [&] { examples::generate(a, prompts, program); });
}
