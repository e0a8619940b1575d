// SPDX-License-Identifier: Apache-2.0
// The calls of products and reductions.
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/linalg.h"
#include "dtensor/ops/order.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

template <DistTensor (*f)(const DistTensor&, std::vector<int>, bool)>
T reduction(A a) {
  return {f(a.tensor(0), a.dims(1, "dim"), a.flag(2, "keepdim", false))};
}

template <DistTensor (*f)(const DistTensor&, const DistTensor&)>
T product(A a) {
  return {f(a.tensor(0), a.tensor(1))};
}

template <DistTensor (*f)(const DistTensor&, const DistTensor&,
                          const DistTensor&, double, double)>
T added(A a) {
  return {f(a.tensor(0), a.tensor(1), a.tensor(2), a.number(kNamed, "beta", 1),
            a.number(kNamed, "alpha", 1))};
}

// The correction of a variance. `unbiased`, by position or by name, is another
// way to say that it is 1.
double correction(A a) {
  if (a.has(kNamed, "unbiased"))
    return a.flag(kNamed, "unbiased", true) ? 1 : 0;
  return a.number(kNamed, "correction", 1);
}

template <class F>
Call spread(F f) {
  return [f](A a) -> T {
    const DistTensor x = a.tensor(0);
    // var(x, False): the second argument is a dimension or, if it is a bool,
    // `unbiased`.
    if (a.count() == 2 && a.raw(1).is_boolean())
      return f(x, {}, a.flag(1, "unbiased", true) ? 1 : 0, false);
    const auto dims = a.dims(1, "dim");
    return f(x, dims, correction(a), a.flag(kNamed, "keepdim", false));
  };
}

T both(std::pair<DistTensor, DistTensor> p) { return {p.first, p.second}; }

// max() and min(), of two tensors, along a dimension, or of all elements.
template <DistTensor (*two)(const DistTensor&, const DistTensor&),
          TopK (*along)(const DistTensor&, int, bool),
          DistTensor (*one)(const DistTensor&, std::vector<int>, bool)>
T extremum(A a) {
  if (a.is_tensor(1, "other")) return {two(a.tensor(0), a.tensor(1, "other"))};
  if (!a.has(1, "dim")) return {one(a.tensor(0), {}, false)};
  const TopK best = along(a.tensor(0), static_cast<int>(a.integer(1, "dim")),
                          a.flag(2, "keepdim", false));
  return {best.values, best.indices};
}

// The library always keeps the order of equal elements, so `stable` has no
// effect.
TopK sort_call(A a) {
  a.flag(kNamed, "stable", false);
  const DistTensor x = a.tensor(0);
  const auto dim = static_cast<int>(a.integer(1, "dim", -1));
  const bool descending = a.flag(2, "descending", false);
  return {sort(x, dim, descending).values, argsort(x, dim, descending)};
}

template <DistTensor (*along)(const DistTensor&, int, bool),
          DistTensor (*flat)(const DistTensor&)>
T extreme_index(A a) {
  const DistTensor x = a.tensor(0);
  if (!a.has(1, "dim")) return {flat(x)};
  return {along(x, static_cast<int>(a.integer(1, "dim")),
                a.flag(2, "keepdim", false))};
}

double order(A a, size_t at, std::string_view name) {
  if (!a.is_text(at, name)) return a.number(at, name, 2);
  if (a.text(at, name, "") != "fro")
    throw NotHere("a norm of matrices: " + a.text(at, name, ""));
  return 2;
}

}  // namespace

