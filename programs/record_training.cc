// SPDX-License-Identifier: Apache-2.0
#include "programs/record_training.h"

#include "programs/report/schedule_report.h"
#include "programs/report/schedule_svg.h"

namespace dtensor::examples {

void describe(Record* record, const TrainConfig& config, const Mesh& mesh) {
  if (!record) return;
  record->set_title(config.title(mesh));
  if (nn::axis_that(nn::kSplitsStages, mesh) < 0) return;
  const nn::PipelineSchedule& s = config.pipeline();
  const auto times = nn::stage_times(
      config.model, nn::cut_pipeline(config.model, mesh, s.chunks));
  const report::ScheduleReport schedule{s, simulate(s, times),
                                        nn::bubble_formula(s)};
  record->set("schedule", report::to_json(schedule));
  record->add_picture("schedule", report::title(s),
                      report::schedule_svg(schedule));
}

}  // namespace dtensor::examples
