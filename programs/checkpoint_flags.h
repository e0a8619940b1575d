// SPDX-License-Identifier: Apache-2.0
// The flags of programs that load a checkpoint: its folder, and the types of
// its tensors.
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

  // Declares --model, --dtype and --weights. `files`, for the help text, names
  // the files that the folder needs beside config.json.
  void add_to(Program&, std::string_view files);
  // Replaces `dir` by caller_path(dir): a relative path starts in the folder
  // from which the user called the program. Throws Error if --model is missing.
  void check();
  // Throws Error if a prompt of `prompt` tokens and `tokens` more are longer
  // than the model's longest sequence, or if the model is an encoder. `flag`
  // is the one that says `tokens`.
  void check_length(std::string_view flag, int64_t tokens,
                    int64_t prompt = 0) const;

 private:
  std::string dtype_ = "auto", weights_ = "auto";
};

}  // namespace dtensor::examples
