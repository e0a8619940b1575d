// SPDX-License-Identifier: Apache-2.0
// A program's record has what its JSON says and what its run counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/placement/layout.h"
#include "tests/mpirun.h"
#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

struct Outputs {
  Json record, json;
};

Outputs dry(const std::string& program, const std::string& args) {
  const std::string path = temporary("record.json");
  const Ran r = run_program(program, args + " --json --record " + path);
  EXPECT_EQ(r.code, 0) << args << "\n" << r.err;
  return {Json::parse(read_file(path), nullptr, false),
          Json::parse(r.out, nullptr, false)};
}

// The bytes in `member` of the rows of collectives.
std::map<std::string, int64_t> bytes_of(const Json& rows,
                                        const std::string& member) {
  std::map<std::string, int64_t> bytes;
  for (const Json& row : rows)
    bytes[row["axis"].get<std::string>() + " " +
          row["kind"].get<std::string>() + " " + row["op"].get<std::string>() +
          " " + row["phase"].get<std::string>()] = row[member];
  return bytes;
}

// Checks that every index has an entry, and that `calls` and `runs` fit each
// other.
void check_tables(const Json& record) {
  const auto below = [&](const Json& index, const char* table) {
    EXPECT_LT(index.get<size_t>(), record[table].size()) << table;
  };
  for (const Json& spec : record["specs"]) {
    below(spec["mesh"], "meshes");
    for (const Json& d : spec["dims"]) below(d, "dims");
  }
  for (const Json& call : record["calls"]) {
    for (const char* list : {"in", "to", "out"})
      for (const Json& s : call[list]) below(s, "specs");
    ASSERT_EQ(call["moves"].size(), call["in"].size());
    for (size_t i = 0; i < call["in"].size(); ++i) {
      const Json& move = call["moves"][i];
      if (move.is_null()) continue;
      below(move, "moves");
      EXPECT_EQ(record["moves"][move.get<size_t>()]["to"], call["to"][i]);
    }
    if (!call.contains("rule")) continue;
    const auto chosen =
        std::count_if(call["candidates"].begin(), call["candidates"].end(),
                      [](const Json& c) { return c["chosen"].get<bool>(); });
    EXPECT_EQ(chosen, 1) << call;
    EXPECT_FALSE(call["why"].get<std::string>().empty());
  }
  for (const Json& run : record["runs"])
    for (size_t i = 0; i < run["operators"].size(); ++i) {
      const Json& op = run["operators"][i];
      EXPECT_EQ(
          op.contains("call") + op.contains("move") + op.contains("kernel"), 1)
          << op;
      if (op.contains("call")) below(op["call"], "calls");
      below(op["path"], "paths");
      below(op["phase"], "phases");
      for (const Json& m : op.value("moves", Json::array())) below(m, "moves");
      EXPECT_GE(op.value("until", i), i);
      if (op.contains("sends"))
        for (const Json& e : op["sends"]) below(e, "events");
    }
}

// Checks that an operator sends only for itself or to gather parameters, and
// that outputs take no more memory than is in use.
void check_operators(const Json& record, const Json& run) {
  const Json& ops = run["operators"];
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].contains("call")) {
      const Json& op = record["calls"][ops[i]["call"].get<size_t>()]["op"];
      for (const Json& e : ops[i].value("sends", Json::array())) {
        const Json& of = record["events"][e.get<size_t>()]["op"];
        EXPECT_TRUE(of == op || of == "gather") << of << " in " << op;
      }
    }
    int64_t held = 0, in_use = 0;
    for (size_t by = 0; by <= i; ++by)
      if (ops[by].value("until", i + 1) > i) {
        held += ops[by].value("makes", int64_t{0});
        for (const Json& f : ops[by].value("frees", Json::array()))
          if (f[0].get<size_t>() <= i) held -= f[1].get<int64_t>();
      }
    for (const Json& kind : ops[i]["memory"]) in_use += kind.get<int64_t>();
    // No operator makes parameters or the optimizer's state.
    EXPECT_LE(held, in_use - ops[i]["memory"][1].get<int64_t>() -
                        ops[i]["memory"][3].get<int64_t>())
        << "operator " << i;
    EXPECT_LE(in_use, run["memory"]["peak"].get<int64_t>());
  }
}

