// What GPT and Llama have in common.
#pragma once
#include "dtensor/nn/config.h"
#include "dtensor/nn/module.h"

namespace dtensor::nn {

class LanguageModel : public Module {
 public:
  LanguageModel(const Scope& at, const ModelConfig& config)
      : Module(at), config_(config) {}
  const ModelConfig& config() const { return config_; }

  // tokens [b, s], i32 or i64, s <= config().seq -> after the last norm,
  // [b, s, hidden].
  virtual DistTensor features(const DistTensor& tokens) const = 0;
  // [b, s, hidden] -> [b, s, vocab].
  virtual DistTensor head(const DistTensor& features) const = 0;

  DistTensor logits(const DistTensor& tokens) const;
  // The mean cross-entropy of targets [b, s], a scalar in f32 (f64 for f64).
  // Targets of -100 count for nothing.
  DistTensor loss(const DistTensor& tokens, const DistTensor& targets) const;

 protected:
  // Throws Error unless tokens is [b, s] with s <= seq.
  void check_tokens(const DistTensor& tokens) const;

 private:
  ModelConfig config_;
};

}  // namespace dtensor::nn
