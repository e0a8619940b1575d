// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <compare>
#include <utility>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/select.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"

namespace dtensor {
namespace {

struct SortArgs {
  static constexpr Fields kFields = {"descending"};
  bool descending;
};

// Values, and their indices in the whole row.
struct Elements {
  Tensor values, ids;
};

// The key by which an element is compared. No two keys of a row are equal,
// because `id` is the element's index. The order of `value` is that of the
// elements (the reverse if descending), with NaN largest and the zeros equal.
struct Key {
  uint64_t value;
  int64_t id;
  auto operator<=>(const Key&) const = default;
};

std::vector<uint64_t> values_of(const Tensor& t, bool descending) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  std::vector<uint64_t> keys;
  keys.reserve(static_cast<size_t>(t.numel()));
  if (is_float(t.dtype())) {
    for (const double x : t.to_doubles()) {
      const auto bits = std::bit_cast<uint64_t>(x == 0 ? 0.0 : x);
      keys.push_back(x != x         ? ~uint64_t{0}
                     : bits & kSign ? ~bits
                                    : bits ^ kSign);
    }
  } else {
    for (const int64_t x : t.to_integers())
      keys.push_back(static_cast<uint64_t>(x) ^ kSign);
  }
  if (descending)
    for (uint64_t& key : keys) key = ~key;
  return keys;
}

void append(IntervalList& list, int64_t lo, int64_t hi) {
  if (lo == hi) return;
  if (!list.empty() && list.back().hi == lo)
    list.back().hi = hi;
  else
    list.push_back({lo, hi});
}

// The ranks that split a row, in the order of their group.
struct Members {
  AxisMask axes;
  std::vector<Coord> at;
  size_t me = 0;
  int64_t rows;  // equal for all

  explicit Members(const Compute& c)
      : axes(c.axes_of('n')), rows(c.rows_at('n', c.coord())) {
    for (int64_t r : c.mesh().group(axes, c.coord())) {
      if (r == c.mesh().rank(c.coord())) me = at.size();
      at.push_back(c.mesh().coordinate(r));
    }
  }
  size_t size() const { return at.size(); }
};

// x "...n" -> the sorted values and their indices. A split row is sorted as in
// Shi and Schaeffer, "Parallel sorting by regular sampling" (J. of Parallel and
// Distributed Computing 14, 1992): every rank sorts its part and offers as many
// regular samples as there are ranks. The samples give one range of values to
// each rank; if the parts have equal sizes, it has at most about twice the
// rank's share of the elements. The ranks exchange the elements, and sort those
// that they receive. A second exchange moves the elements at the ends of the
// ranges to the ranks that hold them in the output's layout.
class Sort : public RuleOp {
 public:
  // Priced as three exchanges of all values: one for the values, and two for
  // the indices, which take twice as many bytes as f32. The exchange that
  // follows moves few elements, and is not priced.
  Sort()
      : RuleOp("sort", "...n~->...n,...n",
               {.work = {1, {'n', "*", 3}},
                .saved_inputs = 0,
                .saves_outputs = true,
                .data_decide_bytes = true}) {}

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return values_and_indices(name(), in[0]);
  }
  std::vector<Sample> samples() const override {
    return {{{{{17}}}, SortArgs{true}, true},
            {{{{3, 7}}}, SortArgs{false}, true},
            {{{{2, 3, 5}}}, SortArgs{true}, true}};
  }

  void compute(Compute& c) const override {
    const Rows x(c.in[0]);
    if (!c.axes_of('n')) return sort(c, x, nullptr, 0, {c.out[0], c.out[1]});
    const Members members(c);
    c.allow(StepKind::kAllToAll,
            2 * c.decision.in[0]->largest_part_bytes() +
                2 * c.decision.out[1]->largest_part_bytes());
    const Elements mine = sorted_part(c, x);
    const std::vector<int64_t> counts = shares(c, members, mine, x.n);
    std::vector<int64_t> begins;  // of each row among the received elements
    const Elements got = to_ranges(c, members, mine, counts, begins);
    to_layout(c, members, got, counts);
  }

  InputGradients gradient(const GradientCall& g) const override {
    const int64_t n = g.decision->in[0]->shape().back();
    return {put_in_rows(g.cotangents[0], g.outputs[1], n)};
  }

 private:
  // Sorts rows. Element i of row r has the index ids[r, i], or first + i if
  // `ids` is null.
  static void sort(Compute& c, const kernels::Matrix& x, const int64_t* ids,
                   int64_t first, const Elements& to) {
    c.run(kernels::TopK{.x = x,
                        .ids = ids,
                        .first = first,
                        .k = x.n,
                        .largest = c.attrs.as<SortArgs>().descending,
                        .values = to.values.mutable_data(),
                        .value_ids = to.ids.mutable_ptr<int64_t>()});
  }
  static Elements elements(Compute& c, const Shape& shape) {
    return {c.scratch(shape, c.in[0].dtype()), c.scratch(shape, DType::kI64)};
  }

