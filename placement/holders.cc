// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/holders.h"

#include <algorithm>
#include <numeric>

#include "dtensor/placement/error.h"

namespace dtensor {

namespace {

void sort(Holders& h) {
  std::sort(h.waves.begin(), h.waves.end(),
            [](const Wave& a, const Wave& b) { return a.axis < b.axis; });
}

// Replaces each index by `inner` indices.
void scale(Holders& h, int64_t inner) {
  h.size *= inner;
  for (Wave& w : h.waves)
    if (!w.constant())
      for (Wave::Run& r : w.runs) r.end *= inner;
}

Holders of_leaf(const Dim& d, const Mesh& mesh) {
  Holders h{d.size(), {}};
  Split s = d.split().canonical(mesh, d.size());
  int64_t parts = s.parts(mesh), stride = parts;
  for (int k = 0; k < s.num_axes(); ++k) {
    int64_t p = mesh.axis_size(s.axis(k));
    stride /= p;
    Wave w{s.axis(k), {}};
    for (int64_t i = 0; i < parts; i += stride)
      w.append(s.boundary(mesh, d.size(), i + stride),
               static_cast<int32_t>(i / stride % p));
    w.shorten();
    h.waves.push_back(std::move(w));
  }
  sort(h);
  return h;
}

Holders of_product(const Dim& d, const Mesh& mesh) {
  Holders h;
  AxisMask used = 0;
  for (const Dim& p : d.parts()) {
    DT_CHECK(!(used & p.axes()), "layout",
             "two parts of one dimension are split over {} of mesh {}; split "
             "only one of them over an axis",
             mesh.axes_to_string(used & p.axes()), mesh.to_string());
    used |= p.axes();
    h = times(std::move(h), holders_of(p, mesh));
  }
  return h;
}

Holders of_concat(const Dim& d, const Mesh& mesh) {
  Holders h{0, {}};
  AxisMask axes = d.axes();
  for (int a = 0; a < mesh.num_axes(); ++a)
    if (axes >> a & 1) h.waves.push_back({a, {}});
  for (const Dim& p : d.parts()) {
    if (p.size() == 0) continue;
    Holders segment = holders_of(p, mesh);
    int64_t base = h.size;
    h.size += p.size();
    size_t next = 0;
    for (Wave& w : h.waves) {
      if (next == segment.waves.size() || segment.waves[next].axis != w.axis) {
        w.append(h.size, Wave::kAny);
        continue;
      }
      const Wave& from = segment.waves[next++];
      if (from.constant()) {
        w.append(h.size, from.runs[0].label);
        continue;
      }
      for (int64_t at = base; at < h.size; at += from.period())
        for (const Wave::Run& r : from.runs) w.append(at + r.end, r.label);
    }
  }
  for (Wave& w : h.waves) w.shorten();
  std::erase_if(h.waves, [](const Wave& w) { return w.any(); });
  return h;
}

}  // namespace

int64_t Wave::grain() const {
  int64_t g = 0;
  for (const Run& r : runs) g = std::gcd(g, r.end);
  return g;
}

void Wave::append(int64_t end, int32_t label) {
  if (!runs.empty() && runs.back().end == end) return;
  if (!runs.empty() && runs.back().label == label)
    runs.back().end = end;
  else if (end > 0)
    runs.push_back({end, label});
}

bool Wave::repeats(int64_t shift) const {
  size_t i = 0, j = 0;
  while (runs[j].end <= shift) ++j;
  while (j < runs.size()) {
    if (runs[i].label != runs[j].label) return false;
    int64_t a = runs[i].end, b = runs[j].end - shift;
    i += a <= b;
    j += b <= a;
  }
  return true;
}

void Wave::shorten() {
  if (constant()) {
    runs[0].end = 1;
    return;
  }
  // A function that repeats k times has k times as many changes as one period
  // (counted around a circle), so k must divide the number of changes.
  size_t changes =
      runs.size() - (runs.front().label == runs.back().label ? 1 : 0);
  for (size_t k = changes; k > 1; --k) {
    auto times = static_cast<int64_t>(k);
    if (changes % k != 0 || period() % times != 0) continue;
    int64_t shorter = period() / times;
    if (!repeats(shorter)) continue;
    while (runs.size() > 1 && runs[runs.size() - 2].end >= shorter)
      runs.pop_back();
    runs.back().end = shorter;
    return;
  }
}

Holders holders_of(const Dim& d, const Mesh& mesh) {
  if (d.kind() == Dim::Kind::kLeaf) return of_leaf(d, mesh);
  return d.kind() == Dim::Kind::kProduct ? of_product(d, mesh)
                                         : of_concat(d, mesh);
}

Holders times(Holders outer, const Holders& inner) {
  scale(outer, inner.size);
  outer.waves.insert(outer.waves.end(), inner.waves.begin(), inner.waves.end());
  sort(outer);
  return outer;
}

std::optional<std::pair<Holders, Holders>> cut(const Holders& h,
                                               int64_t inner) {
  std::pair<Holders, Holders> both{{h.size / inner, {}}, {inner, {}}};
  for (const Wave& w : h.waves) {
    if (w.constant()) {
      (inner < h.size ? both.first : both.second).waves.push_back(w);
    } else if (w.grain() % inner == 0) {
      both.first.waves.push_back(w);
      for (Wave::Run& r : both.first.waves.back().runs) r.end /= inner;
    } else if (inner % w.period() == 0) {
      both.second.waves.push_back(w);
    } else {
      return std::nullopt;
    }
  }
  return both;
}

int64_t largest_cut(const Holders& h) {
  struct Size {
    int64_t grain, period;
  };
  std::vector<Size> sizes;
  int64_t all = 1;
  for (const Wave& w : h.waves) {
    if (w.constant()) continue;
    sizes.push_back({w.grain(), w.period()});
    all = std::lcm(all, w.period());
  }
  if (sizes.empty()) return 0;
  if (all < h.size) return all;
  // If the inner part has n indices, an axis of it has a period, and so a
  // grain, of at most n; the grain of an axis of the outer part is at least n.
  // So in descending order of grain the outer axes come first.
  std::sort(sizes.begin(), sizes.end(),
            [](const Size& a, const Size& b) { return a.grain > b.grain; });
  int64_t outside = 0;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    outside = std::gcd(outside, sizes[i].grain);
    bool fits = true;
    for (size_t j = i + 1; j < sizes.size(); ++j)
      fits &= outside % sizes[j].period == 0;
    if (fits) return outside;
  }
  return 0;
}

}  // namespace dtensor
