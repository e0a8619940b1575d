// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/attention_call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "dtensor/ops/attention.h"
#include "dtensor/ops/attention_merge.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/owned.h"
#include "dtensor/redistribute.h"

namespace dtensor::internal {
namespace {

// The rule's term for the mask. Each dimension, aligned with [b, h, s, t] at
// the right, gives its letter, or 1 if it is broadcast.
std::string mask_term(const Shape& mask, const Shape& scores,
                      const char* letters) {
  DT_CHECK(mask.size() <= 4, "attention",
           "the mask has shape {}, with more dimensions than [b, h, s, t] = "
           "{}; pass a mask that broadcasts to it",
           to_string(mask), to_string(scores));
  std::string term;
  for (int d = 0; d < mask.size(); ++d) {
    const int at = d + 4 - mask.size();
    DT_CHECK(mask[d] == 1 || mask[d] == scores[at], "attention",
             "dimension {} of the mask, whose shape is {}, does not broadcast "
             "to [b, h, s, t] = {}; pass a mask whose dimension {} is 1{}",
             d, to_string(mask), to_string(scores), d,
             scores[at] == 1 ? "" : fmt::format(" or {}", scores[at]));
    term += mask[d] == 1 && scores[at] != 1 ? '1' : letters[at];
  }
  return term;
}

// Moves a block's keys and values (or their gradients) on the rank's second
// thread. In a dry run or under a communication budget, they move when
// arrived() is called instead; a dry run counts their memory as held until
// then.
class Passing {
 public:
  Passing() = default;
  Passing(std::vector<DistTensor> from, std::array<SpecRef, 2> to)
      : x_(std::move(from)), to_(to) {
    const RankContext& ctx = RankContext::current();
    later_ = ctx.dry_run || ctx.comm_budget >= 0;
    if (!later_) relayout(x_, to_, {.async = true});
    if (ctx.dry_run)
      for (const Spec* s : to_) held_.push_back(DistTensor::empty(s));
  }
  std::pair<Tensor, Tensor> arrived() {
    held_.clear();
    if (later_) relayout(x_, to_);
    return {x_[0].local(), x_[1].local()};
  }

