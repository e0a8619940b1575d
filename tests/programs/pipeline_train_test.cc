// SPDX-License-Identifier: Apache-2.0
// Fifty updates in a pipeline are those of one rank, with every schedule. Also
// what the program says of pipelines.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

const std::string kSizes =
    " --layers 5 --hidden 18 --heads 3 --ffn 13 --seq 7 --batch 7 --lr 1e-3"
    " --sample 0";

Json train(const std::string& flags) {
  const Ran r = run_program("train", flags + kSizes + " --json -");
  EXPECT_EQ(r.code, 0) << flags << "\n" << r.err;
  return Json::parse(r.out, nullptr, false);
}

double worst(const Json& a, const Json& b) {
  double most = a.size() == b.size() && !a.empty() ? 0 : 1e9;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    most =
        std::max(most, std::abs(a[i].get<double>() / b[i].get<double>() - 1));
  return most;
}

class PipelineTrain : public ::testing::TestWithParam<const char*> {
 protected:
  std::string of(const std::string& dtype, int64_t steps) const {
    return std::string("--model ") + GetParam() + " --dtype " + dtype +
           " --steps " + std::to_string(steps) + " ";
  }
  void compare(const std::string& dtype, double loss, double norm,
               const std::vector<std::string>& all, int64_t steps) const {
    const Json one = train(of(dtype, steps) + "--mesh dp=1");
    for (const std::string& flags : all) {
      const Json other = train(of(dtype, steps) + flags);
      EXPECT_LE(worst(other["losses"], one["losses"]), loss) << flags;
      EXPECT_LE(worst(other["grad_norms"], one["grad_norms"]), norm) << flags;
    }
  }
};

std::vector<std::string> meshes() {
  return {"--mesh pp=2 --schedule gpipe --micro-batches 1",
          "--mesh pp=3 --schedule 1f1b --micro-batches 7",
          "--mesh pp=4 --schedule zb-h1 --micro-batches 3",
          "--mesh pp=5 --schedule zb-h2 --micro-batches 7",
          "--mesh pp=2 --schedule interleaved --chunks 2 --micro-batches 5",
          "--mesh pp=2,dp=2,tp=2 --schedule 1f1b --micro-batches 3",
          "--mesh dp=3,pp=2 --zero 1 --schedule zb-h1 --micro-batches 2",
          "--mesh pp=2,tp=4 --micro-batches 2 --recompute attention"};
}

TEST_P(PipelineTrain, FiftyStepsInF64) {
  compare("f64", 1e-11, 1e-10, meshes(), 50);
}

TEST_P(PipelineTrain, FiftyStepsInF32) {
  compare("f32", 2e-5, 1e-4, meshes(), 50);
}

TEST_P(PipelineTrain, EveryScheduleAndNumber) {
  std::vector<std::string> all;
  for (int64_t p = 2; p <= 5; ++p)
    for (int64_t m = 1; m <= 7; ++m)
      for (const char* s : {"gpipe", "1f1b", "zb-h1", "zb-h2"})
        if ((p + m + s[0]) % 3 == 0)  // a third of them
          all.push_back("--mesh pp=" + std::to_string(p) + " --schedule " + s +
                        " --micro-batches " + std::to_string(m));
  compare("f64", 1e-11, 1e-10, all, 2);
}

// Gradients, and with --zero 3 parameters, are split over the ranks of each
// stage.
TEST_P(PipelineTrain, Zero) {
  std::vector<std::string> all;
  for (const char* zero : {" --zero 2", " --zero 3"})
    for (const char* flags :
         {"--mesh pp=2,dp=2 --micro-batches 3",
          "--mesh dp=3,pp=2 --schedule zb-h1 --micro-batches 2",
          "--mesh pp=2,dp=2 --schedule interleaved --chunks 2 "
          "--micro-batches 4",
          "--mesh pp=3,dp=2 --schedule gpipe --micro-batches 2 "
          "--recompute block"})
      all.push_back(std::string(flags) + zero);
  all.push_back("--mesh pp=2,fsdp=2,tp=2 --micro-batches 2 --zero 3");
  all.push_back("--mesh pp=2,dp=2 --zero 3 --gather-budget 0");
  compare("f64", 1e-11, 1e-10, all, 10);
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineTrain,
                         ::testing::Values("gpt", "llama"));

