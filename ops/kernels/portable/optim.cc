// SPDX-License-Identifier: Apache-2.0
// Optimizer steps: many parameters in one launch, and all arrays of a parameter
// in one pass.
#include "dtensor/ops/kernels/optim.h"

#include <cmath>

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/clip.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;

// The factor for gradients; evaluated on the device, where *clip is.
struct Scale {
  double number;
  const double* clip;
  DT_HD double operator()() const { return clip ? number * *clip : number; }
};

// An OptimPart in the form in which a kernel gets it as an argument.
struct Part {
  int64_t n;
  void* param;
  const void* grad;
  void *m, *v, *master;
  double lr, weight_decay, correction1, correction2;
  const double* rates;

  DT_HD double rate() const { return rates ? lr * rates[0] : lr; }
  DT_HD double correction(int i) const {
    return rates ? rates[i] : i == 1 ? correction1 : correction2;
  }
};

// The most elements per row. A row belongs to one part, so that values that
// differ between parts are computed once per row.
inline constexpr int64_t kChunk = 4096;

// About as many parts as fit into the 4 KiB of a kernel's arguments. chunks[i]
// is the number of chunks (rows) up to the end of part i.
struct Parts {
  static constexpr int kMost = 40;
  int count = 0;
  int64_t chunks[kMost];
  Part part[kMost];

  int64_t all() const { return count ? chunks[count - 1] : 0; }
  void add(const Part& p) {
    chunks[count] = all() + (p.n + kChunk - 1) / kChunk;
    part[count++] = p;
  }
  // The part that a chunk belongs to.
  DT_HD int of(int64_t chunk) const {
    int lo = 0, hi = count - 1;
    while (lo < hi) {
      const int middle = (lo + hi) / 2;
      if (chunk < chunks[middle])
        hi = middle;
      else
        lo = middle + 1;
    }
    return lo;
  }
};
static_assert(sizeof(Parts) <= 4000);

// Updates n elements of a part: those from `first` on in the state, from
// `param` on in the parameter, and from `grad` on in the gradient. `update`
// gets the parameter (or its master, if there is one), the gradient, and
// references to the state, and returns the new parameter.
template <class S, class G, class C, class Update>
DT_HD void update_some(portable::Row& row, int64_t n, const Part& part,
                       int64_t first, S* param, const G* grad,
                       const Update& update) {
  const auto at = [&](void* p) {
    return p ? static_cast<C*>(p) + first : nullptr;
  };
  auto *m = at(part.m), *v = at(part.v);
  if (part.master)
    row.update(
        n, param,
        [&](auto& p, auto& mean, auto& square, const auto& g) {
          return p = update(p, g, mean, square);
        },
        at(part.master), m, v, grad);
  else
    row.update(
        n, param,
        [&](const auto& p, auto& mean, auto& square, const auto& g) {
          return update(p, g, mean, square);
        },
        static_cast<const S*>(param), m, v, grad);
}

// Updates all parts. update_of(part) returns the function that is called for
// each element.
template <class S, class G, class C, class UpdateOf>
void each_part(Stream s, const Parts& parts, UpdateOf update_of) {
  portable::rows(
      s, parts.all(), kChunk, DT_BODY(portable::Row & row, int64_t chunk) {
        const int which = parts.of(chunk);
        const Part& part = parts.part[which];
        const int64_t first =
            (chunk - (which ? parts.chunks[which - 1] : 0)) * kChunk;
        const int64_t n = part.n - first < kChunk ? part.n - first : kChunk;
        update_some<S, G, C>(
            row, n, part, first, static_cast<S*>(part.param) + first,
            static_cast<const G*>(part.grad) + first, update_of(part));
      });
}

// Updates rows of one part.
template <class S, class G, class C, class UpdateOf>
void each_row(Stream s, const Part& part, const OptimRows& rows,
              UpdateOf update_of) {
  portable::rows(
      s, rows.count, part.n, DT_BODY(portable::Row & row, int64_t i) {
        const int64_t id = rows.ids[i], n = part.n;
        if (id < rows.lo || id >= rows.hi) return;
        const int64_t r = id - rows.lo + rows.at;
        update_some<S, G, C>(
            row, n, part, r * n, static_cast<S*>(part.param) + r * rows.stride,
            static_cast<const G*>(part.grad) + i * n, update_of(part));
      });
}

// Runs all parts, in as many launches as they need.
template <class S, class G, class C = compute_t<S>, class PartOf,
          class UpdateOf>
