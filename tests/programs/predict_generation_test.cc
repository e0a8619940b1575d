// SPDX-License-Identifier: Apache-2.0
// Dry runs of //:generate and //:serve, which need only config.json, against
// runs of the same texts.
#include "programs/predict_generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/comm_table.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/programs/running.h"
#include "tests/testing.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::json;
using testing::error_of;
using testing::Ran;
using testing::run_program;

const char kModel[] = "tests/nn/data/llama";

// Makes a folder that has only the config.json of that model.
std::string config_only() {
  const std::string folder = testing::temporary("config_only");
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(std::string(kModel) + "/config.json",
                             folder + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  return folder;
}

Json predicted(const std::string& args, const char* program = "generate") {
  const Ran r = run_program(
      program, "--dry-run --json - --model " + config_only() + " " + args);
  EXPECT_EQ(r.code, 0) << r.err;
  const Json json = Json::parse(r.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << args << " printed\n" << r.out << r.err;
  return json;
}

struct Counted {
  int64_t weights = 0, cache = 0, peak = 0, prompt = 0, token = 0, batch = 0;
};

// The bytes of all events that the rank has received since `from`.
int64_t received(std::span<const CommEvent> events, size_t from) {
  int64_t sum = 0;
  for (const CommEvent& e : events.subspan(from)) sum += e.counted;
  return sum;
}

// Runs the texts of the prediction: 3 texts of 5 + 7 tokens.
Counted counted(const std::string& mesh_text) {
  const Mesh mesh = Mesh::parse(mesh_text);
  std::vector<Counted> ranks(static_cast<size_t>(mesh.num_ranks()));
  run(mesh.num_ranks(), [&](Runtime& rt) {
    Counted& c = ranks[static_cast<size_t>(rt.rank())];
    const auto model = nn::from_pretrained(kModel, mesh);
    for (const DistTensor& p : model->parameters())
      if (p.here()) c.weights += p.local().bytes();
    const auto add = [](nn::Engine& engine, int64_t prompt, int64_t tokens) {
      engine.add({.prompt = std::vector<int64_t>(size_t(prompt), 3),
                  .tokens = tokens,
                  .sampling = {.temperature = 0}});
    };
    const CommRecord record;
    const auto sent_by = [&](const std::function<void()>& fn) {
      const size_t before = record.events().size();
      fn();
      return received(record.events(), before);
    };
    {
      nn::Engine engine(*model, {.texts = 1, .length = 12, .chunk = 4});
      add(engine, 5, 2);
      c.prompt = sent_by([&] {
        engine.step();
        engine.step();
      });
      c.token = sent_by([&] { engine.step(); });
    }
    nn::Engine engine(*model, {.texts = 3, .length = 12, .chunk = 4});
    c.cache = engine.cache().bytes();
    rt.context().allocator->reset_peak();
    for (const int64_t prompt : {5, 1, 1}) add(engine, prompt, 2);
    engine.step();
    c.peak = memory_use(*rt.context().allocator).peak;
    engine.step();  // the last token of the first prompt
    while (engine.step()) {
    }
    for (const int64_t prompt : {1, 1, 1}) add(engine, prompt, 1);
    c.batch = sent_by([&] { engine.step(); });
  });
  const auto holds_less = [](const Counted& a, const Counted& b) {
    return a.weights + a.cache < b.weights + b.cache;
  };
  Counted most = *std::max_element(ranks.begin(), ranks.end(), holds_less);
  for (const Counted& c : ranks) {
    most.prompt = std::max(most.prompt, c.prompt);
    most.token = std::max(most.token, c.token);
    most.batch = std::max(most.batch, c.batch);
  }
  return most;
}

// With one token, no step follows the first token, but the prediction has its
// bytes.
TEST(PredictGeneration, OneTokenIsEnough) {
  const Json json = predicted("--prompt-tokens 5 --tokens 1 --mesh tp=2");
  EXPECT_EQ(json["length"], 6);
  EXPECT_EQ(
      json["token"]["bytes"],
      predicted("--prompt-tokens 5 --tokens 7 --mesh tp=2")["token"]["bytes"]);
}

// With 2 heads of keys on three ranks, the second rank has the largest cache.
TEST(PredictGeneration, IsWhatARunHoldsAndSends) {
  for (const char* mesh : {"tp=1", "tp=2", "tp=3", "dp=2,tp=2"}) {
    const Json json =
        predicted("--prompt-tokens 5 --tokens 7 --batch 3 --chunk 4 --mesh " +
                  std::string(mesh));
    const Counted c = counted(mesh);
    EXPECT_EQ(json["length"], 12) << mesh;
    EXPECT_EQ(json["memory"]["weights"], c.weights) << mesh;
    EXPECT_EQ(json["memory"]["cache"], c.cache) << mesh;
    EXPECT_EQ(json["peak_bytes"], c.peak) << mesh;
    EXPECT_EQ(json["prompt"]["bytes"], c.prompt) << mesh;
    EXPECT_EQ(json["token"]["bytes"], c.token) << mesh;
    EXPECT_EQ(json["batch"]["bytes"], c.batch) << mesh;
    EXPECT_EQ(json["batch"]["texts"], 3);
  }
}

// The short prompts of several texts fill a step. All of them are computed,
// since they differ.
TEST(PredictGeneration, PeaksWithPartsOfSeveralPrompts) {
  const Json json = predicted(
      "--prompt-tokens 8 --tokens 4 --batch 6 --chunk 32 --mesh tp=2");
  int64_t peak = 0;
  run(2, [&](Runtime& rt) {
    const auto model = nn::from_pretrained(kModel, rt.mesh({{"tp", 2}}));
    nn::Engine engine(*model, {.texts = 6, .length = 12, .chunk = 32});
    rt.context().allocator->reset_peak();
    for (int64_t i = 0; i < 6; ++i)
      engine.add({.prompt = std::vector<int64_t>(8, i),
                  .tokens = 1,
                  .sampling = {.temperature = 0}});
    engine.step();
    const int64_t mine = memory_use(*rt.context().allocator).peak;
    if (rt.rank() == 0) peak = mine;
  });
  // In the prediction, the last two texts have a token each: 34 tokens, not 32.
  EXPECT_GE(json["peak_bytes"].get<int64_t>(), peak);
  EXPECT_LT(json["peak_bytes"].get<double>(), 1.5 * static_cast<double>(peak));
}

// Work takes as long as the memory takes to read weights and cache. In a
// pipeline, the stages work one after the other.
TEST(PredictGeneration, TimesFollowThePrices) {
  const std::string slow = testing::write_file(
      "slow.json", R"({"gflop_per_s": 1e6, "local_gbytes_per_s": 1})");
  const std::string fast = testing::write_file(
      "fast.json", R"({"gflop_per_s": 1e6, "local_gbytes_per_s": 4})");
  const std::string args = "--prompt-tokens 5 --tokens 7 --batch 2 --cost ";
  const Json one = predicted(args + slow), four = predicted(args + fast);
  const auto seconds = [](const Json& json, const char* part = "token") {
    return json[part]["work_seconds"].get<double>();
  };
  EXPECT_NEAR(seconds(one) / seconds(four), 4, 1e-6);
  const double held = one["memory"]["weights"].get<double>() / 1e9;
  // The embedding's rows are few, and activations are small.
  EXPECT_GT(seconds(one), 0.85 * held);
  EXPECT_LT(seconds(one), 1.25 * held);
  EXPECT_NEAR(seconds(predicted(args + slow + " --mesh pp=2")), seconds(one),
              1e-9);
  EXPECT_NEAR(one["token"]["tokens_per_second"].get<double>() *
                  one["token"]["seconds"].get<double>(),
              1, 1e-9);
  // A text alone has only its own cache to read.
  EXPECT_EQ(seconds(predicted(
                "--prompt-tokens 5 --tokens 7 --batch 30 --cost " + slow)),
            seconds(one));
  EXPECT_GT(one["batch"]["tokens_per_second"],
            1.5 * one["token"]["tokens_per_second"].get<double>());
}

TEST(PredictGeneration, SaysWhetherItFits) {
  const Json all = predicted("--prompt-tokens 5 --tokens 7 --batch 2");
  EXPECT_FALSE(all.contains("fits"));
  const auto peak = all["peak_bytes"].get<int64_t>();
  EXPECT_EQ(
      predicted("--prompt-tokens 5 --tokens 7 --batch 2 --memory 1GB")["fits"],
      true);
  const int64_t half = peak / 2 + peak / 20;
  const Json json = predicted(fmt::format(
      "--prompt-tokens 5 --tokens 7 --batch 2 --memory {}MB", half / 1e6));
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["memory_bytes"], half);
  EXPECT_EQ(json["fits_on"]["mesh"], "tp=2");
  EXPECT_LE(json["fits_on"]["peak_bytes"], half);
  EXPECT_EQ(
      json["fits_on"]["peak_bytes"],
      predicted(
          "--prompt-tokens 5 --tokens 7 --batch 2 --mesh tp=2")["peak_bytes"]);
  // So little memory is never enough: every rank has the norms.
  const Json never =
      predicted("--prompt-tokens 5 --tokens 7 --memory 0.000001GB");
  EXPECT_EQ(never["fits"], false);
  EXPECT_FALSE(never.contains("fits_on"));
}

TEST(PredictGeneration, ServeHasItsOwnFlags) {
  const Json json = predicted(
      "--prompt-tokens 5 --batch 4 --length 16 --cache-tokens 40 --mesh tp=2",
      "serve");
  EXPECT_EQ(json["texts"], 4);
  EXPECT_EQ(json["length"], 16);
  EXPECT_EQ(json["cache_tokens"], 40);
  // 64 slots in pages of 32, each with 1 head of 8 f32 numbers on a rank; keys
  // and values; 2 layers.
  EXPECT_EQ(json["memory"]["cache"], 64 * 8 * 4 * 2 * 2);
  EXPECT_EQ(predicted("", "serve")["length"], 64);
}

TEST(PredictGeneration, HasARecordOfEachPart) {
  const std::string record = testing::temporary("record.json"),
                    page = testing::temporary("page.html");
  predicted("--prompt-tokens 5 --tokens 7 --mesh tp=2 --record " + record +
            " --html " + page);
  const Json all = Json::parse(testing::read_file(record));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[1]["title"], "llama on tp=2, a token");
  EXPECT_GT(all[1]["runs"][0]["operators"].size(), 20u);
  EXPECT_NE(testing::read_file(page).find("a token of each"),
            std::string::npos);
}

