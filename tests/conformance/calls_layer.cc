// Normalisations, losses, attention: what a model is made of.
#include "dtensor/ops/attention.h"
#include "dtensor/ops/cross_entropy.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/softmax.h"
#include "dtensor/ops/view.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

template <DistTensor (*f)(const DistTensor&, int)>
T along(A a) {
  DistTensor x = a.tensor(0);
  // torch converts the input first, too.
  x = cast(x, a.dtype(kNamed, "dtype", x.dtype()));
  return {f(x, static_cast<int>(a.integer(1, "dim")))};
}

Reduction reduction(A a) {
  const std::string text = a.text(kNamed, "reduction", "mean");
  return text == "none"  ? Reduction::kNone
         : text == "sum" ? Reduction::kSum
                         : Reduction::kMean;
}

}  // namespace

void add_layer_calls(CallTable& t) {
  t["softmax"] = along<softmax>;
  t["log_softmax"] = along<log_softmax>;
  t["nn.functional.embedding"] = [](A a) -> T {
    return {embedding(a.tensor(0), a.tensor(1))};
  };
  // Classes are torch's dimension 1 and our last one.
  t["nn.functional.cross_entropy"] = [](A a) -> T {
    if (a.has(kNamed, "weight")) throw NotHere("weight");
    const DistTensor x = a.tensor(0), targets = a.tensor(1);
    if (is_float(targets.dtype())) throw NotHere("probabilities as targets");
    if (x.ndim() > 2) throw NotHere("more than two dimensions");
    return {cross_entropy(x, targets, reduction(a))};
  };
}

}  // namespace dtensor::conformance
