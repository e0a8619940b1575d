// SPDX-License-Identifier: Apache-2.0
// The operator and rank of the calling thread, for errors of devices and
// allocations.
#pragma once
#include <cstdint>
#include <string_view>

namespace dtensor {

// The operator that the calling thread runs ("matmul"); "" if there is none.
std::string_view running_op();
// The rank that the calling thread runs; -1 if there is none.
int64_t running_rank();

// Sets the calling thread's rank, and the address at which running_op() finds
// the name of the thread's operator from now on (null: running_op() returns
// ""). Operators need only change the name at that address.
void keep_running_op(const std::string_view* name, int64_t rank = -1);

}  // namespace dtensor
