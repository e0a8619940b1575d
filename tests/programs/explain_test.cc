// SPDX-License-Identifier: Apache-2.0
// Tests the output of explain for operators and models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/programs/running.h"
#include "tests/programs/xml.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

const char kMatmul[] =
    "--op matmul --mesh dp=2,tp=4 --in 8192x1024:S0,R --in 1024x4096:R,S1 ";

Json explain(const std::string& args) {
  const Ran r = run_program("explain", args + " --json");
  EXPECT_EQ(r.code, 0) << args << "\n" << r.err;
  const Json json = Json::parse(r.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << args << ": not JSON alone:\n" << r.out;
  return json;
}

int64_t bytes(const Json& rows, const std::string& axis = "") {
  int64_t sum = 0;
  for (const Json& row : rows)
    if (axis.empty() || row["axis"] == axis)
      sum += row["bytes_predicted"].get<int64_t>();
  return sum;
}

// Ways send what the formulas say. The best way for square matrices is not the
// best for tall ones.
TEST(Explain, WaysToSplitAProduct) {
  const auto ways = [](const std::string& m, const std::string& k,
                       const std::string& n) {
    return explain("--op matmul --mesh x=4,y=4 --in " + m + "x" + k +
                   ":S0,S1 --in " + k + "x" + n + ":S0,S1")["ways"];
  };
  const auto least = [](const Json& list) {
    std::string name;
    int64_t bytes = INT64_MAX;
    for (const Json& w : list)
      if (w["copies"] == 1 && w["bytes"] < bytes) {
        bytes = w["bytes"];
        name = w["way"];
      }
    return name;
  };
  const Json square = ways("4096", "4096", "4096");
  ASSERT_EQ(square.size(), 5u);
  for (const Json& w : square) {
    EXPECT_EQ(w["bytes"].get<double>(), w["formula_bytes"].get<double>()) << w;
  }
  EXPECT_EQ(square[0]["bytes"], 4096LL * 4096 * 4 * 15 / 16);
  EXPECT_EQ(square[3]["mesh"], "x=4,y=4");
  EXPECT_EQ(square[3]["bytes"], 2 * 4096LL * 4096 / 4 * 4 * 3 / 4);
  EXPECT_EQ(square[4]["mesh"], "x=2,y=2,z=4");
  EXPECT_EQ(least(square), "2-D, summa");
  // A gradient of weights: the sum over many rows.
  EXPECT_EQ(least(ways("64", "65536", "64")), "1-D, c reduced");
  // Few ranks, and parts that are not equal.
  const Json three =
      explain("--op matmul --mesh x=3 --in 7x5:S0 --in 5x4:R")["ways"];
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1]["bytes"], (5 - 1) * 4 * 4);
}

TEST(Explain, PricesEveryAssignment) {
  const Json json = explain(kMatmul);
  EXPECT_EQ(json["rule"], "mk,kn->mn | linear 0; linear 1");
  // Each of two axes splits m, k, n or nothing.
  ASSERT_EQ(json["assignments"].size(), 16u);
  int chosen = 0;
  double last = 0;
  for (const Json& a : json["assignments"]) {
    const double total = a["comm_us"].get<double>() +
                         a["work_us"].get<double>() +
                         a["reduce_us"].get<double>();
    EXPECT_GE(total, last) << "not sorted: " << a;
    last = total;
    chosen += a["chosen"].get<bool>();
  }
  EXPECT_EQ(chosen, 1);
  const Json& best = json["assignments"][0];
  EXPECT_EQ(best["split"], "m: dp; n: tp");
  EXPECT_EQ(best["chosen"], true);
  EXPECT_EQ(best["comm_us"], 0);
  EXPECT_EQ(best["reduce_us"], 0);
  // 2 * 8192 * 1024 * 4096 flops over 8 ranks at 100 GFLOP/s.
  EXPECT_NEAR(best["work_us"].get<double>(), 2.0 * 8192 * 1024 * 4096 / 8 / 1e5,
              1e-3);
  EXPECT_TRUE(json["collectives"].empty());
  // dA is partial over tp, and dB over dp. In an all-reduce of n bytes, a rank
  // receives 2 (p-1)/p n.
  EXPECT_EQ(bytes(json["backward"], "tp"), 4 * 4096 * 1024 * 2 * 3 / 4);
  EXPECT_EQ(bytes(json["backward"], "dp"), 4 * 1024 * 1024);
}

