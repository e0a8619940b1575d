// What most tests include; the compiler parses it once (tools/precompiled.bzl).
#include <gtest/gtest.h>

#include "dtensor_std.h"
