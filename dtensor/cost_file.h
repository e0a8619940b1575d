// Prices from a file:
//
//   {"axes": [{"alpha_us": 1.0, "gbytes_per_s": 20.0,
//              "beyond": {"bytes": 1048576, "gbytes_per_s": 5.0},
//              "kinds": {"reduce_scatter": {"alpha_us": 3}}},
//             {"alpha_us": 5.0}],
//    "groups": [{"axes": ["dp", "tp"], "alpha_us": 8.0}],
//    "gflop_per_s": 100, "local_gbytes_per_s": 10, "block_bytes": 1048576}
//
// A collective takes alpha_us plus the most bytes that one rank receives over
// gbytes_per_s (1e9 bytes per second); what exceeds the bytes of "beyond",
// which caches hold, over its lower rate. "axes" is a list with an entry per
// mesh axis, or an object of some axes by name: {"tp": {...}}. "kinds" has the
// kinds of collectives that cost something else. "groups" is for collectives
// over several axes at once, named or counted from 0. What is missing keeps its
// default: of a kind the axis's or group's price; of a group the dearest of its
// axes; of an axis the alpha_us and gbytes_per_s beside "axes", else 5 us and
// 20 GB/s; a gbytes_per_s without "beyond" is one of all bytes. Rates are at
// least 0.001, latencies at most 1e7 us, and block_bytes at least 64 and enough
// for 64 GiB in blocks to take less than a week.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// Throws Error that names the file, the entry and what to write when it cannot
// be read, is no JSON, or says something else than the above.
CostTable read_cost_file(const std::string& path, const Mesh&);

// What a program's --cost says, which is a machine of named_cost.h, or else a
// file; and its help.
CostTable read_cost(const std::string& name_or_path, const Mesh&);
std::string cost_help();

// What read_cost_file() reads as this table.
nlohmann::ordered_json cost_json(const CostTable&, const Mesh&);

}  // namespace dtensor
