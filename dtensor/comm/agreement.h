// SPDX-License-Identifier: Apache-2.0
// The call that members of a group have to agree on before anything is sent,
// and the Errors that all of them throw if they do not. Independent of the
// backend.
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
  uint64_t sequence = 0;     // within the group, from 1
  uint64_t fingerprint = 0;  // of the whole call: fingerprint_of()
  // The data; the fields that the kind does not use are empty.
  std::span<Transfer> transfers = {};
  // In exchange_in_place(): which transfer read() reads in place.
  size_t in_place = 0;
  const Communicator::ReadSources* read = nullptr;
  std::span<Buffer> buffers = {};
  const void* bytes = nullptr;
  int64_t num_bytes = -1;  // -1: not a call that gathers bytes
  void* out = nullptr;     // where the gathered bytes go
  Stream stream = {};      // of transfers and buffers
  uint32_t group = 0;      // the group's number in the flight ring, if any
};

// Hashes the caller's fingerprint together with the kind, the operator, dtypes,
// sizes and what each member holds. So even if a caller's fingerprint is wrong,
// no member reads memory that another one does not have.
uint64_t fingerprint_of(const Collective&);

// How a member describes its call when fingerprints differ.
struct Statement {
  uint64_t whole;        // fingerprint_of()
  uint64_t fingerprint;  // the caller's own
  StepKind kind;
  std::string text;  // "all-reduce #3 (sum, f32, 8 elements) for add: ..."
};
Statement statement_of(const Collective&);

// "0,1,5"; a long list is cut, with its length at the end.
std::string ranks_to_string(std::span<const int64_t> world_ranks);

// "all-reduce #3 for add": a call, with its number in its group.
std::string call_to_string(StepKind, uint64_t sequence, std::string_view op);

// A member for which others wait in vain.
struct Missing {
  int64_t rank;      // of the run
  std::string last;  // text such as "its last collective was barrier #2", or ""
};
// The error text for all ranks of a run when a collective has waited longer
// than the timeout: which members of the group arrived, and which did not.
std::string not_all_came(std::string_view call,
                         std::span<const int64_t> world_ranks,
                         std::span<const int64_t> arrived,
                         std::span<const Missing>,
                         std::chrono::milliseconds timeout);

// Throws the Error for the first member whose call differs from member 0's.
[[noreturn]] void disagree(std::span<const int64_t> world_ranks,
                           uint64_t sequence, std::vector<Statement> by_member);

}  // namespace dtensor
