// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding (Sennrich et al. 2016): the pair of neighbours whose merge
// comes first in the file is merged, until no pair has a merge.
#include <algorithm>
#include <functional>
#include <queue>

#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/model.h"
#include "dtensor/nn/text/pair_map.h"
#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {
namespace {

// A token of the piece, in a linked list of the tokens that are left.
struct Symbol {
  int32_t id;
  int32_t before, after;  // -1 at the ends
  bool merged = false;    // it is now part of the symbol before it
};

// A merge that was possible when it was found. Another merge may have taken one
// of its two symbols since.
struct Merge {
  uint32_t rank, at;
  int32_t result;
  bool operator>(const Merge& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

uint64_t pair(int32_t a, int32_t b) {
  return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
}

class Bpe : public Model {
 public:
  Bpe(const Field& f, const std::shared_ptr<const Vocabulary>& vocabulary)
      : Model(vocabulary), place_(f.place()) {
    f.only({"vocab", "merges", "dropout", "unk_token", "fuse_unk",
            "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
            "ignore_merges"});
    if (const Field dropout = f.at("dropout");
        !dropout.is_null() && dropout.value() != 0.0)
      dropout.refuse("null and 0");
    prefix_ = f.at("continuing_subword_prefix").text_or("");
    suffix_ = f.at("end_of_word_suffix").text_or("");
    fuse_ = f.at("fuse_unk").flag_or(false);
    bytes_ = f.at("byte_fallback").flag_or(false);
    whole_ = f.at("ignore_merges").flag_or(false);
    // GPT-2's file has an empty unk_token.
    const Field unk = f.at("unk_token");
    if (!unk.text_or("").empty()) {
      unknown_ = vocabulary->id(unk.text());
      if (unknown_ < 0) unk.refuse("a token of the vocabulary");
    }
    read_merges(f.at("merges"));
  }

  void encode(std::string_view piece,
              std::vector<int32_t>& ids) const override {
    if (whole_) {
      if (const int32_t id = vocabulary().id(piece); id >= 0) {
        ids.push_back(id);
        return;
      }
    }
    thread_local std::vector<int32_t> first;
    first.clear();
    characters(piece, first);
    merge(first, ids);
    trim(first);
  }

 private:
  void read_merges(const Field& f) {
    if (!f.value().is_array()) f.refuse("a list");
    uint64_t rank = 0;
    for (const nlohmann::json& x : f.value()) {
      // A merge is "a b" or, in newer files, ["a", "b"].
      std::string a, b;
      if (x.is_string()) {
        const auto& both = x.get_ref<const std::string&>();
        const size_t space = both.find(' ');
        a = both.substr(0, space);
        if (space != both.npos) b = both.substr(space + 1);
      } else if (x.is_array() && x.size() == 2 && x[0].is_string() &&
                 x[1].is_string()) {
        a = x[0].get<std::string>(), b = x[1].get<std::string>();
      }
      const std::string tail =
          b.starts_with(prefix_) ? b.substr(prefix_.size()) : b;
      const int32_t left = vocabulary().id(a), right = vocabulary().id(b);
      const int32_t result = vocabulary().id(a + tail);
      DT_CHECK(left >= 0 && right >= 0 && result >= 0, "tokenizer",
               "{}[{}] is {}, but a merge is two tokens of the vocabulary that "
               "together are a third; use another file",
               f.place(), rank, shortened(x.dump(), 200));
      // If a pair has two merges, the last one counts.
      merges_.set(pair(left, right),
                  rank++ << 32 | static_cast<uint32_t>(result));
    }
  }

  // Appends the tokens of the piece's characters, before any merge.
  void characters(std::string_view piece, std::vector<int32_t>& ids) const {
    // An unknown token waits, because fuse_ joins it with those after it.
    bool unknown = false;
    std::string decorated;
    for (size_t at = 0; at < piece.size();) {
      const size_t begin = at;
      next_char(piece, at);
      std::string_view c = piece.substr(begin, at - begin);
      const bool last = at == piece.size();
      if ((begin > 0 && !prefix_.empty()) || (last && !suffix_.empty())) {
        decorated = begin > 0 ? prefix_ : "";
        decorated += c;
        if (last) decorated += suffix_;
        Effort::take(decorated.size(), place_);
        c = decorated;
      }
      const int32_t id = vocabulary().id(c);
      if (id >= 0) {
        if (std::exchange(unknown, false)) ids.push_back(unknown_);
        ids.push_back(id);
      } else if (!(bytes_ && encode_bytes(c, ids)) && unknown_ >= 0) {
        if (std::exchange(unknown, true) && !fuse_) ids.push_back(unknown_);
      }
    }
    if (unknown) ids.push_back(unknown_);
  }

  void merge(const std::vector<int32_t>& first,
             std::vector<int32_t>& ids) const {
    const auto count = static_cast<int32_t>(first.size());
    thread_local std::vector<Symbol> symbols;
    thread_local std::vector<Merge> heap;
    symbols.clear();
    heap.clear();
    for (int32_t i = 0; i < count; i++)
      symbols.push_back(
          {first[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
    const auto symbol = [&](int32_t i) -> Symbol& {
      return symbols[static_cast<size_t>(i)];
    };
    // The merge of symbol i with the symbol after it; null if there is none.
    const auto merge_at = [&](int32_t i) -> const uint64_t* {
      if (i < 0 || symbol(i).after < 0) return nullptr;
      return merges_.find(pair(symbol(i).id, symbol(symbol(i).after).id));
    };
    const auto add = [&](int32_t i) {
      if (const uint64_t* merge = merge_at(i))
        heap.push_back({static_cast<uint32_t>(*merge >> 32),
                        static_cast<uint32_t>(i),
                        static_cast<int32_t>(*merge & 0xFFFFFFFF)});
    };
    for (int32_t i = 0; i < count; i++) add(i);
    std::ranges::make_heap(heap, std::greater{});
    while (!heap.empty()) {
      std::ranges::pop_heap(heap, std::greater{});
      const Merge top = heap.back();
      heap.pop_back();
      const auto at = static_cast<int32_t>(top.at);
      Symbol& left = symbol(at);
      const uint64_t* now = left.merged ? nullptr : merge_at(at);
      if (!now || static_cast<int32_t>(*now & 0xFFFFFFFF) != top.result)
        continue;
      Symbol& right = symbol(left.after);
      right.merged = true;
      left.id = top.result;
      left.after = right.after;
      if (left.after >= 0) symbol(left.after).before = at;
      for (const int32_t changed : {left.before, at}) {
        const size_t before = heap.size();
        add(changed);
        if (heap.size() > before) std::ranges::push_heap(heap, std::greater{});
      }
    }
    for (const Symbol& s : symbols)
      if (!s.merged) ids.push_back(s.id);
    trim(symbols);
    trim(heap);
  }

  PairMap merges_;  // two ids -> the merge's place in the file and its result
  std::string place_, prefix_, suffix_;
  int32_t unknown_ = -1;
  bool fuse_, bytes_, whole_;
};

}  // namespace

std::unique_ptr<Model> read_bpe(const Field& f) {
  return std::make_unique<Bpe>(f, read_vocabulary(f.at("vocab")));
}

}  // namespace dtensor::nn::text
