#include "dtensor/ops/grad.h"

#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/autograd.h"
#include "dtensor/runtime/redistribute.h"

namespace dtensor {

std::vector<DistTensor> grad(const DistTensor& output,
                             const std::vector<DistTensor>& inputs,
                             const GradOptions& options) {
  RankContext& ctx = RankContext::current();
  DT_CHECK(output.requires_grad(), "grad",
           "{} does not depend on anything that wants a gradient",
           output.spec()->to_string());
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
  DT_CHECK(cotangent.mesh() == output.mesh(), "grad",
           "the cotangent {} lies on mesh {} and its output {} on {}; write "
           "cotangent.redistribute(output.mesh(), \"R\")",
           cotangent.spec()->to_string(), cotangent.mesh().to_string(),
           output.spec()->to_string(), output.mesh().to_string());
  DT_CHECK(is_float(cotangent.dtype()), "grad",
           "a cotangent of type {}; cast() it to {}", name(cotangent.dtype()),
           name(output.dtype()));
  {
    Scoped<bool> record(ctx.grad_enabled, options.create_graph);
    Scoped<std::string> phase(ctx.phase, "backward");
    cotangent = cast(cotangent, output.dtype());
  }
  std::vector<DistTensor> grads = backward_pass(
      {&output, 1}, {&cotangent, 1}, inputs, options.create_graph,
      [](const DistTensor& a, const DistTensor& b) { return add(a, b); });
  Scoped<bool> record(ctx.grad_enabled, options.create_graph);
  Scoped<std::string> phase(ctx.phase, "backward");
  Scoped<std::string_view> op(ctx.op, "grad");
  std::vector<const Spec*> specs;
  for (size_t i = 0; i < grads.size(); ++i) {
    const DistTensor& in = inputs[i];
    Layout settled = in.layout();
    settled.partials.clear();
    if (!grads[i].defined())
      grads[i] = zeros(in.shape(), in.mesh(), settled, in.dtype());
    specs.push_back(
        options.keep_partial
            ? cotangent_spec(in.spec(), grads[i].spec())
            : Spec::get(in.mesh(), in.shape(), settled, grads[i].dtype()));
  }
  return relayout(std::move(grads), specs);
}

}  // namespace dtensor
