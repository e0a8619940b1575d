// Models by name.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/nn/language_model.h"

namespace dtensor::nn {

// The model that config.name says, its parameters in the plan's layouts and a
// function of seed alone. Throws Error when the config is not valid, or a
// pattern of the plan matches no parameter (a typing error would else leave
// weights whole). Works in a dry run.
std::unique_ptr<LanguageModel> make_model(const ModelConfig&, const Mesh&,
                                          const ParallelPlan&,
                                          uint64_t seed = 0);
// On default_plan().
std::unique_ptr<LanguageModel> make_model(const ModelConfig&, const Mesh&,
                                          uint64_t seed = 0);

}  // namespace dtensor::nn
