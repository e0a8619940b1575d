// SPDX-License-Identifier: Apache-2.0
// A prefix tree of byte strings, each with a number.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "dtensor/nn/text/pair_map.h"

namespace dtensor::nn::text {

class Trie {
 public:
  // Adds a text with its number; keeps the first number of a text that is added
  // twice. REQUIRES: the text is not empty.
  void insert(std::string_view text, int32_t id) {
    uint32_t node = 0;
    for (char c : text) {
      const uint64_t key = edge(node, c);
      if (const uint64_t* child = edges_.find(key)) {
        node = static_cast<uint32_t>(*child);
      } else {
        node = static_cast<uint32_t>(ids_.size());
        edges_.set(key, node);
        ids_.push_back(-1);
      }
    }
    if (ids_[node] < 0) ids_[node] = id;
  }

  // Calls found(length, id) for each text of the tree with which `text` begins,
  // shortest first. If `node` is the result of node(prefix), calls it for each
  // text of the tree that is longer than the prefix, and with which prefix +
  // `text` begins; `length` does not count the prefix. Returns the number of
  // bytes of `text` that were looked at.
  template <class Found>
  size_t prefixes(std::string_view text, const Found& found,
                  uint32_t node = 0) const {
    for (size_t i = 0; i < text.size(); i++) {
      const uint64_t* child = edges_.find(edge(node, text[i]));
      if (!child) return i + 1;
      node = static_cast<uint32_t>(*child);
      if (ids_[node] >= 0) found(i + 1, ids_[node]);
    }
    return text.size();
  }

  // The node of a prefix; nullopt if no text begins with the prefix.
  std::optional<uint32_t> node(std::string_view prefix) const {
    uint32_t node = 0;
    for (char c : prefix) {
      const uint64_t* child = edges_.find(edge(node, c));
      if (!child) return std::nullopt;
      node = static_cast<uint32_t>(*child);
    }
    return node;
  }

 private:
  static uint64_t edge(uint32_t node, char c) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(c);
  }

  PairMap edges_;
  std::vector<int32_t> ids_ = {-1};  // by node; -1 if no text ends there
};

}  // namespace dtensor::nn::text
