// Everything a user needs, under the name that needs no path. A workspace with
// a dtensor.h of its own writes #include "dtensor/dtensor.h" instead.
#pragma once
#include "dtensor/dtensor.h"
