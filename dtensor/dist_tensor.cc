// SPDX-License-Identifier: Apache-2.0
#include "dtensor/dist_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "dtensor/async.h"
#include "dtensor/autograd.h"
#include "dtensor/data_check.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/assign_ranks.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/owned.h"
#include "dtensor/print.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {

Placements::Placements(
    std::initializer_list<std::pair<std::string_view, Placement>> list) {
  for (const auto& [axis, p] : list) list_.push_back({std::string(axis), p});
}

Layout Placements::resolve(const Mesh& mesh, const Shape& shape) const {
  if (layout_) return *layout_;
  if (!mesh.valid()) return {};  // Spec::get() throws later
  if (!text_.empty()) return parse_layout(text_, mesh, shape);
  Layout l;
  std::vector<std::vector<int>> axes(static_cast<size_t>(shape.size()));
  std::vector<int64_t> granules(axes.size(), 1);
  // For each dimension: its Dim if ZigZag() or Owned() splits it.
  std::vector<Dim> own(axes.size());
  for (const auto& [name, p] : list_) {
    int axis = mesh.axis(name);
    if (p.kind == Placement::Kind::kShard) {
      auto d =
          static_cast<size_t>(normalize_dim(p.dim, shape.size(), "layout"));
      DT_CHECK(p.granule >= 1, "layout",
               "the blocks of dimension {} have {} indices; write Shard({}) or "
               "Shard({}, n) with n of 1 or more",
               d, p.granule, d, d);
      axes[d].push_back(axis);
      granules[d] = std::max(granules[d], p.granule);
    } else if (p.kind == Placement::Kind::kZigzag ||
               p.kind == Placement::Kind::kOwned) {
      const int d = normalize_dim(p.dim, shape.size(), "layout");
      own[static_cast<size_t>(d)] =
          p.kind == Placement::Kind::kZigzag
              ? zigzag(shape[d], mesh, axis)
              : owned_by(shape[d], mesh, axis, p.owner);
      axes[static_cast<size_t>(d)].push_back(axis);
    } else if (p.kind == Placement::Kind::kPartial) {
      l.partials.push_back({axis, p.op});
    }
  }
  for (int d = 0; d < shape.size(); ++d) {
    const auto i = static_cast<size_t>(d);
    const bool alone = own[i].axes() != 0;
    DT_CHECK(!alone || axes[i].size() == 1, "layout",
             "{} axes split dimension {}, one of them by ZigZag() or Owned(); "
             "let that axis alone split it",
             axes[i].size(), d);
    l.dims.push_back(alone ? own[i]
                           : Dim(shape[d], Split::over(axes[i], granules[i])));
  }
  return l.canonical(mesh);
}

namespace {
using TextOf = std::pair<const Spec*, std::string_view>;
struct TextHash {
  using is_transparent = void;
  size_t operator()(const TextOf& t) const {
    return hash_mix(std::hash<std::string_view>()(t.second),
                    reinterpret_cast<uintptr_t>(t.first));
  }
};
struct SameText {
  using is_transparent = void;
  bool operator()(const TextOf& a, const TextOf& b) const { return a == b; }
};
}  // namespace

const Spec* Placements::applied_to(const Spec* x) const {
  if (text_.empty()) return x->with(resolve(x->mesh(), x->shape()));
  struct Known {
    SpecRef from, to;  // `from` keeps the key's spec alive
  };
  using Key = std::pair<const Spec*, std::string>;
  thread_local BoundedCache<Key, Known, TextHash, SameText> known(
      "layouts as text", cache_limit::kRules);
  if (const Known* k = known.find(TextOf(x, text_))) return k->to;
  const Spec* to = x->with(resolve(x->mesh(), x->shape()));
  return known.insert({x, text_}, {x, to}).to;
}

