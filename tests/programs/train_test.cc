// SPDX-License-Identifier: Apache-2.0
// Small training runs: the results are the same on every mesh, and counted as
// predicted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

const char kTiny[] =
    " --layers 2 --hidden 12 --heads 3 --seq 10 --batch 5 --steps 4 --lr 1e-3 "
    "--dtype f64 --sample 0 --json - ";

Json train(const std::string& args) {
  const Ran r = run_program("train", kTiny + args);
  EXPECT_EQ(r.code, 0) << args << "\n" << r.err;
  const Json json = Json::parse(r.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << args << ": not JSON alone:\n" << r.out;
  return json;
}

void expect_close(const Json& a, const Json& b, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i].get<double>() / b[i].get<double>(), 1, tolerance)
        << what << " of step " << i;
}

void expect_counted(const Json& json, const std::string& mesh) {
  for (const Json& row : json["collectives"]) {
    EXPECT_EQ(row["bytes_predicted"], row["bytes_counted"]) << mesh << row;
    EXPECT_GT(row["count"].get<int64_t>(), 0) << mesh << row;
    for (const char* field : {"axis", "kind", "op", "phase"})
      EXPECT_TRUE(row[field].is_string() && row[field] != "") << mesh << row;
  }
}

void expect_equal_on_meshes(const std::string& model) {
  const Json one = train(model + "--mesh dp=1");
  EXPECT_EQ(one["losses"].size(), 4u);
  EXPECT_TRUE(one["collectives"].empty()) << one["collectives"];
  EXPECT_NEAR(one["losses"][0].get<double>(), std::log(256), 1);
  // Heads that do not divide; fewer heads than ranks; fewer windows than
  // ranks, so that some parts are empty.
  for (const char* mesh : {"dp=2,tp=2", "tp=3", "tp=2,dp=2", "tp=4", "dp=6"}) {
    const Json json = train(model + "--mesh " + mesh);
    expect_close(json["losses"], one["losses"], 1e-11, mesh);
    expect_close(json["grad_norms"], one["grad_norms"], 1e-10, mesh);
    expect_counted(json, mesh);
    EXPECT_FALSE(json["collectives"].empty()) << mesh;
  }
}

TEST(Train, GptIsEqualOnEveryMesh) { expect_equal_on_meshes("--model gpt "); }
TEST(Train, LlamaIsEqualOnEveryMesh) {
  expect_equal_on_meshes("--model llama --heads 6 --kv-heads 2 ");
}

TEST(Train, OtherTypesRun) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const Ran r = run_program(
        "train",
        "--layers 1 --hidden 12 --heads 3 --seq 10 --batch 5 --steps 3 "
        "--sample 0 --json - --mesh dp=2,tp=2 --dtype " +
            std::string(dtype));
    ASSERT_EQ(r.code, 0) << r.err;
    const Json json = Json::parse(r.out);
    expect_counted(json, dtype);
    EXPECT_NEAR(json["losses"][0].get<double>(), std::log(256), 1);
    const bool scaled = dtype == std::string("f16");
    EXPECT_EQ(json["loss_scale"], scaled ? 65536 : 1) << dtype;
    EXPECT_EQ(json["skipped_steps"], 0) << dtype;
  }
}

// If one rank has a gradient that overflows, all ranks skip the step, and they
// send what was predicted.
TEST(Train, F16SkipsStepsThatOverflow) {
  for (const std::string mesh :
       {"--mesh dp=1", "--mesh dp=2,tp=2 --zero 2 --accumulate 2",
        "--mesh dp=4 --zero 3", "--mesh pp=2,dp=2 --zero 1",
        "--mesh pp=2,tp=2 --grad-wire f16"}) {
    const Ran r = run_program(
        "train",
        "--layers 2 --hidden 12 --heads 3 --seq 10 --batch 4 --steps 20 "
        "--sample 0 --json - --dtype f16 --loss-scale 1e9 --check-replicas 1 " +
            mesh);
    ASSERT_EQ(r.code, 0) << mesh << r.err;
    const Json json = Json::parse(r.out);
    expect_counted(json, mesh);
    const int64_t skipped = json["skipped_steps"];
    EXPECT_GT(skipped, 4) << mesh;
    EXPECT_LT(skipped, 20) << mesh;
    // 1e9 as f32, halved each time.
    EXPECT_EQ(json["loss_scale"], std::ldexp(1e9f, static_cast<int>(-skipped)));
    const auto& norms = json["grad_norms"];
    EXPECT_EQ(std::count_if(norms.begin(), norms.end(),
                            [](const Json& n) { return n.is_null(); }),
              skipped)
        << norms;
    EXPECT_LT(json["losses"][19], json["losses"][0]) << mesh;
  }
}

