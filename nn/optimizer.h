// SPDX-License-Identifier: Apache-2.0
// The base class of optimizers; those of torch.optim are in optimizers.h. A
// rank updates the part of each parameter that it has in the layout of the
// gradient (DistTensor::set_grad_layout(); by default the parameter's own). A
// rank outside a parameter's mesh has no part of it and does not update it.
//
// SGD and AdamW update all parameters by one kernel each. Other classes write
// the update of one parameter with operators: see Optimizer::update().
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/nn/parameter.h"

namespace dtensor::kernels {
struct OptimPart;  // dtensor/ops/kernels/optim.h
}

namespace dtensor::nn {

// Options that may change from one update to the next.
struct UpdateOptions {
  double lr = 1e-3;
  // Every gradient is multiplied by this number. Pass 1 / s if grad() started
  // from a cotangent of s. A large s keeps gradients below 6e-8 from
  // underflowing in f16; grad_scaler.h chooses s.
  double grad_scale = 1;
  Tensor clip = {};  // a further factor: GradNorm::clip, in device memory
  // If true, no parameter, state or step count changes. Messages are the same,
  // so that those of a step do not depend on its data: updated parts are sent,
  // and an update by operators is computed and dropped.
  bool skip = false;
  // If rows[i] is defined, the update of parameter i, a matrix [v, h], is
  // sparse (step()). May be shorter than the list of gradients.
  std::vector<DistTensor> rows = {};
};

// An optimizer state tensor, such as "NAME.exp_avg" for the parameter NAME.
struct OptimizerState {
  std::string name;
  DistTensor value;
  // The parameter whose state `value` is. load_state() ignores this member.
  DistTensor parameter = {};
};

// One parameter's update, as Optimizer::update() gets it. `parameter`,
// `gradient` and, as a rule, the states are f64 if the parameter is, else f32,
// in the layout of the parameter's grad_spec(). None may be written to in
// place.
struct ParameterUpdate {
  DistTensor parameter;     // its value; that of the master for bf16 and f16
  DistTensor gradient;      // times UpdateOptions::grad_scale and clip
  double lr, weight_decay;  // those of the parameter's group
  int64_t step;             // 1 in the first update
  size_t index;             // of the parameter in Optimizer::parameters()
  std::vector<NamedTensor> states;

  // The state of this name. Assign a tensor to it to change the state. Throws
  // Error if there is no such state.
  DistTensor& state(std::string_view name);
};

// The parameters may lie on several meshes. Constructors throw Error if a
// parameter is not of a float type, if one is listed twice, if two have the
// same name, or for an option out of range.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Makes one update. grads[i] is the gradient of parameter i, in the layout of
  // its grad_spec() (as grad() returns it), and in the parameter's type or f32;
  // throws Error otherwise. Nothing is sent, except by the operators of
  // update(), and unless ranks hold more of a parameter than the part that they
  // update. The parts are then gathered, those of several parameters in one
  // exchange. The phase is "update". step() is collective if it sends. If a
  // program has written to a parameter since the last update (a load), this
  // update starts from the written value.
  //
  // In a sparse update, grads[i] is the gradient of the rows of parameter i
  // that rows[i] lists: distinct ids, i64 [u], replicated. It is [u, h], and
  // has the spec rows_spec(parameter i, u). A UsedRows (ops/data_shapes.h) has
  // both. Ids outside of [0, v) select nothing. Only the rows are read, written
  // and, if ranks hold more than the part that they update, gathered. Other
  // rows keep their values and state, as in torch.optim.SparseAdam: their
  // moments, momentum and weights do not decay. The bias correction of AdamW
  // counts the parameter's updates, not the row's. The rows get the usual
  // update; SparseAdam's has no weight decay, and adds eps to sqrt(v) before
  // the bias correction of v.
  //
  // In a graph's step (dtensor/graph.h), each replay is one update: it
  // increments the step count and uses the rate of set_replay_lr(), or
  // options.lr if that was never called. The optimizer must live as long as the
  // graph.
  //
  // An update by operators is neither sparse nor in a graph's step, nor is one
  // of offloaded state in a graph's step; step() throws Error.
  void step(const std::vector<DistTensor>& grads, const UpdateOptions&);
  // Sets the learning rate of later replays.
  void set_replay_lr(double lr) { replay_lr_ = lr; }
  bool by_operators() const { return by_operators_; }
  // Group after group.
  const std::vector<DistTensor>& parameters() const { return parameters_; }
  // The updates so far that were not skipped. load_state() sets this to the
  // largest "step" in the state.
  int64_t steps() const { return steps_; }

  // The state that the next update depends on besides the parameters: for each
  // parameter, its states, such as AdamW's "exp_avg" and "exp_avg_sq", under
  // torch's names; "master", the f32 copy of a bf16 or f16 parameter in its
  // gradient's layout; and "step", an i64 scalar. The next update changes these
  // tensors, which are the optimizer's own. Only "step", and the master of a
  // parameter that a program has written to since the last update, are copies.
  std::vector<OptimizerState> state() const;
  // Loads state values in any layout and on any mesh of the run. Floats may
  // have any float type. Throws Error, with nothing changed, if values are
  // missing or unknown (it lists at most 8 names of each), or if one is given
  // twice or of another shape. Collective over the run.
  void load_state(const std::vector<OptimizerState>&);
  std::vector<OptimizerState> state_dict() const { return state(); }
  void load_state_dict(const std::vector<OptimizerState>& s) { load_state(s); }
  void zero_grad() const {}  // there are none: grad() returns gradients