DistTensor DistTensor::wrap(Tensor local, const Spec* spec) {
  RankContext& ctx = RankContext::current();
  auto impl = std::make_shared<Impl>();
  impl->spec = spec;
  impl->run = ctx.run_id;
  impl->lineage.hash = spec->hash();
  const Coord* at = ctx.coordinate_or_null(spec->mesh());
  if (!at) {
    DT_CHECK(
        !local.defined(), "dist_tensor",
        "rank {} of the run is not in mesh {} and cannot have a part of {}; "
        "write DistTensor::empty(spec) there",
        ctx.world_rank, spec->mesh().to_string(), spec->to_string());
    return DistTensor(std::move(impl));
  }
  DT_CHECK(local.defined(), "dist_tensor",
           "the local part of {} is an undefined Tensor; pass the part that "
           "this rank holds",
           spec->to_string());
  const Shape want = spec->local_shape(*at);
  DT_CHECK(local.shape() == want, "dist_tensor",
           "a local part of shape {} does not fit {}, whose part here has "
           "shape {}; pass a part of that shape",
           dtensor::to_string(local.shape()), spec->to_string(),
           dtensor::to_string(want));
  if (spec->exact()) local = converted(local, DType::kExact);
  DT_CHECK(local.dtype() == spec->part_dtype(), "dist_tensor",
           "a local part of type {} does not fit {}; pass a part of type {}",
           name(local.dtype()), spec->to_string(), name(spec->dtype()));
  // (Tensors of a dry run have no memory, so their device does not matter.)
  DT_CHECK(&local.device() == ctx.device || ctx.dry_run, "dist_tensor",
           "a local part of {} is on {}, but rank {} computes on {}; write "
           "part.to_rank()",
           spec->to_string(), local.device().name(), ctx.world_rank,
           local.device().kind() == ctx.device->kind() ? "another one"
                                                       : ctx.device->name());
  impl->local = std::move(local);
  return DistTensor(std::move(impl));
}

namespace {

// Throws Error on a rank outside the mesh of x.
void check_here(const DistTensor& x, std::string_view where) {
  RankContext& ctx = RankContext::current();
  DT_CHECK(
      ctx.coordinate_or_null(x.mesh()) != nullptr, where,
      "rank {} of the run is not in mesh {}, on which {} lies; call it on "
      "the ranks of that mesh only, or redistribute to a mesh with all ranks",
      ctx.world_rank, x.mesh().to_string(), x.spec()->to_string());
}

const Spec* spec_on(const DistTensor& x, const Mesh& to,
                    const Placements& placements,
                    const RedistributeOptions& options) {
  const Layout layout = placements.resolve(to, x.shape());
  const Spec* spec = Spec::get(to, x.shape(), layout, x.dtype());
  if (!options.assign_ranks) return spec;
  return Spec::get(assign_ranks(x.spec(), to, layout), x.shape(), layout,
                   x.dtype());
}

}  // namespace

DistTensor DistTensor::empty(const Spec* spec) {
  const Coord* at = RankContext::current().coordinate_or_null(spec->mesh());
  return wrap(
      at ? Tensor::empty(spec->local_shape(*at), spec->part_dtype()) : Tensor(),
      spec);
}

DistTensor DistTensor::from_local(Tensor local, const Mesh& mesh,
                                  const Placements& placements,
                                  const Shape& global_shape) {
  DT_CHECK(
      local.defined(), "from_local",
      "the part is an undefined Tensor; pass the part that this rank holds, or "
      "any Tensor of the same type on a rank outside mesh {}",
      mesh.to_string());
  const Spec* spec =
      Spec::get(mesh, global_shape, placements.resolve(mesh, global_shape),
                local.dtype());
  if (!RankContext::current().coordinate_or_null(mesh)) local = Tensor();
  return wrap(std::move(local), spec);
}

DistTensor DistTensor::from_global(const Tensor& global, const Mesh& mesh,
                                   const Placements& placements) {
  DT_CHECK(global.defined(), "from_global",
           "the value is an undefined Tensor; pass the whole value on every "
           "rank");
  const Spec* to =
      Spec::get(mesh, global.shape(), placements.resolve(mesh, global.shape()),
                global.dtype());
  if (!RankContext::current().coordinate_or_null(mesh))
    return wrap(Tensor(), to);
  RankContext& context = RankContext::current();
  const auto check = context.input_check;
  if (check == RankContext::InputCheck::kAll && !context.dry_run)
    check_same(context, to, global);
  const Spec* whole = Spec::replicated(mesh, global.shape(), global.dtype());
  const Tensor here = global.to_rank();
  Tensor part = redistribute_local(here, whole, to);
  // Copy the part if it is a view of `global` or of only a piece of `here`. A
  // view would change with `global`, or keep the whole value alive.
  if (part.storage() == global.storage() ||
      (part.storage() == here.storage() && part.numel() < here.numel())) {
    Tensor own = Tensor::empty(part.shape(), part.dtype());
    own.copy_from(part);
    part = own;
  }
  DistTensor x = wrap(std::move(part), to);
  if (check == RankContext::InputCheck::kSample) {
    uint64_t& lineage = x.impl_->lineage.hash;
    lineage = fold_lineage(lineage, sample_hash(global));
  }
  return x;
}

