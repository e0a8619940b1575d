// For a device that reports errors of work that it was given earlier: whose
// work that was.
#pragma once
#include <string_view>

namespace dtensor {

// The operator that the calling thread runs ("matmul"); "" when there is none.
std::string_view running_op();

// Where the calling thread keeps that name from now on (null: nowhere). It is
// read there, so that running an operator costs nothing.
void keep_running_op(const std::string_view* name);

}  // namespace dtensor
