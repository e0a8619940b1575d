// A tensor with the name that files and checks use.
#pragma once
#include <string>

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct NamedTensor {
  std::string name;
  DistTensor tensor;
};

}  // namespace dtensor
