// SGD and AdamW, as in torch.optim. The update is local: a rank updates the
// part of each parameter that its gradient's layout gives it
// (DistTensor::set_grad_layout(); else what it holds), with state in the same
// layout. Of a parameter whose mesh a rank is not in, it holds none and updates
// none.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/nn/parameter.h"

namespace dtensor::kernels {
struct OptimPart;  // dtensor/ops/kernels/optim.h
}

namespace dtensor::nn {

// What may change from one update to the next.
struct UpdateOptions {
  double lr = 1e-3;
  // Every gradient is multiplied by it: by 1 / s where grad() was given a
  // cotangent of s. f16 loses gradients below 6e-8 on their way back; s keeps
  // them (grad_scaler.h chooses it).
  double grad_scale = 1;
  Tensor clip = {};  // and by this number of the device, if any (clip.h)
  // No parameter and no state changes and no step counts. What updates send is
  // sent all the same, so that a step's messages do not depend on its data.
  bool skip = false;
};

// "NAME.exp_avg" for the parameter NAME, say.
struct OptimizerState {
  std::string name;
  DistTensor value;
};

// The parameters may lie on several meshes. Constructors throw Error when one
// is no float, or two have one name.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // grads[i] is that of parameter i, in its grad_spec()'s layout (as grad()
  // gives it), of its type or f32. Throws Error otherwise. Sends nothing, but
  // for parameters that are updated in smaller parts than they are held in:
  // these are gathered, several in one exchange, in phase "update"; then it is
  // collective. What was written to a parameter since the last update (a load)
  // is where this one starts.
  //
  // In a graph's step (dtensor/graph.h), each replay is an update: the next one
  // in the count of steps, with the rate of set_replay_lr(), or that of these
  // options while there is none. The optimizer lives as long as the graph.
  void step(const std::vector<DistTensor>& grads, const UpdateOptions&);
  // Of the replays to come.
  void set_replay_lr(double lr) { replay_lr_ = lr; }
  // Group after group.
  const std::vector<DistTensor>& parameters() const { return parameters_; }
  // Updates made so far, those before a load_state() included.
  int64_t steps() const { return steps_; }

  // All that the next update depends on besides the parameters: for each, in
  // its gradient's layout, what torch calls "exp_avg" and "exp_avg_sq" (AdamW)
  // or "momentum_buffer" (SGD), f64 for f64 and else f32; "master", the f32
  // copy of a bf16 or f16 parameter; "step", an i64 scalar. The tensors are the
  // optimizer's own: the next update changes them.
  std::vector<OptimizerState> state() const;
  // Takes on values in any layout, of any mesh of the run and any float type.
  // Throws Error, which lists the names, when one is missing, unknown, twice
  // there or of another shape; nothing has changed then. Collective.
  void load_state(const std::vector<OptimizerState>&);

 protected:
  // `weight_decay` where the group has none of its own; `state`: the names of
  // further values like each parameter, zeros at first.
  Optimizer(const ParameterGroups&, double weight_decay,
            std::vector<std::string> state);

  // An update of parameters of one type, whose gradients have one type. Parts
  // are contiguous, and have elements; their first state is `m`, the second
  // `v`.
  struct Update {
    DType param, grad;
    std::span<const kernels::OptimPart> parts;
    double grad_scale;
    const double* clip;  // of the device, or null
  };
  // In a dry run, where the device does nothing, parts have no data.
  virtual void update(const Update&) = 0;
  // What OptimPart::rates holds for that step of a parameter.
  static constexpr size_t kRates = 3;
  virtual std::array<double, kRates> rates(double lr, int64_t step) const = 0;

 private:
  class Batches;
  struct Slot {
    std::string name;
    double lr_scale, weight_decay;
    std::vector<DistTensor> state;
    DistTensor master;     // of a half
    uint64_t version = 0;  // of the parameter when the master had its value
    int64_t step = 0;
  };
  // A half's master becomes the parameter if somebody wrote to that since.
  static void refresh_master(Slot&, const DistTensor&, const Tensor& part);
  Tensor rates_of_replays(double lr);
  void begin_replay(const Tensor& rates, double lr);
  void gather_updated();

  std::vector<DistTensor> parameters_;
  std::vector<Slot> slots_;
  std::vector<std::string> state_names_;
  int64_t steps_ = 0;
  std::optional<double> replay_lr_;
};

struct SGDOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class SGD : public Optimizer {
 public:
  explicit SGD(const ParameterGroups&, const SGDOptions& = {});

 private:
  void update(const Update&) override;
  std::array<double, kRates> rates(double lr, int64_t step) const override;
  SGDOptions options_;
};

// Decays every parameter unless its group says otherwise, as torch does; see
// decay_matrices().
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

class AdamW : public Optimizer {
 public:
  explicit AdamW(const ParameterGroups&, const AdamWOptions& = {});

 private:
  void update(const Update&) override;
  std::array<double, kRates> rates(double lr, int64_t step) const override;
  AdamWOptions options_;
};

}  // namespace dtensor::nn
