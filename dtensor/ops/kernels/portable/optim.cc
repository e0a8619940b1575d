// Steps of optimizers, each in one pass over all of its arrays.
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
using portable::rounded;
using portable::widened;

// A parameter, and its master if it has one: then that is what is read.
template <class S>
struct Parameter {
  S* param;
  compute_t<S>* master;
  DT_HD compute_t<S> get(int64_t i) const {
    return master ? master[i] : widened(param[i]);
  }
  DT_HD void set(int64_t i, compute_t<S> value) const {
    if (master) master[i] = value;
    param[i] = rounded<S>(value);
  }
};

// What gradients are multiplied by; on the device, where *clip is.
struct Scale {
  double number;
  const double* clip;
  DT_HD double operator()() const { return clip ? number * *clip : number; }
};

template <class S, class G, class C = compute_t<S>>
void adamw_step(Stream s, int64_t n, const AdamW& o, Parameter<S> p,
                const G* grad, C* m, C* v) {
  const auto t = static_cast<double>(o.step);
  const double correction1 = 1 - std::pow(o.beta1, t);
  const double correction2 = 1 - std::pow(o.beta2, t);
  const C keep = static_cast<C>(1 - o.lr * o.weight_decay),
          c1 = static_cast<C>(1 - o.beta1), b2 = static_cast<C>(o.beta2),
          c2 = static_cast<C>(1 - o.beta2), eps = static_cast<C>(o.eps),
          root2 = static_cast<C>(1 / std::sqrt(correction2)),
          step = static_cast<C>(o.lr / correction1);
  const Scale scale{o.grad_scale, o.clip};
  each(
      s, n, DT_BODY(int64_t i) {
        const C g = static_cast<C>(widened(grad[i])) * static_cast<C>(scale());
        const C p0 = p.get(i), m0 = m[i], v0 = v[i];
        const C m1 = m0 + (g - m0) * c1, v1 = v0 * b2 + g * g * c2;
        m[i] = m1;
        v[i] = v1;
        p.set(i, p0 * keep - step * (m1 / (fn::sqrt(v1) * root2 + eps)));
      });
}

template <class S, class G, class C = compute_t<S>>
void sgd_step(Stream s, int64_t n, const Sgd& o, Parameter<S> p, const G* grad,
              C* buffer) {
  const C lr = static_cast<C>(o.lr), decay = static_cast<C>(o.weight_decay),
          momentum = static_cast<C>(o.momentum);
  const Scale scale{o.grad_scale, o.clip};
  const bool nesterov = o.nesterov;
  each(
      s, n, DT_BODY(int64_t i) {
        const C before = p.get(i);
        C d = static_cast<C>(widened(grad[i])) * static_cast<C>(scale()) +
              decay * before;
        if (buffer) {
          const C b = momentum * buffer[i] + d;
          buffer[i] = b;
          d = nesterov ? d + momentum * b : b;
        }
        p.set(i, before - lr * d);
      });
}

// f.template operator()<S, G>() for parameters of S and gradients of G.
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

void PortableKernels::adamw(Stream s, DType param_type, DType grad_type,
                            int64_t n, const AdamW& o, void* param,
                            const void* grad, void* m, void* v,
                            void* master) const {
  visit_pair(param_type, grad_type, "adamw", [&]<class S, class G>() {
    using C = compute_t<S>;
    const Parameter<S> p = {static_cast<S*>(param), static_cast<C*>(master)};
    adamw_step(s, n, o, p, static_cast<const G*>(grad), static_cast<C*>(m),
               static_cast<C*>(v));
  });
}

void PortableKernels::sgd(Stream s, DType param_type, DType grad_type,
                          int64_t n, const Sgd& o, void* param,
                          const void* grad, void* buffer, void* master) const {
  visit_pair(param_type, grad_type, "sgd", [&]<class S, class G>() {
    using C = compute_t<S>;
    const Parameter<S> p = {static_cast<S*>(param), static_cast<C*>(master)};
    sgd_step(s, n, o, p, static_cast<const G*>(grad), static_cast<C*>(buffer));
  });
}

void PortableKernels::clip(Stream s, const double* squares, double max_norm,
                           double* norm, double* clip) const {
  each(
      s, 1, DT_BODY(int64_t) {
        *norm = fn::sqrt(*squares);
        *clip = clip_of(*norm, max_norm);
      });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
