// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/spec.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {

Spec::Spec(const Mesh& mesh, const Shape& shape, Layout layout, DType dtype,
           uint64_t hash)
    : mesh_(mesh),
      shape_(shape),
      layout_(std::move(layout)),
      dtype_(dtype),
      split_axes_(layout_.split_axes()),
      partial_axes_(layout_.partial_axes()),
      exact_(!layout_.partials.empty() &&
             layout_.partials[0].op == ReduceOp::kExactSum),
      hash_(hash) {}

int Spec::next_counter() {
  static std::atomic<unsigned> threads{0};
  return static_cast<int>(threads++ % std::tuple_size_v<decltype(users_)>);
}

// Reads the drops before the holds: every drop that it sees follows a hold,
// which it then sees as well. So if the sums are equal, nothing held the spec
// between the two reads.
bool Spec::in_use() const {
  uint64_t held = 0, dropped = 0;
  for (const Users& u : users_)
    dropped += u.dropped.load(std::memory_order_acquire);
  for (const Users& u : users_) held += u.held.load(std::memory_order_relaxed);
  return held != dropped;
}

// All specs of the process.
struct Spec::Table {
  std::mutex mutex;
  std::unordered_multimap<uint64_t, const Spec*> specs;
  size_t limit = kLeast;
  int64_t hits = 0, misses = 0;

  static constexpr size_t kLeast = 4096;

  static Table& get() {
    static auto* table = new Table;
    return *table;
  }
  // Frees the specs that nothing holds if the table is full. Nothing can hold
  // them again meanwhile: a new hold comes from a SpecRef that exists, or from
  // get(), which waits for the mutex.
  void make_room() {
    if (specs.size() >= limit) free_unused();
  }
  void free_unused() {
    std::erase_if(specs, [](const auto& entry) {
      if (entry.second->in_use()) return false;
      delete entry.second;
      return true;
    });
    limit = std::max(kLeast, 2 * specs.size());
  }
};

CacheUse Spec::use() {
  Table& table = Table::get();
  std::lock_guard lock(table.mutex);
  return {"specs",
          table.hits,
          table.misses,
          table.specs.size(),
          table.specs.size(),
          table.limit};
}

const Spec* Spec::get(const Mesh& mesh, const Shape& shape,
                      const Layout& layout, DType dtype) {
  auto hash_of = [&](const Layout& l) {
    return hash_mix(hash_mix(mesh.hash(), l.hash()),
                    static_cast<uint64_t>(dtype));
  };
  auto is = [&](const Spec* s, const Layout& its, const Layout& l) {
    return s->mesh_ == mesh && s->dtype_ == dtype && s->shape_ == shape &&
           its == l;
  };
  // The specs that this thread asked for lately, by the hash of the arguments
  // as they were given. A layout that is found here is neither checked nor made
  // canonical again.
  struct Asked {
    Layout layout;
    SpecRef spec;
    size_t turn = 0;  // when it was last held, see Lately
  };
  // The specs that this thread holds for its callers. A new one replaces the
  // oldest.
  struct Lately {
    std::array<SpecRef, 2 * kHeldLately> specs;
    size_t turn = 0;
    size_t hold(const Spec* s) {
      specs[turn % specs.size()] = s;
      return turn++;
    }
  };
  // Frees unused specs when a thread ends. Without this, the specs of a run
  // would outlive its threads until the table is full.
  struct Ending {
    ~Ending() {
      Table& table = Table::get();
      std::lock_guard lock(table.mutex);
      table.free_unused();
    }
  };
  struct OfThread : Ending {  // the base is destroyed last
    std::array<Asked, 256> recent;
    Lately lately;
  };
  thread_local OfThread mine;
  auto& recent = mine.recent;
  Lately& lately = mine.lately;
  uint64_t h = hash_of(layout);
  Asked& asked = recent[h % recent.size()];
  if (asked.spec && is(asked.spec, asked.layout, layout)) {
    if (lately.turn - asked.turn > kHeldLately) [[unlikely]]
      asked.turn = lately.hold(asked.spec);
    return asked.spec;
  }

  DT_CHECK(mesh.valid(), "spec",
           "a tensor needs a mesh, but this one is empty; pass a mesh with "
           "axes, such as Mesh::parse(\"dp=2\")");
  DT_CHECK(static_cast<int>(layout.dims.size()) == shape.size(), "spec",
           "a layout of {} does not fit shape {}; write one of {}",
           quantity(layout.dims.size(), "dimension", "dimensions"),
           dtensor::to_string(shape),
           quantity(shape.size(), "dimension", "dimensions"));
  numel(shape);
  for (int d = 0; d < shape.size(); ++d)
    DT_CHECK(layout.dims[static_cast<size_t>(d)].size() == shape[d], "spec",
             "dimension {} has size {} in the layout, but in the shape {} it "
             "has {}; write both with the same size",
             d, layout.dims[static_cast<size_t>(d)].size(),
             dtensor::to_string(shape), shape[d]);
  Layout canonical = layout.canonical(mesh);
  const auto is_exact = [](const Partial& p) {
    return p.op == ReduceOp::kExactSum;
  };
  const auto exact = std::ranges::count_if(canonical.partials, is_exact);
  DT_CHECK(exact == 0 ||
               (exact == std::ssize(canonical.partials) && is_float(dtype)),
           "spec",
           "{} of {} is exact over some axis; an exact sum is of floats, and "
           "exact over each axis of its partials: write P(exact) there too, or "
           "P(sum) here",
           canonical.to_string(mesh), name(dtype));
  h = hash_of(canonical);

  Table& table = Table::get();
  std::lock_guard lock(table.mutex);
  auto [first, last] = table.specs.equal_range(h);
  auto it = std::find_if(first, last, [&](const auto& entry) {
    return is(entry.second, entry.second->layout_, canonical);
  });
  const bool known = it != last;
  SpecRef s = known ? it->second : new Spec(mesh, shape, canonical, dtype, h);
  ++(known ? table.hits : table.misses);
  if (!known) {
    table.make_room();
    table.specs.emplace(h, s);
  }
  asked = {layout, s, lately.hold(s)};
  return s;
}

const Spec* Spec::replicated(const Mesh& mesh, const Shape& shape,
                             DType dtype) {
  return get(mesh, shape, Layout::replicated(shape), dtype);
}

int Spec::components() const {
  int n = 1;
  for (const Partial& p : layout_.partials)
    n = std::max(n, dtensor::components(p.op));
  return n;
}

Shape Spec::local_shape(const Coord& c) const {
  Shape s;
  if (components() > 1) s.push_back(components());
  for (const Dim& d : layout_.dims) s.push_back(d.local_size(mesh_, c));
  return s;
}

int64_t Spec::largest_part_bytes() const {
  int64_t n = size_of(part_dtype()) * components();
  for (const Dim& d : layout_.dims) n *= d.largest(mesh_);
  return n;
}

std::string Spec::to_string() const {
  return std::string(name(dtype_)) + dtensor::to_string(shape_) + "(" +
         layout_.to_string(mesh_) + ")";
}

}  // namespace dtensor
