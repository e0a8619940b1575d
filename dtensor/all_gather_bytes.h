// SPDX-License-Identifier: Apache-2.0
// All-gathers of bytes and small values among all ranks of the run.
#pragma once
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dtensor {

// Returns every rank's `mine`, indexed by rank; lengths may differ. Collective
// over all ranks of the run. `op` names the caller in errors. `fingerprint` is
// a hash of the values on which the ranks have to agree: all ranks throw Error
// if two of these hashes differ. In a dry run, returns only the caller's
// `mine`.
std::vector<std::string> all_gather_bytes(std::string_view op,
                                          uint64_t fingerprint,
                                          std::string_view mine);

// Like all_gather_bytes(), for a trivially copyable value.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> all_gather(
    std::string_view op, const T& mine) {
  std::vector<T> all;
  for (const std::string& bytes : all_gather_bytes(
           op, sizeof(T), {reinterpret_cast<const char*>(&mine), sizeof(T)}))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(T));
  return all;
}

// Returns once all ranks of the run have called it.
inline void barrier() { all_gather_bytes("barrier", 0, {}); }

// Returns the value of one rank on all ranks, such as the time at which a run
// began; in a dry run, the caller's own. Each rank sends its value, which is
// small. Throws Error if there is no such rank.
std::string broadcast_value(std::string_view mine, int64_t from = 0);
template <class T>
requires(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> &&
         !std::convertible_to<const T&, std::string_view>) T
    broadcast_value(const T& mine, int64_t from = 0) {
  T value;
  const std::string bytes = broadcast_value(
      std::string_view(reinterpret_cast<const char*>(&mine), sizeof(T)), from);
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

}  // namespace dtensor
