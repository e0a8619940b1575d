// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizers of tokenizer.json: steps that split a text into pieces
// ("words"), each of which the model turns into tokens by itself.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/text/field.h"

namespace dtensor::nn::text {

struct Piece {
  std::string_view text;
  bool first;  // as Draft::first in normalizer.h
};

// Pieces of a text. `owned` has the texts of pieces that a step has changed.
struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> owned;
};

class PreTokenizer {
 public:
  // Reads the member "pre_tokenizer", which may be null.
  explicit PreTokenizer(const Field&);

  void operator()(Pieces&) const;

  // Whether the last step is ByteLevel. If so, the caller must pass the bytes
  // of each piece to the model as characters (bytes_as_characters() in
  // normalizer.h). The pieces themselves stay bytes, so that the tokenizer's
  // cache of pieces can be asked without a conversion.
  bool ends_with_bytes() const { return ends_with_bytes_; }

 private:
  // How to treat the matches of a pattern that splits a text. Each match is
  // removed, becomes a piece of its own, or is joined to the piece before it,
  // to the piece after it, or to the matches beside it.
  enum class Keep { kRemoved, kIsolated, kPrevious, kNext, kContiguous };
  using Step = std::function<void(Pieces&)>;

  void add(const Field&);
  void add_split(const Regex&, Keep, bool invert = false);
  void add_byte_level(const Field&);
  void add_metaspace(const Field&);
  static Keep keep(const Field&);

  std::string place_;
  std::vector<Step> steps_;
  bool ends_with_bytes_ = false;
};

}  // namespace dtensor::nn::text
