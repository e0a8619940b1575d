#include "dtensor/nn/models.h"

#include <algorithm>

#include "dtensor/nn/gpt.h"
#include "dtensor/nn/llama.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config,
                                          const Mesh& mesh,
                                          const ParallelPlan& plan,
                                          uint64_t seed) {
  config.validate();
  const Scope root{mesh, std::make_shared<const ParallelPlan>(plan),
                   config.dtype, seed};
  std::unique_ptr<LanguageModel> model;
  if (config.name == "gpt")
    model = std::make_unique<GPT>(root, config);
  else
    model = std::make_unique<Llama>(root, config);
  const std::vector<NamedParameter> parameters = model->named_parameters();
  for (const auto& [pattern, placements] : plan)
    DT_CHECK(std::any_of(parameters.begin(), parameters.end(),
                         [&](const NamedParameter& p) {
                           return matches(pattern, p.name);
                         }),
             "plan", "\"{}\" matches no parameter of {}; the first is {}",
             pattern, config.name, parameters.front().name);
  return model;
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config,
                                          const Mesh& mesh, uint64_t seed) {
  config.validate();
  return make_model(config, mesh, default_plan(config, mesh), seed);
}

}  // namespace dtensor::nn
