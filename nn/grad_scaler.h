// Loss scaling for f16, as in torch.amp.GradScaler: the loss is multiplied by a
// scale, so that small gradients survive f16 on their way back, and the update
// divides by it. A step whose gradients are inf or NaN is skipped, and the next
// one has a smaller scale.
//
//   GradScaler scaler;
//   const auto grads = grad(scaler.scale(loss), optimizer.parameters());
//   scaler.step(optimizer, grads, {.lr = 1e-3});
//   scaler.update();
//
// With clipping, grad_norm() takes the scale and makes the only pass:
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
#include "dtensor/io/checkpoint_value.h"
#include "dtensor/nn/clip.h"
#include "dtensor/nn/optimizer.h"

namespace dtensor::nn {

// torch's names and defaults.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // above 1
  double backoff_factor = 0.5;     // between 0 and 1
  int64_t growth_interval = 2000;  // finite steps in a row before it grows
  bool enabled = true;  // if not: the scale is 1, and no step is skipped
};

// Every rank has one and calls the same. All ranks of the gradients' meshes
// take the same decision: it is whether the norm of all gradients is finite,
// which grad_norm() sums over these ranks anyway. (A rank of none of these
// meshes does not hear of an overflow.)
class GradScaler {
 public:
  // Throws Error for options outside their ranges.
  explicit GradScaler(const GradScalerOptions& = {});

  // The loss times get_scale(), of its type.
  DistTensor scale(const DistTensor& loss) const;
  // As torch keeps it: rounded to f32. 1 unless enabled.
  double get_scale() const;
  bool is_enabled() const { return options_.enabled; }

  // Divides this optimizer's gradients by the scale, for a program that reads
  // them before step(). Gradients of halves become f32: f16 would lose them
  // again. Collective as grad_norm() is. Throws Error when it was called since
  // the last update() for this optimizer, or after its step().
  void unscale_(const Optimizer&, std::vector<DistTensor>& grads);
  // optimizer.step(grads, options), which also divides by the scale unless
  // unscale_() has; with gradients that are not finite, options.skip is set.
  // `norm`: of these gradients, if the caller has it (its scale does not
  // matter); else grad_norm() runs here, unless unscale_() has asked it. The
  // host waits for the norm. Collective. Throws Error at a second call for one
  // optimizer without update(), and in a graph's step, whose replays would all
  // have one scale.
  void step(Optimizer&, const std::vector<DistTensor>& grads, UpdateOptions,
            const GradNorm& norm = {});
  // After the step()s: times backoff_factor if one of them was skipped, and
  // times growth_factor after growth_interval updates without that, unless f32
  // cannot hold it. Or sets `new_scale`, which must be positive. Throws Error
  // without a step() or unscale_() since the last update().
  void update(std::optional<double> new_scale = {});

  // The scale and the finite steps in a row, for TrainingState::values
  // (checkpoint.h); empty unless enabled, as torch's state_dict() is.
  CheckpointValues state() const;
  // Reads them among others. Throws Error when one is missing or no number;
  // nothing has changed then. Does nothing unless enabled.
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
