// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/local_map.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/function_node.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/local_check.h"
#include "dtensor/ops/local_scope.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/part_shapes.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

thread_local const LocalScope* scope = nullptr;

// The layout of the cotangent of a tensor, such that the ranks' parts are the
// cotangents of the ranks' parts. Where the tensor is replicated, the parts
// add up to the cotangent.
const Spec* cotangent_of_parts(std::string_view op, const Spec* x) {
  Layout l = x->layout();
  for (const Partial& p : l.partials)
    DT_CHECK(p.op == ReduceOp::kSum, op,
             "{} has no gradient, because it is partial by another reduction "
             "than a sum; redistribute() it to a replicated layout, or "
             "detach() the inputs",
             x->to_string());
  l.partials.clear();
  const AxisMask used = x->split_axes() | x->partial_axes();
  for (int a = 0; a < x->mesh().num_axes(); ++a)
    if (!(used >> a & 1)) l.partials.push_back({a, ReduceOp::kSum});
  return x->with(l);
}

DistTensor on_local_mesh(const DistTensor& x) {
  const Tensor& part = x.local();
  return DistTensor::wrap(
      part, Spec::replicated(local_mesh(), part.shape(), part.dtype()));
}

// from_local() for a known spec.
DistTensor joined(const DistTensor& part, const Spec* spec) {
  const bool recorded = any_records(part);
  DistTensor y = DistTensor::wrap(part.local(), spec);
  if (!recorded) return y;
  return with_gradient(
      "from_local", part, {y},
      [spec = SpecRef(spec)](std::span<const DistTensor>,
                             std::span<const DistTensor> cotangents,
                             std::span<const bool>) {
        const Spec* to = cotangent_of_parts("from_local", spec);
        return std::vector{to_local(
            cotangents[0].redistribute(to->with(cotangents[0].dtype())))};
      })[0];
}

struct Function {
  TensorFunction fn;
  std::vector<Placements> in, out;
  LocalMapOptions options;

  // The outputs' specs, by the specs of the inputs. (Ranks are threads and may
  // share the object. Each finds the specs by itself, since finding them is
  // collective.)
  using Key = std::tuple<uint64_t, int64_t, std::vector<const Spec*>>;
  struct Known {
    std::vector<SpecRef> in, out;  // `in` keeps the key's specs
  };
  std::mutex mutex;
  std::map<Key, Known> known;
};
using FunctionRef = std::shared_ptr<Function>;

constexpr std::string_view kName = "local_map";

// The specs that the outputs have, given this rank's results.
std::vector<SpecRef> find_specs(const Function& f, const Mesh& mesh,
                                const std::vector<DistTensor>& inputs,
                                const std::vector<DistTensor>& results) {
  if (f.options.shapes.empty())
    return specs_of_parts(kName, mesh, f.out, results, inputs);
  std::vector<SpecRef> specs;
  DT_CHECK(f.options.shapes.size() == f.out.size(), kName,
           "{} shapes are given for {} outputs; give one for each",
           f.options.shapes.size(), f.out.size());
  for (size_t o = 0; o < f.out.size(); ++o) {
    const Shape& shape = f.options.shapes[o];
    specs.push_back(Spec::get(mesh, shape, f.out[o].resolve(mesh, shape),
                              results[o].dtype()));
  }
  return specs;
}

std::vector<DistTensor> call(const FunctionRef&, std::vector<DistTensor>);

// The gradients by the inputs that need one, from the results of fn and their
// cotangents, all of them local. Zeros for an input that no result depends on.
std::vector<DistTensor> local_gradients(const std::vector<DistTensor>& results,
                                        const std::vector<DistTensor>& given,
                                        const std::vector<DistTensor>& inputs,
                                        bool create_graph) {
  std::vector<DistTensor> outputs, cotangents, gradients;
  for (size_t o = 0; o < results.size(); ++o)
    if (results[o].requires_grad() && given[o].defined()) {
      outputs.push_back(results[o]);
      cotangents.push_back(given[o]);
    }
  if (!outputs.empty())
    return grad(outputs, cotangents, inputs, {.create_graph = create_graph});
  for (const DistTensor& x : inputs) gradients.push_back(zeros_like(x));
  return gradients;
}

// The indices of the inputs that need a gradient.
std::vector<size_t> wanted(std::span<const bool> needed) {
  std::vector<size_t> all;
  for (size_t i = 0; i < needed.size(); ++i)
    if (needed[i]) all.push_back(i);
  return all;
}

// One call that has a gradient.
struct Recorded {
  FunctionRef function;
  RandomState random;                      // before the call
  std::vector<DistTensor> inputs;          // in the layouts of Function::in
  std::vector<DistTensor> parts, results;  // local, with their graph
  std::vector<SpecRef> outputs;

  std::vector<DistTensor> gradient(std::span<const DistTensor> cotangents,
                                   std::span<const bool> needed) const {
    return grad_enabled() ? again(cotangents, needed)
                          : once(cotangents, needed);
  }

