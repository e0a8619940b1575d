// What the members of a group have to agree on before anything is sent, and the
// Error that all throw when they do not. Knows no backend.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/communicator.h"

namespace dtensor {

// A call as one member makes it.
struct Collective {
  const Call* call;
  uint64_t sequence = 0;     // of the group's collectives, from 1
  uint64_t fingerprint = 0;  // of all of it: fingerprint_of()
  // What the call is about; the others are empty.
  std::span<const Transfer> transfers = {};
  std::span<Buffer> buffers = {};
  const void* bytes = nullptr;
  int64_t num_bytes = -1;  // -1: no bytes
  Stream stream = {};      // of transfers and buffers
  uint32_t group = 0;      // of the flight ring that notes it, if one does
};

// So that a wrong fingerprint of the caller never makes a member read where
// another one has nothing, the kind, the operator, the types, the sizes and who
// holds what are part of it too.
uint64_t fingerprint_of(const Collective&);

// What a member says of its call when fingerprints differ.
struct Statement {
  StepKind kind;
  uint64_t fingerprint;  // the caller's own
  std::string text;      // "all-reduce #3 (sum, f32, 8 elements) for add: ..."
};
Statement statement_of(const Collective&);

// "0,1,5", of many the first ones.
std::string ranks_to_string(std::span<const int64_t> world_ranks);

// "all-reduce #3 for add": a call, by its number in its group.
std::string call_to_string(StepKind, uint64_t sequence, std::string_view op);

// A member that others wait for in vain.
struct Missing {
  int64_t rank;      // of the run
  std::string last;  // "its last collective was barrier #2", in words; or ""
};
// What all ranks of a run are told when a collective has waited for its members
// for longer than the timeout: who of the group `arrived`, and who did not.
std::string not_all_came(std::string_view call,
                         std::span<const int64_t> world_ranks,
                         std::span<const int64_t> arrived,
                         std::span<const Missing>,
                         std::chrono::milliseconds timeout);

// The sentence for all ranks of a run when these ranks, or all (none given),
// wait for each other. `where`: "rank 0 in barrier #1 of ranks 0,1; rank 1 in
// ...".
std::string wait_for_each_other(std::span<const int64_t> ranks,
                                std::string_view where);

// Member m's fingerprint is not member 0's.
[[noreturn]] void disagree(std::span<const int64_t> world_ranks,
                           uint64_t sequence, size_t m, Statement first,
                           Statement other);

}  // namespace dtensor
