// SPDX-License-Identifier: Apache-2.0
// The version of the library that a program is linked with.
#pragma once
#include <string_view>

namespace dtensor {

std::string_view version();  // "1.2.3"

}  // namespace dtensor
