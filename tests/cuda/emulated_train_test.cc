// SPDX-License-Identifier: Apache-2.0
// Runs //programs:train on emulated GPUs: the plugin's own host code on the
// emulation of CUDA and NCCL. Losses are the CPU's, whether ranks share a GPU,
// send through the host, or replay a graph.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

const std::string kFlags =
    " --layers 2 --hidden 22 --heads 11 --ffn 37 --seq 7 --batch 4 --lr 1e-3 "
    "--dtype f64 --steps 4 --sample 3 --timeout 20 ";

Ran train(const std::string& flags, const std::string& environment = "") {
  return run_program(
      "train", kFlags + flags,
      environment +
          " DTENSOR_CUDA_LIBRARY=tests/cuda/libdtensor_cuda_emulated.so");
}
std::string gpus(int n) {
  return "CUDA_EMULATION_DEVICES=" + std::to_string(n);
}

// The CPU's result. Each set of flags runs once.
const Json& on_cpu(const std::string& flags) {
  static std::map<std::string, Json> all;
  Json& result = all[flags];
  if (result.is_null()) {
    const Ran r = train("--json - " + flags);
    EXPECT_EQ(r.code, 0) << r.err;
    result = Json::parse(r.out);
  }
  return result;
}

struct Case {
  std::string name, flags;
  std::string of_gpus = {};  // further flags
  int gpus = 2;
  std::string environment = {};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class EmulatedTrain : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedTrain, LosesWhatTheCpuLoses) {
  const Case& c = GetParam();
  const Ran r = train("--json - --device cuda " + c.flags + c.of_gpus,
                      c.environment + " " + gpus(c.gpus));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err.find("[cuda emulation]"), std::string::npos) << r.err;
  const Json got = Json::parse(r.out);
  const Json& want = on_cpu(c.flags);
  ASSERT_EQ(got["losses"].size(), 4u);
  for (const char* what : {"losses", "grad_norms"})
    for (size_t i = 0; i < got[what].size(); ++i)
      EXPECT_NEAR(got[what][i].get<double>(), want[what][i].get<double>(),
                  1e-9 * want[what][i].get<double>())
          << what << ", step " << i;
  EXPECT_EQ(got["collectives"], want["collectives"]);
  EXPECT_EQ(got["sample"], want["sample"]);
}

const std::string kDp = "--mesh dp=2", kTp = "--mesh tp=2",
                  kBoth = "--mesh dp=2,tp=2", kNccl = " --backend nccl",
                  kGraph = " --cuda-graph", kLlama = " --model llama";

INSTANTIATE_TEST_SUITE_P(
    Runs, EmulatedTrain,
    ::testing::Values(
        Case{"dp", kDp}, Case{"tp", kTp}, Case{"dp_tp", kBoth, "", 4},
        Case{"two_to_a_gpu", kBoth, " --ranks-per-gpu 2"},
        Case{"all_on_one", kBoth, " --ranks-per-gpu 4", 1},
        Case{"from_gpu_1", kTp, " --device cuda:1", 3},
        Case{"graph", kBoth, kGraph, 4},
        Case{"graph_on_one", kTp, kGraph + " --ranks-per-gpu 2", 1},
        // Rotary keeps its table in memory of the graph.
        Case{"graph_of_llama", kTp + kLlama, kGraph},
        Case{"graph_of_llama_on_one", kTp + kLlama,
             kGraph + " --ranks-per-gpu 2", 1},
        Case{"nccl_dp", kDp, kNccl}, Case{"nccl_tp", kTp, kNccl},
        Case{"nccl_dp_tp", kBoth, kNccl, 4},
        Case{"nccl_graph", kBoth, kNccl + kGraph, 4},
        Case{"nccl_apart", kTp, kNccl, 2, "CUDA_EMULATION_APART=01,10"},
        Case{"offload", kBoth, " --recompute offload --offload-state", 4},
        Case{"offload_zero", kBoth + " --zero 3",
             " --recompute offload --offload-state", 4},
        Case{"nccl_offload", kBoth, kNccl + " --recompute offload", 4},
        Case{"zero", kBoth + " --zero 3 --recompute block", "", 4},
        Case{"nccl_zero", kBoth + " --zero 3 --recompute block", kNccl, 4}),
    [](const auto& info) { return info.param.name; });

