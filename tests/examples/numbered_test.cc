// SPDX-License-Identifier: Apache-2.0
// Tests the output of the numbered examples. They also check themselves.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

void expect_prints(const Ran& r, const std::vector<std::string>& parts) {
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  size_t at = 0;
  for (const std::string& part : parts) {
    at = r.out.find(part, at);
    ASSERT_NE(at, r.out.npos) << "'" << part << "' is missing from\n" << r.out;
  }
}

TEST(Numbered, Mesh) {
  expect_prints(run_program("01_mesh", ""),
                {"mesh dp=2,tp=3: 6 ranks",
                 "rank 4:  dp 1  tp 1  dp-group 1 4  tp-group 3 4 5",
                 "ones summed over tp: 3"});
  expect_prints(run_program("01_mesh", "--mesh 2x2x2"),
                {"mesh a0=2,a1=2,a2=2: 8 ranks", "ones summed over a2: 2"});
}

TEST(Numbered, Placements) {
  expect_prints(
      run_program("02_placements", ""),
      {"f32[5, 2](S0,R)", "  rank 3 holds [2,5) [0,2)", "f32[5, 2](S0,S0)",
       "  rank 3 holds [3,5) [0,2)", "sum over split rows: f32[2](P,R)",
       "P,R -> S0,R:\n  reduce-scatter on a: f32[8](P,R) -> f32[8](S0,R), 16 "
       "bytes",
       "its value: 20 25"});
}

TEST(Numbered, TensorParallelMlp) {
  expect_prints(
      run_program("03_tp_mlp", ""),
      {"y: f32[64, 32](R)", "dw1: f32[32, 128](S1)", "dw2: f32[128, 32](S0)",
       "forward", "all-reduce", "8,192", "backward", "all-reduce", "8,192",
       "16,384   16,384", "equal to the replicated computation"});
  // 3 does not divide 128 columns. The sums have another order, and differ only
  // by rounding.
  const Ran uneven = run_program("03_tp_mlp", "--mesh tp=3");
  const std::string equal = "equal to the replicated computation, within ";
  expect_prints(uneven, {equal});
  const double most =
      std::stod(uneven.out.substr(uneven.out.find(equal) + equal.size()));
  EXPECT_LT(most, 1e-5);
  expect_prints(run_program("03_tp_mlp", "--mesh tp=1"),
                {"equal to the replicated computation"});
}

TEST(Numbered, DataAndTensorParallelTraining) {
  expect_prints(run_program("04_dp_tp_train", ""),
                {"step   0  loss", "step 199  loss", "learned"});
}

TEST(Numbered, FullyShardedDataParallel) {
  // 6 matrices of 240 x 240 f32: 230,400 bytes each.
  expect_prints(
      run_program("05_fsdp", "--mesh dp=4"),
      {"gathered, forward and back", "1728000      1728000",
       "gradients scattered", "1036800      1036800", "parameters held",
       "345600       345600", "optimizer's state held", "691200       691200",
       "gathered at once", "230400       230400"});
  expect_prints(run_program("05_fsdp", "--mesh dp=2"),
                {"1152000      1152000", "691200       691200"});
}

TEST(Numbered, RingAttention) {
  // 960 tokens of 12 heads of 16 f32 numbers: 737,280 bytes a tensor.
  expect_prints(run_program("08_ring_attention", "--mesh cp=4"),
                {"ring       forward         1105920   1105920",
                 "ring       backward        2211840   2211840",
                 "all-to-all forward          552960    552960",
                 "all-to-all backward         552960    552960",
                 "scores, in order: 28920 86520 144120 201720",
                 "zig-zag: 115320 115320 115320 115320"});
  expect_prints(run_program("08_ring_attention", "--mesh cp=3"),
                {"983040    983040", "655360    655360"});
}

TEST(Numbered, Checkpoint) {
  // 117,024 elements in f32, twice as many moments, and the steps of 68
  // parameters in i64.
  const std::string bytes = std::to_string(3 * 4 * 117'024 + 8 * 68);
  for (const std::string mesh : {"dp=2,tp=2", "dp=3,tp=1", "dp=1,tp=5"})
    expect_prints(run_program("06_checkpoint", "--mesh " + mesh),
                  {"saved on " + mesh + ": ",
                   "parameters and state have " + bytes, "loss of step 6: "});
}

TEST(Numbered, Pipeline) {
  // 8 micro-batches of 32 x 64 f32, sent forward and back over 3 borders, or
  // over one.
  expect_prints(
      run_program("07_pipeline", "--mesh pp=4"),
      {"gpipe: 393216 bytes sent, formula 393216; idle 0.",
       "1f1b: 393216 bytes sent, formula 393216; idle 0.", "formula 0.273"});
  expect_prints(run_program("07_pipeline", "--mesh pp=2"),
                {"131072 bytes sent, formula 131072", "formula 0.111"});
}

TEST(Numbered, Experts) {
  for (const std::string mesh : {"ep=1", "ep=2", "ep=3", "ep=9"})
    expect_prints(run_program("09_experts", "--mesh " + mesh),
                  {"no token was dropped"});
  const Ran r = run_program("09_experts", "");
  expect_prints(r, {"tokens to their experts", "results back",
                    "gradients of the results", "gradients of the tokens"});
  // The bytes are whole rows of 32 floats; their number depends on the data.
  size_t at = r.out.find("experts");
  const int64_t bytes = std::stoll(r.out.substr(at + 7));
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes % 128, 0);
  EXPECT_EQ(run_program("09_experts", "--dry-run").code, 0);
}

