// Prices of machines that are not here, by name, so that a mesh of GPUs can be
// planned for and explained on any machine.
//
// "h100", "h200": nodes of 8 such GPUs (SXM) on NVLink, with a 400 Gb/s network
// card each; ranks 0..7 are the first node's, and so on. In bf16; collectives
// are NCCL's. The numbers:
//  - products: 780 TFLOP/s, measured on an H200 by cuBLAS at 4224 x 2048 x 8192
//    (the datasheet's peak of both is 989);
//  - memory: 3,350 and 4,800 GB/s, NVIDIA's datasheets;
//  - NVLink: 360 GB/s received by a GPU while all send, which NCCL's authors
//    expect of a ring (github.com/NVIDIA/nccl-tests issue 326); an all-reduce
//    of a whole node goes through the switches, at 476 (issue 290);
//  - network: 47 GB/s a card (issue 290: 46 to 48). A group with several ranks
//    on a node uses the cards of all of them, up to what NVLink carries;
//  - latency: 6.6 us, and 0.6 for each step of the ring within a node, 2.7 for
//    each between nodes: NCCL 2.28's own model, ring with LL (src/graph/
//    tuning.cc). An exchange is one step.
// They are others' measurements, not ours: see calibrate for a machine that is
// here.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// Of a machine with this name, for this mesh; nullopt for other names.
std::optional<CostTable> named_cost(std::string_view name, const Mesh&);
// "h100, h200".
std::string cost_names();

}  // namespace dtensor
