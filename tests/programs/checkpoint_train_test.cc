// SPDX-License-Identifier: Apache-2.0
// Training runs that are saved, killed and resumed.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const char kTiny[] =
    "--layers 1 --hidden 12 --heads 3 --seq 10 --batch 5 --lr 1e-3 "
    "--sample 0 ";

std::string fresh_folder(const std::string& name) {
  const std::string folder = temporary(name);
  fs::remove_all(folder);
  return folder;
}

Json train(const std::string& flags) {
  const Ran r = run_program("train", kTiny + flags + " --json -");
  EXPECT_EQ(r.code, 0) << flags << "\n" << r.err;
  return Json::parse(r.out, nullptr, false);
}

// The largest relative difference of losses and norms between a part of a run
// and the same steps of the whole run.
double worst(const Json& part, const Json& whole) {
  const size_t begin = part["first_step"];
  double most = 0;
  for (const char* what : {"losses", "grad_norms"}) {
    const Json &a = part[what], &b = whole[what];
    if (a.size() + begin != b.size()) return 1e9;
    for (size_t i = 0; i < a.size(); ++i) {
      const Json &x = a[i], &y = b[i + begin];
      if (x.is_null() != y.is_null()) return 1e9;
      if (x.is_null()) continue;  // f16 skipped this step
      most = std::max(most, std::abs(x.get<double>() / y.get<double>() - 1));
    }
  }
  return most;
}

TEST(TrainCheckpoint, GoesOnOnAnyMeshUnderAnyStrategy) {
  const std::string f64 = "--dtype f64 --steps 12 ";
  const std::string saved = fresh_folder("saved");
  const Json whole = train(f64 + "--mesh dp=2,tp=2 --zero 3 --every 5 " +
                           "--checkpoint " + saved);
  EXPECT_EQ(whole["first_step"], 0);
  EXPECT_TRUE(fs::exists(saved + "/step-00000005"));
  EXPECT_TRUE(fs::exists(saved + "/step-00000010"));
  EXPECT_TRUE(fs::exists(saved + "/step-00000012"));
  fs::remove_all(saved + "/step-00000012");
  for (const char* flags :
       {"--mesh dp=2,tp=2 --zero 3", "--mesh dp=2,tp=2", "--mesh dp=1",
        "--mesh tp=3", "--mesh dp=3 --zero 1", "--mesh dp=5 --zero 3",
        "--mesh dp=2,fsdp=2 --zero 2 --recompute block --accumulate 2"}) {
    const std::string copy = fresh_folder("copy");
    fs::copy(saved, copy, fs::copy_options::recursive);
    const Json on = train(f64 + flags + " --resume --checkpoint " + copy);
    EXPECT_EQ(on["first_step"], 10) << flags;
    const bool same = std::string(flags) == "--mesh dp=2,tp=2 --zero 3";
    EXPECT_LE(worst(on, whole), same ? 0 : 1e-10) << flags;
    EXPECT_TRUE(fs::exists(copy + "/step-00000012"));
  }
}

TEST(TrainCheckpoint, KeepsTheLastOnes) {
  const std::string saved = fresh_folder("keeps");
  train("--dtype f64 --steps 12 --mesh dp=2 --every 2 --keep 2 --checkpoint " +
        saved);
  EXPECT_FALSE(fs::exists(saved + "/step-00000008"));
  EXPECT_TRUE(fs::exists(saved + "/step-00000010"));
  EXPECT_TRUE(fs::exists(saved + "/step-00000012"));
}

// With its masters and moments, a run in 16 bits continues bit for bit.
TEST(TrainCheckpoint, GoesOnBitForBit) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const std::string flags =
        std::string(
            "--model llama --hidden 18 --steps 8 --mesh dp=3 --zero 1 "
            "--dtype ") +
        dtype;
    const std::string saved = fresh_folder("bits");
    const Json whole = train(flags + " --every 4 --checkpoint " + saved);
    fs::remove_all(saved + "/step-00000008");
    EXPECT_EQ(worst(train(flags + " --resume --checkpoint " + saved), whole), 0)
        << dtype;
  }
}

