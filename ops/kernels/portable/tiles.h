// SPDX-License-Identifier: Apache-2.0
// Copies from a box to a transposed one. Neighbouring lanes would each touch a
// different memory line in one of the two boxes. Copies therefore go through
// square tiles in fast memory, which are filled along the source and written
// along the destination.
#pragma once
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "dtensor/device/device.h"
#include "dtensor/device/nest.h"
#include "dtensor/ops/kernels/portable/executor.h"
#include "dtensor/ops/kernels/portable/walk.h"

namespace dtensor::portable {
inline namespace DT_PORTABLE {

// The number of rows, and of columns, of a tile of elements of `item` bytes.
constexpr int tile_edge(int64_t item) { return item < 4 ? 64 : 32; }
// The distance of a tile's rows in fast memory, in elements. It is one word, or
// one element if that is longer, more than a row, so that lanes that go down a
// column use different banks (fast memory has 32 banks, of 4-byte words).
constexpr int tile_pitch(int64_t item) {
  return tile_edge(item) + (item < 4 ? 4 / static_cast<int>(item) : 1);
}
// How many elements of a tile a lane moves.
constexpr int tile_batch(int64_t item) { return item < 4 ? 16 : 4; }

// How a box is cut into tiles. Kernels get a copy of it.
class Tiles {
 public:
  // Returns nullopt if the box is empty, or if tiles would hardly be faster
  // than copying in the order of the destination. The strides `dst` and `src`
  // are in elements of `item` bytes.
  static std::optional<Tiles> of(int64_t item, Sizes shape, Sizes dst,
                                 Sizes src) {
    // A memory access has at least kSector bytes: lanes that share a sector are
    // as good as neighbours. Runs shorter than kFew elements would use too few
    // of the lanes.
    constexpr int64_t kSector = 32, kFew = 8;
    Nest nest(shape, 2);
    nest.set(0, dst, 1);
    nest.set(1, src, 1);
    if (!nest.simplify()) return {};
    const int last = nest.loops() - 1;
    int along = last;
    for (int l = 0; l < last; ++l)
      if (nest.step(l, 1) != 0 && nest.n(l) >= kFew &&
          std::abs(nest.step(l, 1)) < std::abs(nest.step(along, 1)))
        along = l;
    if (along == last || nest.n(last) < kFew ||
        std::abs(nest.step(last, 1)) * item < kSector ||
        std::abs(nest.step(along, 1)) * item >= kSector)
      return {};
    return Tiles(nest, along, last, tile_edge(item));
  }

  int64_t count() const { return walk_.count(); }

  // A tile: the offset of its first element in both arrays, and its extent
  // along the source (i) and along the destination (j).
  struct Tile {
    int64_t dst, src, ni, nj;
  };
  DT_HD Tile tile(int64_t t) const {
    int64_t at[4];
    walk_.at(t, at);
    const int64_t ni = n_[0] - at[2], nj = n_[1] - at[3];
    return {at[0], at[1], ni < edge_ ? ni : edge_, nj < edge_ ? nj : edge_};
  }
  // The offset of element (i, j) from the first element of its tile.
  DT_HD int64_t dst(int64_t i, int64_t j) const {
    return i * step_[0][0] + j * step_[1][0];
  }
  DT_HD int64_t src(int64_t i, int64_t j) const {
    return i * step_[0][1] + j * step_[1][1];
  }

 private:
  Tiles(const Nest& nest, int along, int last, int edge)
      : edge_(edge),
        n_{nest.n(along), nest.n(last)},
        step_{{nest.step(along, 0), nest.step(along, 1)},
              {nest.step(last, 0), nest.step(last, 1)}},
        walk_(cut(nest, along, last, edge)) {}
  // Returns a walk over the tiles. Its four offsets are those of a tile in the
  // destination and in the source, and the tile's first i and first j.
  static Walk<4> cut(const Nest& nest, int along, int last, int64_t edge) {
    const auto loops = static_cast<size_t>(nest.loops());
    std::array<int64_t, kMaxLoops> n{}, steps[4]{};
    for (int l = 0; l <= last; ++l) {
      const auto k = static_cast<size_t>(l);
      const int64_t by = l == along || l == last ? edge : 1;
      n[k] = (nest.n(l) + by - 1) / by;
      steps[0][k] = nest.step(l, 0) * by;
      steps[1][k] = nest.step(l, 1) * by;
      steps[2][k] = l == along ? edge : 0;
      steps[3][k] = l == last ? edge : 0;
    }
    const auto of = [&](const auto& all) { return Sizes(all.data(), loops); };
    return {of(n), {of(steps[0]), of(steps[1]), of(steps[2]), of(steps[3])}};
  }

  int64_t edge_, n_[2], step_[2][2];
  Walk<4> walk_;
};

// dst = src, with tiles from Tiles::of(sizeof(T)).
template <class T>
void copy(Stream s, const Tiles& tiles, T* dst, const T* src) {
  constexpr int64_t kEdge = tile_edge(sizeof(T)),
                    kPitch = tile_pitch(sizeof(T));
  constexpr int kBatch = tile_batch(sizeof(T));
  // Each lane moves the elements of every kStep-th row (column) of the tile.
  constexpr int64_t kStep = kEdge / kBatch;
  rows(
      s, tiles.count(), kEdge * kEdge,
      DT_BODY(Row & row, int64_t t) {
        const Tiles::Tile tile = tiles.tile(t);
        T* const fast = row.fast<T>();
        row.each(kEdge * kStep, [&](int64_t k) {
          const int64_t i = k % kEdge, j0 = k / kEdge;
          const T* const from = src + tile.src;
          T some[kBatch] = {};
          DT_UNROLL(kBatch)
          for (int b = 0; b < kBatch; ++b) {
            const int64_t j = j0 + b * kStep;
            if (i < tile.ni && j < tile.nj) some[b] = from[tiles.src(i, j)];
          }
          DT_UNROLL(kBatch)
          for (int b = 0; b < kBatch; ++b)
            fast[(j0 + b * kStep) * kPitch + i] = some[b];
        });
        row.each(kEdge * kStep, [&](int64_t k) {
          const int64_t j = k % kEdge, i0 = k / kEdge;
          T* const to = dst + tile.dst;
          DT_UNROLL(kBatch)
          for (int b = 0; b < kBatch; ++b) {
            const int64_t i = i0 + b * kStep;
            if (i < tile.ni && j < tile.nj)
              to[tiles.dst(i, j)] = fast[j * kPitch + i];
          }
        });
      },
      kEdge * kPitch * static_cast<int64_t>(sizeof(T)));
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::portable
