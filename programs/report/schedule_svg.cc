// SPDX-License-Identifier: Apache-2.0
#include "programs/report/schedule_svg.h"

#include <fmt/format.h>

#include <algorithm>

#include "programs/report/svg.h"

namespace dtensor::report {
namespace {

constexpr double kMargin = 30, kLabel = 90, kLive = 130, kLane = 34;
// In pixels. kLeast: the least width of the shortest task, except in pictures
// as wide as kWidest. kMost: the largest width of all tasks together, unless
// kLeast needs more. kWidest: the largest width of any picture.
constexpr double kLeast = 16, kMost = 1600, kWidest = 20000;
constexpr std::string_view kGrey = "#68727f";

// The colour of a task: forwards are blue, backwards green, weight gradients
// orange. Later chunks of a position are darker.
std::string fill(const nn::PipelineTask& t, const nn::PipelineSchedule& s) {
  constexpr const char* kColours[3][3] = {{"#a9cdf5", "#6fa8e8", "#4384d0"},
                                          {"#b5e3b5", "#7cc67f", "#4fa356"},
                                          {"#fbd49b", "#f2b04f", "#d78f24"}};
  const int64_t chunk = t.stage / s.positions;
  return kColours[static_cast<size_t>(t.work)]
                 [std::min<size_t>(2, static_cast<size_t>(chunk))];
}

}  // namespace

std::string schedule_svg(const ScheduleReport& r) {
  const nn::PipelineSchedule& s = r.schedule;
  double shortest = r.run.makespan;
  for (const auto& list : r.run.tasks)
    for (const nn::TimedTask& t : list)
      if (t.finish > t.start) shortest = std::min(shortest, t.finish - t.start);
  const double makespan = std::max(r.run.makespan, 1e-300);
  const double units = makespan / std::max(shortest, 1e-300);
  const double around = 2 * kMargin + kLabel + kLive;
  const double length =
      std::clamp(units * 2 * kLeast, 640.0,
                 std::clamp(units * kLeast, kMost, kWidest - around));
  const double width = around + length;
  const std::string heading =
      fmt::format("{}, bubble {}", title(s), bubble_text(r));
  Svg svg(width, heading);
  double y = kMargin + 14;
  svg.text_within(width - 2 * kMargin, kMargin, y, 18, heading);
  y += 18;
  const double left = kMargin + kLabel, per = length / makespan;
  for (size_t p = 0; p < r.run.tasks.size(); ++p) {
    svg.text(kMargin, y + 22, 13, fmt::format("position {}", p));
    svg.rect(left, y, length, kLane - 4, R"(fill="#eef0f3")");
    for (const nn::TimedTask& t : r.run.tasks[p]) {
      const double x = left + t.start * per, w = (t.finish - t.start) * per;
      svg.rect(x, y, w, kLane - 4,
               fmt::format(R"(fill="{}" stroke="#fff")", fill(t.task, s)),
               fmt::format("{}, slot {}, from {:g} to {:g}", to_string(t.task),
                           t.task.slot, t.start, t.finish));
      svg.text_within(w - 2, x + w / 2, y + 20, 12,
                      std::to_string(t.task.micro),
                      R"(text-anchor="middle" pointer-events="none")");
    }
    svg.text(left + length + 10, y + 20, 12,
             fmt::format("holds up to {}", r.run.live[p]),
             fmt::format(R"(fill="{}")", kGrey));
    y += kLane;
  }
  y += 18;
  double x = left;
  const auto legend = [&](nn::PipelineWork work, const char* text) {
    svg.rect(x, y - 11, 14, 14,
             fmt::format(R"(fill="{}")", fill({work, 0, 0}, s)));
    svg.text(x + 20, y, 12, text);
    x += 34 + text_width(text, 12);
  };
  legend(nn::PipelineWork::kForward, "forward");
  legend(nn::PipelineWork::kBackward,
         s.weight_tasks ? "gradient of the input" : "backward");
  if (s.weight_tasks)
    legend(nn::PipelineWork::kWeight, "gradient of the weights");
  svg.text(x, y, 12,
           s.chunks > 1 ? "the number is the micro-batch; darker: later chunks"
                        : "the number is the micro-batch",
           fmt::format(R"(fill="{}")", kGrey));
  return svg.finish(y + kMargin - 10);
}

}  // namespace dtensor::report
