// SPDX-License-Identifier: Apache-2.0
// A tensor on a mesh: one global value, of which every rank holds the part that
// the layout assigns to it. A DistTensor is a handle; copies share the value.
//
// Every function that may communicate is collective: all ranks of the mesh, or
// of both meshes if there are two, call it in the same order.
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
#include "dtensor/placements.h"
#include "dtensor/tensor.h"
#include "dtensor/tensor_methods.h"

namespace dtensor {

// Options of a redistribution.
struct RedistributeOptions {
  // Converts the parts to this type before sending; the result has this type.
  std::optional<DType> forward_dtype = {};
  // Converts the cotangent to this type before sending it back, and to the
  // source's type afterwards.
  std::optional<DType> backward_dtype = {};
  // Permutes the ranks of the destination so that the fewest bytes move. The
  // result's mesh() has the permuted ranks. Ignored unless a Mesh is passed.
  bool assign_ranks = false;
};

// The handle of a tensor. On ranks outside the mesh, the tensor has a spec but
// no part. TensorMethods has operator[], and torch's methods.
class DistTensor : public TensorMethods {
 public:
  DistTensor() = default;
  DistTensor(const DistTensor&) = default;
  DistTensor(DistTensor&&) noexcept = default;
  DistTensor& operator=(const DistTensor&) & = default;
  DistTensor& operator=(DistTensor&&) & noexcept = default;
  // Assigning to a temporary, such as x[0], would change no tensor.
  void operator=(const DistTensor&) && = delete;  // write index_put_(x, {0}, y)
  explicit operator bool() const = delete;  // write item<bool>(), or &, |, ~

  // Makes a tensor from each rank's own part `local`, without copying it.
  // Throws Error if the part is on another device, or its shape is not the one
  // that the layout gives this rank. Outside the mesh, only its type matters.
  static DistTensor from_local(Tensor local, const Mesh&, const Placements&,
                               const Shape& global_shape);
  // Makes a tensor from a value that every rank has in full; each rank copies
  // its part. Sends nothing by default. The next collective within the mesh on
  // the tensor, or on a result computed from it, throws Error if ranks passed
  // different values in up to 64 elements (unless RunOptions::device is set).
  // With RunOptions::check, from_global() compares all elements itself.
  static DistTensor from_global(const Tensor&, const Mesh&, const Placements&);
  // Makes a tensor from each rank's own part `local`, which is undefined on a
  // rank outside the mesh. Throws Error if its shape, type or device does not
  // fit the spec.
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
  // for the redistribute_async() that makes it, and rethrows an error of that
  // call. Throws Error on a rank outside the mesh. Writing to the part
  // (mutable_ptr(), fill(), copy_from()) writes to this tensor.
  const Tensor& local() const;
  // The global indices that this rank holds, of all dimensions or of dimension
  // `dim` (a negative `dim` counts from the end). Throws Error on a rank
  // outside the mesh.
  Region region() const;
  IntervalList region(int dim) const;

  // Returns the same value in another layout, and on mesh `to` if given: a mesh
  // of the same run, which may overlap this one. Collective over the ranks of
  // both meshes unless nothing has to be sent. Ranks outside the result's mesh
  // get a tensor without a part. The result shares no memory with this tensor
  // or with other results: writing to one of them, or making it a parameter,
  // does not affect the others. (If keep() is kMove, a repeated call for the
  // same layout sends nothing, unless the source or the first result has been
  // written to.)
  //
  // Differentiable. The cotangent is redistributed to the source's layout, with
  // two exceptions. On axes where the source is partial, the cotangent is
  // replicated. If source and result have the same mesh, partial sums and
  // averages of cotangents stay partial on axes where the source is replicated.
  DistTensor redistribute(const Placements&,
                          const RedistributeOptions& = {}) const&;
  DistTensor redistribute(const Mesh& to, const Placements&,
                          const RedistributeOptions& = {}) const&;
  DistTensor redistribute(const Spec*, const RedistributeOptions& = {}) const&;
  // Overloads for a temporary or std::move(x). If nothing else holds the memory
  // of x, the result may reuse it, so that an all-reduce runs in place.
  DistTensor redistribute(const Placements&,
                          const RedistributeOptions& = {}) &&;
  DistTensor redistribute(const Mesh& to, const Placements&,
                          const RedistributeOptions& = {}) &&;
  DistTensor redistribute(const Spec*, const RedistributeOptions& = {}) &&;
  // Like redistribute(), but returns at once (unless 256 calls are queued). A
  // second thread of the rank carries these calls out one after another, in
  // their order, which has to be the same on all ranks. The first use of the
  // result waits for it. A call is carried out even if its result is dropped.
  // An in-place write to the source waits until the source has been read. (In a
  // dry run, or if nothing has to be sent, redistribute_async() does all the
  // work itself.)
  DistTensor redistribute_async(const Placements&,
                                const RedistributeOptions& = {}) const;
  DistTensor redistribute_async(const Mesh& to, const Placements&,
                                const RedistributeOptions& = {}) const;
  // Returns the whole value on every rank of the mesh. Collective over it.
  Tensor full() const;
  // Returns the only element, or 0 in a dry run. Collective over the mesh.
  // Throws Error if the number of elements is not 1. Also throws if the tensor
  // has an integer type and T is a number type that cannot hold the element
  // exactly (then write item<int64_t>()). T is double, float, int64_t, int32_t
  // or bool.
  template <class T = double>
  T item() const;
  // Spec and values ("f32[2, 2](S0,R) [[1, 2], [3, 4]]"; "(no data)" in a dry
  // run); long dimensions are abbreviated with dots. Collective over the mesh.
  std::string to_string() const;

