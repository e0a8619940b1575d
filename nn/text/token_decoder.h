// SPDX-License-Identifier: Apache-2.0
// The decoders of tokenizer.json: they turn tokens into text, one at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/field.h"

namespace dtensor::nn::text {

// A part of a token on its way to text. Most steps produce whole tokens. A step
// that joins all tokens makes one long token, which comes in many chunks.
// `begins`: whether this chunk is the first of its token. `ends`: the last.
struct Chunk {
  std::string text;
  bool begins = true, ends = true;
};

using Sink = std::function<void(Chunk)>;

// One step of a decoder, with its state for one text.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  // A step of the same kind for another text, at its beginning.
  virtual std::unique_ptr<DecodeStep> fresh() const = 0;
  // Takes a chunk. Gives `next` the new chunks that later ones cannot change.
  virtual void push(Chunk, const Sink& next) = 0;
  // Ends the text. Gives the Sink the chunks that this step has held back.
  virtual void finish(const Sink&) {}
};

// The steps of a decoder, in order.
class TokenDecoder {
 public:
  // Reads the member "decoder". If it is null, spaces join the tokens.
  explicit TokenDecoder(const Field&);

  // The same decoder at the beginning of another text.
  TokenDecoder fresh() const;

  // Takes a token. Returns the new text that later tokens cannot change.
  std::string push(std::string token);
  // Ends the text, and returns the rest of it.
  std::string finish();

 private:
  explicit TokenDecoder(std::string place) : place_(std::move(place)) {}
  void add(const Field&);
  // Gives a chunk to step i, or appends it to `text` if there is no step i.
  void run(size_t i, Chunk, std::string& text);

  std::string place_;
  std::vector<std::unique_ptr<DecodeStep>> steps_;
  Effort effort_{0};  // for all tokens of the text together
};

}  // namespace dtensor::nn::text
