// SPDX-License-Identifier: Apache-2.0
// A cache of bounded weight.
//
// Every entry has a weight (bytes, pieces, or 1). There are two generations,
// each of at most half of the limit (or one larger entry). New entries go to
// the newer one, and an entry that is found in the older one moves to the newer
// one. When the newer one is full, it replaces the older one, whose entries are
// dropped. So a cache never holds more than its limit (or one larger entry),
// and a hit in the newer generation is one look-up. An entry that is used in
// every generation stays, unless one of more than half of the limit comes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace dtensor {

// The limits of the caches' weights: bytes, entries, or pieces of schedules.
// Each cache exists once per rank or thread, or is shared by ranks.
namespace cache_limit {
inline constexpr size_t kPlanBytes = size_t{4} << 20;  // plans of one tensor
inline constexpr size_t kListPlanBytes = size_t{2} << 20;  // plans of several
inline constexpr size_t kDecisions = size_t{1} << 13;
inline constexpr size_t kExecutions = size_t{1} << 18;  // pieces of schedules
inline constexpr size_t kRules = size_t{1} << 12;
}  // namespace cache_limit

// How often a cache was used so far, and how much it holds now.
struct CacheUse {
  std::string_view name;
  int64_t hits = 0, misses = 0;
  size_t entries = 0;
  size_t weight = 0, limit = 0;
};

// One line for each cache: "plans: 3 entries, weight 2,104 of 8,388,608; 40
// hits, 3 misses".
std::string to_string(std::span<const CacheUse>);

// Not thread-safe. If Hash and Equal are transparent, find() takes any type
// that they take.
template <class Key, class Value, class Hash = std::hash<Key>,
          class Equal = std::equal_to<>>
class BoundedCache {
 public:
  // REQUIRES: a name that outlives the cache (a literal).
  BoundedCache(std::string_view name, size_t limit)
      : name_(name), limit_(limit) {}

  // Returns null on a miss. The value stays at its address at least until
  // clear(), or until entries that weigh half of the limit have been inserted,
  // or found in the older generation. (A value of more than half of the limit
  // may go earlier.)
  template <class K>
  Value* find(const K& key) {
    if (auto it = newer_.map.find(key); it != newer_.map.end()) {
      ++hits_;
      return &it->second.value;
    }
    auto it = older_.map.find(key);
    if (it == older_.map.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    auto node = older_.map.extract(it);
    const size_t weight = node.mapped().weight;
    older_.weight -= weight;
    make_room(weight);
    Value& kept = newer_.map.insert(std::move(node)).position->second.value;
    newer_.weight += weight;
    return &kept;
  }

  // REQUIRES: the key is not in the cache.
  Value& insert(Key key, Value value, size_t weight = 1) {
    make_room(weight);
    Value& kept =
        newer_.map.emplace(std::move(key), Entry{std::move(value), weight})
            .first->second.value;
    newer_.weight += weight;
    return kept;
  }

  void clear() { newer_ = older_ = {}; }
  CacheUse use() const {
    return {name_,
            hits_,
            misses_,
            newer_.map.size() + older_.map.size(),
            newer_.weight + older_.weight,
            limit_};
  }

 private:
  struct Entry {
    Value value;
    size_t weight;
  };
  using Map = std::unordered_map<Key, Entry, Hash, Equal>;
  struct Generation {
    Map map;
    size_t weight = 0;
  };

  void make_room(size_t weight) {
    if (newer_.weight > 0 && newer_.weight + weight > limit_ / 2)
      older_ = std::exchange(newer_, {});
    if (older_.weight + newer_.weight + weight > limit_) older_ = {};
  }

  std::string_view name_;
  size_t limit_;
  int64_t hits_ = 0, misses_ = 0;
  Generation newer_, older_;
};

}  // namespace dtensor
