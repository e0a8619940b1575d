// SPDX-License-Identifier: Apache-2.0
// Lists that store their elements in the object itself, for the few inputs and
// outputs of a call.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <memory_resource>
#include <new>
#include <utility>
#include <vector>

#include "dtensor/placement/error.h"

namespace dtensor {

// A memory resource for std::pmr lists, with N bytes in the object itself.
// Elements that do not fit are allocated. All memory is freed with the object.
template <size_t N>
class InlineMemory : public std::pmr::monotonic_buffer_resource {
 public:
  InlineMemory() : monotonic_buffer_resource(bytes_, N) {}

 private:
  alignas(std::max_align_t) std::byte bytes_[N];
};

// A vector of at most N elements that are stored in the object itself. Can be
// moved, but not copied or assigned.
template <class T, size_t N>
class InlineVec {
 public:
  // Not defaulted, because value-initialisation would clear the storage of all
  // N elements.
  InlineVec() {}
  explicit InlineVec(size_t n) : InlineVec() { resize(n); }
  InlineVec(std::initializer_list<T> list) : InlineVec() {
    for (const T& x : list) push_back(x);
  }
  InlineVec(std::vector<T> list) : InlineVec() {
    for (T& x : list) push_back(std::move(x));
  }
  InlineVec(InlineVec&& from) noexcept : InlineVec() {
    for (T& x : from) push_back(std::move(x));
    from.resize(0);
  }
  ~InlineVec() { resize(0); }
  InlineVec& operator=(const InlineVec&) = delete;

  T& push_back(T x) {
    DT_CHECK(size_ < N, "inline_vec",
             "a list of at most {} elements gets one more, which is an error "
             "in dtensor; report it",
             N);
    return *new (data() + size_++) T(std::move(x));
  }
  void resize(size_t n) {
    while (size_ > n) data()[--size_].~T();
    while (size_ < n) push_back(T());
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return std::launder(reinterpret_cast<T*>(bytes_)); }
  const T* data() const {
    return std::launder(reinterpret_cast<const T*>(bytes_));
  }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  size_t size_ = 0;
  alignas(T) std::byte bytes_[N * sizeof(T)];
};

}  // namespace dtensor