// Checks the totals: the maximum of the runs, and the sum over all ranks.
void check_sums(const Json& record) {
  int64_t most = 0, by_all = 0;
  double longest = 0;
  for (const Json& run : record["runs"]) {
    int64_t bytes = 0;
    double us = 0;
    for (const Json& op : run["operators"])
      for (const Json& e : op.value("sends", Json::array())) {
        bytes += record["events"][e.get<size_t>()]["bytes"].get<int64_t>();
        by_all += record["events"][e.get<size_t>()]["by_all"].get<int64_t>();
        us += record["events"][e.get<size_t>()]["us"].get<double>();
      }
    most = std::max(most, bytes);
    longest = std::max(longest, us);
  }
  EXPECT_EQ(most, record["totals"]["bytes"]);
  if (record["runs"].size() == 1) {
    EXPECT_EQ(by_all, record["totals"]["by_all"]);
  }
  EXPECT_NEAR(longest, record["totals"]["communication_us"].get<double>(),
              1e-6 * longest);
}

// Trains small models of every kind on meshes of every kind.
const char* const kTrainings[] = {
    "--model gpt --mesh dp=4",
    "--model gpt --mesh dp=2,tp=2",
    "--model gpt --mesh tp=3 --sequence-parallel",
    "--model gpt --mesh dp=2,tp=2 --zero 1",
    "--model gpt --mesh dp=3 --zero 2",
    "--model gpt --mesh dp=2,tp=2 --zero 3",
    "--model gpt --mesh dp=2 --accumulate 2",
    "--model gpt --mesh dp=2 --recompute block",
    "--model gpt --mesh pp=2",
    "--model gpt --mesh pp=2,dp=2 --schedule gpipe",
    "--model gpt --mesh pp=2,tp=2 --schedule zb-h1",
    "--model llama --mesh tp=4 --kv-heads 2",
    "--model llama --mesh tp=3",
    "--model llama --mesh cp=4 --context ring",
    "--model llama --mesh dp=2,cp=2 --context all-to-all",
    "--model llama --mesh dp=2 --dtype bf16 --zero 3",
    "--model llama --mesh dp=2,tp=2 --grad-wire bf16",
    "--model qwen2 --mesh dp=2,tp=2",
    "--model mixtral --mesh ep=2",
    "--model mixtral --mesh dp=2,ep=2 --zero 1",
};

class RecordOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, RecordOf, ::testing::ValuesIn(kTrainings));

TEST_P(RecordOf, ATrainingSaysWhatIsCounted) {
  const std::string args =
      std::string(GetParam()) +
      " --layers 2 --hidden 32 --heads 4 --seq 12 --batch 4 --steps 2 "
      "--sample 0";
  const auto [record, json] = dry("train", args + " --dry-run");
  ASSERT_TRUE(record.is_object() && json.is_object());
  check_tables(record);
  EXPECT_EQ(record["collectives"], json["collectives"]);
  EXPECT_EQ(record["totals"]["peak_bytes"], json["peak_bytes"]);
  check_sums(record);
  for (const Json& run : record["runs"]) check_operators(record, run);
  for (const auto& [kind, bytes] : json["memory"].items()) {
    int64_t most = 0;
    for (const Json& run : record["runs"])
      most = std::max(most, run["memory"][kind].get<int64_t>());
    EXPECT_EQ(most, bytes["predicted"]) << kind;
  }
  // The bytes of experts depend on the data.
  if (args.find("mixtral") != args.npos) return;
  const Ran ran = run_program("train", args + " --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(bytes_of(record["collectives"], "bytes_predicted"),
            bytes_of(Json::parse(ran.out)["collectives"], "bytes_counted"));
}

