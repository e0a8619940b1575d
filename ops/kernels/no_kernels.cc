#include "dtensor/ops/kernels/kernels.h"

namespace dtensor {
namespace kernels {
namespace {

class NoKernels final : public Kernels {
 public:
#define DT_NOTHING(A) \
  void run(Stream, const A&) const override {}
  DT_KERNELS(DT_NOTHING)
#undef DT_NOTHING
  void adamw(Stream, DType, DType, const AdamW&,
             std::span<const OptimPart>) const override {}
  void sgd(Stream, DType, DType, const Sgd&,
           std::span<const OptimPart>) const override {}
  void clip(Stream, const double*, double, double*, double*) const override {}
  void random_box(Stream, Distribution, DType, const RandomKey&, const Shape&,
                  const Shape&, const Shape&, void*, const Shape&, double,
                  double) const override {}
};

}  // namespace
}  // namespace kernels

const Kernels& no_kernels() {
  static const kernels::NoKernels none;
  return none;
}

}  // namespace dtensor
