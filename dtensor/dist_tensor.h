// SPDX-License-Identifier: Apache-2.0
// A tensor on a mesh: one global value, of which every rank holds the part that
// the layout assigns to it. A DistTensor is a handle; copies share the value.
//
// Every function that may communicate is collective: all ranks of the mesh call
// it, in the same order.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/keep.h"
#include "dtensor/placement/spec.h"
#include "dtensor/tensor.h"

namespace dtensor {

// How a tensor is laid out along one mesh axis.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };
  Kind kind = Kind::kReplicate;
  int dim = 0;
  int64_t granule = 1;
  ReduceOp op = ReduceOp::kSum;
};
inline Placement Replicate() { return {}; }
// Negative dims count from the end. Blocks of `granule` consecutive indices are
// not divided.
inline Placement Shard(int dim, int64_t granule = 1) {
  return {Placement::Kind::kShard, dim, granule, ReduceOp::kSum};
}
inline Placement PartialOf(ReduceOp op = ReduceOp::kSum) {
  return {Placement::Kind::kPartial, 0, 1, op};
}

// A layout as users write it: {{"dp", Shard(0)}, {"tp", Shard(1)}} (axes not
// named here replicate; several axes on one dimension split it in the given
// order), the text "S0,R", or a Layout. {} replicates.
class Placements {
 public:
  Placements() = default;
  Placements(
      std::initializer_list<std::pair<std::string_view, Placement>> list);
  Placements(std::vector<std::pair<std::string, Placement>> list)
      : list_(std::move(list)) {}
  Placements(std::string_view text) : text_(text) {}
  Placements(const char* text) : text_(text) {}
  Placements(Layout layout)
      : layout_(std::make_shared<const Layout>(std::move(layout))) {}
  // Throws Error if an axis or a dimension does not exist.
  Layout resolve(const Mesh&, const Shape&) const;
  // The spec in this layout instead of its own. A text is parsed once for each
  // spec.
  const Spec* applied_to(const Spec*) const;

 private:
  std::vector<std::pair<std::string, Placement>> list_;
  std::string text_;
  std::shared_ptr<const Layout> layout_;
};

// Options of a redistribution.
struct RedistributeOptions {
  // Converts the parts to this type before sending; the result has this type.
  std::optional<DType> forward_dtype = {};
  // Converts the cotangent to this type before sending it back, and to the
  // source's type afterwards.
  std::optional<DType> backward_dtype = {};
  // Between two meshes: permutes the ranks of the destination so that the
  // fewest bytes move. The result's mesh() has the permuted ranks.
  bool assign_ranks = false;
};

// On ranks outside its mesh, a tensor has a spec but no part.
class DistTensor {
 public:
  DistTensor() = default;

  // Makes a tensor of this rank's part, without copying it. Throws Error if the
  // part's shape is not the one that the layout gives this rank. On a rank
  // outside the mesh, only the part's type matters.
  static DistTensor from_local(Tensor local, const Mesh&, const Placements&,
                               const Shape& global_shape);
  // Makes a tensor of a value that every rank has in full; each rank copies its
  // part. Sends nothing. If ranks pass different values, the next collective on
  // the tensor, or on what was computed from it, throws Error: it compares a
  // hash of up to 64 elements, unless RunOptions::device is set.
  // RunOptions::check_inputs compares all elements, at once.
  static DistTensor from_global(const Tensor&, const Mesh&, const Placements&);
  // Makes a tensor of this rank's part `local`, which is undefined on a rank
  // outside the mesh. Throws Error if shape, type or device do not fit.
  static DistTensor wrap(Tensor local, const Spec*);
  // A tensor with uninitialised values.
  static DistTensor empty(const Spec*);

  bool defined() const { return impl_ != nullptr; }
  const Spec* spec() const;
  const Mesh& mesh() const { return spec()->mesh(); }
  const Layout& layout() const { return spec()->layout(); }
  const Shape& shape() const { return spec()->shape(); }
  int64_t size(int dim) const;
  int ndim() const { return spec()->ndim(); }
  DType dtype() const { return spec()->dtype(); }
  // Whether this rank is in the mesh.
  bool here() const;
  // This rank's part; for a partial tensor, its uncombined contribution. Waits
  // for a redistribute_async() and rethrows its error. Throws Error on a rank
  // outside the mesh. Writing to the part (mutable_ptr(), fill(), copy_from())
  // writes to this tensor.
  const Tensor& local() const;
  // The global indices that this rank holds: of all dimensions, or of one,
  // which counts from the end if negative. Throws Error on a rank outside the
  // mesh.
  Region region() const;
  IntervalList region(int dim) const;

