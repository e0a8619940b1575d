// SPDX-License-Identifier: Apache-2.0
// Draws a comparison of strategies.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "programs/compare.h"
#include "programs/report/svg.h"

namespace dtensor::examples {
namespace {

constexpr double kMargin = 30, kBar = 30, kRow = 44, kLabel = 190;
constexpr double kMemory = 480, kGap = 110, kBytes = 240;

struct Kind {
  MemoryKind kind;
  std::string_view colour;
};
constexpr std::array<Kind, kMemoryKinds> kKinds = {
    {{MemoryKind::kParameters, "#7fb2e5"},
     {MemoryKind::kGradients, "#f2b880"},
     {MemoryKind::kState, "#a8d5a2"},
     {MemoryKind::kActivations, "#d3d8de"},
     {MemoryKind::kGathered, "#c9b3e6"}}};

int64_t of(const Compared& c, MemoryKind k) {
  return c.prediction.memory.kinds[static_cast<size_t>(k)];
}

}  // namespace

std::string compare_svg(const std::vector<Compared>& all) {
  int64_t most_held = 1, most_bytes = 1;
  for (const Compared& c : all) {
    int64_t held = 0;
    for (const Kind& k : kKinds) held += of(c, k.kind);
    most_held = std::max(most_held, held);
    most_bytes = std::max(most_bytes, c.step.bytes);
  }
  const double width = 2 * kMargin + kLabel + kMemory + kGap + kBytes + 80;
  report::Svg svg(width, "memory and communication of strategies");
  const double memory_x = kMargin + kLabel, bytes_x = memory_x + kMemory + kGap;
  svg.text(memory_x, kMargin + 14, 14, "largest memory of a rank, by kind",
           R"(font-weight="bold")");
  svg.text(bytes_x, kMargin + 14, 14, "received in a step",
           R"(font-weight="bold")");
  double x = memory_x;
  for (const Kind& k : kKinds) {
    svg.rect(x, kMargin + 26, 12, 12, fmt::format(R"(fill="{}")", k.colour));
    svg.text(x + 17, kMargin + 36, 12, name(k.kind));
    x += 32 + report::text_width(name(k.kind), 12);
  }
  double y = kMargin + 56;
  for (const Compared& c : all) {
    svg.text_within(kLabel - 12, kMargin, y + 13, 14, c.strategy.name,
                    R"(font-weight="bold")");
    if (!c.strategy.refused.empty()) {
      svg.text_within(width - memory_x - kMargin, memory_x, y + 20, 12,
                      c.strategy.refused);
      y += kRow;
      continue;
    }
    svg.text_within(kLabel - 12, kMargin, y + 28, 12,
                    c.strategy.mesh.to_string(), R"(fill="#68727f")");
    x = memory_x;
    int64_t held = 0;
    for (const Kind& k : kKinds) {
      const double w = kMemory * static_cast<double>(of(c, k.kind)) /
                       static_cast<double>(most_held);
      if (w > 0)
        svg.rect(x, y, w, kBar, fmt::format(R"(fill="{}")", k.colour),
                 fmt::format("{}: {}", name(k.kind),
                             report::short_bytes(of(c, k.kind))));
      x += w;
      held += of(c, k.kind);
    }
    svg.text(x + 8, y + 20, 12, report::short_bytes(held));
    const double w = kBytes * static_cast<double>(c.step.bytes) /
                     static_cast<double>(most_bytes);
    svg.rect(bytes_x, y, w, kBar, R"(fill="#5b7fa6")");
    svg.text(bytes_x + w + 8, y + 20, 12, report::short_bytes(c.step.bytes));
    y += kRow;
  }
  return svg.finish(y + kMargin);
}

}  // namespace dtensor::examples
