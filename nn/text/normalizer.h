// SPDX-License-Identifier: Apache-2.0
// The normalizers of tokenizer.json: steps that rewrite a text before it is
// split.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dtensor/nn/text/field.h"

namespace dtensor::nn::text {

// A text on its way to the model.
struct Draft {
  std::string text;
  // Whether the text begins with the first character of the whole input. Some
  // pre-tokenizers add a space only there.
  bool first = false;
};

class Normalizer {
 public:
  // Reads the member "normalizer", which may be null.
  explicit Normalizer(const Field&);

  void operator()(Draft&) const;

 private:
  void add(const Field&);
  std::string place_;
  std::vector<std::function<void(Draft&)>> steps_;
};

// The bytes of a text as byte-level tokenizers write them, each as one
// character: "\u0120" for a space.
std::string bytes_as_characters(std::string_view bytes);

// The reverse of bytes_as_characters(). If any character stands for no byte,
// returns the whole text unchanged.
std::string characters_as_bytes(std::string_view text);

}  // namespace dtensor::nn::text
