// SPDX-License-Identifier: Apache-2.0
// Objects that sources keep for a rank and that nobody else knows: caches, a
// second thread, a checkpoint that is being saved.
//
//   struct Cache : RankServices::Service { ... };
//   Cache& cache = context.services.get<Cache>();
#pragma once
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
    return id<T> < all_.size() ? static_cast<T*>(all_[id<T>].get()) : nullptr;
  }
  // As find(), but makes T(args...) if there is none.
  template <class T, class... Args>
  T& get(Args&&... args) {
    if (T* const found = find<T>()) return *found;
    return set(std::make_unique<T>(std::forward<Args>(args)...));
  }
  // Replaces the object of type T.
  template <class T>
  T& set(std::unique_ptr<T> service) {
    if (all_.size() <= id<T>) all_.resize(id<T> + 1);
    all_[id<T>] = std::move(service);
    return static_cast<T&>(*all_[id<T>]);
  }
  // Removes the object of type T and returns it; null if there is none.
  template <class T>
  std::unique_ptr<T> take() {
    T* const found = find<T>();
    if (found) static_cast<void>(all_[id<T>].release());
    return std::unique_ptr<T>(found);
  }
  // Calls finish() of every object, in any order.
  void finish() {
    for (const auto& service : all_)
      if (service) service->finish();
  }
  // Destroys all objects, which ends their threads.
  void clear() { all_.clear(); }

 private:
  static size_t next_id() {
    static size_t next = 0;
    return next++;
  }
  template <class T>
  static inline const size_t id = next_id();

  std::vector<std::unique_ptr<Service>> all_;  // by id
};

}  // namespace dtensor
