// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/mesh.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

std::string describe(const std::vector<MeshAxis>& axes) {
  std::string t;
  for (const MeshAxis& a : axes) {
    if (!t.empty()) t += ',';
    t += a.name + '=' + std::to_string(a.size);
  }
  return t;
}

// Separates the axes of a mesh from its ranks in the mesh's text.
constexpr std::string_view kOfRanks = " of ranks ";

int64_t parse_number(std::string_view digits, std::string_view text) {
  int64_t x = 0;
  auto [p, ec] =
      std::from_chars(digits.data(), digits.data() + digits.size(), x);
  DT_CHECK(ec == std::errc() && p == digits.data() + digits.size(), "mesh",
           "'{}' is not a mesh; write dp=2,tp=4 or 2x4", text);
  return x;
}

// Reads "3,2,1,0".
std::vector<int64_t> parse_ranks(std::string_view list) {
  std::vector<int64_t> ranks;
  for (const char *p = list.data(), *end = p + list.size();; ++p) {
    int64_t x = 0;
    auto [next, ec] = std::from_chars(p, end, x);
    DT_CHECK(ec == std::errc() && (next == end || *next == ','), "mesh",
             "'{}' is not a list of ranks; write numbers and commas, as in "
             "dp=2{}1,0",
             list, kOfRanks);
    ranks.push_back(x);
    if (next == end) return ranks;
    p = next;
  }
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes, std::vector<int64_t> ranks) {
  DT_CHECK(axes.size() <= kMaxAxes, "mesh", "{} has {} axes; write at most {}",
           describe(axes), axes.size(), kMaxAxes);
  int64_t n = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    DT_CHECK(!axes[i].name.empty(), "mesh",
             "axis {} of {} has no name; give it one, such as dp", i,
             describe(axes));
    for (char c : axes[i].name)
      DT_CHECK(std::isalnum(static_cast<unsigned char>(c)) || c == '_' ||
                   c == '-' || c == '.',
               "mesh",
               "'{}' cannot name an axis; write only ASCII letters, digits, "
               "'_', '-' and '.'",
               axes[i].name);
    DT_CHECK(axes[i].size >= 1, "mesh", "axis {} has size {}; write 1 or more",
             axes[i].name, axes[i].size);
    for (size_t j = 0; j < i; ++j)
      DT_CHECK(axes[j].name != axes[i].name, "mesh",
               "{} names axis {} twice; give each axis its own name",
               describe(axes), axes[i].name);
    DT_CHECK(!__builtin_mul_overflow(n, axes[i].size, &n) && n <= (1 << 30),
             "mesh", "{} has more than 2^30 ranks; write smaller sizes",
             describe(axes));
  }
  if (!ranks.empty()) {
    DT_CHECK(static_cast<int64_t>(ranks.size()) == n, "mesh",
             "{} has {}, but the list has {}; list one rank for each place in "
             "the mesh",
             describe(axes), quantity(n, "rank", "ranks"), ranks.size());
    bool identity = true;
    for (size_t i = 0; i < ranks.size(); ++i) {
      identity &= ranks[i] == static_cast<int64_t>(i);
      DT_CHECK(ranks[i] >= 0, "mesh",
               "rank {} is negative; number ranks from 0", ranks[i]);
      DT_CHECK(ranks[i] < (1 << 30), "mesh",
               "rank {} is not below 2^30; number ranks from 0 to 2^30 - 1",
               ranks[i]);
    }
    std::vector<int64_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    DT_CHECK(twice == sorted.end(), "mesh",
             "the list for {} has rank {} twice; list each rank once",
             describe(axes), *twice);
    if (identity) ranks.clear();
  }
  // The table lives as long as the process: meshes are few, and handles to them
  // stay valid in every thread.
  static std::mutex mutex;
  static auto* table =
      new std::map<std::pair<std::string, std::vector<int64_t>>,
                   std::unique_ptr<const Info>>;
  std::lock_guard lock(mutex);
  auto& slot = (*table)[{describe(axes), ranks}];
  if (!slot) {
    uint64_t h = hash_text(describe(axes), 1);
    for (int64_t r : ranks) h = hash_mix(h, static_cast<uint64_t>(r));
    std::vector<int64_t> by_world(ranks.size());
    std::iota(by_world.begin(), by_world.end(), int64_t{0});
    std::sort(by_world.begin(), by_world.end(), [&](int64_t a, int64_t b) {
      return ranks[static_cast<size_t>(a)] < ranks[static_cast<size_t>(b)];
    });
    slot = std::make_unique<const Info>(
        Info{std::move(axes), std::move(ranks), std::move(by_world), n, h});
  }
  info_ = slot.get();
}