TEST(Train, ReportsParameters) {
  const Json json = train("--mesh dp=2,tp=2");
  int64_t elements = 0, bytes = 0;
  std::map<std::string, Json> by_name;
  for (const Json& p : json["parameters"]) {
    by_name[p["name"]] = p;
    int64_t n = 1, local = 1;
    for (int64_t d : p["shape"]) n *= d;
    for (int64_t d : p["local_shape"]) local *= d;
    elements += n;
    bytes += p["bytes_per_rank"].get<int64_t>();
    EXPECT_EQ(p["bytes_per_rank"], local * 8) << p;
    EXPECT_LE(local, n) << p;
  }
  // wte and wpe; per block two norms, four matrices, the MLP; the last norm.
  EXPECT_EQ(elements, 256 * 12 + 10 * 12 +
                          2 * (4 * 12 + 4 * (144 + 12) + 2 * 48 * 12 + 60) +
                          24);
  EXPECT_LT(bytes, elements * 8);
  const Json fc = by_name["transformer.h.0.mlp.c_fc.weight"];
  EXPECT_EQ(fc["shape"], Json({48, 12}));
  EXPECT_EQ(fc["local_shape"], Json({24, 12}));
  EXPECT_EQ(fc["layout"], "R,S0");
}

TEST(Train, HasTheFieldsOfTheResult) {
  const Json json = train("--mesh dp=1");
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "collectives", "eval_loss", "exposed_communication_seconds",
                "first_step", "grad_norms", "loss_scale", "losses", "memory",
                "parameters", "sample", "skipped_steps", "strategy",
                "tokens_per_second"}));
  EXPECT_TRUE(json["eval_loss"].is_null());
  EXPECT_GT(json["tokens_per_second"].get<double>(), 0);
}

// There is none without collectives, and never more than the steps took.
TEST(Train, ReportsExposedCommunication) {
  const auto exposed = [](const std::string& flags) {
    const Json json = train(flags);
    const double seconds = json["exposed_communication_seconds"];
    EXPECT_LT(seconds, 5 * 10 / json["tokens_per_second"].get<double>());
    return seconds;
  };
  EXPECT_EQ(exposed("--mesh dp=1"), 0);
  EXPECT_GT(exposed("--mesh dp=2,tp=2"), 0);
  EXPECT_GT(exposed("--mesh dp=2 --zero 3"), 0);
}

TEST(Train, PrintsTables) {
  const Ran r = run_program(
      "train",
      "--layers 1 --hidden 12 --heads 3 --seq 10 --batch 5 --steps 3 "
      "--sample 30 --mesh dp=2,tp=2");
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* text : {"transformer.wte.weight", "predicted", "counted",
                           "all-reduce", "predicted and counted bytes agree",
                           "tokens/s", "sample:", "70,885 bytes"})
    EXPECT_NE(r.out.find(text), r.out.npos) << text << "\n" << r.out;
  EXPECT_NE(r.err.find("step 3/3"), r.err.npos) << r.err;
}

TEST(Train, DryRunSaysWhatTheRunSends) {
  const Json ran = train("--mesh dp=2,tp=2");
  const Json dry = train("--mesh dp=2,tp=2 --dry-run");
  EXPECT_GT(dry["peak_bytes"].get<int64_t>(), 0);
  ASSERT_EQ(dry["collectives"].size(), ran["collectives"].size());
  for (size_t i = 0; i < dry["collectives"].size(); ++i) {
    Json row = ran["collectives"][i];
    row.erase("bytes_counted");
    EXPECT_EQ(dry["collectives"][i], row);
  }
}

