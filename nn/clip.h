// Gradient clipping by the global norm.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor::nn {

// Two f64 scalars in device memory; the host does not wait for them.
struct GradNorm {
  // The 2-norm of all gradients together. NaN or infinite if a gradient is;
  // also infinite if the square of an element overflows (elements beyond 1.8e19
  // in f32 and bf16).
  Tensor norm;
  Tensor clip;  // the factor that limits the norm to max_norm: clip_scale()
};

// Returns the same numbers on every rank of the gradients' meshes, and
// undefined tensors on ranks outside all of them. Each element counts once,
// however many ranks hold a copy.
//
// Collective over the ranks of the gradients' meshes. For each mesh, and each
// set of its axes that splits some gradient, it all-reduces one f64 scalar. If
// some rank is not in every mesh, each mesh also sends one scalar to all of
// these ranks. The messages are tagged "grad_norm", phase "clip". Ranks may
// list different gradients as long as each rank is in all meshes that it lists
// and lists at least two. (If meshes share only some of their ranks, an
// extra reduction on each mesh decides whether totals must be sent, and the
// host waits for it.) Throws Error for a partial gradient, whose parts do not
// determine its norm.
//
// Both numbers are those of the gradients times grad_scale, to match
// UpdateOptions::grad_scale. REQUIRES: grad_scale > 0.
GradNorm grad_norm(const std::vector<DistTensor>& grads, double max_norm = 0,
                   double grad_scale = 1);
// The norm as a host number; the host waits for it. Collective as grad_norm()
// is. Returns 0 on ranks outside all meshes and in a dry run.
double global_norm(const std::vector<DistTensor>& grads);

// The factor that limits the norm of the gradients to max_norm: min(1, max_norm
// / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_; 1 if max_norm is 0. A
// NaN norm gives NaN, which then makes every gradient NaN on every rank. With
// error_if_nonfinite it throws Error for a norm that is NaN or infinite, on
// every rank, since all ranks have the same norm. REQUIRES: max_norm >= 0.
double clip_scale(double norm, double max_norm,
                  bool error_if_nonfinite = false);

}  // namespace dtensor::nn
