#include <cmath>

#include "dtensor/device/portable/rows.h"
#include "dtensor/ops/kernels/clip.h"
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// Calls f(at, parameter) for each register of the parameter (or of the master,
// if there is one), and stores the register that it returns; the parameter is
// then the rounded master.
template <class S, class F>
void update(int64_t n, S* param, compute_t<S>* master, F&& f) {
  using T = compute_t<S>;
  constexpr int64_t w = Vec<T>::n;
  auto step = [&](auto at, int64_t left) {
    const Vec<T> p = f(at, master ? at(master) : at(param));
    if (left == w) {
      if (master) store(master + at.i, p);
      store(param + at.i, p);
    } else {
      if (master) store_n(master + at.i, p, left);
      store_n(param + at.i, p, left);
    }
  };
  int64_t i = 0;
  for (; i + w <= n; i += w) step(AtFull{i}, w);
  if (i < n) step(AtTail{i, n - i}, n - i);
}

// Writes a register at the reader's position.
template <class T>
void put(AtFull at, T* p, Vec<T> v) {
  store(p + at.i, v);
}
template <class T>
void put(AtTail at, T* p, Vec<T> v) {
  store_n(p + at.i, v, at.m);
}

// The factor for gradients.
template <class Options>
double scale_of(const Options& o) {
  return o.grad_scale * (o.clip ? *o.clip : 1);
}

double lr_of(const OptimPart& part) {
  return part.rates ? part.lr * part.rates[0] : part.lr;
}

struct StepRates {
  StepRates(const AdamW& o, const OptimPart& part) : lr(lr_of(part)) {
    const auto t = static_cast<double>(part.step);
    correction1 = part.rates ? part.rates[1] : 1 - std::pow(o.beta1, t);
    correction2 = part.rates ? part.rates[2] : 1 - std::pow(o.beta2, t);
  }
  double lr, correction1, correction2;
};

// Calls f.template operator()<S, G>() for parameters of S and gradients of G.
template <class F>
void visit_pair(DType param, DType grad, const char* where, F&& f) {
  DT_CHECK(grad == param || grad == stat_of(param), where,
           "does not take a gradient of {} with a parameter of {}", name(grad),
           name(param));
  visit_float(param, where, [&]<class S>() {
    if (grad == param)
      f.template operator()<S, S>();
    else
      f.template operator()<S, compute_t<S>>();
  });
}

}  // namespace

void CpuKernels::run(Stream, const AdamW& o) const {
  visit_pair(o.param_type, o.grad_type, "adamw", [&]<class S, class G>() {
    using T = compute_t<S>;
    using V = Vec<T>;
    const V gs(scale_of(o));
    const V c1(1 - o.beta1), b2(o.beta2), c2(1 - o.beta2), eps(o.eps);
    for (const OptimPart& part : o.parts) {
      const auto* g = static_cast<const G*>(part.grad);
      auto* pm = static_cast<T*>(part.m);
      auto* pv = static_cast<T*>(part.v);
      const StepRates r(o, part);
      const V keep(1 - r.lr * part.weight_decay);
      const V root2(1 / std::sqrt(r.correction2)), step(r.lr / r.correction1);
      update(part.n, static_cast<S*>(part.param), static_cast<T*>(part.master),
             [&](auto at, V p) {
               const V x = at(g) * gs;
               const V m0 = at(pm);
               const V m1 = m0 + (x - m0) * c1;
               const V v1 = fma(at(pv), b2, (x * x) * c2);
               put(at, pm, m1);
               put(at, pv, v1);
               return fma(p, keep, -(step * (m1 / (sqrt(v1) * root2 + eps))));
             });
    }
  });
}

void CpuKernels::run(Stream, const Sgd& o) const {
  visit_pair(o.param_type, o.grad_type, "sgd", [&]<class S, class G>() {
    using T = compute_t<S>;
    using V = Vec<T>;
    const V momentum(o.momentum), gs(scale_of(o));
    for (const OptimPart& part : o.parts) {
      const auto* g = static_cast<const G*>(part.grad);
      auto* buf = static_cast<T*>(part.m);
      const V lr(lr_of(part)), decay(part.weight_decay);
      update(part.n, static_cast<S*>(part.param), static_cast<T*>(part.master),
             [&](auto at, V p) {
               V d = fma(at(g), gs, decay * p);
               if (buf) {
                 const V b = momentum * at(buf) + d;
                 put(at, buf, b);
                 d = o.nesterov ? d + momentum * b : b;
               }
               return p - lr * d;
             });
    }
  });
}

void CpuKernels::run(Stream, const Clip& a) const {
  *a.norm = std::sqrt(*a.squares);
  *a.clip = clip_of(*a.norm, a.max_norm);
}

}  // namespace dtensor::kernels