// The peak is what was asked for, in the run as in the dry run, and less is
// recomputed if more is allowed.
TEST(Train, RecomputesWithinABudget) {
  for (const std::string mesh :
       {"dp=2,tp=2", "dp=2 --zero 3", "pp=2 --micro-batches 3"}) {
    SCOPED_TRACE(mesh);
    const std::string args = "--layers 6 --seq 24 --mesh " + mesh;
    const auto peak = [&](const std::string& more) {
      return train(args + more)["memory"]["peak"];
    };
    const Json none = peak(""), block = peak(" --recompute block");
    const auto most = none["predicted"].get<int64_t>(),
               least = block["predicted"].get<int64_t>();
    ASSERT_GT(most, least);
    int64_t before = 0;
    for (const int64_t budget : {least, (least + most) / 2, most - 1, most}) {
      const Json memory = peak(fmt::format(" --recompute-memory {}", budget));
      EXPECT_LE(memory["predicted"].get<int64_t>(), budget);
      EXPECT_LE(memory["measured"].get<int64_t>(), budget);
      EXPECT_GE(memory["predicted"].get<int64_t>(), before);
      before = memory["predicted"].get<int64_t>();
    }
    EXPECT_EQ(before, most);
  }
}

// Generating text does not count as a forward pass of a step.
TEST(Train, TraceSaysWhatIsTheSample) {
  const Json json =
      train("--mesh tp=2 --sample 20 --trace " + temporary("sample.json"));
  std::set<std::string> phases;
  for (const Json& row : json["waiting"]) {
    phases.insert(row["phase"]);
    EXPECT_FALSE(row["phase"] == "forward" && row["op"] == "redistribute")
        << row;
  }
  EXPECT_TRUE(phases.contains("sample")) << json["waiting"];
}

// If only ep splits the batch, its ranks hold copies of everything except the
// experts.
TEST(Train, ZeroOverExpertsAlone) {
  const std::string flags =
      "--model mixtral --experts 4 --top-k 2 --heads 2 --mesh ";
  const Json one = train(flags + "dp=1");
  const auto state = [](const Json& json) {
    return json["memory"]["state"]["measured"].get<int64_t>();
  };
  const Json copies = train(flags + "ep=2");
  for (const char* zero : {" --zero 1", " --zero 2", " --zero 3"}) {
    const Json json = train(flags + "ep=2" + zero);
    expect_close(json["losses"], one["losses"], 1e-11, zero);
    EXPECT_LT(state(json), state(copies)) << zero;
  }
}

// A dry run for a GPU makes no device, and says the same as one for the CPU.
TEST(Train, DryRunsForGpusNeedNone) {
  const std::string flags = "--mesh dp=2,tp=2 --dry-run";
  EXPECT_EQ(train(flags + " --device cuda --cuda-graph"), train(flags));
}

// The measured memory may be less than predicted, as the rank's second thread
// works beside the first one, but never more.
TEST(Train, MemoryIsWhatTheDryRunSays) {
  for (const char* flags :
       {"--mesh dp=2,tp=2", "--mesh dp=3 --zero 1", "--mesh dp=3 --zero 2",
        "--mesh dp=2,tp=2 --zero 3", "--mesh dp=2,fsdp=2 --zero 3",
        "--mesh dp=2 --zero 3 --gather-budget 1000000",
        "--mesh dp=2 --zero 3 --accumulate 2", "--mesh tp=2 --recompute block",
        "--mesh dp=2 --zero 3 --recompute block"}) {
    const Json memory = train(flags)["memory"];
    const Json dry = train(flags + std::string(" --dry-run"))["memory"];
    ASSERT_EQ(memory.size(), 6u);
    for (const auto& [kind, bytes] : memory.items()) {
      const bool fixed = kind == "parameters" || kind == "state";
      EXPECT_EQ(bytes["predicted"], dry[kind]["predicted"]);
      EXPECT_LE(bytes["measured"], bytes["predicted"]) << flags << " " << kind;
      if (fixed) {
        EXPECT_EQ(bytes["measured"], bytes["predicted"]) << flags;
      }
      // Only tensors that are still on their way make a difference.
      EXPECT_GE(bytes["measured"].get<double>(),
                0.8 * bytes["predicted"].get<double>())
          << flags << " " << kind;
    }
  }
}

