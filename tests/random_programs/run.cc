// SPDX-License-Identifier: Apache-2.0
// Runs random programs on thread ranks, and compares them with reference().
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "dtensor/comm_table.h"
#include "dtensor/dtensor.h"
#include "dtensor/execution.h"
#include "dtensor/placement/received.h"
#include "dtensor/rank_context.h"
#include "tests/array.h"
#include "tests/conformance/cases.h"
#include "tests/random_programs/program.h"
#include "tests/random_programs/reference.h"
#include "tests/random_programs/subject.h"

namespace dtensor::random_programs {
namespace {

using conformance::difference;
using conformance::part_of;
using testing::Array;
using testing::array_of;

struct Case {
  Program program;
  Expected expected;
};

DistTensor moved(const Step& s, const DistTensor& x) {
  const bool away = s.op == "neg_elsewhere";
  const Mesh to = away ? elsewhere(s, x.mesh()) : x.mesh();
  const Layout layout = s.lay.on(to, x.shape());
  if (away)
    return neg(x.redistribute(to, layout)).redistribute(x.mesh(), x.layout());
  if (s.op == "neg_given") return neg(x).redistribute(layout);
  if (s.op == "redistribute_async") return x.redistribute_async(layout);
  return x.redistribute(layout);
}

DistTensor call(const Step& s, const std::vector<DistTensor>& in) {
  const Ints& a = s.args;
  const std::vector<int> dims(a.begin() + (a.empty() ? 0 : 1), a.end());
  const int dim = a.empty() ? 0 : static_cast<int>(a[0]);
  const bool keepdim = dim != 0;
  const DistTensor& x = in[0];
  if (moves(s.op)) return moved(s, x);
  if (s.op == "sum") return sum(x, dims, keepdim);
  if (s.op == "mean") return mean(x, dims, keepdim);
  if (s.op == "amax") return amax(x, dims, keepdim);
  if (s.op == "amin") return amin(x, dims, keepdim);
  if (s.op == "logsumexp") return logsumexp(x, dims, keepdim);
  if (s.op == "var") return var(x, dims, 1, keepdim);
  if (s.op == "softmax") return softmax(x, dim);
  if (s.op == "log_softmax") return log_softmax(x, dim);
  if (s.op == "cumsum") return cumsum(x, dim);
  if (s.op == "topk") return topk(x, a[1], dim).values;
  if (s.op == "layer_norm") return layer_norm(x, in[1], in[2]);
  if (s.op == "rms_norm") return rms_norm(x, in[1]);
  if (s.op == "linear") return linear(x, in[1], in[2]);
  if (s.op == "cross_entropy") return cross_entropy(x, in[1]);
  if (s.op == "attention")
    return attention(x, in[1], in[2],
                     {.causal = a[0] != 0,
                      .window = a[1],
                      .soft_cap = static_cast<double>(a[2])});
  if (s.op == "matmul") return matmul(x, in[1]);
  if (s.op == "embedding") return embedding(x, in[1]);
  if (s.op == "where_positive") return where(gt(x, 0.0), in[1], in[2]);
  if (s.op == "reshape") return reshape(x, Shape(std::span(a)));
  if (s.op == "expand") return expand(x, Shape(std::span(a)));
  if (s.op == "permute") return permute(x, {a.begin(), a.end()});
  if (s.op == "slice") return slice(x, dim, a[1], a[2], a[3]);
  if (s.op == "cat") return cat(in, dim);
  if (s.op == "pad") {
    std::vector<int64_t> widths(static_cast<size_t>(2 * (x.ndim() - dim)), 0);
    widths[widths.size() - 2] = a[1];
    widths[widths.size() - 1] = a[2];
    return pad(x, widths, static_cast<double>(a[3]));
  }
  return in.size() == 1 ? unary(s.op, x) : binary(s.op, x, in[1]);
}

DistTensor leaf(const Step& s, size_t i, const Mesh& mesh, Runtime& rt) {
  const Shape& shape = s.value.shape;
  const Layout layout = s.lay.on(mesh, shape);
  const Spec* spec = Spec::get(mesh, shape, layout, s.value.dtype);
  DistTensor x = DistTensor::from_local(
      tensor_of(part_of(s.value, spec, rt.context().coordinate(mesh),
                        static_cast<int>(i))),
      mesh, layout, shape);
  if (s.wants_grad) x.set_requires_grad();
  if (s.keep >= 0) x.as_parameter(static_cast<Keep>(s.keep));
  if (s.use.defined()) x.gather_on_use(s.use.on(mesh, shape));
  if (s.grad.defined()) x.set_grad_layout(s.grad.on(mesh, shape));
  return x;
}

// Runs the operators of steps [from, to) as one checkpoint(). Parameters and
// leaves that want a gradient are captured by the function; other values from
// outside are its inputs.
void recompute(const Program& p, size_t from, size_t to,
               std::vector<DistTensor>& values) {
  std::set<size_t> outside;
  std::vector<size_t> block;
  for (size_t i = from; i < to; ++i) {
    if (p.steps[i].op == "leaf") continue;
    block.push_back(i);
    for (size_t k : p.steps[i].in)
      if ((k < from || p.steps[k].op == "leaf") && !p.steps[k].wants_grad)
        outside.insert(k);
  }
  std::vector<DistTensor> inputs;
  for (size_t k : outside) inputs.push_back(values[k]);
  auto fn = [&p, outside, block,
             known = values](const std::vector<DistTensor>& in) {
    std::vector<DistTensor> all = known, outputs;
    auto given = in.begin();
    for (size_t k : outside) all[k] = *given++;
    for (size_t i : block) {
      std::vector<DistTensor> operands;
      for (size_t k : p.steps[i].in) operands.push_back(all[k]);
      outputs.push_back(all[i] = call(p.steps[i], operands));
    }
    return outputs;
  };
  RecomputeOptions options;
  if (p.keeps_products)
    options.save = [](const CheckpointedCall& c) { return c.op == "matmul"; };
  const auto outputs = checkpoint(fn, inputs, options);
  for (size_t i = 0; i < block.size(); ++i) values[block[i]] = outputs[i];
}

// The part of a value that one rank holds, with the whole value and its layout.
struct Held {
  Array whole, part;
  Region region;
  SpecRef spec;  // keeps the spec after the rank's thread has ended
};

// Returns the values of all steps, then the gradients of leaves that want one.
std::vector<Held> run_on_rank(const Case& c, Runtime& rt) {
  const Program& p = c.program;
  const Mesh mesh(p.axes);
  std::vector<DistTensor> values(p.steps.size()), wanted;
  for (size_t i = 0; i < p.steps.size(); ++i) {
    if (p.steps[i].op != "leaf") continue;
    values[i] = leaf(p.steps[i], i, mesh, rt);
    if (p.steps[i].wants_grad) wanted.push_back(values[i]);
  }
  for (size_t i = 0; i < p.steps.size();) {
    const size_t from = i;
    while (i < p.steps.size() && p.steps[i].recomputed) ++i;
    if (i > from) {
      recompute(p, from, i, values);
      continue;
    }
    std::vector<DistTensor> in;
    for (size_t k : p.steps[i].in) in.push_back(values[k]);
    if (p.steps[i].op != "leaf") values[i] = call(p.steps[i], in);
    ++i;
  }
  const std::vector<bool> used = p.used();
  DistTensor loss;
  for (size_t i = 0; i < p.steps.size(); ++i) {
    if (used[i] || p.steps[i].op == "leaf") continue;
    Array weights{values[i].shape(), {}};
    for (int64_t k = 0; k < numel(weights.shape); ++k)
      weights.v.push_back(std::cos(static_cast<double>(k) + 1));
    const DistTensor term = sum(
        mul(values[i], DistTensor::from_global(tensor_of(weights), mesh, {})));
    loss = loss.defined() ? add(loss, term) : term;
  }
  if (c.expected.differentiable)
    for (const DistTensor& g : grad(loss, wanted)) values.push_back(g);
  std::vector<Held> held;
  for (const DistTensor& x : values)
    held.push_back(
        {array_of(x.full()), array_of(x.local()), x.region(), x.spec()});
  return held;
}

bool same_bits(const Array& a, const Array& b) {
  return a.shape == b.shape && a.v.size() == b.v.size() &&
         (a.v.empty() || std::memcmp(a.v.data(), b.v.data(),
                                     a.v.size() * sizeof(double)) == 0);
}

// "" if all ranks hold the expected values, and copies have the same bits.
std::string compare(const Case& c, const std::vector<std::vector<Held>>& all) {
  std::vector<Array> wants = c.expected.values;
  std::vector<std::string> names;
  for (size_t i = 0; i < wants.size(); ++i)
    names.push_back(fmt::format("v{}", i));
  for (size_t i = 0; i < c.program.steps.size(); ++i)
    if (c.program.steps[i].wants_grad)
      names.push_back(fmt::format("the gradient of v{}", i));
  wants.insert(wants.end(), c.expected.gradients.begin(),
               c.expected.gradients.end());
  for (size_t i = 0; i < all[0].size(); ++i)
    for (size_t r = 0; r < all.size(); ++r) {
      const Held& mine = all[r][i];
      auto differs = [&](const std::string& what) {
        return fmt::format("{} ({}) on rank {}: {}", names[i],
                           mine.spec->to_string(), r, what);
      };
      double scale = 1, worst = 0;
      for (double w : wants[i].v) scale = std::max(scale, std::abs(w));
      const std::string text =
          difference(mine.whole, wants[i], 1e-9, 1e-9 * scale, worst);
      if (!text.empty()) return differs(text);
      if (mine.spec->partial_axes()) continue;
      for (size_t other = 0; other < r; ++other)
        if (all[other][i].region == mine.region &&
            !same_bits(all[other][i].part, mine.part))
          return differs(
              fmt::format("its copy has other bits than rank {}'s", other));
    }
  return "";
}

// "" if every collective moved as many bytes as its plan predicted: to the rank
// that receives most, and to all ranks together.
std::string compare_bytes(std::span<const std::vector<CommEvent>> ranks) {
  int64_t predicted = 0, counted = 0;
  for (const std::vector<CommEvent>& events : ranks)
    for (const CommEvent& e : events) counted += e.counted;
  for (const CommEvent& e : merge_events(ranks)) {
    const dtensor::Step* step = step_of(e);
    predicted += step ? received_by_all(*step, {}) : e.by_all;
    if (e.predicted != e.counted)
      return fmt::format("{} for {} on {}: {} bytes predicted, {} counted",
                         name(e.kind), e.op, e.mesh.to_string(), e.predicted,
                         e.counted);
  }
  if (predicted != counted)
    return fmt::format("all ranks: {} bytes predicted, {} counted", predicted,
                       counted);
  return "";
}

nlohmann::json json_of(const Array& a) {
  if (is_float(a.dtype)) return {{"shape", a.shape}, {"real", a.v}};
  return {{"shape", a.shape},
          {"whole", std::vector<int64_t>(a.v.begin(), a.v.end())}};
}

void append(const std::string& file, const Program& p,
            const std::vector<Held>& held) {
  nlohmann::json line, steps = nlohmann::json::array(), results;
  for (const Step& s : p.steps) {
    nlohmann::json step{{"op", s.op}, {"in", s.in}, {"args", s.args}};
    if (s.op == "leaf") step["value"] = json_of(s.value);
    if (s.wants_grad) step["wants_grad"] = true;
    steps.push_back(step);
  }
  for (const Held& h : held) results.push_back(json_of(h.whole));
  const std::string text =
      nlohmann::json{{"steps", steps}, {"results", results}}.dump() + "\n";
  std::FILE* out = std::fopen(file.c_str(), "a");
  DT_CHECK(out, "random_programs", "cannot write {}: {}", file,
           std::strerror(errno));
  std::fwrite(text.data(), 1, text.size(), out);
  DT_CHECK(std::fclose(out) == 0, "random_programs", "cannot write {}: {}",
           file, std::strerror(errno));
}

class RandomProgram : public Subject {
 public:
  explicit RandomProgram(Program p) : program_(std::move(p)) {}

