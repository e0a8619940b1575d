// SPDX-License-Identifier: Apache-2.0
#include "programs/explain_op.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "dtensor/autograd.h"
#include "dtensor/comm_table.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/grad.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/choice_report.h"
#include "dtensor/text_table.h"
#include "programs/product_ways.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::ordered_json;

double us(int64_t ps) { return static_cast<double>(ps) / 1e6; }
std::string us_text(int64_t ps) { return fmt::format("{:.2f}", us(ps)); }

bool is_einsum(const std::string& op) { return op.find("->") != op.npos; }

std::string names_of_all_ops() {
  std::vector<std::string> names;
  for (const Op* op : all_ops())
    if (op->name().back() != '\'' && !op->name().ends_with("_backward"))
      names.push_back(op->name());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : " ") + n;
  return text;
}

// The numbers of inputs that the operator may have: "2 or 3".
std::string input_counts(const std::vector<Sample>& samples) {
  std::set<size_t> counts;
  for (const Sample& s : samples) counts.insert(s.inputs.size());
  return fmt::to_string(fmt::join(counts, " or "));
}

// Parses "dim=1, step=2" into the attributes of the operator's sample.
void read_args(Attrs& attrs, const std::string& text) {
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    const size_t eq = item.find('='), begin = item.find_first_not_of(' ');
    DT_CHECK(eq != item.npos, "--args", "'{}' is not NAME=VALUE; {}", item,
             attrs.empty()
                 ? "leave it out, because the operator has no arguments"
                 : "write " + attrs.to_string());
    attrs.set(item.substr(begin, eq - begin), item.substr(eq + 1), "--args");
  }
}

OpInput parse_input(const std::string& text, DType dtype, const Mesh& mesh) {
  // A layout may have colons of its own, in brackets.
  std::vector<std::string> fields(1);
  int depth = 0;
  for (char c : text) {
    depth += c == '(' || c == '[' || c == '{';
    depth -= c == ')' || c == ']' || c == '}';
    if (c == ':' && depth == 0)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  const bool parameter = fields.back() == "parameter";
  if (parameter) fields.pop_back();
  DT_CHECK(
      !fields.empty() && fields.size() <= 2, "--in",
      "'{}' is not SHAPE:LAYOUT[:parameter]; write 8192x1024:S0,R or the like",
      text);
  const Shape shape = parse_shape(fields[0], "--in");
  const Layout layout = fields.size() < 2
                            ? Layout::replicated(shape)
                            : parse_layout(fields[1], mesh, shape);
  return {Spec::get(mesh, shape, layout, dtype),
          parameter ? Keep::kStay : Keep::kMove};
}

// The results of running the operator and its gradient dry.
struct DryAnswer {
  std::vector<Choice> choices;  // cheapest first; empty if there is no rule
  Choice choice;
  std::optional<BoundRule> rule;
  std::vector<CommEvent> forward, backward;
  std::vector<SpecRef> gradients;  // by input; null if it has no gradient
  Decisions backward_ops;
};

std::vector<DistTensor> make_inputs(const OpQuestion& q) {
  std::vector<DistTensor> tensors;
  for (size_t i = 0; i < q.inputs.size(); ++i) {
    const OpInput& in = q.inputs[i];
    DistTensor t = DistTensor::empty(in.spec);
    if (in.keep != Keep::kMove) t.as_parameter(in.keep);
    if (is_float(in.spec->dtype()) && !(i < q.constant.size() && q.constant[i]))
      t.set_requires_grad();
    tensors.push_back(std::move(t));
  }
  return tensors;
}

void run_forward(const OpQuestion& q, RankContext& context,
                 const std::vector<DistTensor>& inputs,
                 std::vector<DistTensor>& outputs, DryAnswer& answer) {
  bool first = true;
  const OnOp observe(context, [&](const OpRan& op) {
    DT_CHECK(first, "explain",
             "{} has several operators, {} among them; ask for each separately",
             q.op, op.op);
    first = false;
    answer.choice = op.choice;
    if (!op.rule) return;
    answer.rule = *op.rule;
    std::vector<DType> out_types;
    for (const Spec* s : op.choice.out) out_types.push_back(s->dtype());
    answer.choices =
        all_choices(*op.rule, q.inputs, out_types, op.work, context.planner);
  });
  if (is_einsum(q.op))
    outputs = {einsum(q.op, inputs)};
  else
    outputs = apply(*find_op(q.op), inputs, q.attrs);
  answer.forward = std::move(context.events);
  context.events.clear();
}

void run_backward(RankContext& context, const std::vector<DistTensor>& inputs,
                  const DistTensor& output, DryAnswer& answer) {
  if (!output.requires_grad()) return;
  // Pass the cotangent that a consumer of the output would return. A partial
  // value's cotangent is whole: every summand has the same gradient.
  Layout layout = output.layout();
  layout.partials.clear();
  GradOptions options;
  options.cotangent = DistTensor::empty(output.spec()->with(layout));
  std::vector<DistTensor> wanted;
  for (const DistTensor& t : inputs)
    if (t.requires_grad()) wanted.push_back(t);
  const OnOp observe(context,
                     [&](const OpRan& op) { answer.backward_ops.add(op); });
  const std::vector<DistTensor> grads = grad(output, wanted, options);
  answer.backward = std::move(context.events);
  size_t next = 0;
  for (const DistTensor& t : inputs)
    answer.gradients.push_back(t.requires_grad() ? grads[next++].spec()
                                                 : nullptr);
}

DryAnswer run_dry(const OpQuestion& q, const RunOptions& options) {
  DryAnswer answer;
  run(options, [&](Runtime& rt) {
    RankContext& context = rt.context();
    context.record = true;
    const std::vector<DistTensor> inputs = make_inputs(q);
    std::vector<DistTensor> outputs;
    run_forward(q, context, inputs, outputs, answer);
    run_backward(context, inputs, outputs[0], answer);
  });
  return answer;
}

ChoiceMade choice_made(const OpQuestion& q, const DryAnswer& a) {
  return {*a.rule, a.choice, q.inputs, a.choices};
}

std::string assignment_table(const ChoiceMade& made) {
  TextTable table("lllrrrrl", {"split", "inputs", "output", "comm us",
                               "work us", "reduce us", "total us", ""});
  for (const Choice& c : made.all)
    table.add({made.split(c), layouts_text(c.in), layouts_text(c.out),
               us_text(c.comm_ps), us_text(c.work_ps), us_text(c.reduce_ps),
               us_text(c.total_ps()),
               c.assignment == made.chosen.assignment ? "<- chosen"
                                                      : why_not(made, c)});
  return table.to_string();
}

std::string indented(const std::string& text) {
  std::string out = "  ";
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) out += "  ";
  }
  return out;
}

