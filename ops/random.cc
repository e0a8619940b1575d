// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/random.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dtensor/capture.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/rows.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

using kernels::Distribution;

// Calls fn(part, lo) for every box of `region`, the indices that the local
// tensor t has of a global one. `part` is the box's window of t, and `lo` the
// global index of its first element.
template <class Fn>
void for_boxes(const Tensor& t, const Region& region, Fn&& fn, int dim = 0,
               Shape lo = {}) {
  if (dim == t.ndim()) return fn(t, lo);
  int64_t at = 0;
  for (const Interval& range : region[static_cast<size_t>(dim)]) {
    Shape next = lo;
    next.push_back(range.lo);
    for_boxes(t.slice(dim, at, at + range.size()), region, fn, dim + 1, next);
    at += range.size();
  }
}

// Makes a tensor in this layout. fn(part, region) fills each rank's part. The
// tensor is made replicated over the partial axes, and then becomes partial.
template <class Fn>
DistTensor make(const Shape& shape, const Mesh& mesh, const Placements& layout,
                DType t, Fn&& fn) {
  const Spec* spec = Spec::get(mesh, shape, layout.resolve(mesh, shape), t);
  Layout whole = spec->layout();
  whole.partials.clear();
  DistTensor x = DistTensor::empty(spec->with(whole));
  if (x.here()) fn(x.local(), x.region());
  return relayout(x, spec);
}

// Adds `with`, which determines x's values, to its lineage. Tensors with the
// same spec but other values then have another lineage.
DistTensor filled(DistTensor x, uint64_t with) {
  uint64_t& hash = x.impl()->lineage.hash;
  hash = fold_lineage(hash, with);
  return x;
}

// The draws of a captured graph from the run's own generators. Each draw reads
// its seed and stream from device memory, where the generators' next values are
// written before a replay.
class CapturedDraws {
 public:
  explicit CapturedDraws(RandomState before) : before_(std::move(before)) {}
  const RandomState& before() const { return before_; }

  // The address from which the times-th draw by these ranks reads its seed and
  // stream. A draw that runs again (checkpoint()) gets the same address.
  const uint64_t* at(uint64_t ranks, uint64_t times) {
    const auto found = before_.times.find(ranks);
    const uint64_t first = found == before_.times.end() ? 0 : found->second;
    DT_CHECK(times > first, "cuda graph",
             "manual_seed(), set_random_state() or the second run of a "
             "checkpoint() set the random state to one from before the "
             "capture; call the first two before the capture, and checkpoint() "
             "within it");
    const auto [use, added] =
        places_.try_emplace({ranks, times - first}, places_.size());
    const size_t block = use->second / kBlock, word = use->second % kBlock;
    if (added && word == 0)
      blocks_.push_back(Capture::written_before_replay(
          {static_cast<int64_t>(kBlock), 2}, DType::kI64));
    return static_cast<const uint64_t*>(blocks_[block].data()) + 2 * word;
  }
  void begin_replay(RandomState& now) const {
    std::vector<uint64_t> words(2 * kBlock * blocks_.size());
    RandomState next = now;
    for (const auto& [use, place] : places_) {
      const auto& [ranks, nth] = use;
      const uint64_t times = now.times[ranks] + nth;
      words[2 * place] = now.seed;
      words[2 * place + 1] = stream_of(ranks, times);
      next.times[ranks] = std::max(next.times[ranks], times);
    }
    now = std::move(next);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const Tensor& block = blocks_[b];
      block.device().from_host(block.stream(), block.mutable_data(),
                               words.data() + 2 * kBlock * b, block.bytes());
    }
  }
  // The stream of the times-th draw by these ranks. Streams that callers choose
  // (Generator::stream) are small numbers or 64-bit hashes. This is a 64-bit
  // hash of another text, so it is unlikely to equal one of them.
  static uint64_t stream_of(uint64_t ranks, uint64_t times) {
    return hash_mix(hash_mix(hash_text("the run's own"), ranks), times);
  }

 private:
  static constexpr size_t kBlock = 256;
  const RandomState before_;
  std::map<std::pair<uint64_t, uint64_t>, size_t> places_;
  std::vector<Tensor> blocks_;
};

// This rank's state of the run's own generators (create.h). A rank is a thread.
struct Drawn : RandomState {
  uint64_t run = 0;
  // Set while a graph is captured.
  std::shared_ptr<CapturedDraws> captured = nullptr;
};
Drawn& drawn() {
  static thread_local Drawn d;
  const uint64_t run = RankContext::current().run_id;
  if (d.run != run) d = {{}, run};
  return d;
}

