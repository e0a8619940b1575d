// SPDX-License-Identifier: Apache-2.0
// A BoundedCache that the ranks of a process share, so that they need not all
// compute the same value.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "dtensor/placement/bounded_cache.h"

namespace dtensor {

// Thread-safe. No thread waits for another one's value: threads that miss at
// the same time all compute it, and the cache keeps the first.
template <class Key, class Value, class Hash = std::hash<Key>,
          class Equal = std::equal_to<>>
class SharedCache {
 public:
  SharedCache(std::string_view name, size_t limit) : cache_(name, limit) {}

  // Returns null on a miss.
  template <class K>
  std::shared_ptr<const Value> find(const K& key) {
    std::lock_guard lock(mutex_);
    const auto* found = cache_.find(key);
    return found ? *found : nullptr;
  }
  void insert(Key key, std::shared_ptr<const Value> value, size_t weight = 1) {
    std::lock_guard lock(mutex_);
    if (!cache_.find(key))
      cache_.insert(std::move(key), std::move(value), weight);
  }

 private:
  std::mutex mutex_;
  BoundedCache<Key, std::shared_ptr<const Value>, Hash, Equal> cache_;
};

}  // namespace dtensor
