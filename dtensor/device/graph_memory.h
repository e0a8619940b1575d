// SPDX-License-Identifier: Apache-2.0
// Memory for a kernel that is captured into a graph.
#pragma once
#include <cstdint>
#include <functional>

#include "dtensor/device/device.h"

namespace dtensor {

// Returns memory that no other work uses until the graph is destroyed. The
// stream's captured work must write it before reading it.
using GraphMemory = std::function<void*(int64_t bytes, Stream)>;

// The function that graph_memory() calls on the calling thread. Null unless the
// thread is in the constructor of a Graph (graph.h), which sets it.
const GraphMemory*& current_graph_memory();

// Allocates with the function of current_graph_memory(); returns null if there
// is none. Throws Error if the device is out of memory.
void* graph_memory(int64_t bytes, Stream);

}  // namespace dtensor
