// Optimizer steps: many parameters in one launch, and all arrays of a parameter
// in one pass.
#include <cmath>

#include "dtensor/device/portable/pack.h"
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/clip.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::Pack;
using portable::rounded;
using portable::widened;

// The factor for gradients; evaluated on the device, where *clip is.
struct Scale {
  double number;
  const double* clip;
  DT_HD double operator()() const { return clip ? number * *clip : number; }
};

// A part in the form that a kernel's arguments hold.
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

// The elements that are loaded and stored at once, and the elements per block
// of threads. A block belongs to one part, so that values that differ between
// parts are read once per block.
template <class C>
inline constexpr int kWidth = portable::kPack<C>;
inline constexpr int64_t kChunk = 4096;

// As many parts as fit into the 4 KiB of a kernel's arguments, and the number
// of chunks up to the end of each.
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

// Loads W elements of an array from `first` on, of which `left` exist. A null
// array is skipped.
template <int W, class T>
DT_HD void get(const T* from, int64_t first, int64_t left, Pack<T, W>& to) {
  if (!from) return;
  from += first;
  if (left >= W && portable::aligned(from, W)) {
    to = portable::load<W>(from);
    return;
  }
  DT_UNROLL(W)
  for (int w = 0; w < W; ++w)
    if (w < left) to.v[w] = from[w];
}
template <int W, class T>
DT_HD void put(T* to, int64_t first, int64_t left, const Pack<T, W>& from) {
  if (!to) return;
  to += first;
  if (left >= W && portable::aligned(to, W)) {
    portable::store(to, from);
    return;
  }
  DT_UNROLL(W)
  for (int w = 0; w < W; ++w)
    if (w < left) to[w] = from.v[w];
}

// update_of(part) returns the function f that is called for each element: f(p,
// g, m, v) gets the parameter (or its master, if there is one), the gradient,
// and references to the state. It returns the new parameter.
template <class S, class G, class C, class UpdateOf>
void each_part(Stream s, const Parts& parts, UpdateOf update_of) {
  constexpr int W = kWidth<C>;
  portable::rows(
      s, parts.all(), kChunk, DT_BODY(portable::Row & row, int64_t chunk) {
        const int which = parts.of(chunk);
        const Part& part = parts.part[which];
        const int64_t first =
            (chunk - (which ? parts.chunks[which - 1] : 0)) * kChunk;
        const int64_t n = part.n - first < kChunk ? part.n - first : kChunk;
        auto* param = static_cast<S*>(part.param);
        auto *m = static_cast<C*>(part.m), *v = static_cast<C*>(part.v),
             *master = static_cast<C*>(part.master);
        const auto* grad = static_cast<const G*>(part.grad);
        const auto update = update_of(part);
        row.each((n + W - 1) / W, [=](int64_t i) {
          const int64_t at = first + i * W, left = n - i * W;
          Pack<C, W> before = {}, mean = {}, square = {};
          Pack<S, W> rounding = {};
          Pack<G, W> gradient = {};
          get(grad, at, left, gradient);
          get(m, at, left, mean);
          get(v, at, left, square);
          if (master)
            get(master, at, left, before);
          else
            get(param, at, left, rounding);
          DT_UNROLL(W)
          for (int w = 0; w < W; ++w) {
            const C p = master ? before.v[w] : widened(rounding.v[w]);
            before.v[w] = update(p, static_cast<C>(widened(gradient.v[w])),
                                 mean.v[w], square.v[w]);
            rounding.v[w] = rounded<S>(before.v[w]);
          }
          put(m, at, left, mean);
          put(v, at, left, square);
          put(master, at, left, before);
          put(param, at, left, rounding);
        });
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
    parts.add(part_of(p));
    if (parts.count < Parts::kMost) continue;
    each_part<S, G, C>(s, parts, update_of);
    parts.count = 0;
  }
  if (parts.count) each_part<S, G, C>(s, parts, update_of);
}

// The values that are constant in a part, and the update of one element.
template <class C>
struct AdamWUpdate {
  C keep, c1, b2, c2, eps, root2, step, scale;
  DT_HD C operator()(C p, C grad, C& m, C& v) const {
    const C g = grad * scale;
    m = m + (g - m) * c1;
    v = v * b2 + g * g * c2;
    return p * keep - step * (m / (fn::sqrt(v) * root2 + eps));
  }
};

template <class C>
struct SgdUpdate {
  C lr, decay, momentum, scale;
  bool buffer, nesterov;
  DT_HD C operator()(C p, C grad, C& m, C&) const {
    C d = grad * scale + decay * p;
    if (buffer) {
      m = momentum * m + d;
      d = nesterov ? d + momentum * m : m;
    }
    return p - lr * d;
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
  if (grad != param && grad != stat_of(param)) no_kernel(where, grad);
  visit_float(param, where, [&]<class S>() {
    if (grad == param)
      f.template operator()<S, S>();
    else
      f.template operator()<S, compute_t<S>>();
  });
}

}  // namespace

void PortableKernels::run(Stream s, const AdamW& o) const {
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

void PortableKernels::run(Stream s, const Sgd& o) const {
  visit_pair(o.param_type, o.grad_type, "sgd", [&]<class S, class G>() {
    each_launch<S, G>(s, o.parts, part_of,
                      SgdUpdateOf<compute_t<S>>{
                          o.momentum, o.nesterov, {o.grad_scale, o.clip}});
  });
}

void PortableKernels::run(Stream s, const Clip& a) const {
  each(
      s, 1, DT_BODY(int64_t) {
        *a.norm = fn::sqrt(*a.squares);
        *a.clip = clip_of(*a.norm, a.max_norm);
      });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