TEST(PredictGeneration, RefusesWhatItCannotRead) {
  EXPECT_EQ(parse_memory("80GB"), 80'000'000'000);
  EXPECT_EQ(parse_memory("80"), 80'000'000'000);
  EXPECT_EQ(parse_memory("1.5 GiB"), 3 << 29);
  EXPECT_EQ(parse_memory("512MiB"), 512 << 20);
  for (const char* bad :
       {"", "GB", "5 parsecs", "-1GB", "0", "nan", "inf", "1e40GB", "8GBx"})
    EXPECT_NE(error_of([&] {
                parse_memory(bad);
              }).find("cannot be read as an amount of memory; write a "),
              std::string::npos)
        << bad;
  const std::string model = " --model " + config_only();
  const auto refused = [&](const std::string& args, const char* why) {
    const Ran r = run_program("generate", args + model);
    EXPECT_EQ(r.code, 2);
    EXPECT_NE(r.err.find(why), r.err.npos) << r.err;
  };
  refused("--dry-run --prompt-tokens 5 --memory x",
          "[--memory] 'x' cannot be read as an amount of memory");
  refused("--prompt-tokens 5", "add --dry-run");
  refused("--dry-run", "--prompt-tokens N");
  refused("--dry-run --prompt-tokens 60 --tokens 5",
          "[--tokens] it is 5, and the length of the longest prompt is 60");
  refused("--dry-run --no-cache --prompt-tokens 5", "--no-cache");
  refused("--prompt x", "tokenizer.json");
}

}  // namespace
}  // namespace dtensor::examples
