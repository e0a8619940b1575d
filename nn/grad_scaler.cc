// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/grad_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "dtensor/autograd.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {
namespace {

constexpr const char *kOp = "grad_scaler", *kScale = "grad_scaler.scale",
                     *kTracker = "grad_scaler.growth_tracker";

float checked_scale(double scale) {
  const auto rounded = static_cast<float>(scale);
  DT_CHECK(rounded > 0 && std::isfinite(rounded), kOp,
           "the scale is {}; write a positive number that f32 can hold", scale);
  return rounded;
}

// The norm is NaN or infinite if a gradient is. (A rank outside all of the
// gradients' meshes has no norm.)
bool finite(const GradNorm& n) {
  return !n.norm.defined() || RankContext::current().dry_run ||
         std::isfinite(n.norm.item());
}

template <class T>
const T& value_of(const CheckpointValues& values, const char* name) {
  const auto found = values.find(name);
  const T* value =
      found == values.end() ? nullptr : std::get_if<T>(&found->second);
  DT_CHECK(value, kOp,
           "there is no value {} of the type that GradScaler::state() writes; "
           "if the saved run had no scaler, set enabled to false, or the "
           "loss_scale of a Trainer to 0",
           name);
  return *value;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(checked_scale(options.init_scale)) {
  DT_CHECK(options.growth_factor > 1, kOp,
           "growth_factor is {}; write a number above 1",
           options.growth_factor);
  DT_CHECK(options.backoff_factor > 0 && options.backoff_factor < 1, kOp,
           "backoff_factor is {}; write a number above 0 and below 1",
           options.backoff_factor);
  DT_CHECK(options.growth_interval > 0, kOp,
           "growth_interval is {}; write at least 1", options.growth_interval);
}

double GradScaler::get_scale() const { return options_.enabled ? scale_ : 1; }

DistTensor GradScaler::scale(const DistTensor& loss) const {
  return options_.enabled ? loss * get_scale() : loss;
}

void GradScaler::unscale_(const Optimizer& optimizer,
                          std::vector<DistTensor>& grads) {
  if (!options_.enabled) return;
  Seen& seen = seen_[&optimizer];
  DT_CHECK(!seen.stepped, kOp,
           "unscale_() was called after step() of this optimizer; call it "
           "before step(), or call update() between them");
  DT_CHECK(
      !seen.unscaled, kOp,
      "unscale_() was called twice for this optimizer; call it once before "
      "each update()");
  seen = {.unscaled = true, .finite = finite(grad_norm(grads))};
  const NoGrad no_grad;
  for (DistTensor& g : grads)
    g = (is_half_float(g.dtype()) ? cast(g, DType::kF32) : g) *
        (1 / get_scale());
}

void GradScaler::step(Optimizer& optimizer,
                      const std::vector<DistTensor>& grads,
                      UpdateOptions options, const GradNorm& norm) {
  if (!options_.enabled) return optimizer.step(grads, options);
  DT_CHECK(!RankContext::current().capture, kOp,
           "all replays of a graph would use the scale {}; step without a "
           "graph, or train in bf16, which does not need a scale",
           scale_);
  Seen& seen = seen_[&optimizer];
  DT_CHECK(!seen.stepped, kOp,
           "step() was called twice for this optimizer; call update() after "
           "each");
  if (!seen.unscaled) {
    seen.finite = finite(norm.norm.defined() ? norm : grad_norm(grads));
    options.grad_scale /= get_scale();
  }
  seen.stepped = true;
  options.skip |= !seen.finite;
  optimizer.step(grads, options);
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  if (new_scale) {
    scale_ = checked_scale(*new_scale);
    return seen_.clear();
  }
  DT_CHECK(!seen_.empty(), kOp,
           "there was no step() since the last update(); call step() before "
           "update()");
  const bool all_finite =
      std::all_of(seen_.begin(), seen_.end(),
                  [](const auto& entry) { return entry.second.finite; });
  seen_.clear();
  if (!all_finite) {
    scale_ = static_cast<float>(scale_ * options_.backoff_factor);
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    const auto grown = static_cast<float>(scale_ * options_.growth_factor);
    if (std::isfinite(grown)) scale_ = grown;
    growth_tracker_ = 0;
  }
}

CheckpointValues GradScaler::state() const {
  if (!options_.enabled) return {};
  return {{kScale, fmt::format("{}", scale_)}, {kTracker, growth_tracker_}};
}

void GradScaler::load_state(const CheckpointValues& values) {
  if (!options_.enabled) return;
  const auto& text = value_of<std::string>(values, kScale);
  float scale = 0;
  const char* end = text.data() + text.size();
  DT_CHECK(std::from_chars(text.data(), end, scale).ptr == end && scale > 0 &&
               std::isfinite(scale),
           kOp, "{} is '{}'; it must be a positive number that f32 can hold",
           kScale, text);
  growth_tracker_ = value_of<int64_t>(values, kTracker);
  scale_ = scale;
}

}  // namespace dtensor::nn
