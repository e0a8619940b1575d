// SPDX-License-Identifier: Apache-2.0
// Describes a training in the record that --html and --record write.
#pragma once
#include "dtensor/program/record.h"
#include "programs/train_config.h"

namespace dtensor::examples {

// Gives the record its title and, for a pipeline, the schedule and its picture.
// Does nothing if `record` is null. REQUIRES: validate() was called.
void describe(Record* record, const TrainConfig&, const Mesh&);

}  // namespace dtensor::examples
