// How a run gets its backend, without the backend's own header.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace dtensor {

class Backend;

using BackendFactory = std::function<std::shared_ptr<Backend>(int64_t world)>;

}  // namespace dtensor
