// SPDX-License-Identifier: Apache-2.0
// The calls of losses, norms, distances, and statistics of some elements.
#include "dtensor/ops/composed.h"
#include "dtensor/ops/distance.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/statistics.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;
using Dims = std::vector<int>;

DistTensor tensor_or_none(A a, size_t at, std::string_view name) {
  return a.has(at, name) ? a.tensor(at, name) : DistTensor();
}

// Losses have torch's `reduction` only by name.
const Param kReduction{"reduction", "mean"};
Reduction reduction(A a) {
  return to_reduction(a.text(kNamed, "reduction", "mean"));
}

T stats(const NormWithStats& n) { return {n.y, n.mean, n.rstd}; }

using Running = RunningNorm(const DistTensor&, const DistTensor&,
                            const DistTensor&, const DistTensor&,
                            const DistTensor&, bool, double, double);
// The new running statistics are not among torch's results.
template <Running f>
Call running(const char* flag, bool otherwise) {
  return [flag, otherwise](A a) -> T {
    return {f(a.tensor(0), tensor_or_none(a, 1, "running_mean"),
              tensor_or_none(a, 2, "running_var"),
              tensor_or_none(a, 3, "weight"), tensor_or_none(a, 4, "bias"),
              a.flag(5, flag, otherwise), a.number(6, "momentum", 0.1),
              a.number(7, "eps", 1e-5))
                .y};
  };
}

// The input of a function under a mask, which converts it first.
DistTensor converted(A a) {
  const DistTensor x = a.tensor(0);
  return cast(x, a.dtype(kNamed, "dtype", x.dtype()));
}

// Functions of the elements under a mask.
template <DistTensor (*f)(const DistTensor&, const DistTensor&, const Dims&,
                          bool)>
T masked(A a) {
  return {f(converted(a), tensor_or_none(a, kNamed, "mask"), a.dims(1, "dim"),
            a.flag(kNamed, "keepdim", false))};
}
template <DistTensor (*f)(const DistTensor&, const DistTensor&, int)>
T masked(A a) {
  return {f(converted(a), tensor_or_none(a, kNamed, "mask"),
            static_cast<int>(a.integer(1, "dim")))};
}

}  // namespace