CapturedDraws& captured_draws(Drawn& d, Capture& capture) {
  if (!d.captured) {
    d.captured = std::make_shared<CapturedDraws>(d);
    capture.before_replay(
        [draws = d.captured] { draws->begin_replay(drawn()); });
    capture.at_end([] {
      Drawn& now = drawn();
      static_cast<RandomState&>(now) = now.captured->before();
      now.captured = nullptr;
    });
  }
  return *d.captured;
}

// Returns g, or the next stream of the run's own generator if g is global.
Generator resolved(const Generator& g, const Mesh& mesh) {
  if (!g.global) return g;
  const RankContext& context = RankContext::current();
  uint64_t ranks = 0;  // meshes over all ranks of the run share a generator
  if (mesh.num_ranks() != context.world_size) {
    std::vector<int64_t> list;
    for (int64_t r = 0; r < mesh.num_ranks(); ++r)
      list.push_back(mesh.world_rank(r));
    std::sort(list.begin(), list.end());
    ranks = list.size();
    for (int64_t r : list) ranks = hash_mix(ranks, static_cast<uint64_t>(r));
  }
  Drawn& d = drawn();
  // This must come before the use is counted: captured_draws() copies the
  // counts of the earlier uses.
  CapturedDraws* captured =
      context.capture ? &captured_draws(d, *context.capture) : nullptr;
  const uint64_t times = ++d.times[ranks];
  Generator next{d.seed, CapturedDraws::stream_of(ranks, times)};
  if (captured) next.at = captured->at(ranks, times);
  return next;
}

DistTensor draw(Distribution distribution, const Shape& shape, const Mesh& mesh,
                const Placements& layout, DType t, Generator g, double p0,
                double p1) {
  g = resolved(g, mesh);
  const RankContext& context = RankContext::current();
  const Kernels& k = kernels_of(*context.device);
  const DistTensor x = make(
      shape, mesh, layout, t, [&](const Tensor& part, const Region& region) {
        for_boxes(part, region, [&](const Tensor& box, const Shape& lo) {
          k.run(context.stream,
                kernels::RandomBox{.distribution = distribution,
                                   .type = t,
                                   .key = {g.seed, g.stream, g.at},
                                   .global = shape,
                                   .lo = lo,
                                   .size = box.shape(),
                                   .out = box.mutable_data(),
                                   .out_strides = box.strides(),
                                   .p0 = p0,
                                   .p1 = p1});
        });
      });
  return filled(x, hash_mix(g.seed, g.stream));
}

struct DropoutArgs {
  static constexpr Fields kFields = {value("p")};
  double p;
};
// attrs.seed is {seed, stream}. If attrs.seed_at is not null, the kernel reads
// both there instead (kernels::RandomKey).
Attrs dropout_attrs(double p, const Generator& g) {
  Attrs attrs = DropoutArgs{p};
  attrs.seed[0] = g.seed;
  attrs.seed[1] = g.stream;
  attrs.seed_at = g.at;
  return attrs;
}

// x with elements multiplied by 0 at random, and the others divided by 1 - p.
class Dropout : public RuleOp {
 public:
  Dropout() : RuleOp("dropout", "...->... | linear 0", {.saved_inputs = 0}) {}

  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const Shape& x : {Shape{7}, Shape{5, 3}, Shape{3, 1, 5}})
      list.push_back({{{x}}, dropout_attrs(0.25, {3, 5}), true});
    list.push_back({{{{4, 3}}}, dropout_attrs(1, {3, 5}), true});
    return list;
  }

  void compute(Compute& c) const override {
    const Tensor &x = c.in[0], &out = c.out[0];
    const Spec* spec = c.decision.in[0];
    const double keep = 1 - c.attrs.as<DropoutArgs>().p;
    for_boxes(out, spec->region(c.coord()),
              [&](const Tensor& box, const Shape& lo) {
                c.run(kernels::RandomBox{
                    .distribution = Distribution::kBernoulli,
                    .type = out.dtype(),
                    .key = {c.attrs.seed[0], c.attrs.seed[1], c.attrs.seed_at},
                    .global = spec->shape(),
                    .lo = lo,
                    .size = box.shape(),
                    .out = box.mutable_data(),
                    .out_strides = box.strides(),
                    .p0 = keep});
              });
    row_binary(c, fn::index_of<fn::Mul>, out, x.to_contiguous(), out);
    if (keep > 0) row_unary(c, fn::index_of<fn::MulScalar>, out, out, 1 / keep);
  }

  InputGradients gradient(const GradientCall& c) const override {
    const Assignment a = inherited(c);
    return {apply1(*this, c.cotangents, c.attrs, &a)};
  }
};

}  // namespace