const Spec* DistTensor::spec() const {
  DT_CHECK(defined(), "dist_tensor",
           "an undefined tensor was used; assign one to it first");
  return impl_->spec;
}

int64_t DistTensor::size(int dim) const {
  return shape()[normalize_dim(dim, ndim(), "size")];
}

bool DistTensor::here() const {
  return RankContext::current().coordinate_or_null(mesh()) != nullptr;
}

const Tensor& DistTensor::Impl::part() {
  if (pending) [[unlikely]] {
    // If wait() throws, `pending` stays, and the next call throws again.
    local = pending->wait();
    made_version = pending->version();
    pending = nullptr;
  }
  if (local.defined() && local.storage()->away()) [[unlikely]]
    local.storage()->bring_back();
  return local;
}

uint64_t DistTensor::Impl::version() {
  if (pending) part();
  return local.defined() ? local.storage()->version() : 0;
}

void DistTensor::Impl::note_version() {
  if (!pending && local.defined()) made_version = local.storage()->version();
}

bool DistTensor::Impl::untouched() { return version() == made_version; }

const Tensor& DistTensor::local() const {
  DT_CHECK(defined(), "dist_tensor",
           "an undefined tensor was used; assign one to it first");
  const Tensor& part = impl_->part();
  if (!part.defined()) [[unlikely]]
    check_here(*this, "local");
  return part;
}

Region DistTensor::region() const {
  return spec()->region(RankContext::current().coordinate(mesh(), "region"));
}

IntervalList DistTensor::region(int dim) const {
  const int d = normalize_dim(dim, ndim(), "region");
  return region()[static_cast<size_t>(d)];
}

DistTensor DistTensor::redistribute(const Placements& p,
                                    const RedistributeOptions& o) const& {
  return redistribute(p.applied_to(spec()), o);
}
DistTensor DistTensor::redistribute(const Placements& p,
                                    const RedistributeOptions& o) && {
  const Spec* to = p.applied_to(spec());
  return std::move(*this).redistribute(to, o);
}

DistTensor DistTensor::redistribute(const Mesh& to, const Placements& p,
                                    const RedistributeOptions& o) const& {
  return redistribute(spec_on(*this, to, p, o), o);
}
DistTensor DistTensor::redistribute(const Mesh& to, const Placements& p,
                                    const RedistributeOptions& o) && {
  const Spec* spec = spec_on(*this, to, p, o);
  return std::move(*this).redistribute(spec, o);
}

DistTensor DistTensor::redistribute(const Spec* to,
                                    const RedistributeOptions& o) const& {
  return dtensor::redistribute(*this, to, o);
}
DistTensor DistTensor::redistribute(const Spec* to,
                                    const RedistributeOptions& o) && {
  DistTensor y = dtensor::redistribute(*this, to, o, {.consume = true});
  *this = DistTensor();
  return y;
}

DistTensor DistTensor::redistribute_async(const Placements& p,
                                          const RedistributeOptions& o) const {
  return dtensor::redistribute(*this, p.applied_to(spec()), o, {.async = true});
}

DistTensor DistTensor::redistribute_async(const Mesh& to, const Placements& p,
                                          const RedistributeOptions& o) const {
  return dtensor::redistribute(*this, spec_on(*this, to, p, o), o,
                               {.async = true});
}

Tensor DistTensor::full() const {
  check_here(*this, "full");
  const Scoped<const Lineage*> about(RankContext::current().about,
                                     &impl_->lineage);
  return redistribute_local(local(), spec(),
                            Spec::replicated(mesh(), shape(), dtype()))
      .to_contiguous();
}

namespace {

bool integral(DType t) { return t == DType::kI32 || t == DType::kI64; }

}  // namespace