  std::string failure(const Running& running) const override {
    const Case c{program_, reference(program_, running.wrong)};
    RunOptions options;
    options.world = Mesh(program_.axes).num_ranks();
    options.timeout = running.timeout;
    options.record = true;
    const auto ranks = static_cast<size_t>(options.world);
    std::vector<std::vector<Held>> all(ranks);
    std::vector<std::vector<CommEvent>> events(ranks);
    options.finish = [&](Runtime& rt) {
      events[static_cast<size_t>(rt.rank())] = rt.context().events;
    };
    try {
      run(options, [&](Runtime& rt) {
        all[static_cast<size_t>(rt.rank())] = run_on_rank(c, rt);
      });
    } catch (const std::exception& e) {
      const std::string text = e.what();
      const bool stays = std::any_of(
          program_.steps.begin(), program_.steps.end(),
          [](const Step& s) { return s.keep > 0 || s.use.defined(); });
      if (stays && text.find("without sending a parameter") != text.npos)
        return kRefused;
      return "it throws: " + text;
    }
    std::string text = compare(c, all);
    if (text.empty()) text = compare_bytes(events);
    if (text.empty() && !running.write.empty())
      append(running.write, program_, all[0]);
    return text;
  }

  int64_t operators() const override {
    return std::count_if(program_.steps.begin(), program_.steps.end(),
                         [](const Step& s) { return s.op != "leaf"; });
  }
  std::string text() const override { return to_text(program_); }

  std::vector<std::shared_ptr<const Subject>> smaller() const override {
    std::vector<std::shared_ptr<const Subject>> list;
    for (Program& p : random_programs::smaller(program_))
      list.push_back(std::make_shared<RandomProgram>(std::move(p)));
    return list;
  }

 private:
  Program program_;
};

}  // namespace

std::shared_ptr<const Subject> random_program_of(uint64_t seed) {
  return std::make_shared<RandomProgram>(random_program(seed));
}

}  // namespace dtensor::random_programs
