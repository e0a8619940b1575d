// SPDX-License-Identifier: Apache-2.0
// Reads a pipeline's schedule from a file:
//
//   {"micro_batches": 2, "tasks": [["F0", "F1", "B0", "B1"],
//                                  ["F0", "B0", "F1", "B1"]]}
//
// "tasks" has a list for each position of the pipeline, with the position's
// tasks in order: F3 is the forward of micro-batch 3, B3 its backward, and W3
// its weight gradient. In a schedule with W tasks, B3 computes only the
// gradient of the stage's input. With "chunks": 2, position r of p has the
// stages r and r + p, and F3.1 is a task of stage r + p.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/nn/pipeline_schedule.h"

namespace dtensor::report {

// If `text` is one of schedule_names() in upper or lower case, returns that
// name. Returns any other text, which is the name of a file, unchanged.
std::string schedule_of(const std::string& text);

// Reads and checks the schedule of a program's --schedule: one of
// schedule_names(), or else a file. The numbers come from the program's other
// flags, and are 0 for flags that were not given. A named schedule needs
// `positions` and `micros`; a file has these numbers itself. Throws Error, with
// the file, the problem and a fix, if there is no such file, or if its schedule
// is wrong, contradicts the flags or has the same entry twice.
nn::PipelineSchedule read_schedule(const std::string& name_or_path,
                                   int64_t positions, int64_t micros,
                                   int64_t chunks);
std::string schedule_help();

}  // namespace dtensor::report