template <class T>
T DistTensor::item() const {
  DT_CHECK(
      dtensor::numel(shape()) == 1, "item",
      "{} has {} elements, not one; reduce it first, for example with sum()",
      spec()->to_string(), dtensor::numel(shape()));
  check_here(*this, "item");
  const Tensor t = full();
  if (t.device().kind() == Device::Kind::kNone) return {};
  RankContext& context = RankContext::current();
  if (!integral(dtype()))
    return static_cast<T>(read_checked(context, mesh(), t)[0]);
  read_checked(context, mesh(), Tensor());
  const int64_t value = t.integer_at(0);
  const T item = static_cast<T>(value);
  bool exact = true;
  if constexpr (std::is_floating_point_v<T>)  // may round up to 2^63
    exact = item < T{0x1p63} && static_cast<int64_t>(item) == value;
  else if constexpr (!std::is_same_v<T, bool>)
    exact = item == value;
  DT_CHECK(exact, "item", "{} is {}, which {} cannot hold exactly; write {}",
           spec()->to_string(), value,
           std::is_same_v<T, float>    ? "a float"
           : std::is_same_v<T, double> ? "a double"
                                       : "an int32",
           "item<int64_t>()");
  return item;
}
template double DistTensor::item() const;
template float DistTensor::item() const;
template int64_t DistTensor::item() const;
template int32_t DistTensor::item() const;
template bool DistTensor::item() const;

namespace {

void print(const Tensor& t, int dim, int64_t offset, std::string& out) {
  constexpr int64_t kShown = 6;
  if (dim == t.ndim()) {
    if (t.dtype() == DType::kBool)
      out += t.at(offset) != 0 ? "true" : "false";
    else if (integral(t.dtype()))
      out += fmt::format("{}", t.integer_at(offset));
    else
      out += fmt::format("{:g}", t.at(offset));
    return;
  }
  int64_t inner = 1, n = t.shape()[dim];
  for (int d = dim + 1; d < t.ndim(); ++d) inner *= t.shape()[d];
  out += '[';
  for (int64_t i = 0; i < n; ++i) {
    if (i) out += ", ";
    if (n > kShown && i == kShown / 2) {
      out += "..., ";
      i = n - kShown / 2;
    }
    print(t, dim + 1, offset + i * inner, out);
  }
  out += ']';
}

}  // namespace

std::string DistTensor::to_string() const {
  check_here(*this, "to_string");
  Tensor t = full();
  std::string out = spec()->to_string() + " ";
  if (t.device().kind() == Device::Kind::kNone)
    out += "(no data)";
  else
    print(t, 0, 0, out);
  return out;
}

std::string summary(const DistTensor& x) {
  if (!x.defined()) return "an undefined tensor";
  return fmt::format("{} on {}, without the values; write to_string() for them",
                     x.spec()->to_string(), x.mesh().to_string());
}

std::ostream& operator<<(std::ostream& to, const DistTensor& x) {
  return to << summary(x);
}

DistTensor DistTensor::detach() const {
  auto impl = std::make_shared<Impl>();
  impl->spec = spec();
  impl->run = impl_->run;
  impl->local = impl_->local;
  impl->lineage = impl_->lineage;
  impl->pending = impl_->pending;
  impl->keep = impl_->keep;
  impl->use = impl_->use;
  impl->grad = impl_->grad;
  impl->made_version = impl_->made_version;
  return DistTensor(std::move(impl));
}

bool DistTensor::requires_grad() const {
  return defined() && impl_->requires_grad;
}

Keep DistTensor::keep() const { return defined() ? impl_->keep : Keep::kMove; }

namespace {

// Throws Error if x cannot have a gradient, or if an operator made it.
void check_gradient(const DistTensor& x, bool wanted, std::string_view where) {
  DT_CHECK(!wanted || is_float(x.dtype()), where,
           "{} cannot have a gradient; cast it to f32, f64, bf16 or f16",
           x.spec()->to_string());
  const std::shared_ptr<Node>& node = x.impl()->node;
  DT_CHECK(!node || node->inputs.empty(), where,
           "{} was made by {}; call {}() of the tensor that detach() returns",
           x.spec()->to_string(), node->name(), where);
}

}  // namespace

