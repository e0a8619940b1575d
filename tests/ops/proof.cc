// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "dtensor/autograd.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "tests/ops/proof_run.h"

namespace dtensor::proof {
namespace {

constexpr double kStep = 1.0 / (1 << 14);  // of a difference

class OneRank {
 public:
  // With `ties`, the inputs have few values, many of them equal and some where
  // a function has no derivative. There, meshes must match one rank's gradient.
  OneRank(const Op& op, const Sample& sample, bool ties)
      : op_(op), mesh_(Mesh::parse("1")) {
    r_.sample = sample;
    r_.ties = ties;
  }

  // Fills in the reference; compares derivatives with differences.
  Reference run(Report& report, const Options& options) {
    compute(report, options);
    if (options.dtype != DType::kF64 && !options.reproducible)
      retype(options.dtype);
    return r_;
  }

 private:
  void compute(Report& report, const Options& options) {
    std::vector<DType> dtypes;
    for (size_t i = 0; i < r_.sample.inputs.size(); ++i) {
      r_.in.push_back(values(r_.sample.inputs[i], int(i), r_.ties, options));
      dtypes.push_back(r_.in.back().dtype);
    }
    std::vector<DType> types = op_.out_dtypes(dtypes, r_.sample.attrs);
    for (const DistTensor& t : eval(r_.in, Level::kValues).out)
      r_.out.push_back(testing::array_of(t.local()));
    int wanted = 0;
    for (const SampleInput& in : r_.sample.inputs) wanted += has_gradient(in);
    if (!op_.facts().differentiable || !is_float(types[0]) || wanted == 0)
      return;

    r_.cotangent = values({r_.out[0].shape}, 10, false, options);
    if (options.reproducible) r_.cotangent.dtype = r_.out[0].dtype;
    for (size_t i = 0; i < r_.in.size(); ++i)
      if (has_gradient(r_.sample.inputs[i]))
        r_.probes.push_back(
            values({r_.in[i].shape}, 20 + int(i), false, options));
    r_.level = Level::kGradients;
    r_.grads = arrays(eval(r_.in, Level::kGradients).grads);
    // A function may have no derivative at ties, and the proof in f64 has
    // compared the same values.
    if (r_.ties || options.dtype != DType::kF64) return;
    compare_differences(
        report, "gradient", r_.in, r_.grads, 1, [&](const auto& in) {
          return product(arrays(eval(in, Level::kValues).out)[0], r_.cotangent);
        });
    if (!options.second || !r_.sample.smooth) return;
    r_.level = Level::kSecond;
    Evaluated e = eval(r_.in, Level::kSecond);
    r_.second = arrays(e.second);
    std::vector<Array> again = arrays(e.grads);
    for (size_t i = 0; i < again.size(); ++i)
      compare(report, "gradient with create_graph", i, again[i], r_.grads[i],
              kTolerance, report.gradients);
    compare_differences(
        report, "second derivative", r_.in, r_.second, 2, [&](const auto& in) {
          double sum = 0;
          std::vector<Array> g = arrays(eval(in, Level::kGradients).grads);
          for (size_t i = 0; i < g.size(); ++i)
            sum += product(g[i], r_.probes[i]);
          return sum;
        });
  }

  static Array values(const SampleInput& in, int which, bool ties,
                      const Options& options) {
    Array a = rounded(make_values(in, which, ties), options.dtype);
    if (options.reproducible && is_float(a.dtype)) a.dtype = options.dtype;
    return a;
  }
  // Gives the reference's arrays the dtypes that they have on a mesh whose
  // floats are `dtype`.
  void retype(DType dtype) {
    const auto of = [&](Array& a) {
      if (is_float(a.dtype)) a.dtype = dtype;
    };
    std::vector<DType> in;
    for (Array& a : r_.in) {
      of(a);
      in.push_back(a.dtype);
    }
    const std::vector<DType> out = op_.out_dtypes(in, r_.sample.attrs);
    for (size_t i = 0; i < r_.out.size(); ++i) r_.out[i].dtype = out[i];
    r_.cotangent.dtype = out[0];
    for (auto* list : {&r_.probes, &r_.grads})
      for (Array& a : *list) of(a);
  }
  static std::vector<Array> arrays(const std::vector<DistTensor>& list) {
    std::vector<Array> all;
    for (const DistTensor& t : list)
      all.push_back(testing::array_of(t.local()));
    return all;
  }
  static double product(const Array& a, const Array& b) {
    double sum = 0;
    for (size_t i = 0; i < a.v.size(); ++i) sum += a.v[i] * b.v[i];
    return sum;
  }
  DistTensor whole(const Array& a) {
    return place(a, Spec::replicated(mesh_, a.shape, a.dtype));
  }
  Evaluated eval(const std::vector<Array>& in, Level level) {
    std::vector<DistTensor> tensors, probes;
    for (const Array& a : in) tensors.push_back(whole(a));
    for (const Array& a : r_.probes) probes.push_back(whole(a));
    return evaluate(
        op_, r_.sample, nullptr, tensors,
        [&](const Spec*) { return whole(r_.cotangent); }, probes, level);
  }

  void compare(Report& report, const char* what, size_t i, const Array& got,
               const Array& want, double tolerance, double& largest) {
    std::string why;
    double error = distance(got, want, why);
    if (error < 1) largest = std::max(largest, error);
    if (error <= tolerance) return;
    report.failures.push_back(fmt::format("{} of input {} on one rank: {} ({})",
                                          what, i, why, error));
    ++report.failed;
  }

