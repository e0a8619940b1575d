// SPDX-License-Identifier: Apache-2.0
// The models of tokenizer.json: each turns a piece of text into tokens.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dtensor/nn/text/field.h"

namespace dtensor::nn::text {

// Whether a file may give a token this id. There is a limit because the ids of
// a file may have gaps, and a Vocabulary takes memory for these, too.
inline bool is_id(int64_t id) { return id >= 0 && id < int64_t{1} << 22; }

// Tokens by id and ids by token.
class Vocabulary {
 public:
  // If a token is added several times, id() returns the last id. Throws Error,
  // beginning with `where`, if the id is taken or is_id() is false for it.
  void add(std::string token, int64_t id, const std::string& where);

  // -1 if there is no such token.
  int32_t id(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }
  // Null if no token has this id.
  const std::string* token(int64_t id) const;
  size_t count() const { return ids_.size(); }

  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  // The entries: pairs of a token and its id.
  auto begin() const { return ids_.begin(); }
  auto end() const { return ids_.end(); }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of a piece, which is not empty.
  virtual void encode(std::string_view piece, std::vector<int32_t>&) const = 0;

  const Vocabulary& vocabulary() const { return *vocabulary_; }

 protected:
  explicit Model(std::shared_ptr<const Vocabulary> v)
      : vocabulary_(std::move(v)) {}
  // Appends a token, "<0x00>" to "<0xFF>", for each byte of a text. Returns
  // false, and appends nothing, if the model lacks one of these tokens.
  bool encode_bytes(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
};

// Frees a thread's scratch memory if an unusually long piece has enlarged it.
template <class T>
void trim(std::vector<T>& scratch) {
  if (scratch.capacity() > size_t{1} << 16) std::vector<T>().swap(scratch);
}

// Reads the member "model".
std::unique_ptr<Model> read_model(const Field&);

// Each reads one kind of model. read_model() calls the right one.
std::unique_ptr<Model> read_bpe(const Field&);
std::unique_ptr<Model> read_unigram(const Field&);
std::unique_ptr<Model> read_word_piece(const Field&);

// Reads the member "vocab": an object with the ids of the tokens.
std::shared_ptr<Vocabulary> read_vocabulary(const Field&);

}  // namespace dtensor::nn::text