TEST(Explain, PrintsTheAnswer) {
  const Ran r = run_program("explain", kMatmul);
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* text :
       {"rule: mk,kn->mn", "prices: alpha 5 us, 20 GB/s, 100 GFLOP/s per rank",
        "<- chosen", "chosen: m: dp; n: tp, at", "costs", "collectives: none",
        "backward:", "gradient 0: f32[8192, 1024](S0,R)", "25,165,824"})
    EXPECT_NE(r.out.find(text), r.out.npos) << text << "\n" << r.out;
}

TEST(Explain, KeepsParametersInPlace) {
  const std::string ins = "--op matmul --mesh tp=4 --in 64x32:S1 ";
  // A few activations and a large matrix: without "parameter", the matrix would
  // be gathered.
  const Json json = explain(ins + "--in 32x8:S1:parameter");
  for (const Json& a : json["assignments"])
    if (a["chosen"]) {
      EXPECT_EQ(a["split"], "n: tp");
    }
  EXPECT_GT(bytes(json["collectives"]), 0);
}

TEST(Explain, RowThenColumnCostsMore) {
  const std::string shape =
      "--model gpt --layers 2 --hidden 64 --heads 4 --seq 32 --batch 4 --mesh "
      "tp=4 ";
  const Json megatron = explain(shape);
  const Json swapped =
      explain(shape +
              "--layout '*.c_fc.weight=S1' --layout '*.c_proj.weight=S0' "
              "--layout '*.c_fc.bias=R'");
  EXPECT_GT(bytes(swapped["collectives"]), bytes(megatron["collectives"]));
}

TEST(Explain, AgreesWithADryRunOnAnyMesh) {
  for (const std::string args :
       {"--model llama --layers 2 --hidden 256 --heads 16 --kv-heads 4 --batch "
        "512 --mesh dp=512,tp=8",
        "--model gpt --layers 1 --hidden 12 --heads 3 --seq 10 --batch 5 "
        "--mesh dp=2,tp=3",
        "--model llama --layers 2 --hidden 24 --heads 6 --kv-heads 2 --seq 21 "
        "--mesh cp=3,tp=2 --sequence-parallel --context ring"}) {
    const Json json = explain(args);
    EXPECT_GT(json["operators"].size(), 10u);
    const Ran r = run_program("train", args + " --dry-run --json");
    ASSERT_EQ(r.code, 0) << r.err;
    const Json dry = Json::parse(r.out);
    EXPECT_GT(dry["collectives"].size(), 1u);
    EXPECT_EQ(json["collectives"], dry["collectives"]) << args;
    EXPECT_EQ(json["peak_bytes"], dry["peak_bytes"]) << args;
  }
}

// "22,805,048" bytes in MB, as the page shows them: "22.8"; "0" stays "0".
std::string in_mb(std::string bytes) {
  std::erase(bytes, ',');
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", std::stod(bytes) / 1e6);
  return bytes == "0" ? bytes : text;
}

// Runs the command for the table of docs/strategies.md, and compares its rows.
TEST(Explain, PrintsTheTableOfStrategies) {
  const std::string page = read_file("docs/strategies.md"),
                    begin = "bazel run -c opt //:explain -- ";
  const size_t at = page.find(begin + "--model gpt --mesh 8 --batch 64");
  ASSERT_NE(at, page.npos);
  const size_t end = page.find(" --svg", at);
  std::string flags = page.substr(at + begin.size(), end - at - begin.size());
  std::erase(flags, '\\');
  std::replace(flags.begin(), flags.end(), '\n', ' ');
  const Ran r = run_program("explain", flags);
  ASSERT_EQ(r.code, 0) << r.err;
  std::istringstream lines(r.out);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string strategy, mesh;
    words >> strategy >> mesh;
    if (page.find("\n| `" + strategy + "` | ", end) == page.npos) continue;
    std::string row = "\n| `" + strategy + "` |";
    for (int column = 0; column < 6; ++column) {
      std::string bytes;
      words >> bytes;
      row += " " + in_mb(bytes) + " |";
    }
    EXPECT_NE(page.find(row + "\n", end), page.npos) << row;
    ++rows;
  }
  EXPECT_EQ(rows, 9) << flags << "\n" << r.out;
}

