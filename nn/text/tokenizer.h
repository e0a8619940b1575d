// SPDX-License-Identifier: Apache-2.0
// Turns text into token ids and back, by the files that come with a checkpoint.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::nn {

struct EncodeOptions {
  // Whether to add the tokens that the file puts around a text, such as <s>.
  bool add_special = true;
};

struct DecodeOptions {
  // Whether to leave out special tokens, such as </s>.
  bool skip_special = true;
};

// A tokenizer of Hugging Face. Its ids, and the text of decode(), are those of
// the Python package `tokenizers`. Objects are cheap to copy, and any number of
// threads may use one.
class Tokenizer {
 public:
  // Reads DIR/tokenizer.json: byte-level or SentencePiece BPE, unigram or
  // WordPiece. DIR/tokenizer_config.json and DIR/special_tokens_map.json, if
  // they exist, name the first and last token of a text, and the first of these
  // files may add tokens.
  // As in transformers, tokenizer.json alone decides which tokens encode()
  // adds, so "add_bos_token" and "add_eos_token" are ignored; so are truncation
  // and padding. Throws Error, with the name of the member, for what this
  // library does not know.
  static Tokenizer from_pretrained(const std::string& dir);

  // The ids of a text. Bytes that are not UTF-8 count as U+FFFD.
  std::vector<int64_t> encode(std::string_view text, EncodeOptions = {}) const;

  // The text of ids. Skips ids without a token: models pad their vocabulary.
  std::string decode(std::span<const int64_t> ids, DecodeOptions = {}) const;

  // The number of tokens, added ones included. An id may be larger, because
  // the ids of a file may have gaps.
  int64_t vocab_size() const;

  // The size in bytes of the longest token, as the files write it.
  size_t longest_token() const;

  // A token as the file writes it: "\u0120the", "<0x0A>" or "<s>". An added
  // token that is looked for in normalized text is returned in its normalized
  // form. Throws Error if no token has this id.
  const std::string& token(int64_t id) const;
  std::optional<int64_t> id(std::string_view token) const;
  bool is_special(int64_t id) const;

  // The first and last token of a text, if the files name them.
  std::optional<int64_t> bos() const;
  std::optional<int64_t> eos() const;

 private:
  friend class TextStream;
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts)
      : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

// Decodes one text id by id. All results of push() and that of finish(),
// joined, are the text of decode(). For use by one thread.
class TextStream {
 public:
  explicit TextStream(Tokenizer, DecodeOptions = {});
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;
  ~TextStream();

  // Returns the new text that later tokens cannot change. A character whose
  // bytes have not all come is held back. Empty for an id without a token, and
  // for a special token that is skipped.
  std::string push(int64_t id);

  // Returns the text that was held back. The stream is then at its end.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtensor::nn
