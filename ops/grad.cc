#include "ops/grad.h"

#include "dtensor/autograd.h"
#include "ops/pointwise.h"
#include "ops/random.h"
#include "placement/error.h"

namespace dtensor {
namespace {

// The input's layout, but partial over the axes over which g is, where the
// input is whole.
const Spec* still_partial(const DistTensor& g, const DistTensor& in) {
  Layout l = in.layout();
  AxisMask used = in.spec()->split_axes() | in.spec()->partial_axes();
  for (const Partial& p : g.layout().partials)
    if (!(used >> p.axis & 1)) l.partials.push_back(p);
  return in.spec()->with(l);
}

}  // namespace

std::vector<DistTensor> grad(const DistTensor& output,
                             const std::vector<DistTensor>& inputs,
                             const GradOptions& options) {
  RankContext& ctx = RankContext::current();
  DistTensor cotangent = options.cotangent;
  if (!cotangent.defined()) {
    DT_CHECK(numel(output.shape()) == 1, "grad",
             "{} is no scalar; give a cotangent of its shape, or sum it",
             output.spec()->to_string());
    cotangent = ones(output.shape(), output.mesh(), {}, output.dtype());
  }
  DT_CHECK(cotangent.shape() == output.shape(), "grad",
           "a cotangent of shape {} does not fit {}",
           to_string(cotangent.shape()), output.spec()->to_string());
  DT_CHECK(output.requires_grad(), "grad",
           "{} does not depend on anything that wants a gradient",
           output.spec()->to_string());
  std::vector<DistTensor> grads = backward_pass(
      {&output, 1}, {&cotangent, 1}, inputs, options.create_graph,
      [](const DistTensor& a, const DistTensor& b) { return add(a, b); });
  Scoped<bool> record(ctx.grad_enabled, options.create_graph);
  Scoped<std::string> phase(ctx.phase, "backward");
  Scoped<std::string_view> op(ctx.op, "grad");
  for (size_t i = 0; i < grads.size(); ++i) {
    const DistTensor& in = inputs[i];
    if (!grads[i].defined()) {
      grads[i] =
          zeros(in.shape(), in.mesh(), Placements(in.layout()), in.dtype());
      continue;
    }
    // The gradient of a partial sum is replicated; other partials have none.
    const Spec* to =
        options.keep_partial ? still_partial(grads[i], in) : in.spec();
    if (to->partial_axes() && !options.keep_partial) {
      Layout l = in.layout();
      l.partials.clear();
      to = in.spec()->with(l);
    }
    grads[i] = grads[i].redistribute(to->with(grads[i].dtype()));
  }
  return grads;
}

}  // namespace dtensor