DistTensor& DistTensor::set_requires_grad(bool wanted) {
  DT_CHECK(defined(), "set_requires_grad",
           "an undefined tensor was used; assign one to it first");
  check_gradient(*this, wanted, "set_requires_grad");
  impl_->requires_grad = wanted;
  return *this;
}

DistTensor& DistTensor::as_parameter(Keep keep) {
  DT_CHECK(defined(), "as_parameter",
           "an undefined tensor was used; assign one to it first");
  DT_CHECK(keep != Keep::kGatherOnUse || !spec()->partial_axes(),
           "as_parameter",
           "{} is partial, and gathering does not combine its parts; "
           "redistribute it first, or write Keep::kStay instead of "
           "kGatherOnUse",
           spec()->to_string());
  if (dtype() != DType::kI8) {
    check_gradient(*this, true, "as_parameter");
    set_requires_grad();
  }
  impl_->keep = keep;
  impl_->use = nullptr;
  if (const Tensor& part = impl_->part(); part.defined())
    part.storage()->set_kind(MemoryKind::kParameters);
  return *this;
}

DistTensor& DistTensor::gather_on_use(const Placements& use) {
  DT_CHECK(defined(), "gather_on_use",
           "an undefined tensor was used; assign one to it first");
  const Spec* to = spec()->with(use.resolve(mesh(), shape()));
  DT_CHECK(!to->partial_axes(), "gather_on_use",
           "{} cannot be used as {}, which is partial; write R or S<dim>",
           spec()->to_string(), to->to_string());
  DT_CHECK(only_gathers(RankContext::current().planner.plan(spec(), to)) &&
               !spec()->partial_axes(),
           "gather_on_use",
           "{} cannot become {} by slicing and gathering alone; place the "
           "parameter in the layout in which it is used, split further over "
           "other axes",
           spec()->to_string(), to->to_string());
  as_parameter(Keep::kGatherOnUse);
  impl_->use = to;
  return *this;
}

const Spec* DistTensor::use_spec() const {
  return impl_ && impl_->use ? impl_->use.get() : spec();
}

DistTensor& DistTensor::set_grad_layout(const Placements& layout) {
  DT_CHECK(defined(), "set_grad_layout",
           "an undefined tensor was used; assign one to it first");
  const Spec* to = spec()->with(layout.resolve(mesh(), shape()));
  DT_CHECK(!to->partial_axes(), "set_grad_layout",
           "the gradient of {} cannot be laid out as {}, which is partial; "
           "write R or S<dim>",
           spec()->to_string(), to->to_string());
  impl_->grad = to;
  return *this;
}

const Spec* DistTensor::grad_spec() const {
  if (impl_ && impl_->grad) return impl_->grad;
  if (!spec()->partial_axes()) return spec();
  Layout settled = layout();
  settled.partials.clear();
  return spec()->with(settled);
}

void DistTensor::assign(const Tensor& src) {
  check_here(*this, "assign");
  DT_CHECK(
      src.defined() && src.shape() == local().shape() && src.dtype() == dtype(),
      "assign",
      "{} does not fit the part of {} that this rank holds, of shape {}; "
      "pass a part of that type and shape",
      src.defined() ? fmt::format("{} of shape {}", name(src.dtype()),
                                  dtensor::to_string(src.shape()))
                    : "an undefined Tensor",
      spec()->to_string(), dtensor::to_string(local().shape()));
  DT_CHECK(!grad_enabled() || !requires_grad(), "assign",
           "{} requires a gradient, which assign() would make wrong; assign "
           "inside a NoGrad scope",
           spec()->to_string());
  impl_->local.copy_from(src);
}

std::vector<DistTensor> redistribute(TensorList x, const Mesh& to,
                                     const std::vector<Placements>& layouts) {
  DT_CHECK(layouts.size() == x.size(), "redistribute",
           "{} layouts are given for {} tensors; give one for each",
           layouts.size(), x.size());
  std::vector<DistTensor> moved(x.begin(), x.end());
  std::vector<SpecRef> specs;
  for (size_t i = 0; i < x.size(); ++i)
    specs.push_back(spec_on(x[i], to, layouts[i], {}));
  relayout(moved, specs, {.own = true});
  return moved;
}

}  // namespace dtensor