// Each micro-batch balances its own experts, over the layers of all stages.
TEST(PipelineOfExperts, TenSteps) {
  const std::string common =
      "--model mixtral --experts 5 --top-k 2 --router-loss 0.1 --dtype f64 "
      "--steps 10 ";
  for (const char* micros : {"2", "3"}) {
    const Json one = train(common + "--mesh dp=1 --accumulate " + micros);
    for (const std::string flags :
         {"--mesh pp=2,ep=2", "--mesh pp=2,tp=2", "--mesh pp=5,dp=1",
          "--mesh pp=2,ep=2 --schedule zb-h1",
          "--mesh pp=2,dp=2,ep=2 --zero 3 --schedule gpipe",
          "--mesh dp=2,pp=2 --zero 1 --recompute block"}) {
      const Json other = train(common + flags + " --micro-batches " + micros);
      EXPECT_LE(worst(other["losses"], one["losses"]), 1e-11) << flags;
      EXPECT_LE(worst(other["grad_norms"], one["grad_norms"]), 1e-10) << flags;
      EXPECT_GT(other["bubble"]["formula"].get<double>(), 0);
    }
  }
}

// Besides activations, stages send two numbers for each expert: how many tokens
// chose it, and its probability.
TEST(PipelineOfExperts, BytesAreTheFormulas) {
  const Json json = train(
      "--model mixtral --experts 5 --dtype f32 --steps 2 --mesh pp=3,dp=1 "
      "--micro-batches 4");
  const int64_t one = 7 * 7 * 18 * 4 + 4 * 2 * 5 * 4;
  std::map<std::string, int64_t> bytes;
  for (const Json& row : json["collectives"])
    if (row["op"] == "pipeline") {
      EXPECT_EQ(row["bytes_predicted"], row["bytes_counted"]);
      bytes[row["phase"]] += row["bytes_counted"].get<int64_t>();
    }
  EXPECT_EQ(bytes, (std::map<std::string, int64_t>{{"backward", one},
                                                   {"forward", one}}));
}

// Stages send activations [b, s, h] to their neighbours, however the batch is
// cut.
TEST(PipelineProgram, BytesAreTheFormulas) {
  const Json json = train(
      "--model llama --dtype f32 --steps 2 --mesh pp=3,dp=1 --micro-batches 4");
  const int64_t one = 7 * 7 * 18 * 4;  // of the whole batch
  int64_t forward = 0, backward = 0;
  for (const Json& row : json["collectives"]) {
    if (row["op"] != "pipeline") continue;
    EXPECT_EQ(row["bytes_predicted"], row["bytes_counted"]);
    EXPECT_EQ(row["axis"], "between meshes");
    (row["phase"] == "forward" ? forward : backward) +=
        row["bytes_counted"].get<int64_t>();
  }
  // Per rank: the first stage receives no activation, and the last one no
  // gradient.
  EXPECT_EQ(forward, one);
  EXPECT_EQ(backward, one);
}

// A tied table is sent to the last stage once, and its gradient back once.
TEST(PipelineProgram, ATiedTableTravelsOnce) {
  for (const int64_t micros : {1, 5}) {
    const Json json = train("--model gpt --dtype f32 --steps 1 --mesh pp=3" +
                            (" --micro-batches " + std::to_string(micros)));
    std::map<std::string, int64_t> bytes;
    for (const Json& row : json["collectives"])
      if (row["op"] == "tied")
        bytes[row["phase"]] += row["bytes_counted"].get<int64_t>();
    const int64_t table = 256 * 18 * 4;
    EXPECT_EQ(bytes, (std::map<std::string, int64_t>{{"backward", table},
                                                     {"forward", table}}));
  }
}

TEST(PipelineProgram, SaysTheBubble) {
  const Json json = train(
      "--model gpt --steps 3 --mesh pp=5 --schedule gpipe --micro-batches 5");
  EXPECT_DOUBLE_EQ(json["bubble"]["formula"].get<double>(), 4.0 / 9);
  // The last stage also has the head.
  EXPECT_GT(json["bubble"]["simulated"].get<double>(), 4.0 / 9);
  EXPECT_GT(json["bubble"]["measured"].get<double>(), 0);
  EXPECT_LT(json["bubble"]["measured"].get<double>(), 1);
  const Json dry = train(
      "--model gpt --steps 3 --mesh pp=5 --schedule gpipe --micro-batches 5 "
      "--dry-run");
  EXPECT_EQ(dry["bubble"]["formula"], json["bubble"]["formula"]);
  EXPECT_EQ(dry["bubble"]["simulated"], json["bubble"]["simulated"]);
  EXPECT_TRUE(dry["bubble"]["measured"].is_null());
  EXPECT_EQ(train("--steps 1 --mesh dp=2").count("bubble"), 0u);
}