void each_launch(Stream s, std::span<const OptimPart> list, PartOf part_of,
                 UpdateOf update_of) {
  Parts parts;
  for (const OptimPart& p : list) {
    if (p.n <= 0) continue;
    if (p.rows.ids) {
      each_row<S, G, C>(s, part_of(p), p.rows, update_of);
      continue;
    }
    parts.add(part_of(p));
    if (parts.count < Parts::kMost) continue;
    each_part<S, G, C>(s, parts, update_of);
    parts.count = 0;
  }
  if (parts.count) each_part<S, G, C>(s, parts, update_of);
}

// The values that are constant in a part, and the update of one element (V is
// C), or of a register of them.
template <class C>
struct AdamWUpdate {
  C keep, c1, b2, c2, eps, root2, step, scale;
  template <class V>
  DT_HD V operator()(V p, V grad, V& m, V& v) const {
    using fn::fma;
    using fn::sqrt;
    const V g = grad * V(scale);
    m = m + (g - m) * V(c1);
    v = fma(v, V(b2), g * g * V(c2));
    return fma(p, V(keep), -(V(step) * (m / (sqrt(v) * V(root2) + V(eps)))));
  }
};

template <class C>
struct SgdUpdate {
  C lr, decay, momentum, scale;
  bool buffer, nesterov;
  template <class V>
  DT_HD V operator()(V p, V grad, V& m, V&) const {
    using fn::fma;
    V d = fma(grad, V(scale), V(decay) * p);
    if (buffer) {
      m = V(momentum) * m + d;
      d = nesterov ? d + V(momentum) * m : m;
    }
    return p - V(lr) * d;
  }
};

template <class C>
struct AdamWUpdateOf {
  double beta1, beta2, eps;
  Scale scale;
  DT_HD AdamWUpdate<C> operator()(const Part& p) const {
    const double lr = p.rate();
    return {static_cast<C>(1 - lr * p.weight_decay),
            static_cast<C>(1 - beta1),
            static_cast<C>(beta2),
            static_cast<C>(1 - beta2),
            static_cast<C>(eps),
            static_cast<C>(1 / fn::sqrt(p.correction(2))),
            static_cast<C>(lr / p.correction(1)),
            static_cast<C>(scale())};
  }
};

template <class C>
struct SgdUpdateOf {
  double momentum;
  bool nesterov;
  Scale scale;
  DT_HD SgdUpdate<C> operator()(const Part& p) const {
    return {static_cast<C>(p.rate()), static_cast<C>(p.weight_decay),
            static_cast<C>(momentum), static_cast<C>(scale()),
            p.m != nullptr,           nesterov};
  }
};

Part part_of(const OptimPart& p) {
  return {.n = p.n,
          .param = p.param,
          .grad = p.grad,
          .m = p.m,
          .v = p.v,
          .master = p.master,
          .lr = p.lr,
          .weight_decay = p.weight_decay,
          .correction1 = 1,
          .correction2 = 1,
          .rates = p.rates};
}

// Calls f.template operator()<S, G>() for parameters of S and gradients of G.
template <class F>
void visit_pair(DType param, DType grad, std::string_view where, F&& f) {
  check_gradient_type(where, param, grad);
  visit_float(param, where, [&]<class S>() {
    if (grad == param)
      f.template operator()<S, S>();
    else
      f.template operator()<S, compute_t<S>>();
  });
}

}  // namespace

DT_KERNEL(AdamW)
void run(Stream s, const AdamW& o) {
  visit_pair(o.param_type, o.grad_type, "adamw", [&]<class S, class G>() {
    each_launch<S, G>(
        s, o.parts,
        [&](const OptimPart& p) {
          Part part = part_of(p);
          const auto t = static_cast<double>(p.step);
          part.correction1 = 1 - std::pow(o.beta1, t);
          part.correction2 = 1 - std::pow(o.beta2, t);
          return part;
        },
        AdamWUpdateOf<compute_t<S>>{
            o.beta1, o.beta2, o.eps, {o.grad_scale, o.clip}});
  });
}

DT_KERNEL(Sgd)
void run(Stream s, const Sgd& o) {
  visit_pair(o.param_type, o.grad_type, "sgd", [&]<class S, class G>() {
    each_launch<S, G>(s, o.parts, part_of,
                      SgdUpdateOf<compute_t<S>>{
                          o.momentum, o.nesterov, {o.grad_scale, o.clip}});
  });
}

DT_KERNEL(Clip)
void run(Stream s, const Clip& a) {
  each(
      s, 1, DT_BODY(int64_t) {
        *a.norm = fn::sqrt(*a.squares);
        *a.clip = clip_of(*a.norm, a.max_norm);
      });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
