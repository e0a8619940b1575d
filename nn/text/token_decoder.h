// SPDX-License-Identifier: Apache-2.0
// The decoders of tokenizer.json: from tokens to text, a token at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/field.h"

namespace dtensor::nn::text {

// A part of a token on its way to text. Most steps work on whole tokens; after
// a step that joins all tokens, the rest of the text is one token in many
// parts.
struct Chunk {
  std::string text;
  bool begins = true, ends = true;
};

using Sink = std::function<void(Chunk)>;

// One step, with the state of one text.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  // A step of the same kind for another text, at its beginning.
  virtual std::unique_ptr<DecodeStep> fresh() const = 0;
  // Takes a chunk and gives the next step each that later ones do not change.
  virtual void push(Chunk, const Sink& next) = 0;
  // Gives the rest.
  virtual void finish(const Sink&) {}
};

// The steps of a decoder, in order.
class TokenDecoder {
 public:
  // From the member "decoder"; if it is null, spaces join the tokens.
  explicit TokenDecoder(const Field&);

  // For another text.
  TokenDecoder fresh() const;

  // Returns the text that is sure now.
  std::string push(std::string token);
  // Returns the rest of the text.
  std::string finish();

 private:
  explicit TokenDecoder(std::string place) : place_(std::move(place)) {}
  void add(const Field&);
  // Gives a chunk to step i, or to the text behind the last step.
  void run(size_t i, Chunk, std::string& text);

  std::string place_;
  std::vector<std::unique_ptr<DecodeStep>> steps_;
  Effort effort_{0};  // of all tokens
};

}  // namespace dtensor::nn::text
