// SPDX-License-Identifier: Apache-2.0
// A mesh: ranks arranged along named axes. Ranks are row-major in their
// coordinates, the last axis fastest: on dp=2,tp=4 rank 5 is (dp 1, tp 1).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor {

inline constexpr int kMaxAxes = 8;

// A set of mesh axes: bit i stands for axis i.
using AxisMask = uint32_t;

// A rank's position: one entry for each axis.
struct Coord {
  std::array<int32_t, kMaxAxes> at{};
  int32_t& operator[](int i) { return at[static_cast<size_t>(i)]; }
  int32_t operator[](int i) const { return at[static_cast<size_t>(i)]; }
  bool operator==(const Coord&) const = default;
};

struct MeshAxis {
  std::string name;
  int64_t size;
  bool operator==(const MeshAxis&) const = default;
};

// A handle to an interned mesh: equal meshes share one pointer. Cheap to copy,
// immutable, never freed. The default-constructed handle means "no mesh".
class Mesh {
 public:
  Mesh() = default;
  // `ranks[i]` is the rank of the run (its world rank) that plays mesh rank i;
  // empty stands for 0, 1, 2, ... Throws Error if an axis has no name, another
  // axis's name, a character other than letters, digits, _, - and . in its
  // name, or a size below 1; if there are more than kMaxAxes axes or 2^30
  // ranks; or if `ranks` has the wrong length, one rank twice, or a rank
  // outside [0, 2^30).
  explicit Mesh(std::vector<MeshAxis> axes, std::vector<int64_t> ranks = {});
  // Reads "dp=2,tp=4", or "2x4", which names its axes a0 and a1. Ranks may
  // follow as to_string() writes them: "2x1 of ranks 5,3". Throws Error for
  // other texts.
  static Mesh parse(std::string_view text);

  bool valid() const { return info_ != nullptr; }
  int num_axes() const { return static_cast<int>(info_->axes.size()); }
  int64_t num_ranks() const { return info_->num_ranks; }
  const std::string& axis_name(int axis) const;
  int64_t axis_size(int axis) const {
    return info_->axes[static_cast<size_t>(axis)].size;
  }
  // The axis of that name. Throws Error, which lists the axes, if there is
  // none.
  int axis(std::string_view name) const;
  bool has_axis(std::string_view name) const;
  AxisMask all_axes() const { return (AxisMask{1} << num_axes()) - 1; }
  // The number of ranks that differ only in these axes: the product of their
  // sizes.
  int64_t size_of(AxisMask) const;

  Coord coordinate(int64_t mesh_rank) const;
  int64_t rank(const Coord&) const;
  int64_t world_rank(int64_t mesh_rank) const;
  // The number of ranks of the smallest run that has all ranks of the mesh.
  int64_t smallest_world() const;
  // The mesh rank of this world rank, or -1.
  int64_t mesh_rank_of(int64_t world_rank) const;
  // Whether the rank of the run with this number is in the mesh.
  bool contains(int64_t world_rank) const {
    return mesh_rank_of(world_rank) >= 0;
  }
  // The mesh ranks that differ from `at` only in `axes`, row-major in mesh
  // order: the members of a collective over these axes.
  std::vector<int64_t> group(AxisMask axes, const Coord& at) const;
  // The mesh of the named axes (in this order) with all other axes fixed at
  // `at`. Throws Error for a name that is not an axis.
  Mesh submesh(const std::vector<std::string>& names, const Coord& at) const;

  // "dp=2,tp=4"; followed by its ranks if they are not 0, 1, 2, ...
  std::string to_string() const;
  // "dp" or "dp,tp".
  std::string axes_to_string(AxisMask) const;
  // Equal for equal meshes in every process.
  uint64_t hash() const { return info_ ? info_->hash : 0; }
  bool operator==(const Mesh&) const = default;

 private:
  struct Info {
    std::vector<MeshAxis> axes;
    std::vector<int64_t> ranks;     // world ranks by mesh rank
    std::vector<int64_t> by_world;  // mesh ranks in the order of world ranks
    int64_t num_ranks;
    uint64_t hash;
  };
  const Info* info_ = nullptr;
};

// Calls fn(coord) for every coordinate that is 0 on all axes outside `axes`.
template <class Fn>
void for_each_coord(const Mesh& mesh, AxisMask axes, Fn&& fn) {
  Coord c;
  for (;;) {
    fn(static_cast<const Coord&>(c));
    int a = mesh.num_axes() - 1;
    for (; a >= 0; --a) {
      if (!(axes >> a & 1)) continue;
      if (++c[a] < mesh.axis_size(a)) break;
      c[a] = 0;
    }
    if (a < 0) return;
  }
}

}  // namespace dtensor
