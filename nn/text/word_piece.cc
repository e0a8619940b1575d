// SPDX-License-Identifier: Apache-2.0
// WordPiece (Schuster and Nakajima 2012, as in BERT) takes the longest token
// that the rest of the word begins with, again and again.
#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/model.h"
#include "dtensor/nn/text/trie.h"
#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {
namespace {

class WordPiece : public Model {
 public:
  WordPiece(const Field& f, const std::shared_ptr<const Vocabulary>& vocabulary)
      : Model(vocabulary), place_(f.place()) {
    f.only({"vocab", "unk_token", "continuing_subword_prefix",
            "max_input_chars_per_word"});
    const Field unk = f.at("unk_token");
    unknown_ = vocabulary->id(unk.text_or("[UNK]"));
    DT_CHECK(unknown_ >= 0, "tokenizer",
             "{} is \"{}\"{}, which is not in the vocabulary; use another file",
             unk.place(), shortened(unk.text_or("[UNK]"), 200),
             unk.is_null() ? " by default" : "");
    if (const Field most = f.at("max_input_chars_per_word"); !most.is_null())
      most_ = most.number();
    const std::string prefix = f.at("continuing_subword_prefix").text_or("##");
    for (const auto& [token, id] : f.at("vocab").value().items())
      if (!token.empty()) trie_.insert(token, id.get<int32_t>());
    inside_ = trie_.node(prefix);
  }

  void encode(std::string_view piece,
              std::vector<int32_t>& ids) const override {
    const size_t before = ids.size();
    int64_t chars = 0;
    for (size_t at = 0; at < piece.size(); chars++) next_char(piece, at);
    bool known = chars <= most_;
    for (size_t at = 0; known && at < piece.size();) {
      size_t longest = 0;
      int32_t best = -1;
      if (at == 0 || inside_)
        Effort::take(
            trie_.prefixes(
                piece.substr(at),
                [&](size_t length, int32_t id) { longest = length, best = id; },
                at == 0 ? 0 : *inside_),
            place_);
      known = best >= 0;
      if (known) ids.push_back(best);
      at += longest;
    }
    if (known) return;
    ids.resize(before);
    ids.push_back(unknown_);
  }

 private:
  std::string place_;
  Trie trie_;
  std::optional<uint32_t> inside_;  // the node where tokens within a word begin
  int64_t most_ = 100;
  int32_t unknown_;
};

}  // namespace

std::unique_ptr<Model> read_word_piece(const Field& f) {
  return std::make_unique<WordPiece>(f, read_vocabulary(f.at("vocab")));
}

}  // namespace dtensor::nn::text
