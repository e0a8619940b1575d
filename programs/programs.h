// SPDX-License-Identifier: Apache-2.0
// The programs that //:explore contains: the main() of each, with another name.
#pragma once

namespace dtensor::examples {

int explain_main(int argc, char** argv);
int plan_main(int argc, char** argv);

}  // namespace dtensor::examples
