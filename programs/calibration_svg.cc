// SPDX-License-Identifier: Apache-2.0
// Draws a Calibration as plots of time against bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "programs/calibration.h"
#include "programs/report/svg.h"

namespace dtensor::examples {
namespace {

constexpr double kMargin = 30, kPlotWidth = 470, kPlotHeight = 300;
constexpr double kLeft = 54, kBetween = 40, kBelow = 46;
constexpr std::string_view kGrey = "#68727f";

// The colour of a kind, dark enough for thin lines on white.
std::string line_colour(StepKind kind) {
  constexpr std::array<std::string_view, kNumStepKinds> colours = {
      "#000000", "#000000", "#1f6fb4", "#c8372d", "#e08a00",
      "#2c8a4b", "#7c4fb0", "#7a5a3a", "#c24d92"};
  return std::string(colours[static_cast<size_t>(kind)]);
}

// A logarithmic axis of `length` pixels, from `least` to `most`.
struct Scale {
  double least, most, length;
  double at(double x) const {
    return length * std::log(x / least) / std::log(most / least);
  }
};

std::string short_time(double us) {
  if (us < 1) return fmt::format("{:.3g} ns", us * 1e3);
  if (us < 1e3) return fmt::format("{:.3g} \xc2\xb5s", us);
  return fmt::format("{:.3g} ms", us / 1e3);
}

class Plots {
 public:
  explicit Plots(const Calibration& c) : c_(c) {
    double bytes[2] = {1e300, 0}, us[2] = {1e300, 0};
    for (const Series& s : c.series) {
      if (std::count(groups_.begin(), groups_.end(), s.axes) == 0)
        groups_.push_back(s.axes);
      for (const Series::Point& p : s.points) {
        const auto n = static_cast<double>(p.bytes);
        bytes[0] = std::min(bytes[0], n);
        bytes[1] = std::max(bytes[1], n);
        us[0] = std::min({us[0], p.measured_us, p.fitted_us});
        us[1] = std::max({us[1], p.measured_us, p.fitted_us});
      }
    }
    x_ = {bytes[0] / 1.6, bytes[1] * 1.6, kPlotWidth};
    y_ = {us[0] / 1.5, us[1] * 1.5, kPlotHeight};
  }

  std::string draw() {
    constexpr double kStep = kLeft + kPlotWidth + kBetween;
    const size_t across = std::min<size_t>(groups_.size(), 3);
    const double width =
        std::max(2 * kMargin + kStep * static_cast<double>(across), 760.0);
    report::Svg svg(width, "time of collectives on " + c_.mesh.to_string());
    svg.text_within(width - 2 * kMargin, kMargin, kMargin + 14, 20,
                    "Collectives on " + c_.mesh.to_string(),
                    R"(font-weight="bold")");
    svg.text_within(width - 2 * kMargin, kMargin, kMargin + 36, 13,
                    "time against bytes received by the rank that receives "
                    "most; dots: measured, lines: fitted",
                    fmt::format(R"(fill="{}")", kGrey));
    double y = kMargin + 70;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (g > 0 && g % across == 0) y += block_height();
      plot(svg, kMargin + kLeft + kStep * static_cast<double>(g % across), y,
           groups_[g]);
    }
    return svg.finish(y + block_height());
  }

 private:
  size_t kinds_over(AxisMask axes) const {
    return static_cast<size_t>(
        std::count_if(c_.series.begin(), c_.series.end(),
                      [&](const Series& s) { return s.axes == axes; }));
  }

  // The height of a plot and the list below it.
  double block_height() const {
    size_t lines = 0;
    for (AxisMask axes : groups_) lines = std::max(lines, kinds_over(axes));
    return kPlotHeight + kBelow + 18 * static_cast<double>(lines) + 44;
  }