  // Returns a tensor with the same value and the same memory, but without the
  // autograd history.
  DistTensor detach() const;
  bool requires_grad() const;
  // Asks for this tensor's gradient. Throws Error if the autograd graph records
  // which operator made it, or if its type is not a float type.
  DistTensor& set_requires_grad(bool = true);
  // Makes this tensor a parameter: its gradient is wanted (unless its type is
  // i8, which has no gradients), and `keep` limits how an operator may bring it
  // to another layout. kStay: operators may slice it, but never send it.
  // kGatherOnUse: operators may also gather it, if that is cheapest. The copy
  // is freed after the operator, and made again if a gradient needs it. kMove:
  // no limit, as for any other tensor.
  //
  // Data that operators may send is not a parameter: call set_requires_grad()
  // for its gradient.
  //
  // `keep` also holds for views of the parameter and for results of
  // redistribute() that needed no communication. A later call replaces `keep`.
  // Throws Error for kGatherOnUse of a partial tensor, since gathering cannot
  // combine its parts.
  DistTensor& as_parameter(Keep keep = Keep::kStay);
  // Like as_parameter(Keep::kGatherOnUse), but operators see the parameter in
  // the given layout and do not move it from there: ZeRO stage 3, FSDP. A copy
  // in that layout is gathered when an operator runs, freed afterwards, and
  // gathered again when a gradient needs the values. RankContext::gather_budget
  // limits the copies that are held longer or gathered ahead (gather.h). Throws
  // Error unless slicing and gathering alone produce that layout.
  DistTensor& gather_on_use(const Placements&);
  // The spec that operators see: with the layout of gather_on_use(), or spec()
  // if gather_on_use() was not called.
  const Spec* use_spec() const;
  // Sets the layout of the gradient. The optimizer keeps its state for this
  // parameter, and computes updates, in that layout: ZeRO stages 1 and 2. The
  // default is the parameter's layout, but replicated on the axes where the
  // parameter is partial. Throws Error for a partial layout.
  DistTensor& set_grad_layout(const Placements&);
  const Spec* grad_spec() const;
  // The `keep` that as_parameter() set for this tensor, or for the parameter of
  // which it is a view or moved result; else kMove.
  Keep keep() const;
  // Copies `local` into this rank's part, as a parameter update does, and
  // raises the storage's version. Throws Error if the shape or type differs, if
  // this rank is outside the mesh, or if this tensor requires a gradient
  // (unless inside NoGrad).
  void assign(const Tensor& local);

  bool same_as(const DistTensor& o) const { return impl_ == o.impl_; }

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit DistTensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

// The argument type of functions that take any number of tensors: pass a
// vector, an array or a span of tensors, {a, b}, or a single tensor. Do not
// store a TensorList: it does not own the tensors.
class TensorList : public std::span<const DistTensor> {
 public:
  using std::span<const DistTensor>::span;
  TensorList(std::span<const DistTensor> list) : span(list) {}
  TensorList(std::initializer_list<DistTensor> list)
      : span(list.begin(), list.size()) {}
  TensorList(const DistTensor& x) : span(&x, 1) {}
};

// DistTensor::redistribute() of several tensors to one mesh, together: those on
// one mesh move in one exchange. Throws Error unless there is a layout for each
// tensor. Collective over all the meshes.
std::vector<DistTensor> redistribute(TensorList, const Mesh& to,
                                     const std::vector<Placements>&);

// A tensor with the name that files and checks use for it.
struct NamedTensor {
  std::string name;
  DistTensor tensor;
};

}  // namespace dtensor