// Reads a dimension's parts as docs/record.md says, and compares them with
// those of the library.
TEST(Record, DimensionsAreThoseOfTheirLayouts) {
  const struct {
    const char *mesh, *shape, *layout;
  } kCases[] = {
      {"x=2,y=3", "10,7", "S0,S0"},
      {"x=2,y=3", "10,7", "[{y,x},{}]"},
      {"x=2,y=3", "8,12", "S0/2,S1"},
      {"x=3", "14", "S0@0|3|5|14"},
      {"x=2,y=2", "96,4", "[(3 4{x} 8),{y}]"},
      {"x=2", "17,2", "[(8{x}|4{x}|5),{}]"},
      {"x=4", "2,3", "S0"},
      {"x=2 of ranks 5,3", "4,4", "S1"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.layout);
    const std::string path = temporary("record.json");
    const Ran r =
        run_program("plan", std::string("--mesh '") + c.mesh + "' --shape " +
                                c.shape + " --from '" + c.layout + "' --to '" +
                                c.layout + "' --record " + path);
    ASSERT_EQ(r.code, 0) << r.err;
    const Json record = Json::parse(read_file(path));
    const Mesh mesh = Mesh::parse(c.mesh);
    const Json& spec = record["specs"][0];
    Shape shape;
    for (const Json& n : spec["shape"]) shape.push_back(n.get<int64_t>());
    const Layout layout = parse_layout(c.layout, mesh, shape).canonical(mesh);
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      const Json& dim = record["dims"][spec["dims"][d].get<size_t>()];
      for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
        const Coord at = mesh.coordinate(rank);
        IntervalList expected;
        layout.dims[d].intervals(mesh, at, expected);
        int64_t place = 0;
        for (const Json& a : dim.value("axes", Json::array()))
          place = place * mesh.axis_size(a.get<int>()) + at[a.get<int>()];
        IntervalList found;
        if (dim.contains("parts")) {
          for (const Json& i : dim["parts"][static_cast<size_t>(place)])
            found.push_back({i[0], i[1]});
        } else if (!dim.contains("axes")) {
          found.push_back({0, dim["size"]});
        } else {
          int64_t begin = 0;
          for (const Json& run : dim["runs"]) {
            const int64_t size = run[0], count = run[1];
            if (place < count) {
              if (size > 0)
                found.push_back(
                    {begin + place * size, begin + (place + 1) * size});
              break;
            }
            place -= count;
            begin += size * count;
          }
        }
        std::erase_if(expected, [](const Interval& i) { return !i.size(); });
        EXPECT_EQ(found, expected) << "dimension " << d << ", rank " << rank;
      }
    }
  }
}

TEST(Record, OfAnOperatorItsGradientAndItsWhy) {
  const auto [record, json] =
      dry("explain",
          "--op matmul --mesh dp=2,tp=2 --in 64x32:S0,R "
          "--in 32x128:R,S0:parameter");
  check_tables(record);
  EXPECT_EQ(record["title"], "matmul on dp=2,tp=2");
  EXPECT_EQ(record["program"], "explain");
  EXPECT_EQ(record["command"],
            "explain --op matmul --mesh dp=2,tp=2 --in 64x32:S0,R --in "
            "32x128:R,S0:parameter");
  const Json& ops = record["runs"][0]["operators"];
  const Json& call = record["calls"][ops[0]["call"].get<size_t>()];
  EXPECT_EQ(call["op"], "matmul");
  EXPECT_EQ(call["split"], "m: dp; k: tp");
  EXPECT_EQ(call["keep"], Json({"", "parameter"}));
  EXPECT_NE(call["why"].get<std::string>().find("The next"), std::string::npos);
  // The candidates are the first assignments that the program prints.
  const Json& all = json["assignments"];
  for (size_t i = 0; i < call["candidates"].size(); ++i)
    EXPECT_EQ(call["candidates"][i], all[i]);
  EXPECT_EQ(call["candidates"].size() + call.value("more_candidates", 0),
            all.size());
  std::set<std::string> phases;
  for (const Json& op : ops)
    phases.insert(record["phases"][op["phase"].get<size_t>()]);
  EXPECT_EQ(phases, (std::set<std::string>{"forward", "backward"}));
}

TEST(Record, OfAMove) {
  const auto [record, json] =
      dry("plan", "--mesh 2x2 --shape 8,8 --from P,S1 --to S0,R");
  check_sums(record);
  EXPECT_EQ(record["totals"]["bytes"], json["bytes_received_max"]);
  const Json& move =
      record["moves"]
            [record["runs"][0]["operators"][0]["moves"][0].get<size_t>()];
  ASSERT_EQ(move["steps"].size(), 1u);
  EXPECT_EQ(move["steps"][0]["kind"], "reduce-exchange");
  EXPECT_EQ(record["specs"][move["to"].get<size_t>()]["layout"], "S0,R");
}

