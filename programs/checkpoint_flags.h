// SPDX-License-Identifier: Apache-2.0
// The flags of programs that load a checkpoint: its folder, and its types.
#pragma once
#include <string>
#include <string_view>

#include "dtensor/nn/models.h"
#include "dtensor/program/program.h"

namespace dtensor::examples {

struct CheckpointFlags {
  std::string dir;
  bool int8() const { return weights_ == "int8"; }
  nn::LoadOptions load() const;

  // Declares --model, --dtype and --weights. `files` says what the folder needs
  // beside config.json.
  void add_to(Program&, std::string_view files);
  // Makes `dir` a path of the person who calls the program (caller_path()).
  // Throws Error if it is missing.
  void check();
  // Throws Error if a prompt and `tokens` more are longer than the model's
  // longest sequence, or if the model is an encoder.
  void check_length(int64_t tokens, int64_t prompt = 0) const;

 private:
  std::string dtype_ = "auto", weights_ = "auto";
};

}  // namespace dtensor::examples
