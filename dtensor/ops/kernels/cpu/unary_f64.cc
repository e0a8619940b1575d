#include "dtensor/ops/kernels/cpu/unary_loops.h"

namespace dtensor::kernels::cpu {

UnaryLoop<double> unary_f64(int index, int order) {
  return find_loop<double>(fn::UnaryFunctions(), index, order);
}

}  // namespace dtensor::kernels::cpu
