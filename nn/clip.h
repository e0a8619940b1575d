// Gradient clipping by the global norm.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor::nn {

// Numbers of the device, f64 without dimensions, that nobody waits for.
struct GradNorm {
  // The 2-norm of all gradients together. NaN or infinite when a gradient is;
  // infinite, too, when the square of one is (beyond 1.8e19 in f32 and bf16).
  Tensor norm;
  Tensor clip;  // what brings them down to max_norm: see clip_scale()
};

// The same on every rank of the gradients' meshes (undefined on a rank of none,
// where there is nothing to clip). Each element counts once, however often it
// is held. Collective over these ranks: one scalar (f64) all-reduce for each
// mesh and set of its axes that splits some gradient, and, where some rank is
// not in a mesh, a scalar from each mesh to all ranks; tagged "grad_norm",
// phase "clip". Ranks may list different gradients where each is in all meshes
// that it lists, of which there are several on every rank. (Where meshes share
// some of their ranks, each asks its ranks first whether one of them lacks a
// total, and the host waits.) Throws Error for a partial gradient, whose parts
// do not say its norm.
//
// Both numbers are those of the gradients times grad_scale, as
// UpdateOptions::grad_scale multiplies them. REQUIRES: grad_scale > 0.
GradNorm grad_norm(const std::vector<DistTensor>& grads, double max_norm = 0,
                   double grad_scale = 1);
// The norm as a number of the host, which waits for it; 0 on a rank of none and
// in a dry run.
double global_norm(const std::vector<DistTensor>& grads);

// What to multiply the gradients by so that their norm is at most max_norm:
// min(1, max_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_: NaN
// when the norm is, which then is every gradient on every rank. max_norm 0 does
// not clip. With error_if_nonfinite throws Error for a norm that is NaN or
// infinite: on every rank, since all have the same one. REQUIRES: max_norm >=
// 0.
double clip_scale(double norm, double max_norm,
                  bool error_if_nonfinite = false);

}  // namespace dtensor::nn