// A row-parallel product leaves a sum to the next operator.
TEST(Record, SaysWhereASumWasMade) {
  const Json record =
      dry("train",
          "--model llama --mesh tp=2 --layers 2 --hidden 32 --heads 4 --seq 12 "
          "--batch 4 --steps 1 --sample 0 --dry-run")
          .record;
  EXPECT_EQ(record["machine"], "CPU ranks");
  const Json& ops = record["runs"][0]["operators"];
  const auto spec = [&](const Json& op, const char* list, size_t k) {
    const Json& call = record["calls"][op["call"].get<size_t>()];
    return record["specs"][call[list][k].get<size_t>()];
  };
  std::set<std::string> makers;
  for (size_t i = 0; i < ops.size(); ++i)
    for (const Json& sum : ops[i].value("sums", Json::array())) {
      const auto k = sum[0].get<size_t>(), by = sum[1].get<size_t>();
      ASSERT_LT(by, i);
      const Json in = spec(ops[i], "in", k), out = spec(ops[by], "out", 0);
      EXPECT_FALSE(in["partials"].empty());
      EXPECT_EQ(in["partials"], out["partials"]);
      if (record["phases"][ops[i]["phase"].get<size_t>()] == "forward")
        makers.insert(record["paths"][ops[by]["path"].get<size_t>()]);
    }
  for (const char* layer : {"0", "1"})
    for (const char* path : {".self_attn.o_proj", ".mlp.down_proj"})
      EXPECT_EQ(makers.count(std::string("model.layers.") + layer + path), 1u)
          << layer << path << "\n"
          << Json(makers);
}

// The record has moves of gradients and of gathered parameters, which no
// operator makes.
TEST(Record, OfMovesThatNoOperatorMakes) {
  const auto [record, json] =
      dry("train", "--mesh dp=3 --zero 3 --layers 2 --steps 1 --dry-run");
  int64_t gathered = 0, reduced = 0;
  for (const Json& op : record["runs"][0]["operators"])
    for (const Json& m : op.value("moves", Json::array())) {
      const Json& move = record["moves"][m.get<size_t>()];
      const auto layout = [&](const char* end) -> std::string {
        return record["specs"][move[end].get<size_t>()]["layout"];
      };
      gathered += layout("from") != "R" && layout("to") == "R";
      reduced += layout("from") == "P" && op.contains("move");
    }
  EXPECT_GT(gathered, 10);
  EXPECT_GT(reduced, 10);
}

// A training has two records: of the prediction, and of what rank 0 did.
TEST(Record, OfARunThatCounts) {
  for (const char* flags :
       {"--mesh dp=2,tp=2 --zero 1", "--mesh pp=2 --schedule gpipe"}) {
    const auto [records, json] =
        dry("train", std::string(flags) +
                         " --layers 2 --hidden 32 --heads 4 --seq 12 --batch "
                         "4 --steps 3 --sample 0");
    ASSERT_EQ(records.size(), 2u);
    const Json &expected = records[0], &ran = records[1];
    check_tables(ran);
    ASSERT_EQ(ran["runs"].size(), 1u);
    EXPECT_EQ(ran["runs"][0]["rank"], 0);
    // The first run of the prediction is that of rank 0's stage, or of a rank
    // like it.
    const auto steps = [](const Json& record) {
      std::vector<std::string> names;
      for (const Json& op : record["runs"][0]["operators"])
        names.push_back(op.contains("call")
                            ? record["calls"][op["call"].get<size_t>()]["op"]
                        : op.contains("move") ? op["move"]
                                              : op["kernel"]);
      return names;
    };
    EXPECT_EQ(steps(ran), steps(expected)) << flags;
    EXPECT_FALSE(expected["events"][0].contains("counted"));
    for (const Json& e : ran["events"]) {
      const bool of_another = e["op"] == "grad_norm";  // another rank gets more
      EXPECT_TRUE(of_another || e["counted"] == e["bytes"]) << e;
    }
  }
}

// There is a record for each strategy that can be trained.
TEST(Record, OfStrategies) {
  const auto [records, json] = dry(
      "explain", "--model gpt --layers 2 --compare dp,zero3,tp=3,pp --mesh 4");
  ASSERT_TRUE(records.is_array());
  std::vector<std::string> titles;
  for (const Json& r : records) {
    check_tables(r);
    titles.push_back(r["title"]);
  }
  EXPECT_EQ(titles,
            (std::vector<std::string>{"gpt on dp=4", "gpt on dp=4, zero 3"}));
  // The first record has the reasons of the refused strategies, and the picture
  // of all.
  size_t i = 0;
  Json refused = Json::array();
  for (const Json& s : json["strategies"]) {
    if (s.contains("refused")) {
      refused.push_back(
          {{"strategy", s["strategy"]}, {"reason", s["refused"]}});
      continue;
    }
    EXPECT_EQ(records[i]["totals"]["bytes"], s["bytes"]);
    EXPECT_EQ(records[i]["totals"]["communication_us"], s["communication_us"]);
    ++i;
  }
  EXPECT_EQ(i, records.size());
  EXPECT_EQ(refused.size(), 2u);
  EXPECT_EQ(records[0]["refused"], refused);
  EXPECT_EQ(records[0]["pictures"][0]["name"], "compare");
}