void add_losses_and_norms_calls(CallTable& t) {
  t["addcmul"] = call(addcmul, {{}, {}, {}, {"value", 1}});
  t["addcdiv"] = call(addcdiv, {{}, {}, {}, {"value", 1}});
  t["nn.functional.glu"] = call(glu, {{}, {"dim", -1}});
  t["nn.functional.prelu"] = call(prelu, {{}, {"weight"}});
  t["allclose"] = call(
      allclose, {{}, {}, {"rtol", 1e-5}, {"atol", 1e-8}, {"equal_nan", false}});
  t["equal"] = call(equal, {});
  t["prod"] = [](A a) -> T {
    const DistTensor x = a.tensor(0);
    const DType type = a.dtype(kNamed, "dtype", x.dtype());
    const DistTensor y =
        prod(cast(x, type), a.dims(1, "dim"), a.flag(2, "keepdim", false));
    return {a.has(kNamed, "dtype") ? cast(y, type) : y};
  };
  t["nn.functional.poisson_nll_loss"] = [](A a) -> T {
    return {poisson_nll_loss(a.tensor(0), a.tensor(1), reduction(a),
                             a.flag(kNamed, "log_input", true),
                             a.flag(kNamed, "full", false),
                             a.number(kNamed, "eps", 1e-8))};
  };
  t["nn.functional.gaussian_nll_loss"] = [](A a) -> T {
    return {gaussian_nll_loss(a.tensor(0), a.tensor(1), a.tensor(2),
                              reduction(a), a.flag(kNamed, "full", false),
                              a.number(kNamed, "eps", 1e-6))};
  };
  t["nn.functional.soft_margin_loss"] =
      call(soft_margin_loss, {{}, {}, kReduction});
  t["nn.functional.hinge_embedding_loss"] =
      call(hinge_embedding_loss, {{}, {}, kReduction, {"margin", 1.0}});
  t["nn.functional.margin_ranking_loss"] =
      call(margin_ranking_loss, {{}, {}, {}, kReduction, {"margin", 0.0}});
  t["nn.functional.cosine_embedding_loss"] =
      call(cosine_embedding_loss, {{}, {}, {}, kReduction, {"margin", 0.0}});
  t["nn.functional.triplet_margin_loss"] = [](A a) -> T {
    return {triplet_margin_loss(a.tensor(0), a.tensor(1), a.tensor(2),
                                reduction(a),
                                {.margin = a.number(kNamed, "margin", 1),
                                 .p = a.number(kNamed, "p", 2),
                                 .eps = a.number(kNamed, "eps", 1e-6),
                                 .swap = a.flag(kNamed, "swap", false)})};
  };
  t["nn.functional.multi_margin_loss"] = [](A a) -> T {
    return {multi_margin_loss(a.tensor(0), a.tensor(1), reduction(a),
                              static_cast<int>(a.integer(kNamed, "p", 1)),
                              a.number(kNamed, "margin", 1),
                              tensor_or_none(a, kNamed, "weight"))};
  };
  t["nn.functional.multilabel_margin_loss"] =
      call(multilabel_margin_loss, {{}, {}, kReduction});
  t["nn.functional.multilabel_soft_margin_loss"] = call(
      multilabel_soft_margin_loss, {{}, {}, kReduction, {"weight", nullptr}});
  t["nn.functional.pairwise_distance"] =
      call(pairwise_distance,
           {{}, {}, {"p", 2.0}, {"eps", 1e-6}, {"keepdim", false}});
  t["dist"] = call(dist, {{}, {}, {"p", 2.0}});
  t["cdist"] = [](A a) -> T {
    const std::string mode =
        a.text(3, "compute_mode", "use_mm_for_euclid_dist_if_necessary");
    std::optional<bool> by_matmul;
    if (mode != "use_mm_for_euclid_dist_if_necessary")
      by_matmul = mode == "use_mm_for_euclid_dist";
    return {cdist(a.tensor(0), a.tensor(1), a.number(2, "p", 2), by_matmul)};
  };
  t["nn.functional.pdist"] = call(pdist, {{}, {"p", 2.0}});
  t["renorm"] = call(renorm, {{}, {"p"}, {"dim"}, {"maxnorm"}});
  t["cross"] = call(cross, {{}, {}, {"dim", nullptr}});
  t["linalg.cross"] = call(cross, {{}, {}, {"dim", -1}});
  t["nn.functional.group_norm"] = call(group_norm, {{},
                                                    {"num_groups"},
                                                    {"weight", nullptr},
                                                    {"bias", nullptr},
                                                    {"eps", 1e-5}});
  t["native_group_norm"] = [](A a) -> T {
    // torch also takes the sizes of x.
    const DistTensor x = a.tensor(0);
    for (size_t i = 3; i <= 5; ++i) a.integer(i);
    return stats(native_group_norm(x, a.integer(6),
                                   tensor_or_none(a, 1, "weight"),
                                   tensor_or_none(a, 2, "bias"), a.number(7)));
  };
  t["native_layer_norm"] = [](A a) -> T {
    Shape sizes;
    for (int64_t n : a.integers(1)) sizes.push_back(n);
    return stats(native_layer_norm(a.tensor(0), sizes,
                                   tensor_or_none(a, 2, "weight"),
                                   tensor_or_none(a, 3, "bias"), a.number(4)));
  };
  t["nn.functional.batch_norm"] = running<batch_norm>("training", false);
  t["nn.functional.instance_norm"] =
      running<instance_norm>("use_input_stats", true);
  t["nn.functional.local_response_norm"] =
      call(local_response_norm,
           {{}, {"size"}, {"alpha", 1e-4}, {"beta", 0.75}, {"k", 1.0}});
  t["nansum"] = call(nansum, {{}, {"dim", Dims()}, {"keepdim", false}});
  t["nanmean"] = call(nanmean, {{}, {"dim", Dims()}, {"keepdim", false}});
  t["cov"] = [](A a) -> T {
    return {cov(a.tensor(0), a.number(kNamed, "correction", 1),
                tensor_or_none(a, kNamed, "fweights"),
                tensor_or_none(a, kNamed, "aweights"))};
  };
  t["corrcoef"] = call(corrcoef, {});
  t["masked.sum"] = masked<masked_sum>;
  t["masked.mean"] = masked<masked_mean>;
  t["masked.amax"] = masked<masked_amax>;
  t["masked.logsumexp"] = masked<masked_logsumexp>;
  t["masked.softmax"] = masked<masked_softmax>;
  t["masked.log_softmax"] = masked<masked_log_softmax>;
  t["masked.var"] = [](A a) -> T {
    const double correction = a.has(2, "unbiased")
                                  ? a.flag(2, "unbiased", true)
                                  : a.number(kNamed, "correction", 1);
    return {masked_var(converted(a), tensor_or_none(a, kNamed, "mask"),
                       a.dims(1, "dim"), correction,
                       a.flag(kNamed, "keepdim", false))};
  };
}

}  // namespace dtensor::conformance
