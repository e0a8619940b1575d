// SPDX-License-Identifier: Apache-2.0
// Plans how a tensor changes its layout or its mesh: the steps, the bytes sent
// and held, and how far the bytes are above the lower bound. With --schedule,
// shows which tasks a pipeline's ranks do when. No ranks run.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/placement/assign_ranks.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/own_playground.h"
#include "dtensor/program/program.h"
#include "dtensor/program/record.h"
#include "dtensor/text_file.h"
#include "programs/programs.h"
#include "programs/report/plan_report.h"
#include "programs/report/plan_svg.h"
#include "programs/report/schedule_file.h"
#include "programs/report/schedule_svg.h"

namespace dtensor::examples {
namespace {

struct Flags {
  std::string shape, from, to, to_mesh, dtype = "f32", svg;
  bool assign_ranks = false;
  std::string schedule, times = "1,1,1";
  int64_t stages = 0, micros = 0, chunks = 0;
};

// The flags that only one of the two questions has: how a tensor moves, and how
// a pipeline is scheduled (--schedule).
const std::vector<std::string> kOfLayouts = {
    "--mesh",         "--shape", "--from", "--to",   "--to-mesh",
    "--assign-ranks", "--dtype", "--cost", "--html", "--record"};
const std::vector<std::string> kOfSchedules = {"--stages", "--micro",
                                               "--chunks", "--times"};

report::PlanReport make_plan(const Program& program, const Flags& flags) {
  const Mesh& mesh = program.mesh();
  DT_CHECK(!flags.shape.empty() && !flags.from.empty() && !flags.to.empty(),
           "plan",
           "say what to move: --shape 64,64 --from R,S0 --to S0,R, with a "
           "placement for each axis of --mesh");
  const Shape shape = parse_shape(flags.shape, "--shape");
  const DType dtype = parse_dtype(flags.dtype);
  const Spec* from =
      Spec::get(mesh, shape, parse_layout(flags.from, mesh, shape), dtype);
  Mesh onto = flags.to_mesh.empty() ? mesh : Mesh::parse(flags.to_mesh);
  check_ranks_of_question("--to-mesh", onto);
  const Layout layout = parse_layout(flags.to, onto, shape);
  if (flags.assign_ranks) onto = assign_ranks(from, onto, layout);
  return report::plan_report(from, Spec::get(onto, shape, layout, dtype),
                             program.cost(mesh));
}

nn::StageTimes stage_times(const std::string& text) {
  nn::StageTimes t;
  int end = -1;
  const int read = std::sscanf(text.c_str(), "%lf,%lf,%lf%n", &t.forward,
                               &t.backward, &t.weight, &end);
  const auto good = [](double x) { return x >= 0 && x <= 1e9; };
  DT_CHECK(read == 3 && end == static_cast<int>(text.size()) &&
               good(t.forward) && good(t.backward) && good(t.weight) &&
               t.forward + t.backward + t.weight > 0,
           "--times",
           "it is '{}'; write the times of a forward, an input gradient and a "
           "weight gradient, such as 1,1,1, each from 0 to 1e9, and not all 0",
           text);
  return t;
}

report::ScheduleReport make_schedule_report(const Flags& flags) {
  return report::schedule_report(
      report::read_schedule(flags.schedule, flags.stages, flags.micros,
                            flags.chunks),
      stage_times(flags.times));
}

// A picture with more ranks than this would be larger than the record's rest.
constexpr size_t kMostPicturedRanks = 64;

void add_to(Record& record, const report::PlanReport& r) {
  record.set_title(fmt::format("{} to {}", r.from->to_string(),
                               r.to->layout().to_string(r.to->mesh())));
  record.add_move({r.from, r.to}, r.plan);
  if (!r.ranks.empty() && r.ranks.size() <= kMostPicturedRanks)
    record.add_picture("move", "which ranks hold what before and after",
                       report::plan_svg(r));
}

// Throws Error for a flag of the other question, which would have no effect.
void check_question(const Program& program) {
  const bool schedule = program.given("--schedule");
  for (const std::string& name : schedule ? kOfLayouts : kOfSchedules)
    DT_CHECK(!program.given(name), name,
             "it has no effect with{} --schedule; leave it out",
             schedule ? "" : "out");
}

}  // namespace

int plan_main(int argc, char** argv) {
  Flags flags;
  Program program({.about = "Shows how a tensor would change its layout: the "
                            "cheapest steps and the bytes that they send; or, "
                            "with --schedule, what a pipeline does when.",
                   .mesh = "2x4",
                   .always_dry = true,
                   .any_ranks = true});
  program.add("--shape", &flags.shape, "the tensor's shape, such as 64,64,64");
  program.add("--from", &flags.from,
              "its layout: a placement for each axis (R,S1), or axes for each "
              "dimension ([{},{a1}])");
  program.add("--to", &flags.to, "the new layout");
  program.add("--to-mesh", &flags.to_mesh,
              "the new mesh, if it is another: 4x2, or \"x=2 of ranks 5,3\"");
  program.add("--assign-ranks", &flags.assign_ranks,
              "permute the ranks of the new mesh so that the least is moved");
  program.add("--dtype", &flags.dtype, "the type of the elements",
              {"f32", "f64", "bf16", "f16", "i32", "i64", "bool"});
  program.add("--schedule", &flags.schedule, report::schedule_help());
  program.add("--stages", &flags.stages,
              "the number of positions of the schedule; each has one stage, or "
              "one for every chunk",
              0, 4096);
  program.add("--micro", &flags.micros, "the number of micro-batches", 0,
              100000);
  program.add("--chunks", &flags.chunks,
              "stages at each position, for interleaved", 0, 4096);
  program.add("--times", &flags.times,
              "the times of a stage's forward, input gradient and weight "
              "gradient, in any unit");
  program.add("--svg", &flags.svg, "the file for a picture", TextKind::kFile);
  std::optional<report::PlanReport> result;
  std::optional<report::ScheduleReport> schedule;
  // The work is done while flags are checked. No data are computed, so every
  // Error means that the input is wrong (Program::main()).
  const auto check = [&] {
    check_question(program);
    if (program.given("--schedule")) {
      schedule = make_schedule_report(flags);
      if (!flags.svg.empty())
        write_text_file("--svg", flags.svg, report::schedule_svg(*schedule));
      return;
    }
    result = make_plan(program, flags);
    if (const auto record = program.record()) add_to(*record, *result);
    if (flags.svg.empty()) return;
    DT_CHECK(!result->ranks.empty(), "--svg",
             "{} has {} ranks and {} has {}, but a picture shows at most {} of "
             "both together; leave it out",
             result->from->mesh().to_string(), result->from->mesh().num_ranks(),
             result->to->mesh().to_string(), result->to->mesh().num_ranks(),
             report::kMostListedRanks);
    write_text_file("--svg", flags.svg, report::plan_svg(*result));
  };
  return program.main(argc, argv, check, [&] {
    fmt::print("{}", schedule ? to_text(*schedule) : to_text(*result));
    program.write_json(schedule ? to_json(*schedule) : to_json(*result));
  });
}

}  // namespace dtensor::examples