// --compare prints the papers' table for any model, with what the dry run of
// each strategy says.
TEST(Explain, ComparesStrategies) {
  const std::string model =
      "--model llama --layers 2 --hidden 64 --heads 4 --batch 8 --seq 16 ";
  const std::string svg = temporary("compare.svg");
  const Json all = explain(
      model + "--mesh dp=4 --svg " + svg +
      " --compare dp,zero1,zero2,zero3,tp,zero3+tp=2+recompute+accumulate=2,"
      "tp+sp,cp,cp=2+tp=2,dp+offload+offload-state");
  ASSERT_EQ(all["strategies"].size(), 10u);
  const char* flags[] = {"--mesh dp=4",
                         "--mesh dp=4 --zero 1",
                         "--mesh dp=4 --zero 2",
                         "--mesh dp=4 --zero 3",
                         "--mesh tp=4",
                         "--mesh dp=2,tp=2 --zero 3 --recompute block "
                         "--accumulate 2",
                         "--mesh tp=4 --sequence-parallel",
                         "--mesh cp=4",
                         "--mesh cp=2,tp=2",
                         "--mesh dp=4 --recompute offload --offload-state"};
  for (size_t i = 0; i < std::size(flags); ++i) {
    const Json& s = all["strategies"][i];
    const Json one = explain(model + flags[i]);
    EXPECT_EQ(s["memory"], one["memory"]) << flags[i];
    EXPECT_EQ(s["communication_us"], one["communication_us"]) << flags[i];
    EXPECT_EQ(s["bytes"], bytes(one["collectives"])) << flags[i];
    EXPECT_GT(s["work_us"].get<double>(), 0);
  }
  const auto held = [&](size_t i, const char* kind) {
    return all["strategies"][i]["memory"][kind]["predicted"].get<int64_t>();
  };
  // ZeRO's table: f32 parameters, gradients, and a state that is twice as
  // large.
  const int64_t psi = held(0, "parameters");
  EXPECT_EQ(held(0, "state"), 2 * psi);
  EXPECT_EQ(held(1, "state"), psi / 2);
  EXPECT_EQ(held(1, "parameters"), psi);
  EXPECT_EQ(held(3, "parameters"), psi / 4);
  EXPECT_LT(held(2, "gradients"), held(1, "gradients"));
  EXPECT_LT(held(6, "activations"), held(4, "activations"));
  EXPECT_EQ(held(7, "parameters"), psi);
  const std::string picture = read_file(svg);
  EXPECT_EQ(picture_error(picture), "");
  for (const char* text : {"zero3", "dp=2,tp=2", "activations", "gathered"})
    EXPECT_NE(picture.find(text), picture.npos) << text;
}

// A stage between two others receives the activations and the gradients of the
// batch, however many stages there are.
TEST(Explain, AStageReceivesWhatItsNeighboursSend) {
  const Json all = explain(
      "--model llama --layers 8 --hidden 64 --heads 4 --seq 32 --batch 32 "
      "--mesh 8 --compare pp=4+micro-batches=8,pp=8+micro-batches=8");
  const int64_t batch = 32 * 32 * 64 * 4;
  for (const auto& [i, share, stages] :
       {std::tuple(0, 2, 4), std::tuple(1, 1, 8)}) {
    const Json& s = all["strategies"][static_cast<size_t>(i)];
    const int64_t received = s["bytes"].get<int64_t>();
    // The loss, and a norm from each stage.
    const int64_t little = 4 + 8 * stages;
    EXPECT_GE(received, 2 * batch / share + little) << s;
    // dp=2 adds an all-reduce of the gradients of two blocks.
    EXPECT_LE(
        received,
        2 * batch / share + little +
            (share - 1) * s["memory"]["parameters"]["predicted"].get<int64_t>())
        << s;
    // 8 micro-batches are a message each, forward and back, at 5 us.
    const double us = s["communication_us"].get<double>();
    EXPECT_GT(us, 5 * (16 + 1 + stages));
    EXPECT_LT(us, 5 * (16 + 1 + stages + 20 * (share - 1)) + 100);
  }
}

const char kSmall[] =
    "--model llama --layers 4 --hidden 24 --heads 4 --batch 8 --seq 16 --mesh "
    "4 ";

