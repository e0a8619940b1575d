// SPDX-License-Identifier: Apache-2.0
// Predicts, from config.json alone, what continuing texts with a model needs on
// a mesh, and how fast it is.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/nn/engine.h"
#include "dtensor/nn/models.h"
#include "dtensor/program/program.h"

namespace dtensor::examples {

// The flags of a dry run of //:generate, //:chat and //:serve, and the
// defaults.
struct GenerationFlags {
  int64_t prompt = 0;  // tokens of a prompt; 0: 512, or half of a text
  std::string memory;  // of a rank, as text; "": any

  void add_to(Program&);
  // Throws Error if a flag of a dry run is given, and this is none; or if the
  // memory cannot be read.
  void check(const Program&) const;
};

// The bytes of "80GB", "512 MiB" or "80", which is in GB. Throws Error for
// another text, or if they are not above 0.
int64_t parse_memory(const std::string&);

// Predicts texts of `flags.prompt` tokens and their continuations: as many as
// the options say, each up to its length. Prints the memory of the rank with
// the most, the bytes that a rank receives and the time of a prompt, of a token
// of one text and of a token of all texts, under the prices of --cost. Writes
// the same to --json, and a record of each of the three to --record and --html.
// The times are those of texts that fill the cache. `dir` needs only
// config.json. Throws Error as the run would.
void predict_generation(Program&, const std::string& dir,
                        const nn::LoadOptions&, const nn::EngineOptions&,
                        const GenerationFlags& flags);

}  // namespace dtensor::examples