Mesh Mesh::parse(std::string_view text) {
  DT_CHECK(!text.empty(), "mesh", "the mesh is empty; write dp=2,tp=4 or 2x4");
  std::vector<MeshAxis> axes;
  std::vector<int64_t> ranks;
  std::string_view rest = text;
  if (size_t at = text.find(kOfRanks); at != text.npos) {
    ranks = parse_ranks(text.substr(at + kOfRanks.size()));
    rest = text.substr(0, at);
  }
  bool named = rest.find('=') != rest.npos;
  for (;;) {
    size_t end = rest.find(named ? ',' : 'x');
    std::string_view item = rest.substr(0, end);
    if (named) {
      size_t eq = item.find('=');
      DT_CHECK(
          eq != item.npos || item.find_first_not_of("0123456789") != item.npos,
          "mesh",
          "'{}' in '{}' has no name; write NAME=SIZE for each axis, as in "
          "dp=2,tp=4",
          item, text);
      DT_CHECK(eq != item.npos, "mesh",
               "'{}' in '{}' has no size; write {}=2 or the like", item, text,
               item);
      axes.push_back({std::string(item.substr(0, eq)),
                      parse_number(item.substr(eq + 1), text)});
    } else {
      axes.push_back(
          {"a" + std::to_string(axes.size()), parse_number(item, text)});
    }
    if (end == rest.npos) break;
    rest.remove_prefix(end + 1);
  }
  return Mesh(std::move(axes), std::move(ranks));
}

const std::string& Mesh::axis_name(int axis) const {
  return info_->axes[static_cast<size_t>(axis)].name;
}

bool Mesh::has_axis(std::string_view name) const {
  for (const MeshAxis& a : info_->axes)
    if (a.name == name) return true;
  return false;
}

int Mesh::axis(std::string_view name) const {
  for (int i = 0; i < num_axes(); ++i)
    if (axis_name(i) == name) return i;
  fail("mesh", "there is no axis '{}' in mesh {}; write one of its axes, {}",
       name, to_string(), axes_to_string(all_axes()));
}

int64_t Mesh::size_of(AxisMask axes) const {
  int64_t n = 1;
  for (int i = 0; i < num_axes(); ++i)
    if (axes >> i & 1) n *= axis_size(i);
  return n;
}

Coord Mesh::coordinate(int64_t mesh_rank) const {
  Coord c;
  for (int i = num_axes() - 1; i >= 0; --i) {
    c[i] = static_cast<int32_t>(mesh_rank % axis_size(i));
    mesh_rank /= axis_size(i);
  }
  return c;
}

int64_t Mesh::rank(const Coord& c) const {
  int64_t r = 0;
  for (int i = 0; i < num_axes(); ++i) r = r * axis_size(i) + c[i];
  return r;
}

int64_t Mesh::world_rank(int64_t mesh_rank) const {
  return info_->ranks.empty() ? mesh_rank
                              : info_->ranks[static_cast<size_t>(mesh_rank)];
}

int64_t Mesh::smallest_world() const {
  return info_->by_world.empty() ? num_ranks()
                                 : world_rank(info_->by_world.back()) + 1;
}

int64_t Mesh::mesh_rank_of(int64_t world_rank) const {
  if (info_->ranks.empty())
    return world_rank >= 0 && world_rank < num_ranks() ? world_rank : -1;
  auto it = std::lower_bound(info_->by_world.begin(), info_->by_world.end(),
                             world_rank, [this](int64_t r, int64_t wanted) {
                               return this->world_rank(r) < wanted;
                             });
  return it != info_->by_world.end() && this->world_rank(*it) == world_rank
             ? *it
             : -1;
}

std::vector<int64_t> Mesh::group(AxisMask axes, const Coord& at) const {
  std::vector<int64_t> members;
  for_each_coord(*this, axes, [&](const Coord& moving) {
    Coord c = at;
    for (int i = 0; i < num_axes(); ++i)
      if (axes >> i & 1) c[i] = moving[i];
    members.push_back(rank(c));
  });
  return members;
}

Mesh Mesh::submesh(const std::vector<std::string>& names,
                   const Coord& at) const {
  std::vector<MeshAxis> axes;
  std::vector<int> from;
  for (const std::string& n : names) {
    from.push_back(axis(n));
    axes.push_back({n, axis_size(from.back())});
  }
  Mesh shape(axes);
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < shape.num_ranks(); ++r) {
    Coord inner = shape.coordinate(r), c = at;
    for (size_t i = 0; i < from.size(); ++i)
      c[from[i]] = inner[static_cast<int>(i)];
    ranks.push_back(world_rank(rank(c)));
  }
  return Mesh(std::move(axes), std::move(ranks));
}

std::string Mesh::to_string() const {
  if (!info_) return "no mesh";
  std::string t = describe(info_->axes);
  if (info_->ranks.empty()) return t;
  t += kOfRanks;
  for (size_t i = 0; i < info_->ranks.size(); ++i)
    t += (i ? "," : "") + std::to_string(info_->ranks[i]);
  return t;
}

std::string Mesh::axes_to_string(AxisMask axes) const {
  std::string t;
  for (int i = 0; i < num_axes(); ++i)
    if (axes >> i & 1) t += (t.empty() ? "" : ",") + axis_name(i);
  return t;
}

}  // namespace dtensor