DistTensor full(const Shape& shape, double value, const Mesh& mesh,
                const Placements& layout, DType t) {
  const DistTensor x =
      make(shape, mesh, layout, t, [&](const Tensor& part, const Region&) {
        part.device().fill(part.stream(), t, part.shape(), part.mutable_data(),
                           part.strides(), value);
      });
  return filled(x, std::bit_cast<uint64_t>(value));
}

DistTensor zeros(const Shape& shape, const Mesh& mesh, const Placements& layout,
                 DType t) {
  return full(shape, 0, mesh, layout, t);
}

DistTensor ones(const Shape& shape, const Mesh& mesh, const Placements& layout,
                DType t) {
  return full(shape, 1, mesh, layout, t);
}

DistTensor arange(int64_t n, const Mesh& mesh, const Placements& layout,
                  DType t) {
  DT_CHECK(n >= 0, "arange", "n is {}; write 0 or more", n);
  return make({n}, mesh, layout, t,
              [&](const Tensor& part, const Region& region) {
                std::vector<int64_t> values;
                for (const Interval& range : region[0])
                  for (int64_t i = range.lo; i < range.hi; ++i)
                    values.push_back(i);
                const Tensor from = Tensor::from(part.shape(), values.data());
                part.device().cast(part.stream(), part.shape(), t,
                                   part.mutable_data(), part.strides(),
                                   DType::kI64, from.data(), from.strides());
              });
}

void manual_seed(uint64_t seed) {
  Drawn& d = drawn();
  d.seed = seed;
  d.times.clear();
}

RandomState random_state() { return drawn(); }

void set_random_state(RandomState state) {
  static_cast<RandomState&>(drawn()) = std::move(state);
}

DistTensor randn(const Shape& shape, const Mesh& mesh, const Placements& layout,
                 DType t, Generator g, double mean, double std) {
  DT_CHECK(is_float(t), "randn",
           "cannot draw floats of type {}; write DType::kF32, kF64, kBF16 or "
           "kF16",
           name(t));
  return draw(Distribution::kNormal, shape, mesh, layout, t, g, mean, std);
}

DistTensor uniform(const Shape& shape, const Mesh& mesh,
                   const Placements& layout, DType t, Generator g, double lo,
                   double hi) {
  DT_CHECK(is_float(t), "uniform",
           "cannot draw floats of type {}; write DType::kF32, kF64, kBF16 or "
           "kF16, or call randint() for integers",
           name(t));
  return draw(Distribution::kUniform, shape, mesh, layout, t, g, lo, hi);
}

DistTensor randint(int64_t lo, int64_t hi, const Shape& shape, const Mesh& mesh,
                   const Placements& layout, DType t, Generator g) {
  DT_CHECK(t == DType::kI32 || t == DType::kI64, "randint",
           "cannot draw integers of type {}; write DType::kI32 or DType::kI64",
           name(t));
  // The kernel takes the bounds as doubles, which are exact up to 2^53.
  constexpr int64_t kMost = int64_t{1} << 53;
  DT_CHECK(lo < hi && lo >= -kMost && hi <= kMost, "randint",
           "cannot draw integers from [{}, {}); write -2^53 <= lo < hi <= 2^53",
           lo, hi);
  DT_CHECK(
      t == DType::kI64 || (lo >= INT32_MIN && hi <= int64_t{INT32_MAX} + 1),
      "randint", "integers from [{}, {}) do not fit i32; write DType::kI64", lo,
      hi);
  return draw(Distribution::kInteger, shape, mesh, layout, t, g,
              static_cast<double>(lo), static_cast<double>(hi));
}

DistTensor dropout(const DistTensor& x, double p, Generator g) {
  check_defined("dropout", x);
  DT_CHECK(p >= 0 && p <= 1, "dropout",
           "p is {}; write a probability in [0, 1]", p);
  if (p == 0) return alias(x);
  return apply1(op_of<Dropout>(), x, dropout_attrs(p, resolved(g, x.mesh())));
}

static const OpFamily kFamily("random",
                              [] { return OpList{&op_of<Dropout>()}; });

}  // namespace dtensor
