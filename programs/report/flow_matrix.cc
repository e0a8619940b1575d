// SPDX-License-Identifier: Apache-2.0
#include "programs/report/flow_matrix.h"

#include <fmt/format.h>

#include <algorithm>

#include "dtensor/text_table.h"

namespace dtensor::report {
namespace {

constexpr double kMatrix = 264;  // the largest width of all cells together
constexpr std::string_view kGrey = "#68727f";

class Drawing {
 public:
  Drawing(Svg& svg, const RankGroups& groups, const FlowSums& sums)
      : svg_(svg), groups_(groups), sums_(sums) {}

  bool keeps() const { return keeps_; }
  double draw(double x, double y) {
    std::vector<std::string> names;
    double head = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      names.push_back(groups_.text(g));
      head = std::max(head, text_width(names.back(), 10) + 10);
    }
    const auto n = static_cast<double>(groups_.size());
    const double cell = std::clamp(kMatrix / n, 16.0, 44.0);
    const double left = x + head + 14, top = y + 34;
    svg_.text(left + cell * n / 2, y - 4, 11, "to rank",
              R"(text-anchor="middle")");
    svg_.text_up(x + 6, top + cell * n / 2, 11, "from rank",
                 R"(text-anchor="middle")");
    for (size_t g = 0; g < groups_.size(); ++g) {
      const double at = static_cast<double>(g) * cell;
      const std::string chip =
          fmt::format(R"(fill="{}" stroke="#ffffff")", groups_.colour(g));
      svg_.rect(left + at, top - 20, cell, 18, chip);
      if (text_width(names[g], 10) <= cell)
        svg_.text(left + at + cell / 2, top - 7, 10, names[g],
                  R"(text-anchor="middle")");
      svg_.rect(left - head - 2, top + at, head, cell, chip);
      svg_.text(left - head / 2 - 2, top + at + cell / 2 + 4, 10, names[g],
                R"(text-anchor="middle")");
    }
    for (size_t a = 0; a < groups_.size(); ++a)
      for (size_t b = 0; b < groups_.size(); ++b)
        matrix_cell(left + static_cast<double>(b) * cell,
                    top + static_cast<double>(a) * cell, cell, names[a],
                    names[b], sums_.bytes[a * groups_.size() + b],
                    a == b ? sums_.kept[a] : 0, sums_.most);
    const double right = left + cell * n + 8, below = top + cell * n + 8;
    svg_.text(right, top - 8, 10, "sent", fmt::format(R"(fill="{}")", kGrey));
    constexpr double kBar = 44;
    const auto bar = [&](int64_t sum) {
      return sums_.most_sum ? kBar * static_cast<double>(sum) /
                                  static_cast<double>(sums_.most_sum)
                            : 0;
    };
    const double thick = std::min(cell - 4, 14.0);
    for (size_t g = 0; g < groups_.size(); ++g) {
      const double at = static_cast<double>(g) * cell + cell / 2;
      const std::string blue = R"(fill="#7fb2e5")";
      svg_.rect(
          right, top + at - thick / 2, bar(sums_.sent[g]), thick, blue,
          fmt::format("{} sends {} bytes", names[g], grouped(sums_.sent[g])));
      svg_.text(right + bar(sums_.sent[g]) + 4, top + at + 3.5, 9,
                short_bytes(sums_.sent[g]));
      svg_.rect(left + at - thick / 2, below, thick, bar(sums_.received[g]),
                blue,
                fmt::format("{} receives {} bytes", names[g],
                            grouped(sums_.received[g])));
      number_within(cell, left + at, below + bar(sums_.received[g]) + 11,
                    sums_.received[g], "#1c2430");
    }
    svg_.text(left - 6, below + 12, 10, "received",
              fmt::format(R"(fill="{}" text-anchor="end")", kGrey));
    return below + kBar + 16;
  }

 private:
  void matrix_cell(double x, double y, double size, const std::string& from,
                   const std::string& to, int64_t bytes, int64_t kept,
                   int64_t most) {
    const double x_shade =
        most ? static_cast<double>(bytes) / static_cast<double>(most) : 0;
    std::string tip =
        bytes > 0 || from != to
            ? fmt::format("{} to {}: {} bytes", from, to, grouped(bytes))
            : std::string();
    if (kept > 0)
      tip += fmt::format("{}{} keeps {} bytes", tip.empty() ? "" : "\n", from,
                         grouped(kept));
    std::string fill = bytes ? shade(0.1 + 0.9 * x_shade) : "#ffffff";
    if (!bytes && kept) {
      fill = svg_.stripes("#e3e7ec #f6f8fa", 3, 45);
      keeps_ = true;
    }
    svg_.rect(x, y, size, size,
              fmt::format(R"(fill="{}" stroke="#d8dde3")", fill), tip);
    if (bytes > 0)
      number_within(size, x + size / 2, y + size / 2 + 3, bytes,
                    text_on_shade(0.1 + 0.9 * x_shade));
  }

  // Writes "32 KiB" or, if that is too wide, "32K" or nothing.
  void number_within(double width, double x, double y, int64_t bytes,
                     std::string_view fill) {
    std::string text = short_bytes(bytes);
    if (text_width(text, 8) > width) {
      std::erase(text, ' ');
      if (text.size() > 2 && text.ends_with("iB")) text.resize(text.size() - 2);
    }
    if (text_width(text, 8) <= width)
      svg_.text(x, y, 8, text,
                fmt::format(R"(text-anchor="middle" fill="{}")", fill));
  }

  Svg& svg_;
  const RankGroups& groups_;
  const FlowSums& sums_;
  bool keeps_ = false;
};

}  // namespace

FlowSums sum_flows(std::span<const Flow> flows, const RankGroups& groups) {
  const size_t n = groups.size();
  FlowSums s;
  s.bytes.assign(n * n, 0);
  s.kept.assign(n, 0);
  s.sent.assign(n, 0);
  s.received.assign(n, 0);
  for (const Flow& f : flows) {
    const size_t a = groups.of(f.from), b = groups.of(f.to);
    if (f.from == f.to) {
      s.kept[a] += f.bytes;
      continue;
    }
    s.most = std::max(s.most, s.bytes[a * n + b] += f.bytes);
    s.sent[a] += f.bytes;
    s.received[b] += f.bytes;
    s.most_sum = std::max({s.most_sum, s.sent[a], s.received[b]});
  }
  return s;
}

FlowMatrix draw_flow_matrix(Svg& svg, double x, double y,
                            std::span<const Flow> flows,
                            const RankGroups& groups) {
  const FlowSums sums = sum_flows(flows, groups);
  Drawing drawing(svg, groups, sums);
  const double bottom = drawing.draw(x, y);
  return {bottom, drawing.keeps()};
}

}  // namespace dtensor::report