// A resumed run continues with the saved loss scale. With this one, the
// gradients of the first steps overflow.
TEST(TrainCheckpoint, LossScaleGoesOnAsItWasSaved) {
  const std::string f16 = "--dtype f16 --steps 24 --loss-scale 1e9 ";
  for (const std::string mesh :
       {"--mesh dp=3 --zero 1 ", "--mesh dp=2,pp=2 --zero 3 --layers 2 "}) {
    const std::string saved = fresh_folder("scale");
    const Json whole = train(f16 + mesh + "--every 12 --checkpoint " + saved);
    EXPECT_GT(whole["skipped_steps"], 4);
    fs::remove_all(saved + "/step-00000024");
    const Json on = train(f16 + mesh + "--resume --checkpoint " + saved);
    EXPECT_EQ(on["first_step"], 12);
    EXPECT_EQ(on["loss_scale"], whole["loss_scale"]);
    EXPECT_EQ(worst(on, whole), 0) << mesh;
  }
}

TEST(TrainCheckpoint, SavedWithoutLossScale) {
  const std::string f16 = std::string(kTiny) + "--dtype f16 --mesh dp=2 ";
  const std::string saved = fresh_folder("no_scale");
  ASSERT_EQ(run_program("train",
                        f16 + "--steps 2 --loss-scale 0 --checkpoint " + saved)
                .code,
            0);
  const std::string on = f16 + "--steps 4 --resume --checkpoint " + saved;
  const Ran bad = run_program("train", on);
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("was saved without a loss scale; write --loss-scale 0 "
                         "to resume without one"),
            bad.err.npos)
      << bad.err;
  EXPECT_EQ(run_program("train", on + " --loss-scale 0").code, 0);
}

// A training is killed and resumed until it ends by itself.
TEST(TrainCheckpoint, KilledAndResumed) {
  const std::string flags =
      "--dtype f64 --steps 150 --mesh dp=2 --zero 3 --every 3 --checkpoint ";
  const std::string never = fresh_folder("never"),
                    often = fresh_folder("often");
  const Json whole = train(flags + never);
  Ran r{137, "", ""};
  int kills = 0;
  for (int i = 0; i < 200 && r.code == 137; ++i) {
    // If it were killed after the last save, nothing would be left to do.
    fs::remove_all(often + "/step-00000150");
    r = run_and_kill("train", kTiny + flags + often + " --resume --json -",
                     0.1 + 0.02 * i);
    kills += r.code == 137;
  }
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_GT(kills, 0);
  EXPECT_EQ(worst(Json::parse(r.out), whole), 0);
}

// A training that is told to stop says so. What it was saving is a checkpoint,
// or gone.
TEST(TrainCheckpoint, StoppedAndResumed) {
  const std::string flags =
      "--dtype f64 --steps 150 --mesh dp=2 --zero 3 --every 3 --checkpoint ";
  const std::string never = fresh_folder("unstopped"),
                    often = fresh_folder("stopped");
  const Json whole = train(flags + never);
  Ran r{143, "", ""};
  int stops = 0;
  for (int i = 0; i < 60 && r.code == 143; ++i) {
    fs::remove_all(often + "/step-00000150");
    r = run_and_kill("train", kTiny + flags + often + " --resume --json -",
                     0.1 + 0.02 * i, SIGTERM);
    // (Before the run begins, it ends without that sentence.)
    stops += r.err.find("[run] interrupted by SIGTERM\n") != r.err.npos;
    if (!fs::exists(often)) continue;
    for (const auto& entry : fs::directory_iterator(often))
      EXPECT_FALSE(entry.path().string().ends_with(".tmp"))
          << entry.path() << "\n"
          << r.err;
  }
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_GT(stops, 0);
  EXPECT_EQ(worst(Json::parse(r.out), whole), 0);
}

