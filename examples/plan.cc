// Says how a tensor would change its layout, or its mesh: the steps, what they
// send, what they need, and how near that is to the least. Nothing runs.
#include <nlohmann/json.hpp>
#include <optional>

#include "dtensor/placement/assign_ranks.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/program.h"
#include "report/cost_file.h"
#include "report/plan_report.h"
#include "report/plan_svg.h"
#include "report/text_file.h"

namespace dtensor::examples {
namespace {

struct Flags {
  std::string shape, from, to, to_mesh, dtype = "f32", cost, svg;
  bool assign_ranks = false;
};

report::PlanReport make_plan(const Flags& flags, const Mesh& mesh) {
  DT_CHECK(!flags.shape.empty() && !flags.from.empty() && !flags.to.empty(),
           "plan",
           "say what moves: --shape 64,64 --from R,S0 --to S0,R, with a "
           "placement for each axis of --mesh");
  const Shape shape = parse_shape(flags.shape, "--shape");
  const DType dtype = parse_dtype(flags.dtype);
  const Spec* from =
      Spec::get(mesh, shape, parse_layout(flags.from, mesh, shape), dtype);
  Mesh onto = flags.to_mesh.empty() ? mesh : Mesh::parse(flags.to_mesh);
  const Layout layout = parse_layout(flags.to, onto, shape);
  if (flags.assign_ranks) onto = assign_ranks(from, onto, layout);
  CostTable cost;
  if (!flags.cost.empty()) cost = report::read_cost(flags.cost, mesh);
  return report::plan_report(from, Spec::get(onto, shape, layout, dtype), cost);
}

int plan_main(int argc, char** argv) {
  Flags flags;
  Program program({.about = "Says how a tensor would change its layout: the "
                            "cheapest steps, and what they send.",
                   .mesh = "2x4",
                   .always_dry = true,
                   .any_ranks = true});
  program.add("--shape", &flags.shape, "of the tensor: 64,64,64");
  program.add("--from", &flags.from,
              "its layout, a placement per axis (R,S1) or axes per dimension "
              "([{},{a1}])");
  program.add("--to", &flags.to, "the layout that is wanted");
  program.add("--to-mesh", &flags.to_mesh,
              "where that is, if elsewhere: 4x2, or \"x=2 of ranks 5,3\"");
  program.add("--assign-ranks", &flags.assign_ranks,
              "let the ranks of the new mesh change places to move least");
  program.add("--dtype", &flags.dtype, "of the elements",
              {"f32", "f64", "bf16", "f16", "i32", "i64", "bool"});
  program.add("--cost", &flags.cost, report::cost_help(), TextKind::kFile);
  program.add("--svg", &flags.svg, "for a picture", TextKind::kFile);
  std::optional<report::PlanReport> result;
  // Nothing runs that could fail: whatever is wrong is wrong with the input.
  const auto check = [&] {
    result = make_plan(flags, program.mesh());
    if (flags.svg.empty()) return;
    DT_CHECK(!result->ranks.empty(), "--svg",
             "a picture shows meshes of up to {} ranks together, and {} has {}",
             report::kMostListedRanks, program.mesh().to_string(),
             program.mesh().num_ranks());
    report::write_text_file("--svg", flags.svg, report::plan_svg(*result));
  };
  return program.main(argc, argv, check, [&] {
    fmt::print("{}", report::to_text(*result));
    program.write_json(report::to_json(*result));
  });
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  return dtensor::examples::plan_main(argc, argv);
}
