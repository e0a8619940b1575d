// SPDX-License-Identifier: Apache-2.0
#include "programs/checkpoint_flags.h"

#include <fmt/format.h>

#include "dtensor/nn/architecture.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/placement/error.h"
#include "dtensor/text_file.h"

namespace dtensor::examples {

void CheckpointFlags::add_to(Program& program, std::string_view files) {
  program.add("--model", &dir,
              fmt::format("a folder with config.json and {}", files),
              TextKind::kFolder);
  program.add("--dtype", &dtype_,
              "the type of parameters and activations; auto: the checkpoint's",
              {"auto", "f32", "f64", "bf16", "f16"});
  program.add("--weights", &weights_,
              "the type of matrices, other than the embedding; auto: --dtype",
              {"auto", "int8"});
}

void CheckpointFlags::check() {
  DT_CHECK(!dir.empty(), "--model", "it is missing; write --model DIR");
  dir = caller_path(dir);
}

void CheckpointFlags::check_length(std::string_view flag, int64_t tokens,
                                   int64_t prompt) const {
  const nn::ModelConfig config = nn::read_config(dir + "/config.json");
  DT_CHECK(nn::architecture(config.name).causal, "generate",
           "the model in {} is a {}, which does not generate text; name "
           "another folder with --model",
           dir, config.name);
  const int64_t seq = config.seq;
  DT_CHECK(prompt > 0 || tokens <= seq, flag,
           "it is {}, but the model's longest sequence is {}; write at most "
           "that",
           tokens, seq);
  DT_CHECK(tokens <= seq - prompt, flag,
           "it is {}, and the length of the longest prompt is {}, but the "
           "model's longest sequence is {}; write a shorter prompt or fewer "
           "tokens",
           tokens, prompt, seq);
}

nn::LoadOptions CheckpointFlags::load() const {
  nn::LoadOptions options;
  if (dtype_ != "auto") options.dtype = parse_dtype(dtype_);
  options.int8_weights = int8();
  return options;
}

}  // namespace dtensor::examples