TEST(Numbered, Generate) {
  for (const char* mesh : {"tp=1", "tp=3", "dp=2,tp=2", "pp=1"})
    expect_prints(run_program("11_generate", std::string("--mesh ") + mesh),
                  {"a tensor is split over ranks\n"});
}

// tools/golden_models.py made the checkpoint and its logits, and transformers
// generated the tokens.
TEST(Numbered, OwnArchitecture) {
  const std::string model = "--model tests/examples/data/starcoder2 --mesh ";
  for (const char* mesh : {"tp=1", "tp=3", "tp=5", "dp=3,tp=2", "pp=2", "cp=2"})
    expect_prints(run_program("12_own_architecture", model + mesh),
                  {"3477 logits are as in transformers",
                   "7 3 11 -> 35 35 35 35 26 26 26 26 26 26 26 26\n"});
  EXPECT_EQ(run_program("12_own_architecture", model + "tp=2 --dry-run").code,
            0);
  // Without a folder, it makes a checkpoint.
  const Ran one = run_program("12_own_architecture", "--mesh tp=1"),
            three = run_program("12_own_architecture", "--mesh tp=3");
  expect_prints(one, {"7 3 11 -> "});
  EXPECT_EQ(one.out, three.out);
}

// On 7 ranks, some have no head.
TEST(Numbered, ByHand) {
  for (const char* mesh : {"tp=1", "tp=3", "tp=4", "tp=7"})
    expect_prints(run_program("13_by_hand", std::string("--mesh ") + mesh),
                  {"loss by hand 1.210819, by layouts 1.210819\n"});
}

// Each rank reads its rows of 5 batches of 10, and nothing else.
TEST(Numbered, Data) {
  expect_prints(run_program("14_data", "--mesh dp=3,tp=2"),
                {"sum of 5 batches: 7425.0\n", "rank 0 read 15 of 50 rows\n",
                 "rank 1 read 15 of 50 rows\n", "rank 5 read 20 of 50 rows\n"});
}

TEST(Numbered, Reinforce) {
  const Ran one = run_program("15_reinforce", "--mesh dp=1");
  expect_prints(one, {"round 29  reward 0.7"});
  for (const char* mesh : {"dp=2,tp=2", "fsdp=2,tp=3"})
    EXPECT_EQ(run_program("15_reinforce", std::string("--mesh ") + mesh).out,
              one.out);
}

TEST(Numbered, DryRunsOfAnyMesh) {
  const Ran r = run_program("03_tp_mlp", "--mesh tp=64 --dry-run --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const Json json = Json::parse(r.out);
  ASSERT_EQ(json["collectives"].size(), 2u);
  for (const Json& row : json["collectives"]) {
    EXPECT_EQ(row["kind"], "all-reduce");
    EXPECT_EQ(row["axis"], "tp");
    // A rank receives the p - 1 summands of its chunk of n / p, and then the
    // other n - n / p.
    EXPECT_EQ(row["bytes_predicted"], 4 * 2 * (2048 - 2048 / 64));
  }
  EXPECT_GT(json["peak_bytes"].get<int64_t>(), 0);
  for (const char* name :
       {"01_mesh", "02_placements", "04_dp_tp_train", "06_checkpoint",
        "07_pipeline", "08_ring_attention", "11_generate",
        "12_own_architecture", "13_by_hand", "14_data", "15_reinforce"})
    EXPECT_EQ(run_program(name, "--dry-run").code, 0) << name;
}

TEST(Numbered, JsonOfARunHasBothCounts) {
  const Ran r = run_program("03_tp_mlp", "--json -");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("y: f32[64, 32](R)"), r.err.npos);
  const Json json = Json::parse(r.out);
  ASSERT_FALSE(json["collectives"].empty()) << r.out;
  for (const Json& row : json["collectives"])
    EXPECT_EQ(row["bytes_predicted"], row["bytes_counted"]) << row;
}

}  // namespace
}  // namespace dtensor::testing
