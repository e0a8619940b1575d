// SPDX-License-Identifier: Apache-2.0
// Prices of communication and computation from a JSON file:
//
//   {"axes": [{"alpha_us": 1.0, "gbytes_per_s": 20.0,
//              "beyond": {"bytes": 1048576, "gbytes_per_s": 5.0},
//              "kinds": {"reduce_scatter": {"alpha_us": 3}}},
//             {"alpha_us": 5.0}],
//    "groups": [{"axes": ["dp", "tp"], "alpha_us": 8.0}],
//    "gflop_per_s": 100, "local_gbytes_per_s": 10, "block_bytes": 1048576,
//    "one_shot_bytes": 65536}
//
// A collective takes alpha_us plus n / gbytes_per_s (1e9 bytes per second),
// where n is the largest number of bytes that a rank receives. In "beyond",
// "bytes" is the number of bytes that fit into caches, and "gbytes_per_s" the
// rate of all bytes after these.
//
// "axes" is a list with an entry per mesh axis, or an object with entries for
// some axes: {"tp": {...}}. "kinds" lists the kinds of collectives that have a
// different price. "groups" is for collectives over several axes at once; the
// axes are named or counted from 0. A missing entry keeps its default: for a
// kind, the price of its axis or group; for a group, the highest price of its
// axes, without their "kinds"; for an axis, the alpha_us, gbytes_per_s and
// "beyond" that stand beside "axes", else 5 us and 20 GB/s. A gbytes_per_s
// without "beyond" holds for all bytes.
//
// Rates are at least 0.001 and latencies at most 1e7 us. block_bytes is at
// least 64. It must be so large that the latencies of 64 GiB, sent in blocks,
// add up to less than a week. (See CostTable in placement/cost.h for
// block_bytes and one_shot_bytes.)
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// Throws an Error that names the file, the entry and what to write instead, if
// the file cannot be read, is not JSON, or does not have this form.
CostTable read_cost_file(const std::string& path, const Mesh&);

// Reads the value of a program's --cost: the name of a machine in named_cost.h,
// or else the path of a file. Throws Error if it is neither. cost_help() is the
// flag's help text.
CostTable read_cost(const std::string& name_or_path, const Mesh&);
std::string cost_help();

// Returns the JSON from which read_cost_file() makes this table. Rates keep 12
// digits.
nlohmann::ordered_json cost_json(const CostTable&, const Mesh&);

}  // namespace dtensor
