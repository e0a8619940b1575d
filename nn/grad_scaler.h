// SPDX-License-Identifier: Apache-2.0
// Loss scaling for f16, as in torch.amp.GradScaler: the loss is multiplied by a
// scale, so that small gradients do not underflow in f16 during the backward
// pass, and the update divides by it. A step with inf or NaN gradients (or a
// norm that overflows) is skipped, and the scale is then reduced.
//
//   GradScaler scaler;
//   const auto grads = grad(scaler.scale(loss), optimizer.parameters());
//   scaler.step(optimizer, grads, {.lr = 1e-3});
//   scaler.update();
//
// With clipping, grad_norm() takes the scale, so that the gradients are read
// only once for both:
//
//   const GradNorm norm = grad_norm(grads, 1, 1 / scaler.get_scale());
//   scaler.step(optimizer, grads, {.lr = 1e-3, .clip = norm.clip}, norm);
//   scaler.update();
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/io/stored.h"
#include "dtensor/nn/optimizer.h"

namespace dtensor::nn {

// The names and defaults are those of torch.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // above 1
  double backoff_factor = 0.5;     // between 0 and 1
  int64_t growth_interval = 2000;  // finite updates in a row before growth
  bool enabled = true;  // if false, the scale is 1, and no step is skipped
};

// Every rank constructs one and makes the same calls. All ranks of the
// gradients' meshes skip the same steps: they decide by the norm of all
// gradients, which grad_norm() sums over these ranks anyway. (A rank outside
// all of these meshes does not learn of an overflow.)
class GradScaler {
 public:
  // Throws Error for options outside their ranges.
  explicit GradScaler(const GradScalerOptions& = {});

  // The loss times get_scale(), in the type of the loss.
  DistTensor scale(const DistTensor& loss) const;
  // The scale, rounded to f32 as in torch; 1 if not enabled.
  double get_scale() const;
  bool is_enabled() const { return options_.enabled; }

  // Divides this optimizer's gradients by the scale, for a program that reads
  // them before step(). bf16 and f16 gradients become f32, since f16 could not
  // hold the small ones. Collective as grad_norm() is. Throws Error if
  // unscale_() or step() was called for this optimizer since the last update().
  // Does nothing if not enabled.
  void unscale_(const Optimizer&, std::vector<DistTensor>& grads);
  // Calls optimizer.step(grads, options), with the gradients divided by the
  // scale unless unscale_() did so. Sets options.skip if the gradients' norm is
  // not finite. Pass `norm` if grad_norm() was called for these gradients, with
  // any grad_scale: step() only looks whether it is finite. Otherwise step()
  // calls grad_norm(), unless unscale_() did. The host waits for the norm.
  // Collective as grad_norm() is. Throws Error for a second call for one
  // optimizer without an update() between, and in a graph's step, because every
  // replay would use the same scale. If not enabled, it only calls
  // optimizer.step().
  void step(Optimizer&, const std::vector<DistTensor>& grads, UpdateOptions,
            const GradNorm& norm = {});
  // Call it after all step()s. If one of them (or unscale_()) found a norm that
  // is not finite, multiplies the scale by backoff_factor. After
  // growth_interval updates in a row without that, multiplies it by
  // growth_factor, unless f32 cannot hold the product. If `new_scale` is given,
  // the scale is set to it instead; it must be positive. Without new_scale,
  // throws Error if there was no step() or unscale_() since the last update().
  // Does nothing if not enabled.
  void update(std::optional<double> new_scale = {});

  // The scale and the number of finite updates in a row, for
  // TrainingState::values (checkpoint.h). Empty if not enabled, as torch's
  // state_dict() is.
  CheckpointValues state() const;
  // Loads what state() returned; `values` may have other entries, too. Throws
  // Error, with nothing changed, if an entry is missing or not a valid number.
  // Does nothing if not enabled.
  void load_state(const CheckpointValues&);

 private:
  struct Seen {
    bool unscaled = false, stepped = false, finite = true;
  };
  GradScalerOptions options_;
  float scale_;
  int64_t growth_tracker_ = 0;
  std::map<const Optimizer*, Seen> seen_;  // since the last update()
};

}  // namespace dtensor::nn