  std::vector<DistTensor> once(std::span<const DistTensor> cotangents,
                               std::span<const bool> needed) const {
    std::vector<DistTensor> moved;
    std::vector<SpecRef> to;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!cotangents[o].defined()) continue;
      moved.push_back(cotangents[o]);
      to.push_back(
          cotangent_of_parts(kName, outputs[o])->with(cotangents[o].dtype()));
    }
    relayout(moved, to);
    std::vector<DistTensor> local(outputs.size()), back(inputs.size()), ins;
    for (size_t o = 0, at = 0; o < outputs.size(); ++o)
      if (cotangents[o].defined()) local[o] = on_local_mesh(moved[at++]);
    const std::vector<size_t> which = wanted(needed);
    for (size_t i : which) ins.push_back(parts[i]);
    const LocalScope scope(inputs, false);
    const auto found = local_gradients(results, local, ins, false);
    for (size_t k = 0; k < which.size(); ++k) {
      const Spec* spec = inputs[which[k]].spec();
      back[which[k]] =
          DistTensor::wrap(found[k].local(), cotangent_of_parts(kName, spec));
    }
    return back;
  }

  // The gradient as a function of inputs and cotangents, which is
  // differentiable again.
  std::vector<DistTensor> again(std::span<const DistTensor> cotangents,
                                std::span<const bool> needed) const {
    const std::vector<size_t> which = wanted(needed);
    auto back = std::make_shared<Function>();
    std::vector<DistTensor> all = inputs;
    for (const DistTensor& x : inputs) back->in.push_back(x.layout());
    std::vector<size_t> reached;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!cotangents[o].defined()) continue;
      reached.push_back(o);
      all.push_back(cotangents[o]);
      back->in.push_back(cotangent_of_parts(kName, outputs[o])->layout());
    }
    for (size_t i : which) {
      back->out.push_back(
          cotangent_of_parts(kName, inputs[i].spec())->layout());
      back->options.shapes.push_back(inputs[i].shape());
    }
    back->options.check = false;
    back->fn = [fn = function->fn, random = random, which, reached,
                n = inputs.size(),
                outputs = outputs.size()](const std::vector<DistTensor>& in) {
      RankContext& ctx = RankContext::current();
      const RandomScope draws(random);
      const bool graph = ctx.grad_enabled;
      const Scoped<bool> record(ctx.grad_enabled, true);
      std::vector<DistTensor> ins(in.begin(), in.begin() + n), given(outputs),
          from;
      for (size_t i : which) {
        if (!ins[i].requires_grad()) ins[i] = ins[i].detach();
        from.push_back(ins[i].set_requires_grad());
      }
      for (size_t k = 0; k < reached.size(); ++k) given[reached[k]] = in[n + k];
      return local_gradients(fn(ins), given, from, graph);
    };
    const auto found = call(back, std::move(all));
    std::vector<DistTensor> result(inputs.size());
    for (size_t k = 0; k < which.size(); ++k) result[which[k]] = found[k];
    return result;
  }
};

// The outputs' specs: those of an earlier call with such inputs, if any.
std::vector<SpecRef> specs_of(Function& f, const Mesh& mesh,
                              const std::vector<SpecRef>& in,
                              const std::vector<DistTensor>& inputs,
                              const std::vector<DistTensor>& results) {
  const RankContext& ctx = RankContext::current();
  const Function::Key key{ctx.run_id, ctx.world_rank, {in.begin(), in.end()}};
  {
    const std::unique_lock lock(f.mutex);
    if (const auto it = f.known.find(key); it != f.known.end())
      return it->second.out;
  }
  const std::vector<SpecRef> specs = find_specs(f, mesh, inputs, results);
  const std::unique_lock lock(f.mutex);
  f.known[key] = {in, specs};
  return specs;
}

// Throws Error unless the results of fn are what the outputs are made from.
void check_results(const Function& f, const std::vector<DistTensor>& results) {
  DT_CHECK(results.size() == f.out.size(), kName,
           "the function returned {} for {}; give a layout for each output",
           quantity(results.size(), "tensor", "tensors"),
           quantity(f.out.size(), "layout", "layouts"));
  check_defined(kName, results);
  for (size_t o = 0; o < results.size(); ++o)
    DT_CHECK(results[o].mesh() == local_mesh(), kName,
             "output {} of the function, {}, is on mesh {}, but must be on "
             "local_mesh(); compute it from the function's arguments, and pass "
             "other tensors as inputs",
             o, results[o].spec()->to_string(), results[o].mesh().to_string());
}

