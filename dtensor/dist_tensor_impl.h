// SPDX-License-Identifier: Apache-2.0
// The state that all handles (DistTensors) of one tensor share.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/lineage.h"

namespace dtensor {

class Node;
class Pending;

struct DistTensor::Impl {
  SpecRef spec;
  uint64_t run = 0;  // RankContext::run_id of the run that made it
  Tensor local;      // undefined on a rank outside the mesh
  Lineage lineage;
  std::shared_ptr<Pending> pending;  // if set, `local` comes from its wait()
  bool requires_grad = false;
  Keep keep = Keep::kMove;
  SpecRef use;      // set by gather_on_use()
  SpecRef grad;     // set by set_grad_layout()
  int awaited = 0;  // number of SavedInputs (gather.h) that may still gather it
  std::shared_ptr<Node> node;  // the node that made it, or a leaf's own node
  int output = 0;              // which output of that node
  // Redistributed copies of this value, for later consumers that need the same
  // layout.
  struct Copy {
    SpecRef spec;
    uint64_t version;  // of the source's storage when the copy was made
    DistTensor tensor;
    bool lazy;  // cotangents pass back unmoved, as for relayout()
    std::optional<DType> backward_dtype;
  };
  std::vector<Copy> copies;

  // Returns `local`, after waiting if it is pending; undefined on a rank
  // outside the mesh.
  const Tensor& part();
  uint64_t version();
  // note_version() sets made_version to the version of the storage. untouched()
  // tells whether the storage still has that version, so that the tensor of a
  // Copy may be used again.
  void note_version();
  bool untouched();
  uint64_t made_version = 0;
};

}  // namespace dtensor
