// What a file says of a tensor in it.
#pragma once
#include <string>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// A tensor of a file, row-major.
struct TensorInfo {
  std::string name;
  DType dtype;
  Shape shape;
};

}  // namespace dtensor
