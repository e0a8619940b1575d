// A tensor on a mesh: one global value, of which every rank holds the part
// that the layout says. A handle; copies share the value.
//
// Everything that may communicate is collective: every rank of the mesh calls
// it in the same order.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/lineage.h"
#include "dtensor/placement/keep.h"
#include "dtensor/placement/spec.h"
#include "dtensor/tensor.h"

namespace dtensor {

class Node;
class Pending;

// What one mesh axis does to a tensor.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };
  Kind kind = Kind::kReplicate;
  int dim = 0;
  int64_t granule = 1;
  ReduceOp op = ReduceOp::kSum;
};
inline Placement Replicate() { return {}; }
// Negative dims count from the end. `granule`: indices that stay together.
inline Placement Shard(int dim, int64_t granule = 1) {
  return {Placement::Kind::kShard, dim, granule, ReduceOp::kSum};
}
inline Placement PartialOf(ReduceOp op = ReduceOp::kSum) {
  return {Placement::Kind::kPartial, 0, 1, op};
}

// A layout as users write it: {{"dp", Shard(0)}, {"tp", Shard(1)}} (axes that
// are not named replicate; several on one dimension split it in the order
// given), the text "S0,R", or a Layout. {} replicates.
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
  // Throws Error when an axis or a dimension does not exist.
  Layout resolve(const Mesh&, const Shape&) const;

 private:
  std::vector<std::pair<std::string, Placement>> list_;
  std::string text_;
  std::shared_ptr<const Layout> layout_;
};

// How a redistribution is carried out.
struct RedistributeOptions {
  // What is sent: parts are converted first, and the result has this type.
  std::optional<DType> forward_dtype;
  // The same for the cotangent on its way back, which becomes the source's type
  // after.
  std::optional<DType> backward_dtype;
  // Between two meshes: permutes the ranks of the new one such that the fewest
  // bytes move; the result's mesh() says how.
  bool assign_ranks = false;
};

// On a rank that is not in its mesh a tensor has a spec and no part.
class DistTensor {
 public:
  DistTensor() = default;

  // From this rank's part, of which the tensor is a handle. Throws Error when
  // its shape is not what the layout gives this rank. On a rank that is not in
  // the mesh only its type counts.
  static DistTensor from_local(Tensor local, const Mesh&, const Placements&,
                               const Shape& global_shape);
  // From a tensor that every rank has whole; each keeps its part. Sends
  // nothing.
  static DistTensor from_global(const Tensor&, const Mesh&, const Placements&);
  // The part `local` of a value with that spec (shape checked); undefined on a
  // rank that is not in its mesh.
  static DistTensor wrap(Tensor local, const Spec*);
  // Uninitialised.
  static DistTensor empty(const Spec*);

  bool defined() const { return impl_ != nullptr; }
  const Spec* spec() const;
  const Mesh& mesh() const { return spec()->mesh(); }
  const Layout& layout() const { return spec()->layout(); }
  const Shape& shape() const { return spec()->shape(); }
  int64_t size(int dim) const;
  int ndim() const { return spec()->ndim(); }
  DType dtype() const { return spec()->dtype(); }
  // Is this rank in the mesh?
  bool here() const;
  // This rank's part; a partial's not yet combined value. Waits for a
  // redistribute_async(), and throws what it threw. Throws Error on a rank that
  // is not in the mesh. A write to it (mutable_ptr(), fill(), copy_from()) is
  // one to this tensor.
  const Tensor& local() const;
  // What this rank holds, in global indices.
  Region region() const;