// GPipe holds all micro-batches, 1F1B as many as there are stages.
TEST(PipelineProgram, PeakMemory) {
  const auto peak = [](const char* schedule) {
    return train(
        std::string("--model llama --steps 1 --mesh pp=2 --schedule ") +
        schedule + " --micro-batches 7")["memory"]["activations"];
  };
  const Json gpipe = peak("gpipe"), one = peak("1f1b");
  for (const char* of : {"predicted", "measured"})
    EXPECT_GT(gpipe[of].get<double>(), 1.8 * one[of].get<double>()) << of;
}

// A rank of four holds a quarter of a stage's gradients and parameters. Gathers
// happen in each micro-batch and direction.
TEST(PipelineProgram, ZeroHoldsParts) {
  const auto run = [](const std::string& zero, const std::string& micros) {
    const Ran r = run_program(
        "train",
        "--model llama --layers 16 --hidden 48 --heads 4 --ffn 96 --seq 8 "
        "--batch 16 --mesh pp=2,dp=4 --dry-run --json - --zero " +
            zero + " --micro-batches " + micros);
    EXPECT_EQ(r.code, 0) << r.err;
    return Json::parse(r.out, nullptr, false);
  };
  const auto held = [](const Json& json, const char* kind) {
    return json["memory"][kind]["predicted"].get<double>();
  };
  const Json one = run("1", "4"), two = run("2", "4"), three = run("3", "4");
  EXPECT_LT(held(two, "gradients"), 0.5 * held(one, "gradients"));
  EXPECT_EQ(held(two, "parameters"), held(one, "parameters"));
  EXPECT_LT(held(three, "gradients"), 0.5 * held(one, "gradients"));
  EXPECT_LT(held(three, "parameters"), 0.3 * held(one, "parameters"));
  EXPECT_LT(two["peak_bytes"].get<double>(), one["peak_bytes"].get<double>());
  EXPECT_LT(three["peak_bytes"].get<double>(), two["peak_bytes"].get<double>());

  const auto sent = [](const Json& json, const char* op, const char* phase) {
    int64_t bytes = 0;
    for (const Json& row : json["collectives"])
      if (row["op"] == op && row["phase"] == phase)
        bytes += row["bytes_predicted"].get<int64_t>();
    return bytes;
  };
  for (const std::string zero : {"1", "2"}) {
    const int64_t times = zero == "1" ? 1 : 2;
    EXPECT_EQ(sent(run(zero, "8"), "grad", "backward"),
              times * sent(run(zero, "4"), "grad", "backward"))
        << zero;
  }
  const auto gathered = [&](const char* micros) {
    return sent(run("3", micros), "gather", "forward");
  };
  EXPECT_GT(gathered("8"), 1.5 * static_cast<double>(gathered("4")));
}

// If predicted and counted bytes differ, the program fails.
TEST(PipelineProgram, ZeroSendsWhatIsPredicted) {
  for (const char* schedule : {"1f1b", "zb-h1"})
    for (const char* zero : {"2", "3"}) {
      const Json json = train(
          std::string("--model gpt --steps 4 --mesh pp=2,dp=2 --schedule ") +
          schedule + " --zero " + zero);
      for (const Json& row : json["collectives"])
        EXPECT_EQ(row["bytes_predicted"], row["bytes_counted"]) << row;
      const Json& m = json["memory"]["gradients"];
      EXPECT_EQ(m["predicted"], m["measured"]) << m;
    }
}

TEST(PipelineProgram, AScheduleFromAFile) {
  const std::string file = write_file("mine.json",
                                      R"({"micro_batches": 2,
          "tasks": [["F0", "F1", "B1", "B0", "W0", "W1"],
                    ["F0", "F1", "B1", "W1", "B0", "W0"]]})");
  const std::string common = "--model gpt --dtype f64 --steps 3 ";
  const Json json = train(common + "--mesh pp=2 --schedule " + file);
  EXPECT_LE(worst(json["losses"], train(common + "--mesh dp=1")["losses"]),
            1e-11);
  EXPECT_TRUE(json["bubble"]["formula"].is_null());
}

