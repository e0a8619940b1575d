// SPDX-License-Identifier: Apache-2.0
#include "programs/programs.h"

int main(int argc, char** argv) {
  return dtensor::examples::explain_main(argc, argv);
}
