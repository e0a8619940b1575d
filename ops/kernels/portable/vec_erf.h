// SPDX-License-Identifier: Apache-2.0
// The error function of a register of floats, for CPUs that look up a table of
// 16 numbers in one instruction.
#pragma once
#include "dtensor/ops/kernels/portable/vec.h"

#if defined(__AVX512F__)
namespace dtensor::simd {

// erf(k/4 + d) = sum over i of kErf[i][k] * d^i for |d| <= 1/8. The polynomials
// minimize the largest relative error. (Their coefficients were rounded one
// after the other.) The last one reaches 1 at the end of its range.
alignas(64) inline constexpr float kErf[6][16] = {
    {0, 0.276326388f, 0.520499885f, 0.711155653f, 0.842700779f, 0.92290014f,
     0.966105163f, 0.986671686f, 0.995322287f, 0.998537302f, 0.999593019f,
     0.999899387f, 0.999977887f, 0.999995708f, 0.999999285f, 0.999999881f},
    {1.12837923f, 1.06001425f, 0.87878263f, 0.642931104f, 0.415107489f,
     0.236521125f, 0.118930288f, 0.0527749956f, 0.0206669867f, 0.00714231934f,
     0.00217828411f, 0.000586277281f, 0.000139253054f, 2.91890265e-05f,
     5.39942675e-06f, 1.08143217e-06f},
    {-1.4834377e-05f, -0.264999002f, -0.439388424f, -0.482204616f,
     -0.415101171f, -0.29565987f, -0.178406119f, -0.0923649371f, -0.041345302f,
     -0.0160793662f, -0.00543081248f, -0.00161679974f, -0.000406006468f,
     -0.000100577185f, -3.31137635e-05f, -5.02104115e-07f},
    {-0.375539601f, -0.309197724f, -0.146480381f, 0.0267740283f, 0.138371065f,
     0.167533949f, 0.138752192f, 0.090157792f, 0.0482229702f, 0.0217245333f,
     0.0083500687f, 0.00276029971f, 0.000789053447f, 0.000195788365f,
     4.22882658e-05f, 7.96760469e-06f},
    {-0.00740093458f, 0.126092896f, 0.182127848f, 0.150670707f, 0.0688514188f,
     -0.00528687751f, -0.0436145142f, -0.0474065915f, -0.0337135866f,
     -0.0185440835f, -0.00961772725f, -0.00299415435f, -0.00180675345f,
     7.42526609e-05f, 0.000839211221f, -0.000193226952f},
    {0.141664356f, 0.081135869f, 0.00833118428f, -0.0520805679f, -0.0690610334f,
     -0.047003068f, -0.014936707f, 0.00650258735f, 0.0130323563f, 0.0106476638f,
     0.00612735981f, 0.00277121365f, 0.00102547836f, 0.000317750877f,
     8.34959792e-05f, 1.87560872e-05f},
};

// Within 2.3 ulp, and exact at special values.
inline Vec<float> erf(Vec<float> x) {
  using V = Vec<float>;
  const V end(3.8749998), step(3145728);  // 1.5 * 2^21: rounds to k/4
  const V t = min(end, abs(x)), sum = t + step, d = t - (sum - step);
  const auto at_k = [&](const float* row) {  // k is in the low 4 bits
    return V((F32v)_mm512_maskz_permutexvar_ps(0xffff, (__m512i)sum.v,
                                               _mm512_load_ps(row)));
  };
  V y = at_k(kErf[5]);
#pragma GCC unroll 5
  for (int i = 4; i >= 0; --i) y = fma(y, d, at_k(kErf[i]));
  return copysign(y, x);
}

}  // namespace dtensor::simd
#endif
