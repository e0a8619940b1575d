// SPDX-License-Identifier: Apache-2.0
// Prices of named machines, so that a mesh of GPUs can be planned and explained
// on any machine.
//
// "h100", "h200": nodes of 8 such GPUs (SXM) on NVLink, with one 400 Gb/s
// network card for each GPU. Ranks 0..7 are on the first node, and so on.
// Computation is in bf16, and collectives are NCCL's. The numbers:
//  - matrix products: 780 TFLOP/s, measured on an H200 with cuBLAS at
//    4224 x 2048 x 8192 (the datasheets' peak of both GPUs is 989);
//  - memory: 3,350 and 4,800 GB/s, from NVIDIA's datasheets;
//  - NVLink: 360 GB/s received by a GPU while all send, which NCCL's authors
//    expect of a ring (github.com/NVIDIA/nccl-tests issue 326). An all-reduce
//    of a whole node goes through the switches, at 476 GB/s (issue 290);
//  - network: 47 GB/s for each card (issue 290: 46 to 48). A group with several
//    ranks on a node uses the cards of all of them, up to NVLink's rate;
//  - latency: 6.6 us, plus 0.6 us for each step of the ring within a node and
//    2.7 us for each step between nodes, from NCCL 2.28's own model of a ring
//    with LL (src/graph/tuning.cc). An exchange is one step.
// These are other people's measurements, not ours. The calibrate program
// measures the machine that it runs on.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// The prices of the named machine for this mesh; nullopt for an unknown name.
std::optional<CostTable> named_cost(std::string_view name, const Mesh&);
// "h100, h200".
std::string cost_names();

}  // namespace dtensor