void add_sum_calls(CallTable& t) {
  t["sum"] = reduction<sum>;
  t["mean"] = reduction<mean>;
  t["amax"] = reduction<amax>;
  t["amin"] = reduction<amin>;
  t["cumsum"] = [](A a) -> T {
    const DistTensor x = a.tensor(0);
    return {cumsum(cast(x, a.dtype(kNamed, "dtype", x.dtype())),
                   static_cast<int>(a.integer(1, "dim")))};
  };
  t["topk"] = [](A a) -> T {
    a.flag(4, "sorted", true);  // the library always sorts
    const TopK best = topk(a.tensor(0), a.integer(1, "k", 1),
                           static_cast<int>(a.integer(2, "dim", -1)),
                           a.flag(3, "largest", true));
    return {best.values, best.indices};
  };
  t["sort"] = [](A a) -> T {
    const TopK all = sort_call(a);
    return {all.values, all.indices};
  };
  t["argsort"] = [](A a) -> T { return {sort_call(a).indices}; };
  t["argmax"] = extreme_index<argmax, argmax>;
  t["argmin"] = extreme_index<argmin, argmin>;
  t["cumprod"] = [](A a) -> T {
    const DistTensor x = a.tensor(0);
    return {cumprod(cast(x, a.dtype(kNamed, "dtype", x.dtype())),
                    static_cast<int>(a.integer(1, "dim")))};
  };
  t["cummax"] = [](A a) {
    return both(cummax(a.tensor(0), static_cast<int>(a.integer(1, "dim"))));
  };
  t["cummin"] = [](A a) {
    return both(cummin(a.tensor(0), static_cast<int>(a.integer(1, "dim"))));
  };
  t["logcumsumexp"] = [](A a) -> T {
    return {logcumsumexp(a.tensor(0), static_cast<int>(a.integer(1, "dim")))};
  };
  t["bincount"] = [](A a) -> T {
    return {
        bincount(a.tensor(0),
                 a.has(1, "weights") ? a.tensor(1, "weights") : DistTensor(),
                 a.integer(2, "minlength", 0))};
  };
  t["matmul"] =
      t["mm"] = [](A a) -> T { return {matmul(a.tensor(0), a.tensor(1))}; };
  t["any"] = reduction<any>;
  t["all"] = reduction<all>;
  t["count_nonzero"] = [](A a) -> T {
    return {count_nonzero(a.tensor(0), a.dims(1, "dim"))};
  };
  t["aminmax"] = [](A a) -> T {
    return both(aminmax(a.tensor(0), a.dims(kNamed, "dim"),
                        a.flag(kNamed, "keepdim", false)));
  };
  t["max"] = extremum<maximum, max, amax>;
  t["min"] = extremum<minimum, min, amin>;
  using Dims = std::vector<int>;
  t["var"] = spread([](const DistTensor& x, const Dims& d, double c, bool k) {
    return T{var(x, d, c, k)};
  });
  t["std"] = spread([](const DistTensor& x, const Dims& d, double c, bool k) {
    return T{stddev(x, d, c, k)};
  });
  t["var_mean"] = spread([](const DistTensor& x, const Dims& d, double c,
                            bool k) { return both(var_mean(x, d, c, k)); });
  t["std_mean"] = spread([](const DistTensor& x, const Dims& d, double c,
                            bool k) { return both(std_mean(x, d, c, k)); });
  t["logsumexp"] = reduction<logsumexp>;
  t["norm"] = [](A a) -> T {
    if (a.is_text(1, "p") && a.text(1, "p", "") == "nuc")
      return {matrix_norm(a.tensor(0), "nuc",
                          a.has(2, "dim") ? a.dims(2, "dim") : Dims{-2, -1},
                          a.flag(3, "keepdim", false))};
    return {vector_norm(a.tensor(0), order(a, 1, "p"), a.dims(2, "dim"),
                        a.flag(3, "keepdim", false))};
  };
  t["linalg.vector_norm"] = [](A a) -> T {
    return {vector_norm(a.tensor(0), order(a, 1, "ord"), a.dims(2, "dim"),
                        a.flag(3, "keepdim", false))};
  };
  t["dot"] = t["vdot"] = product<dot>;
  t["mv"] = product<mv>;
  t["outer"] = product<outer>;
  t["inner"] = product<inner>;
  t["kron"] = product<kron>;
  t["linalg.vecdot"] = [](A a) -> T {
    return {vecdot(a.tensor(0), a.tensor(1),
                   static_cast<int>(a.integer(kNamed, "dim", -1)))};
  };
  t["tensordot"] = [](A a) -> T {
    if (!a.is_list(2, "dims"))
      return {tensordot(a.tensor(0), a.tensor(1),
                        static_cast<int>(a.integer(2, "dims", 2)))};
    const auto pairs = a.raw(2, "dims").get<std::vector<Dims>>();
    return {tensordot(a.tensor(0), a.tensor(1), pairs.at(0), pairs.at(1))};
  };
  t["linalg.multi_dot"] = [](A a) -> T { return {multi_dot(a.tensors(0))}; };
  t["addmm"] = added<addmm>;
  t["addmv"] = added<addmv>;
  t["addr"] = added<addr>;
  t["baddbmm"] = added<baddbmm>;
  t["addbmm"] = added<addbmm>;
  t["nn.functional.linear"] = [](A a) -> T {
    return {linear(a.tensor(0), a.tensor(1),
                   a.has(2, "bias") ? a.tensor(2, "bias") : DistTensor())};
  };
  t["nn.functional.bilinear"] = [](A a) -> T {
    return {bilinear(a.tensor(0), a.tensor(1), a.tensor(2),
                     a.has(3, "bias") ? a.tensor(3, "bias") : DistTensor())};
  };
  t["bmm"] = [](A a) -> T { return {bmm(a.tensor(0), a.tensor(1))}; };
  t["einsum"] = [](A a) -> T {
    return {einsum(a.text(1, "equation", ""), a.tensors(0))};
  };
}

}  // namespace dtensor::conformance