// With more steps, the learning rate still falls as before, unless --lr-steps
// changes that.
TEST(TrainCheckpoint, LearningRateGoesOnAsItWasSaved) {
  const std::string f64 = "--dtype f64 --mesh dp=2 ";
  const std::string saved = fresh_folder("schedule");
  train(f64 + "--steps 6 --checkpoint " + saved);
  const auto on = [&](const std::string& flags) {
    const std::string copy = fresh_folder("longer");
    fs::copy(saved, copy, fs::copy_options::recursive);
    return train(f64 + "--steps 12 --resume --checkpoint " + copy + flags);
  };
  const Json kept = train(f64 + "--steps 12 --lr-steps 6");
  EXPECT_EQ(worst(on(""), kept), 0);
  EXPECT_EQ(worst(on(" --lr-steps 6"), kept), 0);
  EXPECT_GT(worst(on(" --lr-steps 12"), kept), 1e-6);
}

// Writes standard output and standard error to one pipe, to see their order.
TEST(TrainCheckpoint, SaysFirstWhereItGoesOn) {
  const std::string saved = fresh_folder("said");
  train("--steps 2 --mesh dp=2 --checkpoint " + saved);
  const std::string both = temporary("both");
  run_program("train", std::string(kTiny) + "--steps 4 --mesh dp=2 --resume " +
                           "--checkpoint " + saved + " 2>&1 | cat >" + both +
                           "; true");
  const std::string text = read_file(both);
  const size_t said = text.find("resuming from"), step = text.find("step 4/4");
  ASSERT_NE(step, text.npos) << text;
  EXPECT_LT(said, step) << text;
}

TEST(TrainCheckpoint, OtherTrainingsAreRefused) {
  const std::string saved = fresh_folder("other");
  train("--steps 4 --mesh dp=2 --checkpoint " + saved);
  struct Case {
    std::string flags;
    int code;
    const char* says;
  };
  const std::string on = " --resume --checkpoint " + saved;
  for (const Case& c : std::vector<Case>{
           {"--steps 4 --mesh dp=2 --checkpoint " + saved, 2,
            "write --resume to continue from it"},
           {"--steps 4 --mesh dp=2" + on, 2, "there is nothing left to do"},
           {"--steps 6 --batch 4 --mesh dp=2" + on, 2, "batch 5"},
           {"--steps 6 --seed 3 --mesh dp=2" + on, 2, "seed 0"},
           {"--steps 6 --hidden 24 --mesh dp=2" + on, 1, "transformer.wte"},
           {"--steps 6 --model llama --hidden 18 --mesh dp=2" + on, 1,
            "model.embed_tokens.weight"},
           {"--steps 6 --dtype f64 --mesh dp=2" + on, 1, "f32"}}) {
    const Ran r = run_program("train", kTiny + c.flags);
    EXPECT_EQ(r.code, c.code) << c.flags << "\n" << r.err;
    EXPECT_NE(r.err.find(c.says), r.err.npos) << c.flags << "\n" << r.err;
  }
  // Damages a byte of a box.
  const std::string file = saved + "/step-00000004/rank-00001.safetensors";
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] ^= 1;
  {
    std::FILE* f = std::fopen(file.c_str(), "wb");
    std::fwrite(bytes.data(), 1, bytes.size(), f);
    std::fclose(f);
  }
  const Ran r = run_program("train", kTiny + ("--steps 6 --mesh tp=3" + on));
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_NE(r.err.find("rank-00001.safetensors"), r.err.npos) << r.err;
}

// No step is saved after the one that went wrong.
TEST(TrainCheckpoint, NothingIsSavedOfAStepThatWentWrong) {
  const std::string saved = fresh_folder("wrong");
  const Ran r = run_program(
      "train", kTiny + ("--steps 30 --lr 1e30 --warmup 0 --clip 0 --mesh dp=2 "
                        "--every 1 --checkpoint " +
                        saved));
  ASSERT_EQ(r.code, 1) << r.err;
  const size_t at = r.err.find("[train] step ");
  ASSERT_NE(at, r.err.npos) << r.err;
  const int wrong = std::stoi(r.err.substr(at + 13));
  for (const auto& entry : fs::directory_iterator(saved)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".tmp")) continue;
    EXPECT_LE(std::stoi(name.substr(5)), wrong) << name;
  }
}

TEST(TrainCheckpoint, CopiesAreCompared) {
  const Json json =
      train("--steps 4 --mesh dp=2,tp=2 --check-replicas 2 --zero 1");
  EXPECT_EQ(json["losses"].size(), 4u);
}

}  // namespace
}  // namespace dtensor::testing
