// SPDX-License-Identifier: Apache-2.0
// Finds strategies that an operator's rule could offer, but does not.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "tests/ops/proof.h"
#include "tests/ops/proof_values.h"
#include "tests/placement/enumerate.h"

namespace dtensor::proof {
namespace {

constexpr double kTolerance = 1e-11;

// True if the operator has the same rule for parts of these shapes as for the
// whole. A part of size 1 would broadcast where the whole does not.
bool same_rule(const Op& op, const Attrs& attrs,
               const std::vector<Shape>& shapes,
               const std::vector<Shape>& local) {
  try {
    return op.bind(shapes, attrs).rule() == op.bind(local, attrs).rule();
  } catch (const Error&) {
    return false;
  }
}

// Runs the operator on one rank. Returns nullopt if it throws.
std::optional<std::vector<Array>> run_whole(const Op& op, const Attrs& attrs,
                                            const std::vector<Array>& in) {
  static const Mesh mesh = Mesh::parse("1");
  try {
    std::vector<DistTensor> tensors;
    for (const Array& a : in)
      tensors.push_back(DistTensor::from_global(tensor_of(a), mesh, {}));
    std::vector<Array> out;
    for (const DistTensor& t : apply(op, tensors, attrs))
      out.push_back(testing::array_of(t.local()));
    return out;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The placement under which two ranks' parts of `whole` are a and b, or "".
std::string placement_of(const Array& a, const Array& b, const Array& whole) {
  std::string why;
  if (distance(a, whole, why) <= kTolerance &&
      distance(b, whole, why) <= kTolerance)
    return "R";
  Mesh mesh = Mesh::parse("2");
  std::vector<std::string> texts;
  for (int d = 0; d < whole.shape.size(); ++d)
    texts.push_back("S" + std::to_string(d));
  if (is_float(whole.dtype)) texts.push_back("P");
  for (const std::string& t : texts) {
    Layout l = parse_layout(t, mesh, whole.shape);
    const Spec* spec = Spec::get(mesh, whole.shape, l, whole.dtype);
    if (distance(spec, {a, b}, whole, why) <= kTolerance) return t;
  }
  return "";
}

std::vector<std::string> missing_on_one_rank(const Op& op) {
  std::vector<std::string> missing;
  Sample sample = op.samples()[0];
  Mesh mesh = Mesh::parse("2");
  std::vector<Shape> shapes;
  std::vector<Array> whole;
  std::vector<std::vector<SpecRef>> options;
  std::vector<DType> dtypes;
  for (const SampleInput& in : sample.inputs)
    dtypes.push_back(make_values(in, 0, false).dtype);
  bool coarse = op.out_dtypes(dtypes, sample.attrs)[0] == DType::kBool;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const SampleInput& in = sample.inputs[i];
    whole.push_back(make_values(in, int(i), coarse));
    shapes.push_back(in.shape);
    std::vector<std::string> texts{"R"};
    for (int d = 0; d < in.shape.size(); ++d)
      texts.push_back("S" + std::to_string(d));
    if (in.values == SampleInput::Values::kAny ||
        in.values == SampleInput::Values::kPositive)
      texts.push_back("P");
    options.emplace_back();
    for (const std::string& t : texts)
      options.back().push_back(Spec::get(
          mesh, in.shape, parse_layout(t, mesh, in.shape), whole[i].dtype));
  }
  std::vector<std::vector<SpecRef>> offered;
  try {
    BoundRule rule = op.bind(shapes, sample.attrs);
    constexpr ReduceOp kOps[] = {ReduceOp::kSum};
    for (const Assignment& a : enumerate(rule, mesh, kOps)) {
      offered.emplace_back();
      for (size_t i = 0; i < whole.size(); ++i)
        offered.back().push_back(Spec::get(mesh, shapes[i],
                                           rule.input_layout(a, mesh, int(i)),
                                           whole[i].dtype));
    }
  } catch (const Error&) {
    return missing;  // decides its layouts itself
  }
  auto out = run_whole(op, sample.attrs, whole);
  if (!out) fail("proof", "{} does not run on its first sample", op.name());

  std::vector<size_t> at(whole.size(), 0);
  for (;;) {
    std::vector<SpecRef> in;
    for (size_t i = 0; i < at.size(); ++i) in.push_back(options[i][at[i]]);
    if (std::find(offered.begin(), offered.end(), in) == offered.end()) {
      std::optional<std::vector<Array>> parts[2];
      for (int rank = 0; rank < 2; ++rank) {
        std::vector<Array> local;
        std::vector<Shape> sizes;
        for (size_t i = 0; i < in.size(); ++i) {
          local.push_back(
              part_of(whole[i], in[i], mesh.coordinate(rank), int(i)));
          sizes.push_back(local.back().shape);
        }
        if (!same_rule(op, sample.attrs, shapes, sizes)) break;
        parts[rank] = run_whole(op, sample.attrs, local);
        if (!parts[rank]) break;
      }
      std::string text;
      if (parts[0] && parts[1])
        for (size_t o = 0; o < out->size(); ++o) {
          std::string p =
              placement_of((*parts[0])[o], (*parts[1])[o], (*out)[o]);
          if (p.empty()) {
            text.clear();
            break;
          }
          text += (o ? "," : "->") + p;
        }
      if (!text.empty()) {
        std::string from;
        for (const Spec* s : in)
          from += (from.empty() ? "" : ",") + s->layout().to_string(mesh);
        missing.push_back(from + text);
      }
    }
    size_t i = at.size();
    while (i > 0 && ++at[i - 1] == options[i - 1].size()) at[--i] = 0;
    if (i == 0) return missing;
  }
}

}  // namespace

std::vector<std::string> missing_rules(const Op& op) {
  std::vector<std::string> missing;
  dtensor::run(1, [&](Runtime&) { missing = missing_on_one_rank(op); });
  return missing;
}

}  // namespace dtensor::proof
