// SPDX-License-Identifier: Apache-2.0
// The value behind the handles of a DistTensor.
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
  uint64_t run = 0;  // RankContext::run_id of its run
  Tensor local;      // undefined on a rank outside the mesh
  Lineage lineage;
  std::shared_ptr<Pending> pending;  // if set, will make `local`
  bool requires_grad = false;
  Keep keep = Keep::kMove;
  SpecRef use;      // of gather_on_use()
  SpecRef grad;     // of set_grad_layout()
  int awaited = 0;  // gradients that will need it gathered (gather.h)
  std::shared_ptr<Node> node;  // the one that made it, or a leaf's own
  int output = 0;              // which output of that node
  // Redistributed copies of this value, for later consumers that need the same
  // layout.
  struct Copy {
    SpecRef spec;
    uint64_t version;  // of this tensor's storage when the copy was made
    DistTensor tensor;
    bool lazy;  // its cotangent passes unmoved, as from relayout()
    std::optional<DType> backward_dtype;
  };
  std::vector<Copy> copies;

  // `local`, after waiting for it; undefined on a rank outside the mesh.
  const Tensor& part();
  uint64_t version();
  // For a copy: remembers the version of its storage when it was made, and
  // tells whether it has not been written to since.
  void note_version();
  bool untouched();
  uint64_t made_version = 0;
};

}  // namespace dtensor