void print_collectives(const std::vector<CommEvent>& events) {
  if (events.empty())
    fmt::print("collectives: none\n");
  else
    fmt::print("collectives:\n{}", indented(comm_table(events, false)));
}

void print_answer(const OpQuestion& q, const RunOptions& options,
                  const DryAnswer& a) {
  const Mesh& mesh = q.inputs[0].spec->mesh();
  fmt::print("{} on {}\n", q.op, mesh.to_string());
  for (size_t i = 0; i < q.inputs.size(); ++i)
    fmt::print("  input {}: {}{}\n", i, q.inputs[i].spec->to_string(),
               q.inputs[i].keep == Keep::kMove ? "" : ", a parameter");
  if (!q.attrs.empty()) fmt::print("  arguments: {}\n", q.attrs.to_string());
  for (const Spec* s : a.choice.out)
    fmt::print("  output: {}\n", s->to_string());
  if (a.rule) {
    fmt::print("rule: {}\n", a.rule->rule().to_string());
    fmt::print("prices: {}\n", options.cost.to_string());
    const ChoiceMade made = choice_made(q, a);
    fmt::print("assignments:\n{}{}\n", indented(assignment_table(made)),
               why(made));
  } else {
    fmt::print(
        "rule: none; the operator chooses its layouts itself: {} -> {}\n",
        layouts_text(a.choice.in), layouts_text(a.choice.out));
  }
  print_collectives(a.forward);
  fmt::print("\nbackward:\n");
  if (a.gradients.empty()) {
    fmt::print("  {} has no gradient\n", q.op);
    return;
  }
  fmt::print("{}", indented(a.backward_ops.table()));
  for (size_t i = 0; i < a.gradients.size(); ++i)
    if (a.gradients[i])
      fmt::print("  gradient {}: {}\n", i, a.gradients[i]->to_string());
  print_collectives(a.backward);
}

// The ways to compute the matmul of two matrices; empty for other operators,
// einsums included, and on one rank.
std::vector<ProductWay> other_ways(const OpQuestion& q) {
  if (q.op != matmul_op().name()) return {};
  const Spec *a = q.inputs[0].spec, *b = q.inputs[1].spec;
  if (a->ndim() != 2 || b->ndim() != 2 || a->mesh().num_ranks() == 1) return {};
  return product_ways(a->shape()[0], a->shape()[1], b->shape()[1],
                      a->mesh().num_ranks(), a->dtype());
}

}  // namespace