  void plot(report::Svg& svg, double x, double y, AxisMask axes) const {
    const std::string grey = fmt::format(R"(fill="{}")", kGrey);
    svg.text(x, y - 10, 14,
             fmt::format("over {}: groups of {} ranks",
                         c_.mesh.axes_to_string(axes), c_.mesh.size_of(axes)),
             R"(font-weight="bold")");
    grid(svg, x, y);
    double below = y + kPlotHeight + kBelow;
    for (const Series& s : c_.series) {
      if (s.axes != axes) continue;
      const std::string colour = line_colour(s.kind);
      curve(svg, x, y, s, colour);
      for (const Series::Point& p : s.points)
        svg.circle(
            x + x_.at(static_cast<double>(p.bytes)),
            y + kPlotHeight - y_.at(p.measured_us), 3.5,
            fmt::format(R"(fill="{}" stroke="#ffffff")", colour),
            fmt::format("{}, {}: measured {}, fitted {}", name(s.kind),
                        report::short_bytes(p.bytes), short_time(p.measured_us),
                        short_time(p.fitted_us)));
      svg.line(x, below - 4, x + 22, below - 4,
               fmt::format(R"(stroke="{}" stroke-width="2.5")", colour));
      svg.circle(x + 11, below - 4, 3.5,
                 fmt::format(R"(fill="{}" stroke="#ffffff")", colour));
      svg.text(x + 30, below, 12, name(s.kind));
      svg.text(x + 150, below, 12, formula(s.cost));
      svg.text(x + kPlotWidth, below, 11,
               fmt::format("within {:.0f} %", 100 * s.worst_error()),
               grey + R"( text-anchor="end")");
      below += 18;
    }
  }

  // The price of a collective as a formula, with the rate beyond the cache if
  // there is one.
  static std::string formula(const LinkCost& cost) {
    std::string text = fmt::format("{:.4g} \xc2\xb5s + bytes / {:.4g} GB/s",
                                   static_cast<double>(cost.alpha_ps) / 1e6,
                                   1000 / cost.ps_per_byte);
    if (cost.extra_ps_per_byte > 0)
      text += fmt::format(", beyond {} {:.4g}",
                          report::short_bytes(cost.cached_bytes),
                          1000 / (cost.ps_per_byte + cost.extra_ps_per_byte));
    return text;
  }

  void grid(report::Svg& svg, double x, double y) const {
    const std::string grey = fmt::format(R"(fill="{}")", kGrey);
    for (double bytes = 1; bytes < x_.most; bytes *= 16) {
      if (bytes < x_.least) continue;
      const double at = x + x_.at(bytes);
      svg.line(at, y, at, y + kPlotHeight, R"(stroke="#e6eaee")");
      svg.text(at, y + kPlotHeight + 15, 10,
               report::short_bytes(static_cast<int64_t>(bytes)),
               grey + R"( text-anchor="middle")");
    }
    for (int power = -3; power < 10; ++power)
      for (int digit : {1, 2, 5}) {
        const double us = digit * std::pow(10.0, power);
        if (us < y_.least || us > y_.most) continue;
        const double at = y + kPlotHeight - y_.at(us);
        svg.line(x, at, x + kPlotWidth, at,
                 digit == 1 ? R"(stroke="#d0d6dc")" : R"(stroke="#eef1f4")");
        svg.text(x - 6, at + 3.5, 10, short_time(us),
                 grey + R"( text-anchor="end")");
      }
    svg.rect(x, y, kPlotWidth, kPlotHeight,
             R"(fill="none" stroke="#39424e" stroke-width="1.2")");
  }

  void curve(report::Svg& svg, double x, double y, const Series& s,
             const std::string& colour) const {
    constexpr int kSteps = 60;
    std::string points;
    for (int i = 0; i <= kSteps; ++i) {
      const double bytes = x_.least * std::pow(x_.most / x_.least,
                                               static_cast<double>(i) / kSteps);
      const double us = (static_cast<double>(s.cost.alpha_ps) +
                         s.cost.bytes_ps(std::llround(bytes))) /
                        1e6;
      const double up = y_.at(us);
      if (up < 0 || up > kPlotHeight) continue;  // outside of the plot
      points +=
          fmt::format("{:.1f},{:.1f} ", x + x_.at(bytes), y + kPlotHeight - up);
    }
    svg.polyline(points,
                 fmt::format(R"(stroke="{}" stroke-width="2")", colour));
  }

  const Calibration& c_;
  std::vector<AxisMask> groups_;
  Scale x_{}, y_{};
};

}  // namespace

std::string calibration_svg(const Calibration& c) { return Plots(c).draw(); }

}  // namespace dtensor::examples
