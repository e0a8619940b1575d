// SPDX-License-Identifier: Apache-2.0
// Sorts places by their keys, so that a GPU adds the elements with the same key
// in a fixed order.
#pragma once
#include <bit>
#include <cstdint>

#include "dtensor/ops/kernels/portable/executor.h"
#include "dtensor/ops/kernels/portable/sort.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

// Fill unsorted_keys() with the keys and unsorted_places() with 0, 1, ..., and
// call sort(). Then keys() are in ascending order, and places() has the place
// of each. Places with the same key stay in ascending order. The memory is
// Scratch of the stream.
class SortedPlaces {
 public:
  SortedPlaces(Stream s, int64_t count)
      : stream_(s),
        count_(count),
        keys_(s, 2 * count * static_cast<int64_t>(sizeof(uint64_t))),
        places_(s, 2 * count * static_cast<int64_t>(sizeof(int64_t))) {}
  uint64_t* unsorted_keys() { return keys_.template as<uint64_t>(); }
  int64_t* unsorted_places() { return places_.template as<int64_t>(); }
  // REQUIRES: no key is above `most`.
  void sort(int64_t most) {
    portable::sort_by_key(stream_, count_,
                          std::bit_width(static_cast<uint64_t>(most)),
                          unsorted_keys(), unsorted_places(),
                          unsorted_keys() + count_, unsorted_places() + count_);
  }
  const uint64_t* keys() { return unsorted_keys() + count_; }
  const int64_t* places() { return unsorted_places() + count_; }

 private:
  const Stream stream_;
  const int64_t count_;
  portable::Scratch keys_, places_;
};

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