std::vector<DistTensor> call(const FunctionRef& f,
                             std::vector<DistTensor> inputs) {
  RankContext& ctx = RankContext::current();
  DT_CHECK(!inputs.empty() && inputs.size() == f->in.size(), kName,
           "got {} for {}; pass one tensor for each layout, and at least one",
           quantity(inputs.size(), "input", "inputs"),
           quantity(f->in.size(), "layout", "layouts"));
  check_defined(kName, inputs);
  const Mesh mesh = inputs[0].mesh();
  for (const DistTensor& x : inputs)
    DT_CHECK(x.mesh() == mesh, kName,
             "inputs are on meshes {} and {}; redistribute() them to one mesh",
             mesh.to_string(), x.mesh().to_string());
  const Coord at = ctx.coordinate(mesh, kName);
  const bool recorded = any_records(inputs);
  std::vector<SpecRef> in;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(f->in[i].applied_to(inputs[i].spec()));
  relayout(inputs, in, {.copies = true});

  const bool checked = f->options.check && !ctx.dry_run &&
                       ctx.input_check == RankContext::InputCheck::kAll;
  Recorded r{f,      recorded || checked ? random_state() : RandomState{},
             inputs, {},
             {},     {}};
  for (const DistTensor& x : inputs) {
    DistTensor part = on_local_mesh(x);
    if (recorded && x.requires_grad()) part.set_requires_grad();
    r.parts.push_back(part);
  }
  {
    // checkpoint() runs the function again as a whole.
    const Scoped<Captures*> captures(ctx.captures, nullptr);
    const LocalScope local(inputs, false);
    r.results = f->fn(r.parts);
  }
  check_results(*f, r.results);
  const std::vector<SpecRef> specs = specs_of(*f, mesh, in, inputs, r.results);
  std::vector<DistTensor> outputs;
  for (size_t o = 0; o < specs.size(); ++o) {
    const Tensor& part = r.results[o].local();
    DT_CHECK(part.shape() == specs[o]->local_shape(at) &&
                 part.dtype() == specs[o]->dtype(),
             kName,
             "output {} of the function is {} on rank {}, but should be a "
             "part of {} of shape {}; return that part, or give the outputs' "
             "shapes in LocalMapOptions, or use a new local_map() if its "
             "shapes depend on more than the inputs' specs",
             o, r.results[o].spec()->to_string(), ctx.world_rank,
             specs[o]->to_string(), to_string(specs[o]->local_shape(at)));
    outputs.push_back(DistTensor::wrap(part, specs[o]));
  }
  if (checked) check_local_map(f->fn, r.random, inputs, outputs);
  if (!recorded) return outputs;
  r.outputs = specs;
  const std::vector<DistTensor> given = r.inputs;
  return with_gradient(
      kName, given, std::move(outputs),
      [r = std::move(r)](std::span<const DistTensor>,
                         std::span<const DistTensor> cotangents,
                         std::span<const bool> needed) {
        return r.gradient(cotangents, needed);
      },
      given);
}

}  // namespace

void check_local(std::string_view op, const DistTensor& part) {
  check_defined(op, part);
  DT_CHECK(part.mesh() == local_mesh(), op,
           "the part {} is on mesh {}, but must be on local_mesh(), which is "
           "{} here; write to_local(x)",
           part.spec()->to_string(), part.mesh().to_string(),
           local_mesh().to_string());
}

LocalScope::LocalScope(TensorList inputs, bool alone)
    : inputs_(inputs), alone_(alone), outer_(std::exchange(scope, this)) {}
LocalScope::~LocalScope() { scope = outer_; }
const LocalScope* LocalScope::current() { return scope; }

Mesh local_mesh() {
  return Mesh({{"self", 1}}, {RankContext::current().world_rank});
}

DistTensor to_local(const DistTensor& x) {
  check_defined("to_local", x);
  const bool recorded = any_records(x);
  const DistTensor y = on_local_mesh(x);
  if (!recorded) return y;
  return with_gradient(
      "to_local", x, {y},
      [spec = SpecRef(x.spec())](std::span<const DistTensor>,
                                 std::span<const DistTensor> cotangents,
                                 std::span<const bool>) {
        return std::vector{joined(
            cotangents[0],
            cotangent_of_parts("to_local", spec)->with(cotangents[0].dtype()))};
      })[0];
}

DistTensor from_local(const DistTensor& part, const Mesh& mesh,
                      const Placements& placements) {
  check_local("from_local", part);
  RankContext::current().coordinate(mesh, "from_local");
  return joined(part,
                specs_of_parts("from_local", mesh, {placements}, part)[0]);
}

DistTensor from_local(const DistTensor& part, const Mesh& mesh,
                      const Placements& placements, const Shape& global_shape) {
  check_local("from_local", part);
  RankContext::current().coordinate(mesh, "from_local");
  return joined(
      part, Spec::get(mesh, global_shape,
                      placements.resolve(mesh, global_shape), part.dtype()));
}

TensorFunction local_map(TensorFunction fn, std::vector<Placements> in,
                         std::vector<Placements> out,
                         const LocalMapOptions& options) {
  const auto f = std::make_shared<Function>();
  f->fn = std::move(fn);
  f->in = std::move(in);
  f->out = std::move(out);
  f->options = options;
  return [f](const std::vector<DistTensor>& inputs) { return call(f, inputs); };
}

std::function<DistTensor(const DistTensor&)> local_map(
    std::function<DistTensor(const DistTensor&)> fn, const Placements& in,
    const Placements& out, const LocalMapOptions& options) {
  const TensorFunction all =
      local_map([fn = std::move(fn)](const std::vector<DistTensor>& x)
                    -> std::vector<DistTensor> { return {fn(x[0])}; },
                std::vector{in}, std::vector{out}, options);
  return [all](const DistTensor& x) { return all({x})[0]; };
}

}  // namespace dtensor
