// Ranks that are processes of an MPI job. no_mpi.cc is the twin for programs
// that are built without.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/runtime/comm/backend.h"

namespace dtensor {

bool mpi_is_built();
// Null when it is not built.
std::shared_ptr<Backend> mpi_backend(int64_t world);

}  // namespace dtensor
