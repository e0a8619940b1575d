// SPDX-License-Identifier: Apache-2.0
// Predicts the memory, bytes and time that a model needs to continue texts on a
// mesh. Reads only config.json.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/nn/engine.h"
#include "dtensor/nn/models.h"
#include "dtensor/program/program.h"

namespace dtensor::examples {

// Flags of //:generate, //:chat and //:serve that are for dry runs only, with
// their defaults.
struct GenerationFlags {
  int64_t prompt = 0;  // tokens of a prompt; 0: 512, or half of a short text
  std::string memory;  // of a rank, such as "80GB"; "": do not check memory

  void add_to(Program&);
  // Throws Error if one of the flags is given but --dry-run is not, or if
  // `memory` cannot be parsed.
  void check(const Program&) const;
};

// Returns the bytes of a number of MB, GB, TB, MiB, GiB or TiB, such as "80GB"
// or "512 MiB"; "80" is in GB. Throws Error for any other text, for less than
// one byte, and for 2^62 bytes or more.
int64_t parse_memory(const std::string&);

// Predicts how the model continues engine.texts texts of engine.length tokens,
// with prompts of `flags.prompt` tokens. Prints the memory of the rank that
// needs the most. Also prints the bytes that a rank receives and the time,
// under the prices of --cost: for a prompt, for a token of one text, and for a
// token of all texts. Writes the same to --json, and a record of each of the
// three to --record and --html. The times count attention as if every text had
// engine.length tokens already. `dir` needs only config.json. Throws Error for
// settings for which a real run would throw.
void predict_generation(Program&, const std::string& dir,
                        const nn::LoadOptions&, const nn::EngineOptions&,
                        const GenerationFlags& flags);

}  // namespace dtensor::examples
