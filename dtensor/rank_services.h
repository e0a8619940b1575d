// SPDX-License-Identifier: Apache-2.0
// Objects that a source file keeps for a rank, unknown to other files: caches,
// a second thread, a checkpoint that is being saved.
//
//   struct Cache : RankServices::Service { ... };
//   Cache& cache = context.services.get<Cache>();
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace dtensor {

// At most one object of each type. Only one thread at a time may use it.
class RankServices {
 public:
  struct Service {
    virtual ~Service() = default;
    // Completes pending work, and throws its error if it failed.
    virtual void finish() {}
  };

  // The object of type T; null if there is none.
  template <class T>
  T* find() const {
    const size_t i = id<T>();
    return i < all_.size() ? static_cast<T*>(all_[i].get()) : nullptr;
  }
  // Like find(), but makes T(args...) if there is none.
  template <class T, class... Args>
  T& get(Args&&... args) {
    if (T* const found = find<T>()) return *found;
    return set(std::make_unique<T>(std::forward<Args>(args)...));
  }
  // Replaces the object of type T.
  template <class T>
  T& set(std::unique_ptr<T> service) {
    const size_t i = id<T>();
    if (all_.size() <= i) all_.resize(i + 1);
    all_[i] = std::move(service);
    return static_cast<T&>(*all_[i]);
  }
  // Removes the object of type T and returns it; null if there is none.
  template <class T>
  std::unique_ptr<T> take() {
    T* const found = find<T>();
    if (found) static_cast<void>(all_[id<T>()].release());
    return std::unique_ptr<T>(found);
  }
  // Calls finish() of every object, in any order. finish() may make others.
  void finish() {
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i]) all_[i]->finish();
  }
  // Destroys all objects, which ends their threads. Meanwhile find() is null.
  void clear() { std::exchange(all_, {}).clear(); }

 private:
  static size_t next_id() {
    static std::atomic<size_t> next = 0;
    return next++;
  }
  template <class T>
  static size_t id() {
    static const size_t mine = next_id();
    return mine;
  }

  std::vector<std::unique_ptr<Service>> all_;  // indexed by id<T>()
};

}  // namespace dtensor