// f64 gradients are sent in a quarter of their bytes, and the training is
// nearly the same.
TEST(Train, GradientsTravelAsAskedFor) {
  const auto sent = [](const Json& json) {
    int64_t bytes = 0;
    for (const Json& row : json["collectives"])
      if (row["op"] == "grad") bytes += row["bytes_counted"].get<int64_t>();
    return bytes;
  };
  for (const char* flags : {"--mesh dp=2", "--mesh dp=2 --zero 2"}) {
    const Json full = train(flags);
    const Json less = train(flags + std::string(" --grad-wire bf16"));
    EXPECT_EQ(4 * sent(less), sent(full)) << flags;
    expect_close(less["losses"], full["losses"], 1e-3, flags);
    EXPECT_NE(less["losses"], full["losses"]);
  }
}

// The gradients of earlier micro-batches are held once, and one matrix more
// while it is added up.
TEST(Train, GradientsOfMicroBatchesAreHeldOnce) {
  const Json memory = train("--mesh dp=2 --accumulate 3")["memory"];
  const int64_t parameters = memory["parameters"]["measured"],
                gradients = memory["gradients"]["measured"];
  EXPECT_GE(gradients, parameters);
  EXPECT_LE(gradients, parameters + 2 * 256 * 12 * 8);
}

TEST(Train, DryRunTakesAnyMesh) {
  const Json json = train("--mesh dp=64,tp=64 --dry-run --batch 64");
  EXPECT_GT(json["collectives"].size(), 0u);
}

TEST(Train, SamplesAreTheSameOnEveryMesh) {
  std::string first;
  for (const char* mesh : {"dp=1", "dp=2,tp=2", "tp=3", "dp=2,tp=2 --zero 3"}) {
    const Json json = train("--sample 40 --mesh " + std::string(mesh));
    const std::string sample = json["sample"];
    EXPECT_GE(sample.size(), 40u) << mesh;
    if (first.empty()) first = sample;
    EXPECT_EQ(sample, first) << mesh;
  }
}

// The values of the tensors in a file of f64, by name.
std::map<std::string, std::vector<double>> read_model(const std::string& path) {
  const std::string file = read_file(path);
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  const Json header = Json::parse(file.substr(8, size));
  std::map<std::string, std::vector<double>> model;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    EXPECT_EQ(entry["dtype"], "F64") << name;
    const size_t begin = entry["data_offsets"][0],
                 end = entry["data_offsets"][1];
    model[name].resize((end - begin) / sizeof(double));
    std::memcpy(model[name].data(), file.data() + 8 + size + begin,
                end - begin);
  }
  return model;
}

TEST(Train, SavesTheSameModelFromEveryMesh) {
  std::vector<std::map<std::string, std::vector<double>>> saved;
  for (const char* flags :
       {"--mesh dp=1", "--mesh dp=2,tp=3", "--mesh dp=5 --zero 1",
        "--mesh dp=3,tp=2 --zero 3"}) {
    const std::string folder =
        temporary("model" + std::to_string(saved.size()));
    train("--save " + folder + " " + flags);
    saved.push_back(read_model(folder + "/model.safetensors"));
    EXPECT_EQ(Json::parse(read_file(folder + "/config.json"))["model_type"],
              "gpt2");
    EXPECT_GT(saved[0].size(), 20u);
    ASSERT_EQ(saved[0].size(), saved.back().size()) << flags;
    double largest = 0;
    for (const auto& [name, values] : saved[0]) {
      const std::vector<double>& others = saved.back()[name];
      ASSERT_EQ(values.size(), others.size()) << name;
      double most = 0;
      for (size_t k = 0; k < values.size(); ++k) {
        most = std::max(most, std::abs(values[k] - others[k]));
        largest = std::max(largest, std::abs(values[k]));
      }
      EXPECT_LT(most, 1e-9) << name << " with " << flags;
    }
    EXPECT_GT(largest, 0.1);
  }
}