  // Returns the same value in another layout, on mesh `to` if given: a mesh of
  // the same run, which may overlap this one. Collective over the ranks of both
  // meshes unless nothing has to be sent; other ranks get only the spec. The
  // result shares no memory with this tensor or with other results: each can be
  // written to, and can become a parameter, independently. (If keep() is kMove,
  // a repeated call for the same layout sends nothing, unless the source or the
  // first result has been written to.)
  //
  // Differentiable. The cotangent is redistributed to the source's layout, with
  // two exceptions: it is replicated on axes where the source is partial, and a
  // sum or average that is partial on an axis where the source is replicated
  // stays partial if source and result have the same mesh.
  DistTensor redistribute(const Placements&,
                          const RedistributeOptions& = {}) const&;
  DistTensor redistribute(const Mesh& to, const Placements&,
                          const RedistributeOptions& = {}) const&;
  DistTensor redistribute(const Spec*, const RedistributeOptions& = {}) const&;
  // Overloads for a temporary or std::move(x): the result may reuse its memory
  // if nothing else holds it, so that an all-reduce runs in place.
  DistTensor redistribute(const Placements&,
                          const RedistributeOptions& = {}) &&;
  DistTensor redistribute(const Mesh& to, const Placements&,
                          const RedistributeOptions& = {}) &&;
  DistTensor redistribute(const Spec*, const RedistributeOptions& = {}) &&;
  // Like redistribute(), but returns at once. A second thread carries these
  // calls out one after another, in their order, which is the same on all
  // ranks. The first use of the result waits for it. A call is carried out even
  // if its result is dropped. An in-place write to the source waits until the
  // source has been read. (In a dry run, or if nothing has to be sent, the call
  // is done on return.)
  DistTensor redistribute_async(const Placements&,
                                const RedistributeOptions& = {}) const;
  DistTensor redistribute_async(const Mesh& to, const Placements&,
                                const RedistributeOptions& = {}) const;
  // Returns the whole value on every rank of the mesh. Collective over it.
  Tensor full() const;
  // Returns the only element. Collective. Throws Error if there are more, or if
  // T cannot hold an integer exactly: write item<int64_t>(). T is double,
  // float, int64_t, int32_t or bool.
  template <class T = double>
  T item() const;
  // Spec and values ("f32[2, 2](S0,R) [[1, 2], [3, 4]]"); long dimensions are
  // abbreviated with dots. Collective.
  std::string to_string() const;

  // This value, sharing its memory, without its autograd history.
  DistTensor detach() const;
  bool requires_grad() const;
  // Asks for this tensor's gradient. Throws Error if an operator made it, or if
  // its type is not a float type.
  DistTensor& set_requires_grad(bool = true);
  // Makes this tensor a parameter: its gradient is wanted (unless it is i8,
  // which has none), and `keep` limits how an operator may bring it to another
  // layout. kStay: it is never sent.
  // kGatherOnUse: it may only be gathered, if that is cheapest. The gathered
  // copy is not kept for the next operator, but the graph holds it until the
  // gradient has been computed. kMove: no limit, as for any other tensor.
  //
  // Data that operators may send is not a parameter: call set_requires_grad()
  // for its gradient.
  //
  // `keep` also holds for views of the parameter and for results of
  // redistribute() that needed no communication. The last call counts. Throws
  // Error for kGatherOnUse of a partial tensor, which gathering cannot combine.
  DistTensor& as_parameter(Keep keep = Keep::kStay);
  // Like as_parameter(Keep::kGatherOnUse), but operators see the parameter in
  // the given layout and do not move it from there: ZeRO stage 3, FSDP. It is
  // gathered when an operator runs, freed afterwards, and gathered again when a
  // gradient needs its values. RankContext::gather_budget limits the copies
  // that are held longer or gathered ahead (gather.h). Throws Error unless
  // slicing and gathering alone produce that layout.
  DistTensor& gather_on_use(const Placements&);
  // The spec that operators see: that of gather_on_use(), else spec().
  const Spec* use_spec() const;
  // Sets the layout of the gradient, and with it of the optimizer's state and
  // work: ZeRO stages 1 and 2. The default is the parameter's own layout,
  // replicated where that is partial. Throws Error for a partial layout.
  DistTensor& set_grad_layout(const Placements&);
  const Spec* grad_spec() const;
  // kMove, unless this is a parameter or made from one as described above.
  Keep keep() const;
  // Copies `local` to this rank's part in place, as a parameter update does,
  // and raises the version. Throws Error if shape or type differ, or while
  // autograd records this tensor's uses.
  void assign(const Tensor& local);

  bool same_as(const DistTensor& o) const { return impl_ == o.impl_; }

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit DistTensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// The type of a parameter that takes tensors: a vector, an array or a span of
// them, {a, b}, or one tensor. Do not store it: it does not own the tensors.
class TensorList : public std::span<const DistTensor> {
 public:
  using std::span<const DistTensor>::span;
  TensorList(std::span<const DistTensor> list) : span(list) {}
  TensorList(std::initializer_list<DistTensor> list)
      : span(list.begin(), list.size()) {}
  TensorList(const DistTensor& x) : span(&x, 1) {}
};

// With the name that files and checks use.
struct NamedTensor {
  std::string name;
  DistTensor tensor;
};

}  // namespace dtensor
