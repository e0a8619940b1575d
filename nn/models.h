// Makes models by name.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/nn/language_model.h"

namespace dtensor::nn {

// Makes the model named config.name. Its parameters are in the plan's layouts,
// and their values depend only on the config and the seed. Throws Error if the
// config is not valid, or a pattern of the plan matches no parameter (a typing
// error would otherwise leave weights replicated). Every rank of the mesh calls
// it. Works in a dry run.
std::unique_ptr<LanguageModel> make_model(const ModelConfig&, const Mesh&,
                                          const ParallelPlan&,
                                          uint64_t seed = 0);
// With default_plan(config, mesh).
std::unique_ptr<LanguageModel> make_model(const ModelConfig&, const Mesh&,
                                          uint64_t seed = 0);

}  // namespace dtensor::nn
