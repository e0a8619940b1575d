// SPDX-License-Identifier: Apache-2.0
// A unigram model (Kudo 2018) chooses the tokens whose scores have the largest
// sum.
#include <algorithm>

#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/model.h"
#include "dtensor/nn/text/trie.h"
#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {
namespace {

// The score of an unknown character is this much below the worst token's, as in
// SentencePiece.
constexpr double kUnknownPenalty = 10;

class Unigram : public Model {
 public:
  Unigram(const Field& f, const std::shared_ptr<Vocabulary>& vocabulary)
      : Model(vocabulary), place_(f.place()) {
    f.only({"vocab", "unk_id", "byte_fallback"});
    bytes_ = f.at("byte_fallback").flag_or(false);
    const Field list = f.at("vocab");
    if (!list.value().is_array()) list.refuse("a list");
    for (const nlohmann::json& x : list.value()) {
      DT_CHECK(
          x.is_array() && x.size() == 2 && x[0].is_string() && x[1].is_number(),
          "tokenizer", "{}[{}] is {}; write [token, score]", list.place(),
          scores_.size(), shortened(x.dump(), 200));
      auto token = x[0].get<std::string>();
      const auto id = static_cast<int32_t>(scores_.size());
      if (!token.empty()) trie_.insert(token, id);
      vocabulary->add(std::move(token), id, list.place());
      scores_.push_back(x[1].get<double>());
    }
    if (scores_.empty()) list.refuse("a list that is not empty");
    unknown_score_ = std::ranges::min(scores_) - kUnknownPenalty;
    if (const Field unk = f.at("unk_id"); !unk.is_null()) {
      if (!vocabulary->token(unk.number())) unk.refuse("the id of a token");
      unknown_ = static_cast<int32_t>(unk.number());
    }
  }

  void encode(std::string_view piece,
              std::vector<int32_t>& ids) const override {
    // By position: the best sequence of tokens from the beginning of the piece
    // to that position, as the sum of its scores and its last token.
    struct Best {
      double score = 0;
      size_t begin = kNowhere;
      int32_t id = -1;
    };
    thread_local std::vector<Best> best;
    best.assign(piece.size() + 1, {});
    for (size_t at = 0; at < piece.size();) {
      const size_t begin = at;
      const double before = best[begin].score;
      next_char(piece, at);
      const auto offer = [&](size_t end, double score, int32_t id) {
        Best& there = best[end];
        if (there.begin == kNowhere || before + score > there.score)
          there = {before + score, begin, id};
      };
      bool whole_char = false;
      const auto token = [&](size_t length, int32_t id) {
        offer(begin + length, scores_[static_cast<size_t>(id)], id);
        whole_char |= begin + length == at;
      };
      Effort::take(trie_.prefixes(piece.substr(begin), token), place_);
      if (!whole_char) offer(at, unknown_score_, unknown_);
    }
    thread_local std::vector<Range> parts;
    parts.clear();
    bool after_unknown = false;
    for (size_t end = piece.size(); end > 0; end = best[end].begin) {
      const bool unknown = best[end].id == unknown_;
      if (unknown && after_unknown) {
        parts.back().begin = best[end].begin;
      } else {
        parts.push_back({best[end].begin, end});
      }
      after_unknown = unknown;
    }
    std::ranges::reverse(parts);
    for (const auto& [begin, end] : parts)
      add(piece.substr(begin, end - begin), ids);
    trim(best);
    trim(parts);
  }

 private:
  static constexpr size_t kNowhere = ~size_t{0};

  void add(std::string_view part, std::vector<int32_t>& ids) const {
    const int32_t id = vocabulary().id(part);
    if (id >= 0) {
      ids.push_back(id);
    } else if (!(bytes_ && encode_bytes(part, ids))) {
      DT_CHECK(unknown_ >= 0, "tokenizer",
               "\"{}\" is not in the vocabulary, and {} has no unk_id; set it",
               shortened(part, 200), place_);
      ids.push_back(unknown_);
    }
  }

  std::string place_;
  Trie trie_;
  std::vector<double> scores_;
  double unknown_score_;
  int32_t unknown_ = -1;
  bool bytes_;
};

}  // namespace

std::unique_ptr<Model> read_unigram(const Field& f) {
  return std::make_unique<Unigram>(f, std::make_shared<Vocabulary>());
}

}  // namespace dtensor::nn::text
