#include "dtensor/version.h"

namespace dtensor {

std::string_view version() { return DTENSOR_VERSION; }

}  // namespace dtensor