// 7 windows of 10 bytes, and a rest that is no window. Each window counts once,
// whatever the batch is, and even if the last batch is short.
TEST(Train, EvaluatesEveryWindowOnce) {
  std::string varied;
  for (int i = 0; i < 75; ++i) varied += static_cast<char>(' ' + i * i % 90);
  const std::string text = write_file("eval", varied);
  // With a learning rate of 0, the model does not change.
  const auto loss = [&](const std::string& args) {
    return train("--lr 0 --steps 1 --eval " + text + " " + args)["eval_loss"]
        .get<double>();
  };
  const double all = loss("--mesh dp=1 --batch 7");
  EXPECT_NEAR(all, std::log(256), 1);
  for (const char* args : {"--mesh dp=1 --batch 1", "--mesh dp=1 --batch 5",
                           "--mesh dp=2,tp=2 --batch 4"})
    EXPECT_NEAR(loss(args), all, 1e-10) << args;
}

TEST(Train, PathsAreTheCallers) {
  const std::string folder = temporary("caller");
  ASSERT_EQ(std::system(("mkdir -p " + folder).c_str()), 0);
  write_file("caller/text", std::string(100, 'x'));
  const Ran r = run_program("train",
                            "--layers 1 --hidden 4 --heads 1 --seq 4 --batch 2 "
                            "--steps 2 --sample 0 --mesh dp=1 --text text "
                            "--json out.json",
                            "BUILD_WORKING_DIRECTORY=" + folder);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(Json::parse(read_file(folder + "/out.json"))["losses"].size(), 2u);
}

TEST(Train, HelpIsNoError) {
  const Ran r = run_program("train", "--help");
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.err, "");
  for (const char* flag : {"--model gpt|llama",
                           "--layers",
                           "--hidden",
                           "--heads",
                           "--kv-heads",
                           "--ffn",
                           "--seq",
                           "--batch",
                           "--steps",
                           "--lr",
                           "--warmup",
                           "--weight-decay",
                           "--clip",
                           "--seed",
                           "--dtype f32|f64|bf16|f16",
                           "--mesh dp=2,tp=2",
                           "--text FILE",
                           "--sample",
                           "--eval FILE",
                           "--save DIR",
                           "--json [FILE]",
                           "--dry-run"})
    EXPECT_NE(r.out.find(flag), r.out.npos) << flag << "\n" << r.out;
}

TEST(Train, FailedRunIsExitOne) {
  // A learning rate that blows up: the loss is not finite after some steps.
  const Ran r = run_program(
      "train",
      "--layers 1 --hidden 4 --heads 1 --seq 4 --batch 2 --steps 30 --clip 0 "
      "--sample 0 --mesh dp=2 --lr 1e30 --warmup 0 --weight-decay 1e30");
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_NE(r.err.find("try a smaller lr or clip"), r.err.npos) << r.err;
}

// For a long sequence, a ring is cheaper, but it holds more blocks.
TEST(Train, AttentionWithinMemory) {
  const auto sent = [](const std::string& flags) {
    const Ran r = run_program(
        "train",
        "--mesh cp=4 --layers 1 --heads 8 --hidden 64 --seq 16384 --batch 1 "
        "--dry-run --json - " +
            flags);
    EXPECT_EQ(r.code, 0) << r.err;
    return Json::parse(r.out, nullptr, false)["collectives"];
  };
  const Json ring = sent("--context ring"),
             heads = sent("--context all-to-all");
  EXPECT_NE(ring, heads);
  EXPECT_EQ(sent(""), ring);
  // Queries, keys and values have 1 MiB each. Besides these, a ring needs
  // 18 MiB, and all-to-all 12 (context_bytes()).
  EXPECT_EQ(sent("--context-memory 18874368"), ring);
  EXPECT_EQ(sent("--context-memory 18874367"), heads);
  EXPECT_EQ(sent("--context-memory 1"), heads);
}

}  // namespace
}  // namespace dtensor::testing