// A flag for one axis applies to the strategies that have this axis.
TEST(Explain, StrategiesTakeTheFlagsOfTheirAxes) {
  const Json all = explain(
      std::string(kSmall) +
      "--schedule zb-h1 --micro-batches 4 --sequence-parallel --context ring "
      "--compare dp,pp=4,pp=4+micro-batches=8,tp,cp=2+tp=2");
  ASSERT_EQ(all["strategies"].size(), 5u);
  const char* flags[] = {"--mesh dp=4",
                         "--mesh pp=4 --schedule zb-h1 --micro-batches 4",
                         "--mesh pp=4 --schedule zb-h1 --micro-batches 8",
                         "--mesh tp=4 --sequence-parallel",
                         "--mesh cp=2,tp=2 --sequence-parallel --context ring"};
  for (size_t i = 0; i < std::size(flags); ++i) {
    const Json one = explain(kSmall + std::string(flags[i]));
    EXPECT_EQ(all["strategies"][i]["memory"], one["memory"]) << flags[i];
    EXPECT_EQ(all["strategies"][i]["communication_us"], one["communication_us"])
        << flags[i];
  }
}

TEST(Explain, SaysTheBubbleOfEachStrategy) {
  const std::string flags = std::string(kSmall) + "--compare dp,pp=4";
  const Ran r = run_program("explain", flags);
  ASSERT_EQ(r.code, 0) << r.err;
  const double bubble = explain(flags)["strategies"][1]["bubble"];
  EXPECT_GT(bubble, 0.2);
  char percent[32];
  std::snprintf(percent, sizeof percent, "  %.1f %%\n", 100 * bubble);
  EXPECT_NE(r.out.find("sending ms  bubble\n"), r.out.npos) << r.out;
  EXPECT_NE(r.out.find("    none\n"), r.out.npos) << r.out;
  EXPECT_NE(r.out.find(percent), r.out.npos) << r.out;
}

// A strategy that does not fit has a row with the reason.
TEST(Explain, ShowsTheStrategiesThatFit) {
  const std::string svg = temporary("fit.svg");
  const std::string flags =
      std::string(kSmall) + "--compare dp,sp,tp=3,pp=4+tp=2,tp --svg " + svg;
  const Json rows = explain(flags)["strategies"];
  ASSERT_EQ(rows.size(), 5u);
  const std::string why[] = {
      "",
      "[--sequence-parallel] mesh dp=4 has no axis tp; write --mesh tp=2 or "
      "the like, or leave --sequence-parallel out",
      "[--compare] tp=3 does not divide 4, the number of ranks; write tp=N "
      "with a divisor N of 4",
      "[--compare] tp=2 does not divide 1, the number of ranks that the other "
      "axes leave; write tp=N with a divisor N of 1, or smaller numbers for "
      "the other axes",
      ""};
  const Ran r = run_program("explain", flags);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string picture = read_file(svg);
  EXPECT_EQ(xml_error(picture), "");
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].value("refused", ""), why[i]);
    EXPECT_EQ(rows[i].contains("bytes"), why[i].empty());
    if (why[i].empty()) continue;
    EXPECT_NE(r.out.find("  " + why[i] + "\n"), r.out.npos) << r.out;
    EXPECT_NE(picture.find(rows[i]["strategy"].get<std::string>()),
              picture.npos);
  }
  // A strategy alone has the same row as beside others.
  EXPECT_EQ(rows[4],
            explain(std::string(kSmall) + "--compare tp")["strategies"][0]);
}

TEST(Explain, SaysWhichStrategyIsWrong) {
  const auto error = [](const std::string& flags) {
    const Ran r = run_program("explain", kSmall + flags);
    EXPECT_EQ(r.code, 2) << flags << r.out;
    return r.err;
  };
  EXPECT_EQ(error("--compare dp,tp=2+tp=4"),
            "explain: [--compare] 'tp=4' in 'tp=2+tp=4' comes after 'tp=2'; "
            "write only one of them\n");
  EXPECT_EQ(error("--compare zero1+zero3"),
            "explain: [--compare] 'zero3' in 'zero1+zero3' comes after "
            "'zero1'; write only one of them\n");
  EXPECT_EQ(
      error("--compare sp"),
      "explain: [--compare] all strategies are refused (in a "
      "strategy, write axes and flags as words, like tp=2+sp); the first, "
      "'sp': [--sequence-parallel] mesh dp=4 has no axis tp; write "
      "--mesh tp=2 or the like, or leave --sequence-parallel out\n");
  EXPECT_EQ(
      error("--compare pp=2,pp=4 --batch 3 --micro-batches 4"),
      "explain: [--compare] all strategies are refused (in a "
      "strategy, write axes and flags as words, like tp=2+sp); the first, "
      "'pp=2': [--micro-batches] there are 4 "
      "micro-batches, but --batch is 3; write a larger --batch, or at "
      "most 3\n");
  EXPECT_EQ(error("--compare dp,tp --schedule gpipe"),
            "explain: [--schedule] no strategy in 'dp,tp' has an axis pp; add "
            "pp=2 or the like to one, or leave the flag out\n");
  for (const auto& [flag, axis] :
       {std::pair("--micro-batches 2", "pp"), std::pair("--chunks 2", "pp"),
        std::pair("--sequence-parallel", "tp"),
        std::pair("--context ring", "cp")})
    EXPECT_NE(
        error(std::string("--compare dp,zero1 ") + flag)
            .find("no strategy in 'dp,zero1' has an axis " + std::string(axis)),
        std::string::npos)
        << flag;
}

