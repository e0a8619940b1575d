// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/model.h"

namespace dtensor::nn::text {
namespace {

// The oldest files do not name the type of their model.
std::string type_of(const Field& f) {
  if (const Field type = f.at("type"); !type.is_null()) return type.text();
  if (f.value().contains("merges")) return "BPE";
  return f.value().contains("unk_id") ? "Unigram" : "WordPiece";
}

}  // namespace

void Vocabulary::add(std::string token, int64_t id, const std::string& where) {
  DT_CHECK(is_id(id), "tokenizer",
           "{} gives \"{}\" the id {}, but ids are from 0 to below 2^22; use "
           "another file",
           where, shortened(token, 200), id);
  const auto at = static_cast<size_t>(id);
  if (at >= tokens_.size()) tokens_.resize(at + 1);
  DT_CHECK(!tokens_[at], "tokenizer",
           "{} gives the id {} to \"{}\", but \"{}\" has it already; use "
           "another file",
           where, id, shortened(token, 200), shortened(*tokens_[at], 200));
  const auto entry =
      ids_.insert_or_assign(std::move(token), static_cast<int32_t>(id)).first;
  tokens_[at] = &entry->first;
}

const std::string* Vocabulary::token(int64_t id) const {
  const auto at = static_cast<size_t>(id);
  return id >= 0 && at < tokens_.size() ? tokens_[at] : nullptr;
}

bool Model::encode_bytes(std::string_view text,
                         std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  for (char c : text) {
    const int32_t id =
        vocabulary().id(fmt::format("<0x{:02X}>", static_cast<uint8_t>(c)));
    if (id < 0) {
      ids.resize(before);
      return false;
    }
    ids.push_back(id);
  }
  return true;
}

std::shared_ptr<Vocabulary> read_vocabulary(const Field& f) {
  if (!f.value().is_object()) f.refuse("an object");
  auto all = std::make_shared<Vocabulary>();
  for (const auto& [token, id] : f.value().items()) {
    if (!id.is_number_integer()) f.at(token).refuse("an integer");
    all->add(token, id.get<int64_t>(), f.place());
  }
  return all;
}

std::unique_ptr<Model> read_model(const Field& f) {
  const std::string type = type_of(f);
  if (type == "BPE") return read_bpe(f);
  if (type == "Unigram") return read_unigram(f);
  if (type == "WordPiece") return read_word_piece(f);
  f.at("type").refuse("BPE, Unigram and WordPiece");
}

}  // namespace dtensor::nn::text
