// SPDX-License-Identifier: Apache-2.0
// The programs that other programs contain: main() of each, without its name.
#pragma once

namespace dtensor::examples {

int explain_main(int argc, char** argv);
int plan_main(int argc, char** argv);

}  // namespace dtensor::examples
