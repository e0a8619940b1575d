// SPDX-License-Identifier: Apache-2.0
// For a program with an operator new of its own, in one of its sources: the one
// that does not throw, by that. A sanitizer has one that calls no other, and
// what is freed would be of another allocator.
#pragma once
#include <cstddef>
#include <new>

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
