// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "dtensor/autograd.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/attention_call.h"
#include "dtensor/ops/attention_merge.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/paged_attention.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

struct PagedArgs {
  static constexpr Fields kFields = {"kv_heads", "page", value("scale"),
                                     value("window"), value("soft_cap")};
  int64_t kv_heads, page;
  double scale;  // 0: 1 / sqrt(d)
  int64_t window;
  double soft_cap;
};

void check_heads(std::string_view op, int64_t heads, int64_t kv_heads) {
  DT_CHECK(kv_heads > 0 && heads % kv_heads == 0, op,
           "the number of query heads is {}, and that of key heads (kv_heads) "
           "is {}; write a kv_heads of at least 1 that divides the query heads",
           heads, kv_heads);
}

// Whether the slots are whole, or cut only between pages.
bool split_in_pages(const Dim& slots, const Mesh& mesh, int64_t page) {
  if (slots.kind() != Dim::Kind::kLeaf) return false;
  const Split& split = slots.split();
  for (int64_t i = 0; i < split.parts(mesh); ++i)
    if (split.boundary(mesh, slots.size(), i) % page != 0) return false;
  return true;
}

class PagedAttentionOp : public Op {
 public:
  PagedAttentionOp()
      : Op("paged_attention", {.work = {.flops_per_point = 4},
                               .differentiable = false,
                               .has_rule = false}) {}

