// Whose work it is that a device or an allocation fails at.
#pragma once
#include <cstdint>
#include <string_view>

namespace dtensor {

// The operator that the calling thread runs ("matmul"); "" when there is none.
std::string_view running_op();
// The rank that it plays; -1 when it plays none.
int64_t running_rank();

// Sets the calling thread's rank, and where it keeps that name from now on
// (null: nowhere). The name is read there, so that running an operator costs
// nothing.
void keep_running_op(const std::string_view* name, int64_t rank = -1);

}  // namespace dtensor
