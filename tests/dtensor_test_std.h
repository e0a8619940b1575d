// SPDX-License-Identifier: Apache-2.0
// Headers that most tests include. The compiler parses them once
// (tools/precompiled.bzl).
#include <gtest/gtest.h>

#include "dtensor_std.h"
