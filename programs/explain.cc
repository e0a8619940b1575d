// SPDX-License-Identifier: Apache-2.0
// Explains what an operator or a training step does on a mesh: the rule, the
// assignments with their prices, and the collectives. Tensors get no memory.
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/comm_table.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/predicted.h"
#include "dtensor/program/record.h"
#include "dtensor/text_file.h"
#include "dtensor/text_table.h"
#include "programs/compare.h"
#include "programs/explain_op.h"
#include "programs/memory_report.h"
#include "programs/programs.h"
#include "programs/record_training.h"
#include "programs/step_time.h"
#include "programs/train_config.h"

namespace dtensor::examples {
namespace {

struct Flags {
  TrainConfig train;
  std::string op, args, compare, svg;
  std::vector<std::string> in;
};

nlohmann::ordered_json explain_model(const TrainConfig& config,
                                     const RunOptions& options,
                                     const Mesh& mesh) {
  Decisions decisions;
  const nn::Prediction p =
      predict(config, options, [&](const OpRan& op) { decisions.add(op); });
  const Predicted time = predicted(p, options.cost);
  const std::vector<CommRow> rows = comm_rows(p.events);
  fmt::print("{}: {} parameters in {}, {} bytes of them per rank\n",
             config.title(mesh), grouped(p.parameters), config.dtype,
             grouped(p.parameter_bytes));
  fmt::print("prices: {}\n\noperators of a training step:\n{}\n",
             options.cost.to_string(), decisions.table());
  fmt::print("collectives, with the most bytes that a rank receives:\n{}\n",
             comm_table(p.events, false));
  fmt::print("{}\n{}\n", memory_table(p.memory, nullptr),
             to_string(time, options.cost));
  return {
      {"operators", decisions.json()},
      {"collectives", comm_json(rows, false)},
      {"communication_us", static_cast<double>(time.communication_ps) / 1e6},
      {"time", to_json(time)},
      {"strategy", config.strategy(mesh)},
      {"memory", memory_json(p.memory, nullptr)},
      {"peak_bytes", p.memory.peak}};
}

// Describes the comparison in the record of the first strategy that can be
// trained: adds a picture of all strategies, and the reasons why others were
// refused. Discards the records of refused strategies.
void describe(const std::map<std::string, std::shared_ptr<Record>>& records,
              const std::vector<Compared>& all) {
  Record* first = nullptr;
  auto refused = nlohmann::ordered_json::array();
  for (const Compared& c : all) {
    const auto found = records.find(c.strategy.name);
    Record* const record =
        found == records.end() ? nullptr : found->second.get();
    if (!c.strategy.refused.empty()) {
      refused.push_back(
          {{"strategy", c.strategy.name}, {"reason", c.strategy.refused}});
      if (record) record->discard();
    } else if (!first) {
      first = record;
    }
  }
  if (!first) return;
  first->add_picture("compare", "memory and bytes of each strategy",
                     compare_svg(all));
  if (!refused.empty()) first->set("refused", std::move(refused));
}

nlohmann::ordered_json explain_strategies(Program& program,
                                          const Flags& flags) {
  const Mesh& mesh = program.mesh();
  if (!flags.svg.empty()) check_writable("--svg", flags.svg);
  std::map<std::string, std::shared_ptr<Record>> records;  // by strategy
  const std::vector<Compared> all =
      compare(parse_strategies(flags.compare, flags.train, mesh.num_ranks()),
              [&](const Strategy& s) {
                RunOptions options;
                options.cost = program.cost(s.mesh);
                if (auto& record = records[s.name] =
                        program.another_record(s.config.title(s.mesh), s.mesh))
                  options.observers = {record};
                return options;
              });
  describe(records, all);
  fmt::print(
      "{} on {} ranks, {} windows of {} in a step; bytes are those of the rank "
      "with the most:\n{}\n",
      flags.train.model.name, mesh.num_ranks(), flags.train.batch,
      flags.train.model.seq, compare_table(all));
  if (!flags.svg.empty()) write_text_file("--svg", flags.svg, compare_svg(all));
  return compare_json(all);
}

}  // namespace

int explain_main(int argc, char** argv) {
  Flags flags;
  Program program({.about = "Explains what an operator (--op), or a training "
                            "step (--model), does on a mesh.",
                   .mesh = "dp=2,tp=2",
                   .always_dry = true});
  program.add("--op", &flags.op, "an operator's name, or an einsum: mk,kn->mn");
  program.add("--in", &flags.in,
              "SHAPE:LAYOUT[:parameter] of an input, such as 8192x1024:S0,R; "
              "repeat it for each input");
  program.add("--args", &flags.args,
              "arguments of --op by name: dim=1 or shape=4x6,...");
  program.add("--compare", &flags.compare,
              "strategies for --model on as many ranks as the mesh has: "
              "dp,zero1,zero2,zero3,tp,pp,zero3+tp=2+accumulate=4; --schedule, "
              "--micro-batches, --chunks, --sequence-parallel and --context "
              "apply to strategies with the axis");
  program.add("--svg", &flags.svg, "the file for a picture of --compare",
              TextKind::kFile);
  add_train_flags(program, flags.train);
  program.add("--vocab", &flags.train.model.vocab,
              "the number of tokens that --model knows", 1);
  nlohmann::ordered_json result;
  // The work is done while flags are checked. No data are computed, so every
  // Error means that the input is wrong (Program::main()).
  const auto explain = [&] {
    DT_CHECK(
        program.given("--op") != program.given("--model"), "explain",
        "{} given; write either --op matmul --in 64x32:S0,R --in 32x16:R,S1, "
        "or --model gpt",
        program.given("--op") ? "both --op and --model are"
                              : "neither --op nor --model is");
    const RunOptions options = program.run_options();
    DT_CHECK(flags.compare.empty() || program.given("--model"), "--compare",
             "it is for --model, but this is --op; leave it out, or write "
             "--model gpt in place of --op");
    DT_CHECK(flags.svg.empty() || !flags.compare.empty(), "--svg",
             "it is for --compare; leave it out");
    if (program.given("--op")) {
      const OpQuestion question =
          parse_question(flags.op, flags.in, flags.args,
                         parse_dtype(flags.train.dtype), program.mesh());
      if (const auto record = program.record())
        record->set_title(
            fmt::format("{} on {}", flags.op, program.mesh().to_string()));
      result = explain_op(question, options);
      return;
    }
    DT_CHECK(flags.in.empty(), "--in", "it is for --op; leave it out");
    DT_CHECK(flags.args.empty(), "--args", "it is for --op; leave it out");
    if (!flags.compare.empty()) {
      result = explain_strategies(program, flags);
      return;
    }
    flags.train.validate(program.mesh());
    flags.train.fit_memory(options);
    describe(program.record().get(), flags.train, program.mesh());
    result = explain_model(flags.train, options, program.mesh());
  };
  return program.main(argc, argv, explain, [&] { program.write_json(result); });
}

}  // namespace dtensor::examples