  // This rank's part, sorted: [rows, n].
  static Elements sorted_part(Compute& c, const Rows& x) {
    const IntervalList ranges = c.ranges_of('n');
    const Elements to = elements(c, {x.rows, x.n});
    if (ranges.size() < 2) {
      sort(c, x, nullptr, ranges.empty() ? 0 : ranges[0].lo, to);
      return to;
    }
    std::vector<int64_t> ids;
    for (int64_t r = 0; r < x.rows; ++r)
      for (const Interval& range : ranges)
        for (int64_t i = range.lo; i < range.hi; ++i) ids.push_back(i);
    const Tensor list = Tensor::from({x.rows, x.n}, ids.data());
    sort(c, x, list.ptr<int64_t>(), 0, to);
    return to;
  }

  // How many elements of each member's rows go to each member: [member, row,
  // destination]. In a dry run, they are spread evenly.
  static std::vector<int64_t> shares(Compute& c, const Members& members,
                                     const Elements& mine, int64_t n) {
    const auto ranks = static_cast<int64_t>(members.size());
    std::vector<int64_t> counts;
    if (c.context.dry_run) {
      for (const Coord& at : members.at) {
        const int64_t part = c.decision.in[0]->local_shape(at).back();
        for (int64_t r = 0; r < members.rows; ++r)
          for (int64_t d = 0; d < ranks; ++d)
            counts.push_back((d + 1) * part / ranks - d * part / ranks);
      }
      return counts;
    }
    const std::vector<uint64_t> values =
        values_of(mine.values, c.attrs.as<SortArgs>().descending);
    const std::vector<int64_t> ids = mine.ids.to_integers();
    const auto key = [&](int64_t r, int64_t i) {
      const auto at = static_cast<size_t>(r * n + i);
      return Key{values[at], ids[at]};
    };
    // A member without elements offers the largest value of a key.
    std::vector<int64_t> offers;
    for (int64_t r = 0; r < members.rows; ++r)
      for (int64_t s = 0; s < ranks; ++s) {
        const Key k = n ? key(r, s * n / ranks) : Key{~uint64_t{0}, n};
        offers.push_back(std::bit_cast<int64_t>(k.value));
        offers.push_back(k.id);
      }
    const std::vector<int64_t> all = c.gather_numbers(members.axes, offers);
    for (int64_t r = 0; r < members.rows; ++r) {
      std::vector<Key> samples;
      for (int64_t m = 0; m < ranks; ++m)
        for (int64_t s = 0; s < ranks; ++s) {
          const auto at =
              static_cast<size_t>(2 * ((m * members.rows + r) * ranks + s));
          samples.push_back({std::bit_cast<uint64_t>(all[at]), all[at + 1]});
        }
      std::sort(samples.begin(), samples.end());
      int64_t begin = 0;
      for (int64_t d = 1; d <= ranks; ++d) {
        int64_t end = n;
        if (d < ranks) {
          const Key split = samples[static_cast<size_t>(d * ranks)];
          int64_t size = n - begin;  // the first element from `begin` on
          end = begin;               // that is not below the splitter
          while (size > 0) {
            const int64_t half = size / 2;
            if (key(r, end + half) < split) {
              end += half + 1;
              size -= half + 1;
            } else {
              size = half;
            }
          }
        }
        counts.push_back(end - begin);
        begin = end;
      }
    }
    return c.gather_numbers(members.axes, counts);
  }