  // The same value in another layout, of another mesh of the same run with
  // `to`; the two may overlap. Collective unless nothing has to be sent: over
  // the ranks of both meshes, of which others only learn the spec. The result
  // shares no memory with this tensor, nor with another result: each may be
  // written to, and become a parameter, by itself. (What was sent once is not
  // sent again for the same layout while neither is written to.)
  //
  // Differentiable: the cotangent goes to the layout that a cotangent of the
  // source has: split as the source is, whole where that is whole or partial,
  // but a sum that its consumers left partial stays so where the source is
  // whole.
  DistTensor redistribute(const Placements&,
                          const RedistributeOptions& = {}) const&;
  DistTensor redistribute(const Mesh& to, const Placements&,
                          const RedistributeOptions& = {}) const&;
  DistTensor redistribute(const Spec*, const RedistributeOptions& = {}) const&;
  // The same of a value that is not needed any more, a product's, or
  // std::move(x): what it becomes may take its memory over, if nothing else
  // holds that, so that an all-reduce adds up in place.
  DistTensor redistribute(const Placements&,
                          const RedistributeOptions& = {}) &&;
  DistTensor redistribute(const Mesh& to, const Placements&,
                          const RedistributeOptions& = {}) &&;
  DistTensor redistribute(const Spec*, const RedistributeOptions& = {}) &&;
  // The same, but returns at once: a thread of the rank's own carries it out,
  // one after the other in the order of the calls, which all ranks share. Done
  // when the result is first used; one that is dropped is carried out all the
  // same. An in-place write to the source meanwhile waits. (In a dry run, and
  // when nothing has to be sent, it is done on return.)
  DistTensor redistribute_async(const Placements&,
                                const RedistributeOptions& = {}) const;
  DistTensor redistribute_async(const Mesh& to, const Placements&,
                                const RedistributeOptions& = {}) const;
  // The whole value, on every rank. Collective.
  Tensor full() const;
  // The only element. Collective. An integer that T does not hold exactly is an
  // Error: write item<int64_t>(). T: double, float, int64_t, int32_t, bool.
  template <class T = double>
  T item() const;
  // Spec and values ("f32[2, 2](S0,R) [[1, 2], [3, 4]]"), long ones with dots.
  // Collective.
  std::string to_string() const;

  // The same value, of which autograd knows nothing.
  DistTensor detach() const;
  bool requires_grad() const;
  // On a tensor that no operator made: its gradient is wanted.
  DistTensor& set_requires_grad(bool = true);
  // A parameter: its gradient is wanted, and an operator that needs it in
  // another layout may do with it what `keep` says. kStay: send nothing of it.
  // kGatherOnUse: gather it, where that is cheapest, and send it in no other
  // way; what was gathered is not remembered for the next operator, but the
  // graph holds it until the gradient is taken. kMove: as any other tensor.
  //
  // What holds for it holds for its views, and for what redistribute() makes of
  // it without sending. The last call counts. Throws Error for kGatherOnUse of
  // a partial, which a gather does not make whole.
  DistTensor& as_parameter(Keep keep = Keep::kStay);
  // The same with Keep::kGatherOnUse, but every operator finds it in that
  // layout, where it stays: ZeRO's stage 3, FSDP. It is gathered when an
  // operator runs, freed after it, and gathered again when a gradient needs its
  // values; RankContext::gather_budget says how much may be held longer or
  // gathered ahead (gather.h). Throws Error unless bringing it there is slicing
  // and gathering alone.
  DistTensor& gather_on_use(const Placements&);
  // What operators see of it: spec(), or that of gather_on_use().
  const Spec* use_spec() const;
  // Where its gradient goes, and with it the optimizer's state and work, if not
  // where it lies itself: ZeRO's stages 1 and 2. Throws Error for a partial.
  DistTensor& set_grad_layout(const Placements&);
  const Spec* grad_spec() const;
  // kMove unless it is a parameter, or made of one as said above.
  Keep keep() const;
  // this = src (same spec), in place: the parameter update. Raises the version;
  // throws Error when autograd is recording this tensor's uses.
  void assign(const Tensor& local);

  bool same_as(const DistTensor& o) const { return impl_ == o.impl_; }

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }
  explicit DistTensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

struct DistTensor::Impl {
  const Spec* spec = nullptr;
  uint64_t run = 0;  // that it belongs to
  Tensor local;      // undefined on a rank that is not in the mesh
  Lineage lineage;
  std::shared_ptr<Pending> pending;  // set: will make `local`
  bool requires_grad = false;
  Keep keep = Keep::kMove;
  const Spec* use = nullptr;   // of gather_on_use()
  const Spec* grad = nullptr;  // of set_grad_layout()
  int awaited = 0;  // gradients that will need it gathered (gather.h)
  std::shared_ptr<Node> node;  // that made it, or a leaf's own
  int output = 0;              // of that node
  // Redistributed copies of this value: a second consumer that wants the same
  // layout gets the first one's copy.
  struct Copy {
    const Spec* spec;
    uint64_t version;  // of the local storage when it was made
    DistTensor tensor;
    bool lazy;  // of its gradient: see redistribute.h
    std::optional<DType> backward_dtype;
  };
  std::vector<Copy> copies;

  // `local`, as soon as it is there; undefined where there is none.
  const Tensor& part();
  uint64_t version();
  // Of a copy: remembers the version that it was made with; was it written to
  // since?
  void note_version();
  bool untouched();
  uint64_t made_version = 0;
};

}  // namespace dtensor