// A schedule file is read once: it may be gone when the training ends, or it
// may be a pipe.
TEST(PipelineProgram, AScheduleIsReadOnce) {
  const std::string pipe = temporary("schedule.fifo");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::jthread writer([&] {
    std::ofstream(pipe) << R"({"micro_batches": 1,
                               "tasks": [["F0", "B0"], ["F0", "B0"]]})";
  });
  const Ran r = run_program(
      "train", "--model gpt --steps 2 --mesh pp=2" + kSizes + " --save " +
                   temporary("fifo_saved") + " --json - --schedule " + pipe);
  EXPECT_EQ(r.code, 0) << r.err;
  const Json json = Json::parse(r.out, nullptr, false);
  EXPECT_GT(json["bubble"]["measured"].get<double>(), 0);
  EXPECT_EQ(std::remove(pipe.c_str()), 0);
}

// Sums of gradients that every rank has whole are reduced in place.
TEST(PipelineProgram, GradientsAreHeldOnce) {
  const Json json =
      train("--model llama --steps 2 --mesh pp=2,dp=2 --micro-batches 3");
  for (const char* of : {"predicted", "measured"})
    EXPECT_LE(json["memory"]["gradients"][of].get<double>(),
              1.1 * json["memory"]["parameters"][of].get<double>())
        << of;
}

// In zig-zag order, the rank with the most of a sequence may not be the last
// one.
TEST(PipelineProgram, PredictsTheRankThatHoldsMost) {
  for (const char* flags : {"--mesh cp=2 --seq 5", "--mesh cp=3 --seq 11",
                            "--mesh pp=2,cp=2 --micro-batches 2 --seq 9"}) {
    const Ran r = run_program(
        "train", std::string("--model llama --layers 2 --hidden 12 --heads 3 "
                             "--batch 2 --steps 2 --sample 0 --json - ") +
                     flags);
    ASSERT_EQ(r.code, 0) << r.err;
    const Json json = Json::parse(r.out)["memory"]["activations"];
    EXPECT_EQ(json["predicted"], json["measured"]) << flags;
  }
}

// A model in a pipeline is saved, evaluated and sampled like any other. A run
// that was saved on one mesh continues on another.
TEST(PipelineProgram, SavesAndGoesOn) {
  const std::string dir = temporary("pipeline_checkpoints"),
                    saved = temporary("pipeline_saved"),
                    text = write_file("eval.txt", std::string(70, 'a'));
  const std::string common =
      "--model gpt --dtype f64 --steps 4 --eval " + text + " ";
  const Json whole = train(common + "--mesh dp=1");
  const Json json =
      train(common + "--mesh pp=2,dp=2 --sample 5 --save " + saved +
            " --checkpoint " + dir + " --every 2 --check-replicas 2");
  EXPECT_NEAR(json["eval_loss"].get<double>(), whole["eval_loss"].get<double>(),
              1e-10);
  EXPECT_FALSE(read_file(saved + "/model.safetensors").empty());
  EXPECT_EQ(std::system(("rm -r " + dir + "/step-00000004").c_str()), 0);
  for (const char* mesh : {"--mesh pp=3", "--mesh dp=2"}) {
    const Json later = train(common + mesh + " --resume --checkpoint " + dir);
    EXPECT_EQ(later["first_step"], 2);
    EXPECT_NEAR(later["losses"][1].get<double>(),
                whole["losses"][3].get<double>(), 1e-10);
    EXPECT_EQ(std::system(("rm -r " + dir + "/step-00000004").c_str()), 0);
  }
}

TEST(PipelineProgram, ExplainKnowsThem) {
  const Ran r = run_program(
      "explain",
      "--model llama --layers 2 --hidden 6 --heads 3 --seq 4 --batch 2"
      " --mesh pp=2 --micro-batches 1 --json -");
  ASSERT_EQ(r.code, 0) << r.err;
  const Json json = Json::parse(r.out);
  // Four messages: an activation or its gradient, the loss, and a norm from
  // each stage.
  EXPECT_GT(json["communication_us"].get<double>(), 4 * 5);
  EXPECT_LT(json["communication_us"].get<double>(), 4 * 5 + 0.1);
}