  // Central differences of f by each element of the floating inputs, for a
  // second derivative also of the cotangent.
  template <class Fn>
  void compare_differences(Report& report, const char* what,
                           std::vector<Array> in, const std::vector<Array>& got,
                           int order, Fn&& f) {
    size_t at = 0;
    auto differences = [&](Array& x, size_t input) {
      Array d = testing::zeros_like(x.shape);
      for (size_t e = 0; e < x.v.size(); ++e) {
        double old = x.v[e];
        x.v[e] = old + kStep;
        double up = f(in);
        x.v[e] = old - kStep;
        d.v[e] = (up - f(in)) / (2 * kStep);
        x.v[e] = old;
      }
      compare(report, what, input, got[at++], d, kDifferences,
              report.differences);
    };
    for (size_t i = 0; i < in.size(); ++i)
      if (has_gradient(r_.sample.inputs[i])) differences(in[i], i);
    if (order == 2) differences(r_.cotangent, in.size());
  }

  const Op& op_;
  Mesh mesh_;
  Reference r_;
};

}  // namespace

Evaluated evaluate(const Op& op, const Sample& sample,
                   const Assignment* assignment, std::vector<DistTensor> in,
                   const std::function<DistTensor(const Spec*)>& cotangent,
                   const std::vector<DistTensor>& probes, Level level) {
  Evaluated e;
  std::vector<DistTensor> wanted;
  // The bits of a sum are defined when it has been rounded.
  const auto finish = [](std::vector<DistTensor>& list) {
    if (!RankContext::current().reproducible) return;
    for (DistTensor& x : list) {
      Layout whole = x.spec()->layout();
      whole.partials.clear();
      x = x.redistribute(whole);
    }
  };
  if (level != Level::kValues)
    for (size_t i = 0; i < in.size(); ++i)
      if (has_gradient(sample.inputs[i]))
        wanted.push_back(in[i].set_requires_grad());
  e.out = apply(op, in, sample.attrs, assignment);
  if (level == Level::kValues) {
    finish(e.out);
    return e;
  }
  GradOptions options;
  options.cotangent = cotangent(e.out[0].spec());
  options.create_graph = level == Level::kSecond;
  if (options.create_graph) options.cotangent.set_requires_grad();
  e.grads = grad(e.out[0], wanted, options);
  if (level == Level::kGradients) {
    finish(e.out);
    finish(e.grads);
    return e;
  }
  std::vector<DistTensor> from, vectors;
  for (size_t i = 0; i < e.grads.size(); ++i) {
    if (!e.grads[i].requires_grad()) continue;
    from.push_back(e.grads[i]);
    vectors.push_back(probes[i]);
  }
  wanted.push_back(options.cotangent);
  e.second = backward_pass(
      from, vectors, wanted, {},
      [](const DistTensor& a, const DistTensor& b) { return add(a, b); });
  for (size_t i = 0; i < e.second.size(); ++i)
    if (!e.second[i].defined())  // nothing depends on it
      e.second[i] = DistTensor::from_global(
          Tensor::full(wanted[i].shape(), wanted[i].dtype(), 0),
          wanted[i].mesh(), {});
  return e;
}

DistTensor place(const Array& whole, const Spec* spec, int which) {
  RankContext& ctx = RankContext::current();
  Array part = part_of(whole, spec, ctx.coordinate(spec->mesh()), which);
  return DistTensor::wrap(
      ctx.dry_run ? Tensor::empty(part.shape, part.dtype) : tensor_of(part),
      spec);
}

std::string Report::line() const {
  return fmt::format(
      "{:<24} {:>2} samples {:>5} forced {:>5} chosen {:>4} refused | errors "
      "{:.1e} {:.1e} {:.1e}, to differences {:.1e} | {} failed",
      op, samples, forced, chosen, refused, values, gradients, second,
      differences, failed);
}

Report prove(const Op& op, const Options& options) {
  Report report;
  report.op = op.name();
  std::vector<Reference> references;
  for (const Sample& sample : op.samples()) {
    ++report.samples;
    for (bool ties : {false, true}) {
      if (ties && report.samples > 2) continue;
      try {
        Reference ref;
        RunOptions one;
        one.backend = backend_named("threads");  // in every process
        one.reproducible = options.reproducible;
        dtensor::run(one, [&](Runtime&) {
          ref = OneRank(op, sample, ties).run(report, options);
        });
        ref.text =
            fmt::format("{}{}", report.samples - 1, ties ? " (ties)" : "");
        references.push_back(std::move(ref));
      } catch (const std::exception& e) {
        if (options.reproducible) {  // it refuses to run at all
          ++report.refused;
          report.refusal = e.what();
          continue;
        }
        ++report.failed;
        report.failures.push_back(fmt::format("{} on one rank, sample {}: {}",
                                              op.name(), report.samples - 1,
                                              e.what()));
      }
    }
  }
  for (const std::string& mesh : options.meshes)
    prove_on_mesh(op, options, mesh, references, report);
  return report;
}

std::vector<std::pair<std::string, const Op*>> named_ops() {
  std::vector<std::pair<std::string, const Op*>> all;
  std::map<std::string, int> used;
  for (const Op* op : all_ops()) {
    std::string id;
    for (char c : op->name())
      if (c == '\'')
        id += "_prime";
      else
        id += c;
    int n = ++used[id];
    all.push_back({n > 1 ? fmt::format("{}_{}", id, n) : id, op});
  }
  return all;
}

}  // namespace dtensor::proof