  std::vector<Candidate> candidates(std::span<const OpInput> in,
                                    const Attrs& attrs) const override {
    const auto& args = attrs.as<PagedArgs>();
    const Spec &q = *in[0].spec, &k = *in[1].spec;
    check_shapes(in, args);
    const Mesh& mesh = q.mesh();
    const int64_t heads = q.shape()[1];
    const Dim &slots = k.dim(0), &of_cache = k.dim(1);
    // There is one candidate, and it never moves the cache, which is larger
    // than all else by far: the queries go to the heads and pages of each rank.
    const std::vector<int> over = of_cache.split().axes();
    const KvHeads wanted =
        kv_heads_of(heads, args.kv_heads, Split::over(over), mesh);
    DT_CHECK(in[2].spec == &k && !k.partial_axes() &&
                 split_in_pages(slots, mesh, args.page) && k.dim(2).whole() &&
                 of_cache == wanted.dim.canonical(mesh),
             name(),
             "k is {} and v is {}, for q with heads = {} and kv_heads = {}; "
             "pass both in one type and layout as [slots, {}, d], not partial, "
             "with the heads split as kv_heads_of() says, d whole, and the "
             "slots whole or split in pages of {}",
             k.to_string(), in[2].spec->to_string(), heads, args.kv_heads,
             wanted.heads.size(), args.page);
    Layout to = Layout::replicated(q.shape());
    to.dims[0] = restricted(q.dim(0), mesh, ~(slots.axes() | of_cache.axes()));
    to.dims[1] = Dim(heads, Split::over(over));
    const Spec* queries = q.with(to);
    // The result is a weighted mean of values. A rank that has some of the
    // pages knows its term of the mean, and the next operator decides when the
    // terms are added.
    for (const int a : slots.split().axes())
      to.partials.push_back({a, ReduceOp::kSum});
    Layout rows = Layout::replicated(in[4].spec->shape());
    rows.dims[0] = to.dims[0];
    const Spec* pages = in[3].spec;
    const double keys = static_cast<double>(pages->shape()[1] * args.page);
    const auto share = [&](const Dim& dim) {
      return static_cast<double>(dim.largest(mesh)) /
             static_cast<double>(std::max<int64_t>(1, dim.size()));
    };
    return {{{queries, &k, &k, pages->with(Layout::replicated(pages->shape())),
              in[4].spec->with(rows), in[5].spec->with(rows)},
             {q.with(to)},
             static_cast<double>(numel(q.shape())) * keys,
             share(queries->dim(0)) * share(queries->dim(1)) * share(slots)}};
  }

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_one_type(name(), in.first(3));
    for (size_t i = 3; i < in.size(); ++i)
      DT_CHECK(in[i] == DType::kI64, name(),
               "input {} is {}, but must be i64; write cast(x, DType::kI64)", i,
               dtensor::name(in[i]));
    return {in[0]};
  }

  std::vector<Sample> samples() const override {
    const auto index = [](const Shape& shape, int64_t bound) {
      return SampleInput{shape, SampleInput::Values::kIndex, bound};
    };
    const auto sample = [&](int64_t heads, int64_t slots, int64_t page,
                            int64_t window, double soft_cap) {
      const Shape keys{slots, 2, 3};
      return Sample{{{{5, heads, 3}},
                     {keys},
                     {keys},
                     index({3, 2}, slots / page),
                     index({5}, 3),
                     index({5}, 2 * page)},
                    PagedArgs{2, page, 0, window, soft_cap}};
    };
    // With pages of 1, every mesh can split the slots; with larger pages, only
    // some meshes can.
    return {sample(4, 12, 4, 0, 0), sample(4, 7, 1, 0, 0),
            sample(2, 12, 2, 3, 1.5)};
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<PagedArgs>();
    const auto heads = [](const Tensor& x) {
      const Shape& s = x.strides();
      return kernels::HeadsIn{x.data(), {0, s[1], s[0], s[2]}};
    };
    const Tensor q = internal::with_unit_rows(c.in[0]),
                 k = internal::with_unit_rows(c.in[1]),
                 v = internal::with_unit_rows(c.in[2]),
                 pages = c.in[3].to_contiguous(), row = c.in[4].to_contiguous(),
                 position = c.in[5].to_contiguous();
    IntervalList mine;
    c.decision.in[0]->dim(1).intervals(c.mesh(), c.coord(), mine);
    kernels::PagedAttention a{.type = q.dtype()};
    a.t = q.shape()[0], a.hq = q.shape()[1], a.d = q.shape()[2];
    a.slots = k.shape()[0], a.hkv = k.shape()[1];
    a.q = heads(q), a.k = heads(k), a.v = heads(v);
    a.out = {c.out[0].mutable_data(), heads(c.out[0]).strides};
    kernels::HeadGroups& groups = a.groups;
    groups.heads = c.decision.in[0]->shape()[1];
    groups.kv_heads = args.kv_heads;
    groups.first_head = mine.empty() ? 0 : mine[0].lo;
    groups.first_kv_head = groups.first_head * args.kv_heads / groups.heads;
    a.page = args.page;
    const Spec& keys = *c.decision.in[1];
    const int64_t all_pages = keys.shape()[0] / args.page;
    const Interval here =
        keys.dim(0).split().range(c.mesh(), keys.shape()[0], c.coord());
    a.first_page = here.lo / args.page;
    a.requests = pages.shape()[0], a.pages_each = pages.shape()[1];
    a.pages = pages.ptr<int64_t>();
    a.row = row.ptr<int64_t>();
    a.position = position.ptr<int64_t>();
    a.scale =
        args.scale != 0 ? args.scale : 1 / std::sqrt(static_cast<double>(a.d));
    a.window = args.window, a.soft_cap = args.soft_cap;
    a.by_blocks = c.context.reproducible;
    // A bad index could read another request's keys without any error.
    const auto check = [&](const Tensor& ids, size_t input, int64_t n,
                           std::string_view what) {
      check_ids_in(c.context, name(), ids, *c.decision.in[input], n, -1,
                   [=](int64_t id) {
                     return fmt::format(
                         "{} {} is not in [0, {}); write one that exists, or "
                         "-1 for none",
                         what, id, n);
                   });
    };
    check(pages, 3, all_pages, "page");
    check(row, 4, a.requests, "row");
    check(position, 5, a.pages_each * a.page, "position");
    const Split& parts = keys.dim(0).split();
    if (parts.whole()) return c.run(a);
    Tensor lse = c.scratch({1, a.hq, a.t}, kernels::stat_of(a.type));
    a.lse = lse.mutable_data();
    c.run(a);
    to_term(c, c.out[0], lse, parts);
  }

 private:
  // Turns `result`, which is for this rank's keys alone, into its term of the
  // result for the keys of all ranks that `parts` splits the slots over. Scales
  // it by the share of this rank's keys in the sum of exp(score) over all keys.
  // For this, the ranks exchange one log-sum-exp for each query and head.
  static void to_term(Compute& c, const Tensor& result, const Tensor& lse,
                      const Split& parts) {
    const auto box = [&](const Coord& at, Interval ranks) {
      const Region q = c.decision.in[0]->region(at);
      return Region{{ranks}, q[1], q[0]};
    };
    const int64_t n = parts.parts(c.mesh());
    const Tensor all = c.fetch(
        lse, parts.mask(),
        [&](const Coord& at) {
          const int64_t i = parts.part_of(c.mesh(), at);
          return box(at, {i, i + 1});
        },
        [&](const Coord& at) {
          return box(at, {0, n});
        });
    Tensor out = result.reshape(
        {1, result.shape()[0], result.shape()[1], result.shape()[2]});
    const Tensor term = converted(out, lse.dtype());
    internal::scale_rows(
        c, term,
        internal::share_of_rank(c, all, parts.part_of(c.mesh(), c.coord())));
    if (term.dtype() != out.dtype())
      out.copy_from(converted(term, out.dtype()));
  }
  void check_shapes(std::span<const OpInput> in, const PagedArgs& args) const {
    const auto shape = [&](size_t i) { return in[i].spec->shape(); };
    const Shape q = shape(0), k = shape(1), pages = shape(3);
    DT_CHECK(
        q.size() == 3 && k.size() == 3 && k == shape(2) && q[2] == k[2] &&
            q[1] > 0,
        name(),
        "q has shape {}, k {} and v {}; pass q as [t, heads, d] with at least "
        "one head, and k and v in one shape [slots, heads of keys, d]",
        to_string(q), to_string(k), to_string(shape(2)));
    check_heads(name(), q[1], args.kv_heads);
    DT_CHECK(args.page > 0 && k[0] % args.page == 0, name(),
             "k has shape {}, and page is {}; write a page of at least 1, and "
             "make the first size of k and v a multiple of it",
             to_string(k), args.page);
    const Shape row{q[0]};
    DT_CHECK(pages.size() == 2 && shape(4) == row && shape(5) == row, name(),
             "q has shape {}, pages {}, row {} and position {}; pass pages as "
             "[requests, m], and row and position as {}",
             to_string(q), to_string(pages), to_string(shape(4)),
             to_string(shape(5)), to_string(row));
    // GPU kernels find the page of a position by a division of 32-bit numbers.
    DT_CHECK(
        pages[1] <= INT32_MAX / args.page, name(),
        "pages has shape {}, and a page {} positions; pass fewer than 2^31 "
        "positions for each request",
        to_string(pages), args.page);
    internal::check_window_and_cap(name(), args.window, args.soft_cap);
  }
};

}  // namespace

