// SGD and AdamW, as in torch.optim. The update is local: a rank updates the
// part of each parameter that it holds, with state in the same layout.
#pragma once
#include <vector>

#include "dtensor/runtime/dist_tensor.h"

namespace dtensor::nn {

// What may change from one update to the next.
struct UpdateOptions {
  double lr = 1e-3;
  double grad_scale = 1;  // every gradient is multiplied by it (clip.h)
};

class Optimizer {
 public:
  explicit Optimizer(std::vector<DistTensor> parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // grads[i] is that of parameter i, in its layout (as grad() gives it), of its
  // type or f32. Throws Error otherwise. Sends nothing.
  void step(const std::vector<DistTensor>& grads, const UpdateOptions&);
  const std::vector<DistTensor>& parameters() const { return parameters_; }
  // Updates made so far.
  int64_t steps() const { return steps_; }

 protected:
  // The local update of parameter i; not called in a dry run, nor for a part
  // without elements.
  virtual void update(size_t i, const Tensor& param, const Tensor& grad,
                      const UpdateOptions&) = 0;
  // State like parameter i's local part, zeros, f64 for f64 and else f32.
  Tensor state_like(size_t i) const;
  // For bf16 parameters a copy in f32, which is what is updated; else null.
  void* master(size_t i) const;
  // Weight decay is for matrices (embeddings included), not for vectors.
  double decay(size_t i, double weight_decay) const {
    return parameters_[i].ndim() >= 2 ? weight_decay : 0;
  }

 private:
  std::vector<DistTensor> parameters_;
  std::vector<Tensor> masters_;
  int64_t steps_ = 0;
};

struct SGDOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class SGD : public Optimizer {
 public:
  explicit SGD(std::vector<DistTensor> parameters, const SGDOptions& = {});

 private:
  void update(size_t, const Tensor&, const Tensor&,
              const UpdateOptions&) override;
  SGDOptions options_;
  std::vector<Tensor> momentum_;
};

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<DistTensor> parameters, const AdamWOptions& = {});

 private:
  void update(size_t, const Tensor&, const Tensor&,
              const UpdateOptions&) override;
  AdamWOptions options_;
  std::vector<Tensor> m_, v_;
};

}  // namespace dtensor::nn