TEST(Explain, KnowsOtherOperators) {
  for (const char* args :
       {"--op 'bshd,bthd->bhst' --mesh tp=2 --in 2x3x4x5:S2 --in 2x7x4x5:S2",
        "--op softmax --mesh tp=2 --in 6x5:S1 --args dim=1",
        "--op embedding --mesh tp=2 --in 16x8:S0:parameter --in 3x4",
        "--op softmax --mesh tp=2 --in '8x6:S0(h=2 4:h):parameter'",
        "--op layer_norm --mesh tp=2 --in 4x8:S0 --in 8 --in 8",
        "--op add --mesh dp=2 --in 4x8:P --in 4x8:P"}) {
    const Json json = explain(args);
    EXPECT_TRUE(json["rule"].is_string()) << args << json;
    EXPECT_FALSE(json["assignments"].empty()) << args;
  }
  // A view has no rule and moves nothing.
  const Json view =
      explain("--op view --mesh dp=2 --in 6x4:S0 --args shape=2x3x4");
  EXPECT_TRUE(view["rule"].is_null()) << view;
  EXPECT_TRUE(view["collectives"].empty()) << view;
  // Partial sums add up without being reduced first.
  const Json add = explain("--op add --mesh dp=2 --in 4x8:P --in 4x8:P");
  EXPECT_TRUE(add["collectives"].empty()) << add;
}

// cumsum has the price of the sums that ranks send each other inside the
// operator.
TEST(Explain, PricesWhatCumsumSends) {
  const std::string file =
      write_file("cumsum_cost.json",
                 R"({"alpha_us": 50, "axes": {"tp": {"gbytes_per_s": 1}}})");
  const Json json = explain(
      "--op cumsum --mesh tp=4 --in 64x1024:S1 --args dim=1 --cost " + file);
  // A rank receives the sums of 64 rows from three ranks.
  EXPECT_EQ(bytes(json["collectives"]), 64 * 3 * 8);
  int chosen = 0;
  for (const Json& a : json["assignments"]) {
    if (!a["chosen"]) continue;
    ++chosen;
    EXPECT_NEAR(a["comm_us"].get<double>(), 50 + 64 * 3 * 8 / 1e3, 1e-9);
  }
  EXPECT_EQ(chosen, 1);
}

// scale=0 stands for 1 / sqrt(d).
TEST(Explain, AttentionHasItsDefaultScale) {
  for (const char* inputs : {"", " --in 8x8", " --in 2x8 --in 2x8"}) {
    const std::string args =
        "--op attention --mesh tp=2 --in 2x8x4x16:S2 --in 2x8x4x16:S2 "
        "--in 2x8x4x16:S2";
    const Ran r = run_program("explain", args + inputs);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("scale=0,"), r.out.npos) << r.out;
  }
}

TEST(Explain, TakesPricesFromAFile) {
  const std::string file = write_file(
      "cost.json", R"({"alpha_us": 50, "axes": {"tp": {"gbytes_per_s": 1}}})");
  const Json cheap = explain(kMatmul);
  const Json dear = explain(kMatmul + ("--cost " + file));
  double sums[2] = {0, 0};
  for (const Json& a : cheap["assignments"])
    sums[0] += a["comm_us"].get<double>();
  for (const Json& a : dear["assignments"])
    sums[1] += a["comm_us"].get<double>();
  EXPECT_GT(sums[1], 4 * sums[0]);
}

}  // namespace
}  // namespace dtensor::testing
