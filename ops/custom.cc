// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/custom.h"

#include <utility>

#include "dtensor/ops/create.h"
#include "dtensor/ops/function_node.h"
#include "dtensor/ops/op.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

constexpr std::string_view kName = "custom_function";

DistTensor zeros_for(const DistTensor& x) {
  return is_float(x.dtype()) ? zeros_like(x) : DistTensor();
}

}  // namespace

TensorFunction custom_function(
    TensorFunction forward,
    std::function<std::vector<DistTensor>(const CustomCall&)> backward) {
  return [forward = std::move(forward),
          backward = std::move(backward)](const std::vector<DistTensor>& ins) {
    check_defined(kName, ins);
    const bool recorded = any_records(ins);
    std::vector<DistTensor> outs;
    {
      const NoGrad no_grad;
      outs = forward(ins);
    }
    check_defined(kName, outs);
    // An output may be an input, or hold a graph that was made elsewhere.
    for (DistTensor& out : outs) out = out.detach();
    if (!recorded) return outs;
    return with_gradient(
        kName, ins, std::move(outs),
        [ins, backward](std::span<const DistTensor> outputs,
                        std::span<const DistTensor> cotangents,
                        std::span<const bool>) {
          CustomCall call{ins, {outputs.begin(), outputs.end()}, {}};
          for (size_t o = 0; o < outputs.size(); ++o)
            call.cotangents.push_back(cotangents[o].defined()
                                          ? cotangents[o]
                                          : zeros_for(outputs[o]));
          return backward(call);
        },
        ins, Needs::kOutputs);
  };
}

std::function<DistTensor(const DistTensor&)> custom_function(
    std::function<DistTensor(const DistTensor&)> forward,
    std::function<DistTensor(const DistTensor&)> backward) {
  const TensorFunction all = custom_function(
      [forward = std::move(forward)](const std::vector<DistTensor>& in)
          -> std::vector<DistTensor> { return {forward(in[0])}; },
      [backward = std::move(backward)](
          const CustomCall& call) -> std::vector<DistTensor> {
        return {backward(call.cotangents[0])};
      });
  return [all](const DistTensor& x) { return all({x})[0]; };
}

}  // namespace dtensor