TEST(Record, OfAPipelineHasARunForEachStageAndItsSchedule) {
  const auto [record, json] =
      dry("explain", "--model gpt --layers 4 --mesh pp=2,dp=2");
  ASSERT_EQ(record["runs"].size(), 2u);
  EXPECT_NE(record["runs"][0]["rank"], record["runs"][1]["rank"]);
  ASSERT_EQ(record["pictures"].size(), 1u);
  EXPECT_EQ(record["pictures"][0]["name"], "schedule");
  EXPECT_EQ(record["schedule"]["positions"], 2);
  EXPECT_EQ(record["schedule"]["tasks"].size(),
            2u * 2 * record["schedule"]["micro_batches"].get<size_t>());
}

// The outputs of an operator are in use until the operator that `until` names.
TEST(Record, TensorsLiveAsLongAsTheyAreHeld) {
  const auto [record, json] =
      dry("explain", "--op matmul --mesh x=2 --in 8x4:S0 --in 4x6:R");
  const Json& ops = record["runs"][0]["operators"];
  EXPECT_EQ(ops[0]["makes"], 4 * 6 * 4);  // this rank's rows of the product
  EXPECT_FALSE(ops[0].contains("until"));
  const auto [view, unused] =
      dry("explain", "--op view --args shape=30 --mesh x=2 --in 6x5:S0");
  EXPECT_FALSE(view["runs"][0]["operators"][0].contains("makes"));
  // In a model, the forward pass keeps some values for the backward pass, and
  // frees others at the next operator.
  const auto [model, prediction] = dry("explain", "--model gpt --mesh dp=2");
  const Json& all = model["runs"][0]["operators"];
  size_t next = 0, later = 0;
  for (size_t i = 0; i < all.size(); ++i)
    if (model["phases"][all[i]["phase"].get<size_t>()] == "forward" &&
        all[i].contains("until")) {
      const size_t until = all[i]["until"];
      (until <= i + 2 ? next : later) += 1;
    }
  EXPECT_GT(next, 5u);
  EXPECT_GT(later, 20u);
}

TEST(Record, BadInput) {
  const auto refused = [](const std::string& program, const std::string& args,
                          const std::string& sentence) {
    const Ran r = run_program(program, args);
    EXPECT_EQ(r.code, 2) << args;
    EXPECT_NE(r.err.find(sentence), std::string::npos) << r.err;
  };
  refused("train", "--dry-run --record /nowhere/x.json", "/nowhere/x.json");
  refused("train", "--dry-run --json --record -",
          "[--record] standard output is for --json here; name a file for");
  refused("plan", "--schedule 1f1b --stages 2 --micro 2 --record x.json",
          "[--record] it has no effect with --schedule");
}

// Guards a fix: every process of a job wrote the records of --html and
// --record, and the last one to finish won; with --record - all but the main
// one failed.

TEST(RecordsOfProcesses, AreWrittenByTheMainProcess) {
  if (!no_mpi().empty()) GTEST_SKIP() << no_mpi();
  const Ran r = run_program(
      "train",
      "--mesh dp=2 --layers 1 --hidden 32 --heads 4 --seq 12 --batch 4 "
      "--steps 2 --sample 0 --record -",
      mpirun(2));
  ASSERT_EQ(r.code, 0) << r.err;
  const auto records = nlohmann::json::parse(r.out, nullptr, false);
  ASSERT_EQ(records.size(), 2u);  // the prediction, and rank 0's run
  EXPECT_EQ(records[1]["runs"][0]["rank"], 0);
}

// Guards a fix: with --record, the totals counted the events of rank 0 a second
// time.
TEST(RecordsOfProcesses, LeaveTheTotalsAlone) {
  const auto totals = [](const std::string& flags) {
    const Ran r =
        run_program("12_own_architecture", "--mesh tp=2 --json " + flags);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out, nullptr, false)["collectives"];
  };
  const nlohmann::json alone = totals("");
  EXPECT_FALSE(alone.empty());
  EXPECT_EQ(totals("--record " + temporary("record.json")), alone);
}

}  // namespace
}  // namespace dtensor::testing
