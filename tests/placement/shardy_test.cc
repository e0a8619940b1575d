// SPDX-License-Identifier: Apache-2.0
// Plans the reshards that Shardy's own tests list, and compares the bytes that
// a plan moves with the least that any plan has to move. A sub-axis ("y:(2)4")
// is an axis of the mesh declared with y factored; a device order is a mesh
// with its ranks listed.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dtensor/placement/plan.h"

namespace dtensor {
namespace {

std::string trim(const std::string& s) {
  size_t a = s.find_first_not_of(' '), b = s.find_last_not_of(' ');
  return a == s.npos ? "" : s.substr(a, b - a + 1);
}

std::vector<std::string> split(const std::string& s, const std::string& by) {
  std::vector<std::string> parts;
  for (size_t at = 0;;) {
    size_t end = s.find(by, at);
    parts.push_back(trim(s.substr(at, end - at)));
    if (end == s.npos) return parts;
    at = end + by.size();
  }
}

// A sub-axis, as in Shardy: `pre` is the product of the sizes of the sub-axes
// before it. A whole axis has pre 1 and its own size.
struct SubAxis {
  std::string axis;
  int64_t pre = 1, size = 0;
};

struct Sharding {
  std::vector<std::pair<std::string, int64_t>> mesh;
  std::vector<int64_t> ids;
  std::vector<std::vector<SubAxis>> dims;
  std::vector<SubAxis> unreduced;
};

SubAxis read_axis(const std::string& text, const Sharding& s) {
  SubAxis a;
  size_t colon = text.find(':');
  a.axis = text.substr(0, colon);
  if (colon == text.npos) {
    for (const auto& [name, size] : s.mesh)
      if (name == a.axis) a.size = size;
  } else {
    size_t close = text.find(')');
    a.pre = std::stoll(text.substr(colon + 2, close - colon - 2));
    a.size = std::stoll(text.substr(close + 1));
  }
  EXPECT_GT(a.size, 0) << text;
  return a;
}

// "x=2,y=4 ids=3,2,1,0 [{x},{y,?}],unreduced={z}"; without a mesh, `mesh`'s.
Sharding read(std::string text, const Sharding* mesh) {
  Sharding s;
  size_t open = text.find('[');
  std::string head = trim(text.substr(0, open));
  if (head.empty() && mesh) {
    s.mesh = mesh->mesh;
    s.ids = mesh->ids;
  }
  if (size_t ids = head.find("ids="); ids != head.npos) {
    for (const std::string& id : split(head.substr(ids + 4), ","))
      s.ids.push_back(std::stoll(id));
    head = trim(head.substr(0, ids));
  }
  if (!head.empty())
    for (const std::string& axis : split(head, ","))
      s.mesh.push_back({axis.substr(0, axis.find('=')),
                        std::stoll(axis.substr(axis.find('=') + 1))});
  auto list = [&](const std::string& inside) {
    std::vector<SubAxis> axes;
    for (const std::string& name : split(inside, ","))
      if (!name.empty() && name != "?") axes.push_back(read_axis(name, s));
    return axes;
  };
  size_t close = text.find(']');
  for (size_t at = open; (at = text.find('{', at)) < close;) {
    size_t end = text.find('}', at);
    s.dims.push_back(list(text.substr(at + 1, end - at - 1)));
    at = end;
  }
  if (size_t u = text.find("unreduced={"); u != text.npos)
    s.unreduced = list(text.substr(u + 11, text.find('}', u) - u - 11));
  return s;
}

// The places where sub-axes cut an axis, whichever sharding names them.
using Cuts = std::map<std::string, std::set<int64_t>>;

void collect(const Sharding& s, Cuts& cuts) {
  for (const auto& [name, size] : s.mesh) cuts[name].insert({1, size});
  auto add = [&](const SubAxis& a) {
    cuts[a.axis].insert({a.pre, a.pre * a.size});
  };
  for (const auto& dim : s.dims)
    for (const SubAxis& a : dim) add(a);
  for (const SubAxis& a : s.unreduced) add(a);
}

const Spec* spec(const Sharding& s, const Shape& shape, const Cuts& cuts) {
  std::vector<MeshAxis> axes;
  std::map<std::string, std::vector<std::pair<int64_t, int>>> parts;
  for (const auto& [name, size] : s.mesh) {
    int64_t before = 1;
    for (int64_t cut : cuts.at(name)) {
      // Cuts of another mesh's axis of that name may not fit here.
      if (cut <= before || size % cut || cut % before) continue;
      parts[name].push_back({before, static_cast<int>(axes.size())});
      axes.push_back({name + std::to_string(before), cut / before});
      before = cut;
    }
  }
  Mesh mesh(axes, s.ids);
  auto numbers = [&](const std::vector<SubAxis>& list) {
    std::vector<int> all;
    for (const SubAxis& a : list)
      for (const auto& [before, axis] : parts[a.axis])
        if (before >= a.pre && before < a.pre * a.size) all.push_back(axis);
    return all;
  };
  Layout l;
  for (int d = 0; d < shape.size(); ++d)
    l.dims.push_back(
        Dim(shape[d], static_cast<size_t>(d) < s.dims.size()
                          ? Split::over(numbers(s.dims[static_cast<size_t>(d)]))
                          : Split{}));
  for (int a : numbers(s.unreduced)) l.partials.push_back({a, ReduceOp::kSum});
  return Spec::get(mesh, shape, l, DType::kF32);
}

// The most elements that a device needs and lacks, from the indices alone.
int64_t bound(const Spec* from, const Spec* to) {
  auto held = [](const Spec* s, int64_t device) {
    std::set<std::vector<int64_t>> all;
    int64_t r = s->mesh().mesh_rank_of(device);
    if (r < 0) return all;
    Region region = s->region(s->mesh().coordinate(r));
    all.insert(std::vector<int64_t>{});
    for (const IntervalList& dim : region) {
      std::set<std::vector<int64_t>> next;
      for (std::vector<int64_t> index : all)
        for (const Interval& range : dim)
          for (int64_t i = range.lo; i < range.hi; ++i) {
            index.push_back(i);
            next.insert(index);
            index.pop_back();
          }
      all = std::move(next);
    }
    return all;
  };
  int64_t most = 0;
  for (int64_t r = 0; r < to->mesh().num_ranks(); ++r) {
    int64_t device = to->mesh().world_rank(r), lacks = 0;
    auto has = held(from, device);
    for (const auto& index : held(to, device)) lacks += !has.count(index);
    most = std::max(most, lacks);
  }
  return most;
}

TEST(Shardy, EveryReshardMovesWhatItHasTo) {
  std::ifstream file("tests/placement/data/shardy_reshards.txt");
  ASSERT_TRUE(file.good());
  CostTable bytes_only;
  bytes_only.axes.resize(kMaxAxes);
  for (AxisCost& c : bytes_only.axes) c.alpha_ps = 0;
  int cases = 0, moves = 0;
  double worst_memory = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> f = split(line, "|");
    ASSERT_EQ(f.size(), 6u) << line;
    SCOPED_TRACE(f[0]);
    std::string sizes = f[1].substr(0, f[1].rfind('x'));
    Shape shape = parse_shape(sizes, "test");
    Sharding mesh = read(f[2] + " [", nullptr);
    std::vector<Sharding> chain{read(f[3], &mesh)};
    for (const std::string& to : split(f[4], "=>"))
      chain.push_back(read(to, &mesh));
    Cuts cuts;
    for (const Sharding& s : chain) collect(s, cuts);
    for (size_t i = 1; i < chain.size(); ++i) {
      const Spec* from = spec(chain[i - 1], shape, cuts);
      const Spec* to = spec(chain[i], shape, cuts);
      SCOPED_TRACE(from->mesh().to_string() + ": " + from->to_string() +
                   " -> " + to->mesh().to_string() + ": " + to->to_string());
      Plan p = plan(from, to, bytes_only);
      ++cases;
      int64_t need = bound(from, to) * 4;
      if (!from->partial_axes()) {
        EXPECT_EQ(p.bytes, need);
      } else if (from->mesh() == to->mesh()) {
        // A partial that stays may be combined, and move less than its parts.
        EXPECT_LE(p.bytes, need);
      }
      if (!from->partial_axes() && !to->partial_axes()) {
        EXPECT_EQ(lower_bound_bytes(from, to), need);
      }
      moves += need > 0;
      EXPECT_LE(p.peak_bytes, from->largest_part_bytes() +
                                  to->largest_part_bytes() +
                                  bytes_only.block_bytes);
      worst_memory = std::max(
          worst_memory, static_cast<double>(p.peak_bytes) /
                            static_cast<double>(from->largest_part_bytes() +
                                                to->largest_part_bytes()));
    }
  }
  EXPECT_EQ(cases, 99);
  EXPECT_EQ(moves, 86);
  std::cout << cases << " reshards, " << moves
            << " of which move something, all at the lower bound; peak memory "
               "at most "
            << worst_memory << " of source and destination\n";
}

}  // namespace
}  // namespace dtensor