DistTensor paged_attention(const DistTensor& q, const DistTensor& k,
                           const DistTensor& v, const DistTensor& pages,
                           const DistTensor& row, const DistTensor& position,
                           const PagedAttentionOptions& o) {
  std::vector<DistTensor> in = {q, k, v, pages, row, position};
  check_defined("paged_attention", in);
  for (size_t i = 3; i < in.size(); ++i)
    if (in[i].dtype() == DType::kI32) in[i] = cast(in[i], DType::kI64);
  for (const DistTensor& x : {q, k, v})
    DT_CHECK(!grad_enabled() || !x.requires_grad(), "paged_attention",
             "{} requires a gradient, which paged_attention() does not "
             "compute; call it inside a NoGrad scope, or call attention()",
             x.spec()->to_string());
  return apply1(op_of<PagedAttentionOp>(), in,
                PagedArgs{o.kv_heads, o.page, o.scale, o.window, o.soft_cap});
}

KvHeads kv_heads_of(int64_t heads, int64_t kv_heads, const Split& split,
                    const Mesh& mesh) {
  check_heads("kv_heads_of", heads, kv_heads);
  KvHeads r;
  std::vector<int64_t> points = {0};
  for (int64_t i = 0; i < split.parts(mesh); ++i) {
    const Interval part = split.part(mesh, heads, i);
    if (part.size() > 0)
      for (int64_t g = part.lo * kv_heads / heads;
           g <= (part.hi - 1) * kv_heads / heads; ++g)
        r.heads.push_back(g);
    points.push_back(std::ssize(r.heads));
  }
  const int64_t n = points.back();
  r.dim = split.whole()
              ? Dim(n)
              : Dim(n, Split::at(split.axes(), std::move(points), mesh))
                    .canonical(mesh);
  return r;
}

static const OpFamily kFamily("paged_attention", [] {
  return OpList{&op_of<PagedAttentionOp>()};
});

}  // namespace dtensor