 protected:
  // Throws Error unless 0 <= value < below.
  static void check_option(std::string_view name, double value, double below);
  // ---- For a class whose update is written with operators ----

  // Returns a parameter's states with their initial values, given its value as
  // in ParameterUpdate. They may differ in shape from the parameter, and
  // between parameters. An operator gives them a layout that follows from the
  // parameter's: {{"exp_avg", zeros_like(p)}}. Partial ones are reduced.
  using States = std::function<std::vector<NamedTensor>(const DistTensor& p)>;
  // `weight_decay` is used for groups without their own. Throws Error for a
  // state on another mesh, or with an empty name, a name with a dot, or one
  // that occurs twice or is "master" or "step".
  Optimizer(const ParameterGroups&, double weight_decay, States);
  // Returns the new value of one parameter, and sets its new states, in any
  // layouts; they are brought to those of the old ones. Called inside NoGrad
  // for one parameter after the other, on all ranks of its mesh. Nothing is
  // sent unless an operator sends, and element-wise operators do not. Throws
  // Error if a value has another shape, mesh or kind of type than the old one.
  virtual DistTensor update(ParameterUpdate&);
  // If together(), a step calls update_all() once, for all parameters on whose
  // meshes this rank is. It returns what update() does, for each of them.
  virtual bool together() const { return false; }
  virtual std::vector<DistTensor> update_all(std::span<ParameterUpdate>);

  // ---- For a class with a kernel ----

  // `state` names further tensors of each parameter's shape, initially zero.
  Optimizer(const ParameterGroups&, double weight_decay,
            const std::vector<std::string>& state);
  // An update of parameters of one type with gradients of one type. Parts are
  // contiguous and not empty; some may be updated in some rows only.
  // OptimPart::m and v point to the first and the second of the tensors that
  // the constructor's `state` names.
  struct Parts {
    DType param, grad;
    std::span<const kernels::OptimPart> parts;
    double grad_scale;
    const double* clip;  // in device memory, or null
  };
  // The name of the update's kernel for observers (KernelRan).
  virtual std::string_view kernel_name() const { return "optimizer"; }
  // Applies one update. In a dry run parts have no data.
  virtual void update_parts(const Parts&);
  // The values of OptimPart::rates for one step of a parameter; by default lr.
  static constexpr size_t kRates = 3;
  using Rates = std::array<double, kRates>;
  virtual Rates rates(double lr, int64_t step) const;

 private:
  class Batches;
  struct Slot {
    std::string name;
    DType type;  // of the parameter when the optimizer was made
    double lr_scale, weight_decay;
    bool offload;  // its states and master (ParameterGroup::offload_state)
    std::vector<NamedTensor> states;
    DistTensor master;     // the f32 copy of a bf16 or f16 parameter
    uint64_t version = 0;  // of the parameter when the master last equalled it
    int64_t step = 0;
  };
  // If the slot's states and master are offloaded, moves them to the host.
  static void put_away(const Slot&);
  // Copies the parameter to its master if a program has written to it since.
  static void refresh_master(Slot&, const DistTensor&, const Tensor& part);
  void update_by_kernels(const std::vector<DistTensor>& grads,
                         const UpdateOptions&);
  void update_by_operators(const std::vector<DistTensor>& grads,
                           const UpdateOptions&);
  Tensor rates_of_replays(double lr);
  void begin_replay(const Tensor& rates, double lr);
  void gather_updated(const UpdateOptions&);

  std::vector<DistTensor> parameters_;
  std::vector<Slot> slots_;
  bool by_operators_ = true;
  int64_t steps_ = 0;
  std::optional<double> replay_lr_;
};

// ---- Clipping by the global norm ----

// Two f64 scalars in device memory; the host does not wait for them.
struct GradNorm {
  // The 2-norm of all gradients together. NaN or infinite if a gradient is;
  // also infinite if the square of an element overflows, or the sum of a few of
  // them (elements of about 1e18 or more in f32 and bf16).
  Tensor norm;
  Tensor clip;  // the factor that limits the norm to max_norm: clip_scale()
};

// Returns the same numbers on every rank of the gradients' meshes, and
// undefined tensors on others. Each element counts once, however many copies.
//
// Collective over the ranks of the gradients' meshes. For each mesh, and each
// set of its axes that splits some gradient, it all-reduces one f64 scalar. If
// some rank is not in every mesh, each mesh also sends one scalar to the ranks
// of all meshes. The messages are tagged "grad_norm", phase "clip". Ranks may
// list different gradients if each rank lists only gradients on meshes to which
// it belongs, and lists gradients on two meshes or more. (If meshes share only
// some of their ranks, an extra reduction on each mesh finds out whether such
// scalars must be sent, and the host waits for it.) Throws Error for a partial
// gradient, whose parts do not determine its norm.
//
// Both numbers are those of the gradients times grad_scale, which is above 0.
GradNorm grad_norm(const std::vector<DistTensor>& grads, double max_norm = 0,
                   double grad_scale = 1);
// The norm on the host, which waits. Collective as grad_norm() is; 0 on ranks
// outside all meshes and in a dry run.
double global_norm(const std::vector<DistTensor>& grads);

// The factor that limits the norm of the gradients to max_norm: min(1, max_norm
// / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_; 1 if max_norm is 0.
// Otherwise a NaN norm gives NaN, and then NaN gradients on every rank. With
// error_if_nonfinite, throws Error for a norm that is NaN or infinite, on all
// ranks of the gradients' meshes. REQUIRES: max_norm >= 0.
double clip_scale(double norm, double max_norm,
                  bool error_if_nonfinite = false);

}  // namespace dtensor::nn