TEST(PipelineProgram, CompareKnowsThem) {
  const std::string sizes =
      "--model llama --layers 4 --hidden 12 --heads 3 --seq 8 --batch 8"
      " --mesh 4 --json - --compare ";
  const Ran r = run_program(
      "explain",
      sizes + "dp,pp=2+micro-batches=4,pp+micro-batches=8,pp=2+tp=2");
  ASSERT_EQ(r.code, 0) << r.err;
  const Json all = Json::parse(r.out)["strategies"];
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1]["mesh"], "pp=2,dp=2");
  EXPECT_EQ(all[2]["mesh"], "pp=4");
  EXPECT_EQ(all[3]["mesh"], "pp=2,tp=2");
  EXPECT_EQ(all[0]["bubble"], 0);
  EXPECT_GT(all[1]["bubble"].get<double>(), 0);
  // A stage has fewer parameters than the model, and more stages have less
  // each.
  const auto parameters = [&](size_t i) {
    return all[i]["memory"]["parameters"]["predicted"].get<double>();
  };
  EXPECT_LT(parameters(1), 0.75 * parameters(0));
  EXPECT_LT(parameters(2), 0.75 * parameters(1));
  const Ran bad = run_program("explain", sizes + "pp=3");
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("'pp=3': [--compare] pp=3 does not divide 4, the "
                         "number of ranks; "),
            std::string::npos)
      << bad.err;
}

TEST(PipelineProgram, BadInput) {
  const auto error = [](const std::string& flags) {
    const Ran r = run_program("train", flags + kSizes);
    EXPECT_EQ(r.code, 2) << flags << r.err;
    return r.err;
  };
  EXPECT_EQ(error("--mesh pp=6"),
            "train: [pipeline] 6 stages (6 along pp, times 1 for chunks) need "
            "as many blocks, but the model has 5; make pp or the number of "
            "chunks smaller, or use a model with at least 6 blocks\n");
  EXPECT_EQ(
      error("--mesh pp=3 --schedule interleaved --micro-batches 2"),
      "train: [pipeline] interleaved needs at least as many micro-batches "
      "as positions, 3, but their number is 2; write 3 micro-batches or "
      "more, or 1f1b with 1 chunk\n");
  EXPECT_EQ(error("--mesh pp=2 --micro-batches 1000000000000"),
            "train: [--micro-batches] there are 1000000000000 "
            "micro-batches, but --batch is 7; write a larger --batch, or at "
            "most 7\n");
  EXPECT_EQ(error("--mesh pp=2 --micro-batches 8"),
            "train: [--micro-batches] there are 8 micro-batches, but --batch "
            "is 7; write a larger --batch, or at most 7\n");
  EXPECT_EQ(error("--mesh dp=2 --schedule gpipe"),
            "train: [--schedule] mesh dp=2 has no axis pp; write --mesh pp=2 "
            "or the like, or leave --schedule out\n");
  EXPECT_EQ(error("--mesh pp=2 --accumulate 2"),
            "train: [--accumulate] mesh pp=2 has an axis pp, so "
            "--micro-batches says how a batch is cut; leave this out, or write "
            "--micro-batches 2 in its place\n");
  EXPECT_EQ(error("--mesh pp=2 --chunks 2"),
            "train: [pipeline] the schedule 1f1b cannot have 2 chunks at each "
            "position; write the schedule interleaved, or 1 chunk\n");
  const std::string file = write_file(
      "dead.json",
      R"({"micro_batches": 1, "tasks": [["B0", "F0"], ["F0", "B0"]]})");
  EXPECT_EQ(
      error("--mesh pp=2 --schedule " + file),
      "train: [--schedule " + file +
          "] the order deadlocks: the backward of micro-batch 0 at stage 0 "
          "waits for the forward of micro-batch 0 at stage 0, which comes "
          "after the backward of micro-batch 0 at stage 0; change the order\n");
  const std::string good = write_file(
      "good.json",
      R"({"micro_batches": 1, "tasks": [["F0", "B0"], ["F0", "B0"]]})");
  EXPECT_EQ(
      error("--mesh pp=3 --schedule " + good),
      "train: [--schedule] the number of positions in " + good +
          " is 2, but --stages, or axis pp of --mesh, is 3; write the same "
          "number\n");
  EXPECT_EQ(error("--mesh pp=2 --chunks 3 --schedule " + good),
            "train: [--schedule] the number of chunks in " + good +
                " is 1, but --chunks is 3; write the same number\n");
}

}  // namespace
}  // namespace dtensor::testing
