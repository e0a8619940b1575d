#include "dtensor/nn/language_model.h"

#include "dtensor/ops/cross_entropy.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {

DistTensor LanguageModel::loss(const DistTensor& tokens,
                               const DistTensor& targets) const {
  const PathScope inside(path());
  return cross_entropy(head(features(tokens)), targets);
}

DistTensor LanguageModel::logits(const DistTensor& tokens) const {
  const PathScope inside(path());
  return head(features(tokens));
}

void LanguageModel::check_tokens(const DistTensor& tokens) const {
  DT_CHECK(tokens.ndim() == 2, "model",
           "tokens are {}; they must be [batch, sequence]",
           to_string(tokens.shape()));
  DT_CHECK(
      tokens.size(1) <= config_.seq, "model",
      "tokens are {}, longer than the model's sequence of {}; cut them, or "
      "make the model with seq {}",
      to_string(tokens.shape()), config_.seq, tokens.size(1));
}

}  // namespace dtensor::nn
