// SPDX-License-Identifier: Apache-2.0
// The call on which the members of a group have to agree before any of them
// writes its outputs, and the texts of the Errors that all members throw if
// their calls differ or some do not come. Nothing here depends on the backend.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/communicator.h"

namespace dtensor {

// One call of a collective, as one member makes it.
struct Collective {
  const Call* call;
  uint64_t sequence = 0;     // the call's number in its group, from 1
  uint64_t fingerprint = 0;  // fingerprint_of() this call
  // The data; the fields that the kind does not use are empty.
  std::span<Transfer> transfers = {};
  std::span<Buffer> buffers = {};
  const void* bytes = nullptr;
  int64_t num_bytes = -1;  // -1: not a call that gathers bytes
  void* out = nullptr;     // where the gathered bytes go
  Stream stream = {};      // for transfers and buffers
  uint32_t group = 0;      // the group's number in the flight ring, if any
};

// Hashes the caller's fingerprint and lineage together with the call's number,
// kind, operator, dtypes and sizes, and with the indices that each member holds
// (Schedule::hash). So even if a caller's fingerprint is wrong, no member reads
// memory that another one does not have.
uint64_t fingerprint_of(const Collective&);

// How a member describes its call when fingerprints differ.
struct Statement {
  uint64_t whole;        // fingerprint_of()
  uint64_t fingerprint;  // Call::fingerprint ^ Call::lineage
  StepKind kind;
  std::string text;  // "all-reduce #3 (sum, f32, 8 elements) for add: ..."
};
Statement statement_of(const Collective&);

// Returns "0,1,5". Names at most 16 ranks: a list of 40 ranks ends in
// ",... (40)" after the sixteenth.
std::string ranks_to_string(std::span<const int64_t> world_ranks);

// Returns "all-reduce #3 for add": a call's kind, its number in its group, and
// the operator that makes it; "all-reduce #3" if `op` is "".
std::string call_to_string(StepKind, uint64_t sequence, std::string_view op);

// A member for which others wait in vain.
struct Missing {
  int64_t rank;      // its number in the run
  std::string last;  // text such as "its last collective was barrier #2", or ""
};
// Returns the error text for all ranks of a run when a rank has waited in a
// collective for longer than the timeout. The text says which members of the
// group arrived, and which did not.
std::string not_all_came(std::string_view call,
                         std::span<const int64_t> world_ranks,
                         std::span<const int64_t> arrived,
                         std::span<const Missing>,
                         std::chrono::milliseconds timeout);

// Throws the Error for the first member whose call differs from member 0's. If
// no call differs, the Error says that the members disagree about a collective
// of other ranks.
[[noreturn]] void disagree(std::span<const int64_t> world_ranks,
                           uint64_t sequence, std::vector<Statement> by_member);

}  // namespace dtensor