  // Exchanges the elements: returns those of this rank's range of values, row
  // by row, each row sorted. Row r begins at begins[r].
  static Elements to_ranges(Compute& c, const Members& members,
                            const Elements& mine,
                            const std::vector<int64_t>& counts,
                            std::vector<int64_t>& begins) {
    const auto ranks = static_cast<int64_t>(members.size());
    const auto count = [&](int64_t m, int64_t r, int64_t d) {
      return counts[static_cast<size_t>((m * members.rows + r) * ranks + d)];
    };
    // `holds` and `wants` are the members' parts, before and after the
    // exchange, of a list of all elements, ordered by destination, row and
    // member.
    std::vector<Region> holds(members.size(), Region(1)),
        wants(members.size(), Region(1));
    int64_t at = 0;
    for (int64_t d = 0; d < ranks; ++d) {
      const bool here = d == static_cast<int64_t>(members.me);
      const int64_t first = at;
      for (int64_t r = 0; r < members.rows; ++r) {
        if (here) begins.push_back(at - first);
        for (int64_t m = 0; m < ranks; ++m) {
          append(holds[static_cast<size_t>(m)][0], at, at + count(m, r, d));
          at += count(m, r, d);
        }
      }
      if (here) begins.push_back(at - first);
      append(wants[static_cast<size_t>(d)][0], first, at);
    }
    Elements part = in_order_of_holds(c, members, mine, count);
    part = {c.exchange(part.values, members.axes, holds, wants),
            c.exchange(part.ids, members.axes, holds, wants)};
    const Elements to = elements(c, part.values.shape());
    for (size_t r = 0; r + 1 < begins.size(); ++r) {
      const int64_t n = begins[r + 1] - begins[r];
      const auto row = [&](const Tensor& t) {
        return t.slice(0, begins[r], begins[r + 1]);
      };
      const Tensor values = row(part.values), ids = row(part.ids);
      sort(c, {values.dtype(), 1, n, values.data(), n}, ids.ptr<int64_t>(), 0,
           {row(to.values), row(to.ids)});
    }
    return to;
  }

  // This rank's elements, ordered by destination and row.
  template <class Count>
  static Elements in_order_of_holds(Compute& c, const Members& members,
                                    const Elements& mine, const Count& count) {
    const int64_t all = mine.values.numel();
    const Elements flat{mine.values.reshape({all}), mine.ids.reshape({all})};
    if (members.rows <= 1) return flat;
    const auto ranks = static_cast<int64_t>(members.size()),
               me = static_cast<int64_t>(members.me);
    std::vector<int64_t> order, done(static_cast<size_t>(members.rows));
    for (int64_t d = 0; d < ranks; ++d)
      for (int64_t r = 0; r < members.rows; ++r)
        for (int64_t i = 0; i < count(me, r, d); ++i)
          order.push_back(r * (all / members.rows) +
                          done[static_cast<size_t>(r)]++);
    const Tensor index = Tensor::from({all}, order.data());
    const Elements to = elements(c, {all});
    const auto take = [&](const Tensor& from, const Tensor& out) {
      c.run(kernels::TakeRows{.x = {from.dtype(), 1, all, from.data(), all},
                              .k = all,
                              .index = index.ptr<int64_t>(),
                              .lo = 0,
                              .hi = all,
                              .out = out.mutable_data()});
    };
    take(flat.values, to.values);
    take(flat.ids, to.ids);
    return to;
  }

  // Moves elements from the ranges of values to the output's layout.
  static void to_layout(Compute& c, const Members& members, const Elements& got,
                        const std::vector<int64_t>& counts) {
    const int64_t n = c.global_size('n');
    const size_t ranks = members.size();
    // They are parts of a list of the elements of all rows, row by row.
    std::vector<Region> holds(ranks, Region(1)), wants(ranks, Region(1));
    for (int64_t r = 0; r < members.rows; ++r) {
      int64_t at = r * n;
      for (size_t d = 0; d < ranks; ++d) {
        int64_t size = 0;
        for (size_t m = 0; m < ranks; ++m)
          size += counts[(m * static_cast<size_t>(members.rows) +
                          static_cast<size_t>(r)) *
                             ranks +
                         d];
        append(holds[d][0], at, at + size);
        at += size;
        const Region region = c.decision.out[0]->region(members.at[d]);
        for (const Interval& range : region.back())
          append(wants[d][0], r * n + range.lo, r * n + range.hi);
      }
    }
    for (const auto& [from, out] :
         {std::pair{got.values, c.out[0]}, std::pair{got.ids, c.out[1]}})
      Tensor(out.reshape({out.numel()}))
          .copy_from(c.exchange(from, members.axes, holds, wants));
  }
};

}  // namespace

// sort(), whose errors name `op`.
static TopK sorted(std::string_view op, const DistTensor& x, int dim,
                   bool descending) {
  check_defined(op, x);
  values_and_indices(op, x.dtype());
  // As in torch, a scalar is a row of one element.
  if (x.ndim() == 0 && (dim == 0 || dim == -1))
    return topk(x, 1, dim, descending);
  const int d = normalize_dim(dim, x.ndim(), op);
  const DistTensor rows = to_last(x, d);
  const std::vector<DistTensor> all =
      apply(op_of<Sort>(), rows, SortArgs{descending});
  return {to_last(all[0], d), to_last(all[1], d)};
}

TopK sort(const DistTensor& x, int dim, bool descending) {
  return sorted("sort", x, dim, descending);
}

DistTensor argsort(const DistTensor& x, int dim, bool descending) {
  return sorted("argsort", x, dim, descending).indices;
}

static const OpFamily kFamily("sort", [] { return OpList{&op_of<Sort>()}; });

}  // namespace dtensor
