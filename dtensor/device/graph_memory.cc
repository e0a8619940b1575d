// SPDX-License-Identifier: Apache-2.0
#include "dtensor/device/graph_memory.h"

namespace dtensor {

const GraphMemory*& current_graph_memory() {
  static thread_local const GraphMemory* current = nullptr;
  return current;
}

void* graph_memory(int64_t bytes, Stream stream) {
  const GraphMemory* const current = current_graph_memory();
  return current ? (*current)(bytes, stream) : nullptr;
}

}  // namespace dtensor
