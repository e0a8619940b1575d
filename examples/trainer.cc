#include "examples/trainer.h"

#include <algorithm>

#include "dtensor/nn/clip.h"
#include "dtensor/nn/models.h"
#include "dtensor/ops/grad.h"
#include "dtensor/runtime/autograd.h"

namespace dtensor::examples {

Trainer::Trainer(const TrainConfig& config, const Mesh& mesh)
    : config_(config),
      mesh_(mesh),
      model_(nn::make_model(config.model, mesh, config.plan(mesh),
                            static_cast<uint64_t>(config.seed))),
      optimizer_(nn::decay_matrices(model_->named_parameters()),
                 {.weight_decay = config.weight_decay}),
      schedule_{config.lr, config.steps, config.warmup} {}

// Every rank has the batch and keeps its rows.
DistTensor Trainer::spread(const Tensor& rows) const {
  return DistTensor::from_global(rows, mesh_, nn::batch_placements(mesh_));
}

StepResult Trainer::step(int64_t i, const TextData& text) {
  const Batch batch = text.windows(config_.batch, config_.model.seq,
                                   static_cast<uint64_t>(config_.seed), i);
  const DistTensor loss =
      model_->loss(spread(batch.inputs), spread(batch.targets));
  const std::vector<DistTensor> grads = grad(loss, optimizer_.parameters());
  StepResult result;
  result.grad_norm = nn::global_norm(grads);
  optimizer_.step(
      grads, {schedule_.at(i), nn::clip_scale(result.grad_norm, config_.clip)});
  Scoped<std::string> phase(RankContext::current().phase, "report");
  result.loss = loss.item();
  return result;
}

double Trainer::evaluate(const TextData& text) const {
  NoGrad no_grad;
  const int64_t seq = config_.model.seq;
  const int64_t windows = text.size() / seq;
  double sum = 0;
  for (int64_t first = 0; first < windows; first += config_.batch) {
    const int64_t rows = std::min(config_.batch, windows - first);
    const Batch batch = text.consecutive(first, rows, seq);
    sum += static_cast<double>(rows) *
           model_->loss(spread(batch.inputs), spread(batch.targets)).item();
  }
  return sum / static_cast<double>(windows);
}

Prediction predict(const TrainConfig& config, const RunOptions& options,
                   const Trace& trace) {
  Prediction p;
  RunOptions dry = options;
  dry.dry_run = true;
  run(dry, [&](Runtime& rt) {
    RankContext& context = rt.context();
    Trainer trainer(config, rt.mesh());
    for (const DistTensor& t : trainer.model().parameters()) {
      p.parameters += numel(t.shape());
      p.parameter_bytes += t.local().bytes();
    }
    context.record = true;
    context.trace = trace;
    trainer.step(0, TextData::none());
    context.trace = {};
    p.events = std::move(context.events);
    p.peak_bytes = context.allocator->stats().peak_bytes;
  });
  return p;
}

}  // namespace dtensor::examples