 private:
  std::vector<DistTensor> x_, held_;
  std::array<SpecRef, 2> to_ = {};
  bool later_ = false;
};

}  // namespace

Tensor with_unit_rows(const Tensor& x) {
  return x.shape().back() > 1 && x.strides().back() != 1 ? x.to_contiguous()
                                                         : x;
}

kernels::HeadsIn heads_in(const Tensor& x) {
  const Shape& s = x.strides();
  return {x.data(), {s[0], s[2], s[1], s[3]}};
}
kernels::HeadsOut heads_out(const Tensor& x) {
  return {x.mutable_data(), heads_in(x).strides};
}

void check_window_and_cap(std::string_view op, int64_t window,
                          double soft_cap) {
  DT_CHECK(window >= 0, op,
           "window is {}; write the number of keys that a query attends to, or "
           "0 (no window)",
           window);
  DT_CHECK(soft_cap >= 0 && std::isfinite(soft_cap), op,
           "soft_cap is {}; write a finite number above 0 to bound the scores, "
           "or 0 (no cap)",
           soft_cap);
}

BoundRule attention_rule(std::string_view op, const std::vector<Shape>& shapes,
                         const AttentionArgs& args, bool backward) {
  const size_t fixed = backward ? 6 : 3;
  const Shape &q = shapes[0], &k = shapes[1];
  DT_CHECK(
      q.size() == 4 && k.size() == 4, op,
      "q has shape {} and k {}; pass q as [b, s, heads, d] and k as [b, t, "
      "kv_heads, d]",
      to_string(q), to_string(k));
  // A local function (local_map.h) of a rank without heads has none.
  DT_CHECK(k[2] > 0 ? q[2] % k[2] == 0 : q[2] == 0, op,
           "the number of heads is {} in q and {} in k; pass k and v with a "
           "number of heads that divides that of q",
           q[2], k[2]);
  // The mark of "s~" gives every query to one rank (BoundRule::legal()). If
  // several ranks held a query, each would add up the blocks in a different
  // order, and their results would differ. The backward pass needs no mark on
  // s: as dk and dv sum over s, every query is on one rank anyway.
  std::string rule = !args.ring ? "bs^hd!,bt!gd,btgd"
                     : backward ? "bshd!,bt~gd,btgd"
                                : "bs~hd!,bt~gd,btgd";
  if (backward) rule += ",bshd,bhs,bshd";
  const char* letters = args.ring ? "bhsu" : "bhst";
  if (args.documents) {
    rule += args.ring ? ",bs,bu!" : ",bs,bt";
  } else if (shapes.size() > fixed) {
    std::string term =
        mask_term(shapes[fixed], {q[0], q[2], q[1], k[1]}, letters);
    if (term.ends_with('u')) term += '!';
    rule += "," + term;
  }
  rule += backward ? "->bshd,btgd,btgd | linear 5; " : "->bshd,bhs | ";
  rule += "link h g";
  if (args.ring) rule += "; link s t";
  return BoundRule(Rule(rule), shapes, op);
}

// At step i of the ring, every rank holds the keys of the rank that is i places
// further on. So a step is a move between two layouts, which is planned,
// counted and priced as any other.
Dim passed_on(const Dim& keys, const Mesh& mesh, size_t steps) {
  std::vector<IntervalList> parts = parts_of(keys, mesh);
  std::rotate(parts.begin(), parts.begin() + static_cast<int64_t>(steps),
              parts.end());
  return owned(keys.size(), mesh, keys.axes(), parts);
}

std::vector<size_t> ring_steps(const Dim& queries, const Dim& keys,
                               const Mesh& mesh, const AttentionArgs& args) {
  const std::vector<IntervalList> q = parts_of(queries, mesh),
                                  k = parts_of(keys, mesh);
  // Whether q[r] and k[r] are parts of the same rank.
  const bool aligned = queries.axes() == keys.axes();
  const auto sees = [&](size_t step) {
    for (size_t r = 0; r < q.size(); ++r)
      if (score_pairs(q[r], k[(r + step) % k.size()], args.causal, args.window))
        return true;
    return false;
  };
  // With a window, a query sees only the blocks near its own. Every rank takes
  // part in a move, so a step is left out only if no rank sees a key in it.
  std::vector<size_t> steps;
  for (size_t i = 0; i < k.size(); ++i)
    if (i == 0 || !args.window || !aligned || sees(i)) steps.push_back(i);
  return steps;
}

// The blocks, in the order of ring_steps(). Cached with the decision.
struct AttentionCall::Ring : Decision::Memo {
  std::vector<SpecRef> k, v;       // by step: the specs of the blocks
  std::vector<IntervalList> keys;  // by step: the keys of this rank's block
};

const AttentionCall::Ring& AttentionCall::ring() {
  if (!c_.decision.memo) {
    auto ring = std::make_shared<Ring>();
    const Spec *k = c_.decision.in[1], *v = c_.decision.in[2];
    const Dim& dim = k->dim(1);
    for (const size_t i :
         ring_steps(c_.decision.in[0]->dim(1), dim, c_.mesh(), args_)) {
      Layout layout_k = k->layout(), layout_v = v->layout();
      if (i > 0)
        layout_k.dims[1] = layout_v.dims[1] = passed_on(dim, c_.mesh(), i);
      ring->k.push_back(k->with(layout_k));
      ring->v.push_back(v->with(layout_v));
      ring->keys.push_back(ring->k.back()->region(c_.coord())[1]);
    }
    c_.decision.memo = ring;
  }
  return static_cast<const Ring&>(*c_.decision.memo);
}

// Throws Error before anything is sent if the ring is not allowed
// (ExplicitOnly), or if all of its steps together exceed the budget
// (CommBudget).
void AttentionCall::check_allowed(const Ring& ring, bool backward) const {
  const RankContext& ctx = c_.context;
  if (ring.k.size() == 1 || (!ctx.explicit_only && ctx.comm_budget < 0)) return;
  int64_t bytes = 0;
  for (size_t i = 1; i < ring.k.size(); ++i) {
    const Move next[] = {{ring.k[i - 1], ring.k[i]},
                         {ring.v[i - 1], ring.v[i]}};
    const Move home[] = {{ring.k[i], ring.k[0]}, {ring.v[i], ring.v[0]}};
    bytes += c_.context.planner.plan(next).bytes;
    if (backward) bytes += c_.context.planner.plan(home).bytes;
  }
  DT_CHECK(!ctx.explicit_only, c_.op.name(),
           "would have to communicate, which ExplicitOnly forbids: its keys {} "
           "are split along the sequence ({} bytes in a ring); call "
           "redistribute() on k and v before it, so that their sequence is "
           "whole",
           ring.k[0]->to_string(), bytes);
  if (bytes > ctx.comm_budget)
    spend_budget(c_.context, bytes, "the ring inside " + c_.op.name());
}

AttentionCall::AttentionCall(Compute& c, size_t fixed)
    : c_(c),
      args_(c.attrs.as<AttentionArgs>()),
      heads_(c.global_size('h')),
      kv_heads_(c.global_size('g')),
      q_(with_unit_rows(c.in[0])) {
  DT_CHECK(
      !c.context.reproducible || !c.axes_of('t'), c.op.name(),
      "adds keys in an order that depends on the mesh, because q is {} and "
      "k {}; leave --reproducible out, or do not split the sequence of k",
      c.decision.in[0]->to_string(), c.decision.in[1]->to_string());
  if (c.in.size() > fixed) mask_ = c.in[fixed];
  if (args_.documents) key_ids_ = c.in[fixed + 1];
  // A mask made from document ids covers at most this many queries at a time.
  constexpr int64_t kQueriesOfIds = 256;
  // If AttentionOptions::length is set, the queries are the last of that many
  // positions.
  const int64_t first = args_.length ? args_.length - c.global_size('s') : 0;
  int64_t row = 0;
  for (const Interval& range : c.ranges_of('s'))
    for (int64_t lo = range.lo; lo < range.hi;) {
      const int64_t hi =
          args_.documents ? std::min(lo + kQueriesOfIds, range.hi) : range.hi;
      queries_.push_back({lo + first, hi + first});
      query_rows_.push_back(row);
      row += hi - lo;
      lo = hi;
    }
  // For each local query head, the position of its key head in a block.
  const IntervalList have =
      c.axes_of('g') ? used_heads(c.coord()) : held(c.coord(), 0)[2];
  for (const Interval& range : c.ranges_of('h'))
    for (int64_t h = range.lo; h < range.hi; ++h) {
      int64_t g = h * kv_heads_ / heads_, at = 0;
      for (const Interval& heads : have) {
        if (g < heads.hi) {
          at += g - heads.lo;
          break;
        }
        at += heads.size();
      }
      kv_head_.push_back(static_cast<int>(at));
    }
}

// Query head i uses key head floor(i * kv_heads / heads). If both kinds of
// heads are split, a rank may use key heads that another rank holds. With more
// ranks than key heads, several ranks use the same one. used_of() fetches the
// key heads, and held_of() sends their gradients back.
IntervalList AttentionCall::used_heads(const Coord& at) const {
  IntervalList list;
  const Region queries = c_.decision.in[0]->region(at);
  for (const Interval& h : queries[2]) {
    const int64_t lo = h.lo * kv_heads_ / heads_;
    const int64_t hi = (h.hi - 1) * kv_heads_ / heads_ + 1;
    if (!list.empty() && lo <= list.back().hi)
      list.back().hi = hi;
    else
      list.push_back({lo, hi});
  }
  return list;
}

Region AttentionCall::held(const Coord& at, size_t step) const {
  const auto* ring = static_cast<const Ring*>(c_.decision.memo.get());
  return (step ? ring->k[step] : c_.decision.in[1])->region(at);
}

Region AttentionCall::used(const Coord& at, size_t step) const {
  Region r = held(at, step);
  r[2] = used_heads(at);
  return r;
}

// For each dimension, the mesh axes on which its indices in held() and used()
// depend.
std::array<AxisMask, 4> AttentionCall::depend(size_t step) const {
  const auto* ring = static_cast<const Ring*>(c_.decision.memo.get());
  const Spec* spec = step ? ring->k[step] : c_.decision.in[1];
  std::array<AxisMask, 4> axes;
  for (size_t d = 0; d < 4; ++d)
    axes[d] = spec->dim(static_cast<int>(d)).axes();
  axes[2] |= c_.decision.in[0]->dim(2).axes();
  return axes;
}

Tensor AttentionCall::used_of(const Tensor& x, size_t step) {
  const AxisMask axes = c_.axes_of('g');
  if (!axes) return with_unit_rows(x);
  return with_unit_rows(c_.fetch(
      x, axes, [&](const Coord& at) { return held(at, step); },
      [&](const Coord& at) { return used(at, step); }, depend(step)));
}

Tensor AttentionCall::held_of(const Tensor& dx, size_t step) {
  const AxisMask axes = c_.axes_of('g');
  if (!axes) return dx;
  return c_.collect_sum(
      dx, axes, [&](const Coord& at) { return used(at, step); },
      [&](const Coord& at) { return held(at, step); }, depend(step));
}

// The next block is received while the current one is computed. Besides its own
// block, a rank holds at most these two.
void AttentionCall::for_each_block(
    const std::function<void(const Block&)>& compute) {
  const Ring& ring = this->ring();
  Tensor k = c_.in[1], v = c_.in[2];
  for (size_t i = 0; i < ring.k.size(); ++i) {
    Passing next;
    if (i + 1 < ring.k.size())
      next = Passing(
          {DistTensor::wrap(k, ring.k[i]), DistTensor::wrap(v, ring.v[i])},
          {ring.k[i + 1], ring.v[i + 1]});
    compute({i, used_of(k, i), used_of(v, i), ring.keys[i]});
    k = v = {};
    if (i + 1 == ring.k.size()) break;
    std::tie(k, v) = next.arrived();
  }
}

Interval AttentionCall::seen(size_t query, const Block& block,
                             size_t key) const {
  const Interval queries = queries_[query], keys = block.keys[key];
  int64_t lo = keys.lo, hi = keys.hi;
  if (args_.length) hi = std::min(hi, args_.length);
  if (args_.causal) hi = std::min(hi, queries.hi);
  if (args_.window) lo = std::max(lo, queries.lo + 1 - args_.window);
  hi = std::max(hi, keys.lo);
  return {std::min(lo, hi), hi};
}

kernels::Attention AttentionCall::call(size_t query, const Block& block,
                                       size_t key) {
  const Interval queries = queries_[query], keys = seen(query, block, key);
  int64_t row = keys.lo - block.keys[key].lo;
  for (size_t i = 0; i < key; ++i) row += block.keys[i].size();
  const auto of_queries = [&](const Tensor& x) {
    return x.slice(1, query_rows_[query], query_rows_[query] + queries.size());
  };
  const Tensor q = of_queries(q_);
  const Tensor k = block.k.slice(1, row, row + keys.size());
  const Tensor v = block.v.slice(1, row, row + keys.size());
  kernels::Attention a{.type = q.dtype()};
  a.b = q.shape()[0];
  a.s = q.shape()[1];
  a.hq = q.shape()[2];
  a.d = q.shape()[3];
  a.t = k.shape()[1];
  a.hkv = k.shape()[2];
  a.q = heads_in(q);
  a.k = heads_in(k);
  a.v = heads_in(v);
  a.kv_head = kv_head_;
  a.scale = args_.scale_of(a.d);
  a.causal = args_.causal;
  a.query_offset = queries.lo - keys.lo;
  a.soft_cap = args_.soft_cap;
  a.by_blocks = c_.context.reproducible;
  a.first_key = keys.lo;
  // Fewer kernels take a window, so a window that hides no key is left out.
  if (queries.hi - keys.lo > args_.window) a.window = args_.window;
  if (mask_.defined()) set_mask(a, query, keys);
  return a;
}

void AttentionCall::set_mask(kernels::Attention& a, size_t query,
                             Interval keys) {
  const int64_t row = query_rows_[query];
  if (args_.documents) {
    const Shape shape{a.b, a.s, a.t};
    const Tensor of_query = mask_.slice(1, row, row + a.s);
    const Tensor of_key = key_ids_.slice(1, keys.lo, keys.hi);
    const Shape &q = of_query.strides(), &k = of_key.strides();
    may_ = equal(c_, of_query.as_strided(shape, {q[0], q[1], 0}),
                 of_key.as_strided(shape, {k[0], 0, k[1]}));
    a.mask = {may_.data(), {a.s * a.t, 0, a.t, 1}};
    a.mask_is_bool = true;
    return;
  }
  Tensor mask = mask_;
  const int n = mask.ndim();
  if (n >= 1 && mask.shape()[n - 1] != 1)
    mask = mask.slice(n - 1, keys.lo, keys.hi);
  if (n >= 2 && mask.shape()[n - 2] != 1)
    mask = mask.slice(n - 2, row, row + a.s);
  a.mask.data = mask.data();
  a.mask_is_bool = mask.dtype() == DType::kBool;
  for (int d = 0; d < n; ++d)
    a.mask.strides[static_cast<size_t>(d + 4 - n)] =
        mask_.shape()[d] == 1 ? 0 : mask.strides()[d];
}

bool AttentionCall::one_block(const Block& block) {
  return ring().k.size() == 1 && block.keys.size() == 1;
}

// With one block of keys and one range of queries, the kernel writes the
// outputs itself. Otherwise the results of several kernel calls are merged by
// their log-sum-exp, in the order of the ring's steps. The order depends on the
// layout alone, so that every run gives the same bits.
void AttentionCall::forward() {
  check_allowed(ring(), false);
  const DType type = c_.in[0].dtype(), stat = kernels::stat_of(type);
  std::vector<Online> found(queries_.size());
  bool direct = false;
  for_each_block([&](const Block& block) {
    direct = one_block(block) && queries_.size() == 1;
    for (size_t i = 0; i < queries_.size(); ++i)
      for (size_t j = 0; j < block.keys.size(); ++j) {
        if (!direct && seen(i, block, j).size() == 0) continue;
        const kernels::Attention a = call(i, block, j);
        const Tensor out =
            direct ? c_.out[0] : c_.scratch({a.b, a.s, a.hq, a.d}, type);
        const Tensor lse =
            direct ? c_.out[1] : c_.scratch({a.b, a.hq, a.s}, stat);
        c_.run(kernels::AttentionForward{
            .of = a, .out = heads_out(out), .lse = lse.mutable_data()});
        if (!direct) found[i].add(c_, out, lse);
      }
  });
  if (direct) return;
  for (size_t i = 0; i < queries_.size(); ++i) {
    const int64_t lo = query_rows_[i], hi = lo + queries_[i].size();
    Tensor out = c_.out[0].slice(1, lo, hi), lse = c_.out[1].slice(2, lo, hi);
    const bool any = found[i].out.defined();
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    out.copy_from(any ? converted(found[i].out, type)
                      : Tensor::full(out.shape(), type, 0));
    lse.copy_from(any ? found[i].lse : Tensor::full(lse.shape(), stat, kNone));
  }
}

// The gradients of a block's keys and values are sent straight to the rank that
// owns the block, while the next block is computed. If they travelled along the
// ring with the block, each rank would wait for the sums of other ranks. The
// owner adds the terms in the same order in every run.
void AttentionCall::backward() {
  const Ring& ring = this->ring();
  check_allowed(ring, true);
  const DType type = c_.in[0].dtype();
  const Tensor out = with_unit_rows(c_.in[3]), dout = with_unit_rows(c_.in[5]);
  const bool apart = c_.axes_of('g') != 0;  // see used_of()
  std::vector<Sum> dq(queries_.size());
  Sum home[2];  // the gradients of this rank's keys and values
  std::optional<Passing> coming;  // other ranks' terms of these gradients
  bool direct = false;

  const auto arrive = [&] {
    if (!coming) return;
    const auto [k, v] = coming->arrived();
    home[0].add(c_, k);
    home[1].add(c_, v);
    coming.reset();
  };
  for_each_block([&](const Block& block) {
    direct = one_block(block) && queries_.size() == 1 &&
             seen(0, block, 0) == block.keys[0];
    std::vector<Sum> sums[2];
    for (auto& list : sums) list.resize(block.keys.size());
    for (size_t i = 0; i < queries_.size(); ++i) {
      const int64_t lo = query_rows_[i], hi = lo + queries_[i].size();
      const Tensor y = out.slice(1, lo, hi), dy = dout.slice(1, lo, hi);
      const Tensor lse = c_.in[4].slice(2, lo, hi).to_contiguous();
      for (size_t j = 0; j < block.keys.size(); ++j) {
        const Interval all = block.keys[j], keys = seen(i, block, j);
        if (!direct && keys.size() == 0) continue;
        const kernels::Attention a = call(i, block, j);
        const Shape q{a.b, a.s, a.hq, a.d}, k{a.b, all.size(), a.hkv, a.d};
        const bool own = direct && !apart;
        const auto scratch = [&] {
          return keys == all ? c_.scratch(k, type) : Tensor::full(k, type, 0);
        };
        const Tensor to_q = direct ? c_.out[0] : c_.scratch(q, type);
        const Tensor to_k = own ? c_.out[1] : scratch();
        const Tensor to_v = own ? c_.out[2] : scratch();
        const auto of_keys = [&](const Tensor& x) {
          return heads_out(x.slice(1, keys.lo - all.lo, keys.hi - all.lo));
        };
        c_.run(kernels::AttentionBackward{.of = a,
                                          .out = heads_in(y),
                                          .dout = heads_in(dy),
                                          .lse = lse.data(),
                                          .dq = heads_out(to_q),
                                          .dk = of_keys(to_k),
                                          .dv = of_keys(to_v)});
        if (direct) {
          if (apart) c_.out[1] = held_of(to_k, 0);
          if (apart) c_.out[2] = held_of(to_v, 0);
          return;
        }
        dq[i].add(c_, to_q);
        sums[0][j].add(c_, to_k);
        sums[1][j].add(c_, to_v);
      }
    }
    arrive();
    Tensor d[2];
    for (size_t x = 0; x < 2; ++x)
      d[x] = held_of(
          joined(sums[x], block.keys, (x ? block.v : block.k).shape(), type),
          block.step);
    if (block.step == 0) {
      for (size_t x = 0; x < 2; ++x) home[x].add(c_, d[x]);
      return;
    }
    coming = Passing({DistTensor::wrap(d[0], ring.k[block.step]),
                      DistTensor::wrap(d[1], ring.v[block.step])},
                     {ring.k[0], ring.v[0]});
  });
  if (direct) return;
  arrive();
  for (size_t i = 0; i < queries_.size(); ++i) {
    const int64_t lo = query_rows_[i], hi = lo + queries_[i].size();
    Tensor to = c_.out[0].slice(1, lo, hi);
    to.copy_from(dq[i].as(type, to.shape()));
  }
  for (size_t x = 0; x < 2; ++x)
    c_.out[1 + x] = home[x].as(type, c_.out[1 + x].shape());
}

}  // namespace dtensor::internal
