// SPDX-License-Identifier: Apache-2.0
// The nothrow operator new, for a program that replaces operator new in one of
// its sources: it calls the replacement. A sanitizer's nothrow operator new
// would not, and memory would be freed by another allocator than its own.
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