OpQuestion parse_question(const std::string& name,
                          const std::vector<std::string>& ins,
                          const std::string& args, DType dtype,
                          const Mesh& mesh) {
  OpQuestion q{name, {}, {}};
  const Op* op = is_einsum(name) ? nullptr : find_op(name);
  DT_CHECK(op || is_einsum(name), "--op",
           "there is no operator '{}'; write an einsum such as mk,kn->mn, or "
           "one of: {}",
           name, names_of_all_ops());
  DT_CHECK(!ins.empty(), "--in",
           "no inputs of {} were given; write --in 8192x1024:S0,R for each",
           name);
  // The operator's sample says which inputs are indices, bools or int8. All
  // other inputs have `dtype`.
  Sample sample;
  if (op) {
    const std::vector<Sample> samples = op->samples();
    sample = samples[0];
    for (const Sample& s : samples)
      if (s.inputs.size() == ins.size() && sample.inputs.size() != ins.size())
        sample = s;
    DT_CHECK(
        sample.inputs.size() == ins.size(), "--in",
        "the number of inputs that this program takes for {} is {}, not {}; "
        "write --in once for each",
        name, input_counts(samples), ins.size());
    q.attrs = sample.attrs;
    read_args(q.attrs, args);
  } else {
    DT_CHECK(args.empty(), "--args",
             "an einsum has no arguments; leave --args out");
  }
  for (size_t i = 0; i < ins.size(); ++i) {
    DType t = dtype;
    if (op && sample.inputs[i].values == SampleInput::Values::kIndex)
      t = DType::kI64;
    if (op && sample.inputs[i].values == SampleInput::Values::kBool)
      t = DType::kBool;
    if (op && sample.inputs[i].values == SampleInput::Values::kInt8)
      t = DType::kI8;
    q.constant.push_back(op && sample.inputs[i].values ==
                                   SampleInput::Values::kConstant);
    q.inputs.push_back(parse_input(ins[i], t, mesh));
  }
  return q;
}

void Decisions::add(const OpRan& op) {
  const Choice& d = op.choice;
  const Mesh& mesh = d.in[0]->mesh();
  Row row{RankContext::current().phase,
          std::string(op.op),
          op.rule ? op.rule->rule().to_string() : "",
          op.rule ? op.rule->to_string(d.assignment, mesh) : "",
          layouts_text(d.in),
          layouts_text(d.out),
          d.comm_ps,
          d.work_ps,
          d.reduce_ps,
          1};
  for (Row& r : rows_)
    if (r.phase == row.phase && r.op == row.op && r.rule == row.rule &&
        r.split == row.split && r.inputs == row.inputs &&
        r.outputs == row.outputs && r.comm_ps == row.comm_ps &&
        r.work_ps == row.work_ps && r.reduce_ps == row.reduce_ps) {
      ++r.count;
      return;
    }
  rows_.push_back(std::move(row));
}

std::string Decisions::table() const {
  TextTable table("lllllrrrr", {"phase", "op", "rule", "split", "output",
                                "count", "comm us", "work us", "reduce us"});
  for (const Row& r : rows_)
    table.add({r.phase, r.op, r.rule.substr(0, r.rule.find(" |")), r.split,
               r.outputs, grouped(r.count), us_text(r.comm_ps),
               us_text(r.work_ps), us_text(r.reduce_ps)});
  return table.to_string();
}

Json Decisions::json() const {
  Json list = Json::array();
  for (const Row& r : rows_)
    list.push_back({{"phase", r.phase},
                    {"op", r.op},
                    {"rule", r.rule},
                    {"split", r.split},
                    {"inputs", r.inputs},
                    {"outputs", r.outputs},
                    {"count", r.count},
                    {"comm_us", us(r.comm_ps)},
                    {"work_us", us(r.work_ps)},
                    {"reduce_us", us(r.reduce_ps)}});
  return list;
}

Json explain_op(const OpQuestion& question, const RunOptions& options) {
  const DryAnswer answer = run_dry(question, options);
  print_answer(question, options, answer);
  Json json{
      {"rule",
       answer.rule ? Json(answer.rule->rule().to_string()) : Json(nullptr)},
      {"assignments", answer.rule ? choices_json(choice_made(question, answer),
                                                 answer.choices.size())
                                  : Json::array()},
      {"collectives", comm_json(comm_rows(answer.forward), false)},
      {"backward", comm_json(comm_rows(answer.backward), false)}};
  const std::vector<ProductWay> ways = other_ways(question);
  if (!ways.empty()) {
    fmt::print(
        "\nways to compute it on {} ranks, each with an equal part of a, b and "
        "the result c:\n{}",
        grouped(question.inputs[0].spec->mesh().num_ranks()),
        indented(ways_table(ways)));
    json["ways"] = ways_json(ways);
  }
  return json;
}

}  // namespace dtensor::examples
