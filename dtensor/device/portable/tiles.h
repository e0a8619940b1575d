// Copies between a box and a transposed one: where lanes that are next to each
// other in one of the two would each touch a line of memory of their own in
// the other. By square tiles in fast memory, which are read along the source
// and written along the destination.
#pragma once
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "dtensor/device/device.h"
#include "dtensor/device/nest.h"
#include "dtensor/device/portable/executor.h"
#include "dtensor/device/portable/walk.h"

namespace dtensor::portable {
inline namespace DT_PORTABLE {

// A tile of elements of so many bytes: its edge; the step from one of its rows
// to the next, a word of fast memory more, so that lanes that go down a column
// are each in a bank of its own (there are 32, and a word is 4 bytes); and how
// many elements a lane has under way at once.
constexpr int tile_edge(int64_t item) { return item < 4 ? 64 : 32; }
constexpr int tile_pitch(int64_t item) {
  return tile_edge(item) + (item < 4 ? 4 / static_cast<int>(item) : 1);
}
constexpr int tile_batch(int64_t item) { return item < 4 ? 16 : 4; }

// How a box is cut. What a kernel gets is a copy.
class Tiles {
 public:
  // Nothing where a walk in the order of the destination is as good. Strides in
  // elements of `item` bytes, as many as a tile can be of.
  static std::optional<Tiles> of(int64_t item, Sizes shape, Sizes dst,
                                 Sizes src) {
    // What memory moves at least: lanes that share it are as good as
    // neighbours. And fewer elements than kFew are a row for few of the lanes.
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

  // A tile: where its first element is, and how far it goes along the source
  // (i) and along the destination (j).
  struct Tile {
    int64_t dst, src, ni, nj;
  };
  DT_HD Tile tile(int64_t t) const {
    int64_t at[4];
    walk_.at(t, at);
    const int64_t ni = n_[0] - at[2], nj = n_[1] - at[3];
    return {at[0], at[1], ni < edge_ ? ni : edge_, nj < edge_ ? nj : edge_};
  }
  // From element (i, j) of a tile's first one.
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
  // The tiles are a box too, whose loops also count where i and j are.
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

// dst = src, of Tiles::of(sizeof(T)).
template <class T>
void copy(Stream s, const Tiles& tiles, T* dst, const T* src) {
  constexpr int64_t kEdge = tile_edge(sizeof(T)),
                    kPitch = tile_pitch(sizeof(T));
  constexpr int kBatch = tile_batch(sizeof(T));
  // A lane's elements are in every kStep-th row (column) of the tile.
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
