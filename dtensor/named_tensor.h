// A tensor with a name, as files and checks call it.
#pragma once
#include <string>

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct NamedTensor {
  std::string name;
  DistTensor tensor;
};

}  // namespace dtensor
