#include "dtensor/ops/kernels/cpu/unary_loops.h"

namespace dtensor::kernels::cpu {

UnaryLoop<float> unary_f32(int index, int order) {
  return find_loop<float>(fn::UnaryFunctions(), index, order);
}

}  // namespace dtensor::kernels::cpu
