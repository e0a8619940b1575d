// A pipeline's schedule from a file:
//
//   {"micro_batches": 2, "tasks": [["F0", "F1", "B0", "B1"],
//                                  ["F0", "B0", "F1", "B1"]]}
//
// "tasks" has a list for each position of the pipeline, of what it does in that
// order: F3 is the forward of micro-batch 3, B3 its backward, and where there
// are any, W3 its weight gradient; B3 is then that of the stage's input alone.
// With "chunks": 2 a position r of p has the stages r and r + p, and F3.1 is a
// task of the second one.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/placement/pipeline_schedule.h"

namespace dtensor::report {

// One of schedule_names(), in whatever case it is written; other texts, which
// name a file, as they are.
std::string schedule_of(const std::string& text);

// What a program's --schedule says, which is one of schedule_names(), or else
// such a file; checked. The numbers are those that the other flags gave; 0: a
// name needs positions and micro-batches, and a file says its own. Throws Error
// that names the file, what is wrong, and what to write, also when a file says
// other numbers, or something twice.
PipelineSchedule read_schedule(const std::string& name_or_path,
                               int64_t positions, int64_t micros,
                               int64_t chunks);
std::string schedule_help();

}  // namespace dtensor::report