// The peak is what was asked for, as few blocks as possible are offloaded, and
// the losses are the same.
TEST(EmulatedTrain, OffloadsWithinABudget) {
  const std::string shape =
      "--device cuda --json - --layers 4 --seq 30 --mesh dp=2,tp=2 ";
  const auto run = [&](const std::string& flags) {
    const Ran r = train(shape + flags, gpus(4));
    EXPECT_EQ(r.code, 0) << r.err;
    return Json::parse(r.out);
  };
  const auto bytes = [](const Json& ran, const char* row, const char* which) {
    return ran["memory"][row][which].get<int64_t>();
  };
  const Json none = run(""), all = run("--recompute offload");
  const int64_t most = bytes(none, "peak", "predicted"),
                least = bytes(all, "peak", "predicted");
  EXPECT_LT(least, most * 3 / 4);
  EXPECT_FALSE(none["memory"].contains("on the host"));
  int64_t before = bytes(all, "on the host", "measured") + 1;
  for (const int64_t budget : {least, (least + most) / 2, most - 1}) {
    const Json ran =
        run("--recompute offload --recompute-memory " + std::to_string(budget));
    EXPECT_EQ(ran["losses"], none["losses"]);
    EXPECT_LE(bytes(ran, "peak", "predicted"), budget);
    // The trainer's loss and norms are not in a prediction.
    EXPECT_LE(bytes(ran, "peak", "measured"), budget + 64);
    EXPECT_EQ(bytes(ran, "on the host", "predicted"),
              bytes(ran, "on the host", "measured"));
    EXPECT_LT(bytes(ran, "on the host", "measured"), before);
    before = bytes(ran, "on the host", "measured");
  }
}

// Flags or failures that stop the run, and the message.
struct Wrong {
  std::string name, flags, environment;
  int code;
  std::string says;
};
void PrintTo(const Wrong& w, std::ostream* out) { *out << w.name; }

class EmulatedTrainFails : public ::testing::TestWithParam<Wrong> {};

TEST_P(EmulatedTrainFails, WithASentence) {
  const Wrong& w = GetParam();
  const Ran r = train("--device cuda " + w.flags, w.environment);
  EXPECT_EQ(r.code, w.code) << r.err;
  EXPECT_NE(r.err.find(w.says), std::string::npos) << r.err;
}

INSTANTIATE_TEST_SUITE_P(
    Runs, EmulatedTrainFails,
    ::testing::Values(
        Wrong{"no_memory", "--mesh dp=2 --hidden 440",
              "CUDA_EMULATION_MEMORY=16777216", 1, " cannot be allocated: "},
        Wrong{"no_gpu", "--mesh dp=2", gpus(0), 2,
              "there is no CUDA device here: cudaErrorNoDevice"},
        Wrong{"no_driver", "--mesh dp=2", "CUDA_EMULATION_DRIVER=0", 2,
              "there is no CUDA device here: the driver is not installed"},
        Wrong{"old_driver", "--mesh dp=2", "CUDA_EMULATION_DRIVER=12080", 2,
              "the driver supports CUDA 12.8, but this program is built with "
              "CUDA 13.0; install a newer driver, or build with CUDA 12 or "
              "older"},
        Wrong{"not_there", "--mesh dp=2 --device cuda:5", "", 2,
              "[cuda] cuda:5 does not exist, because this process sees 2 GPUs; "
              "write one of cuda:0 to cuda:1"},
        Wrong{"too_few", "--mesh dp=2,tp=2", "", 2,
              "4 ranks, 1 per GPU from cuda:0 on, need 4 GPUs"},
        Wrong{"one_for_two", "--mesh dp=2 --ranks-per-gpu 2 --backend nccl", "",
              2,
              "[--backend] nccl, which this run uses, takes one rank per GPU"},
        // If a GPU fails, no rank waits for ever.
        Wrong{"a_gpu_fails", "--mesh dp=2 --ranks-per-gpu 2",
              "CUDA_EMULATION_FAILS=0:700", 1,
              "earlier work of cuda:0 has failed: CUDA says "
              "cudaErrorIllegalAddress"},
        Wrong{"a_gpu_fails_with_nccl", "--mesh dp=2 --backend nccl",
              "CUDA_EMULATION_FAILS=1:700", 1,
              "an illegal memory access was encountered"},
        Wrong{"a_gpu_fails_in_a_graph",
              "--mesh dp=2 --backend nccl --cuda-graph",
              "CUDA_EMULATION_FAILS=0:1000", 1,
              "an illegal memory access was encountered"},
        Wrong{"apart", "--mesh dp=2", "CUDA_EMULATION_APART=10", 1,
              "the GPU of rank 1 cannot reach that of rank 0"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dtensor::testing
