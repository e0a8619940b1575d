// SPDX-License-Identifier: Apache-2.0
// The part of a rank's state that is set for the duration of scopes (scopes.h,
// scoped.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/lineage.h"
#include "dtensor/memory_kind.h"
#include "dtensor/scoped.h"  // IWYU pragma: export

namespace dtensor {

class Capture;
class Captures;

struct RankScope {
  bool grad_enabled = true;
  Captures* captures = nullptr;  // see autograd.h
  Capture* capture = nullptr;    // the active capture of a graph (graph.h)
  bool explicit_only = false;    // operators must not communicate
  int64_t comm_budget = -1;      // bytes left; -1: no limit
  std::string_view op = "";      // the running operator, for tags and errors
  // The lineage of the value that the running operator makes, or of the value
  // that is being moved. While it is null, collectives compare no lineages.
  const Lineage* about = nullptr;
  std::string phase = "forward";
  std::string_view path = "";  // the running module ("blocks.3.mlp")
  int64_t ordinal = 0;         // how many operators that module has called
  // The module that called the operator whose gradient is being computed.
  std::string_view gradient_of = "";
  MemoryKind memory_kind = MemoryKind::kActivations;  // the kind of new memory

  // lineage() is the hash of `about`, for the Call (comm/communicator.h) of a
  // collective. about_text() says how the value was made, as the end of a
  // sentence: ", made by mean, operator 4 of gpt.loss", for example.
  uint64_t lineage() const { return about ? about->hash : 0; }
  std::string about_text() const;
};

}  // namespace dtensor
