// What each rank has to say, on every rank.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dtensor {

// By rank, the bytes that each rank of the run gave: of any number. Collective
// over all ranks of the run, for `op`; ranks that give another fingerprint
// throw the Error that says so. In a dry run the caller's alone.
std::vector<std::string> all_gather_bytes(std::string_view op,
                                          uint64_t fingerprint,
                                          std::string_view mine);

// The same of a number, or whatever is copied as it lies in memory.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> all_gather(
    std::string_view op, const T& mine) {
  std::vector<T> all;
  for (const std::string& bytes : all_gather_bytes(
           op, sizeof(T), {reinterpret_cast<const char*>(&mine), sizeof(T)}))
    std::memcpy(&all.emplace_back(), bytes.data(), sizeof(T));
  return all;
}

}  // namespace dtensor
