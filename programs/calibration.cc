// SPDX-License-Identifier: Apache-2.0
#include "programs/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "dtensor/program/cost_file.h"
#include "dtensor/text_table.h"
#include "programs/fit.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::ordered_json;

// Rounds a price so that its rate, which a cost file states, has four digits.
double rounded_ps(double us_per_byte) {
  // If the time does not grow with the bytes, the rate would be infinite. Take
  // kMostRate instead, in GB/s, which a cost file may have.
  constexpr double kMostRate = 1e6;
  const double rate = std::min(kMostRate, 1e-3 / std::max(us_per_byte, 1e-12));
  return 1000 / std::stod(fmt::format("{:.4g}", rate));
}

// Rounds the latency to nanoseconds, and the rates to four digits.
LinkCost rounded(const FittedBend& fitted) {
  LinkCost cost{.alpha_ps = std::llround(fitted.line.alpha_us * 1e3) * 1000,
                .ps_per_byte = rounded_ps(fitted.line.us_per_byte)};
  const double beyond =
      rounded_ps(fitted.line.us_per_byte + fitted.extra_us_per_byte);
  if (beyond > cost.ps_per_byte) {
    cost.cached_bytes = std::llround(fitted.cached_bytes);
    cost.extra_ps_per_byte = beyond - cost.ps_per_byte;
  }
  return cost;
}

double alpha_us(const LinkCost& cost) {
  return static_cast<double>(cost.alpha_ps) / 1e6;
}

double rate(const LinkCost& cost) { return 1000 / cost.ps_per_byte; }
double rate_beyond(const LinkCost& cost) {
  return 1000 / (cost.ps_per_byte + cost.extra_ps_per_byte);
}

// The largest size of a part, in bytes, up to which every one-shot probe was
// faster than the probe of the same all-reduce that is not one-shot; 0 if there
// is none.
int64_t crossing(const std::vector<Probe>& probes,
                 const std::vector<double>& us) {
  std::map<int64_t, bool> faster;  // by part size: all were faster
  for (size_t i = 0; i < probes.size(); ++i) {
    if (!probes[i].one_shot) continue;
    for (size_t k = 0; k < i; ++k) {
      if (probes[k].one_shot || probes[k].from != probes[i].from ||
          probes[k].to != probes[i].to)
        continue;
      bool& all = faster.emplace(probes[i].from->largest_part_bytes(), true)
                      .first->second;
      all = all && us[i] < us[k];
    }
  }
  int64_t bytes = 0;
  for (const auto& [part, all] : faster) {
    if (!all) break;
    bytes = part;
  }
  return bytes;
}

// The price for kinds of collectives that were not measured.
LinkCost common_price(const AxisCost& cost) {
  for (StepKind kind : {StepKind::kExchange, StepKind::kAllToAll})
    if (const auto& own = cost.kinds[static_cast<size_t>(kind)]) return *own;
  return cost;
}

}  // namespace

double Series::worst_error() const {
  double worst = 0;
  for (const Point& p : points) worst = std::max(worst, std::abs(p.error()));
  return worst;
}

Calibration calibrate(const std::vector<Probe>& probes,
                      const std::vector<double>& us) {
  Calibration c;
  c.mesh = probes[0].from->mesh();
  c.cost.axes.resize(static_cast<size_t>(c.mesh.num_axes()));
  c.cost.one_shot_bytes = crossing(probes, us);
  for (size_t first = 0; first < probes.size() && !probes[first].one_shot;) {
    size_t end = first;
    std::vector<TimedBytes> times;
    for (; end < probes.size() && probes[end].kind == probes[first].kind &&
           probes[end].axes == probes[first].axes && !probes[end].one_shot;
         ++end)
      times.push_back({static_cast<double>(probes[end].bytes), us[end]});
    Series s{
        probes[first].kind, probes[first].axes, rounded(fit_bent(times)), {}};
    AxisCost* own = nullptr;
    for (int a = 0; a < c.mesh.num_axes(); ++a)
      if (s.axes == AxisMask{1} << a)
        own = &c.cost.axes[static_cast<size_t>(a)];
    if (!own) {
      if (c.cost.groups.empty()) c.cost.groups.push_back({s.axes, {}});
      own = &c.cost.groups[0].cost;
    }
    own->kinds[static_cast<size_t>(s.kind)] = s.cost;
    for (; first < end; ++first)
      s.points.push_back({probes[first].bytes, us[first], 0});
    c.series.push_back(std::move(s));
  }
  for (AxisCost& axis : c.cost.axes)
    static_cast<LinkCost&>(axis) = common_price(axis);
  for (CostTable::Group& g : c.cost.groups)
    static_cast<LinkCost&>(g.cost) = common_price(g.cost);
  for (Series& s : c.series)
    for (Series::Point& p : s.points)
      p.fitted_us =
          static_cast<double>(c.cost.collective_ps(s.kind, s.axes, p.bytes)) /
          1e6;
  return c;
}

std::string to_text(const Calibration& c) {
  TextTable points("llrrrr", {"kind", "over", "bytes", "measured us",
                              "fitted us", "error %"});
  TextTable fits("llrrrrr", {"kind", "over", "alpha us", "GB/s",
                             "worst error %", "beyond bytes", "GB/s"});
  for (const Series& s : c.series) {
    const std::string kind(name(s.kind)), axes = c.mesh.axes_to_string(s.axes);
    for (const Series::Point& p : s.points)
      points.add({kind, axes, grouped(p.bytes),
                  fmt::format("{:.3f}", p.measured_us),
                  fmt::format("{:.3f}", p.fitted_us),
                  fmt::format("{:+.1f}", 100 * p.error())});
    const bool bent = s.cost.extra_ps_per_byte > 0;
    fits.add({kind, axes, fmt::format("{:.3f}", alpha_us(s.cost)),
              fmt::format("{:.4g}", rate(s.cost)),
              fmt::format("{:.1f}", 100 * s.worst_error()),
              bent ? grouped(s.cost.cached_bytes) : "",
              bent ? fmt::format("{:.4g}", rate_beyond(s.cost)) : ""});
  }
  return fmt::format(
      "{}\n{}\none-shot all-reduces: parts of at most {} bytes\n",
      points.to_string(), fits.to_string(), grouped(c.cost.one_shot_bytes));
}

nlohmann::ordered_json to_json(const Calibration& c) {
  Json fits = Json::array();
  for (const Series& s : c.series) {
    Json axes = Json::array(), points = Json::array();
    for (int a = 0; a < c.mesh.num_axes(); ++a)
      if (s.axes >> a & 1) axes.push_back(c.mesh.axis_name(a));
    for (const Series::Point& p : s.points)
      points.push_back({{"bytes", p.bytes},
                        {"measured_us", p.measured_us},
                        {"fitted_us", p.fitted_us}});
    Json fitted = {
        {"kind", key(s.kind)},
        {"axes", axes},
        {"alpha_us", alpha_us(s.cost)},
        {"gbytes_per_s", std::stod(fmt::format("{:.4g}", rate(s.cost)))}};
    if (s.cost.extra_ps_per_byte > 0)
      fitted["beyond"] = {
          {"bytes", s.cost.cached_bytes},
          {"gbytes_per_s",
           std::stod(fmt::format("{:.4g}", rate_beyond(s.cost)))}};
    fitted["worst_error"] = s.worst_error();
    fitted["points"] = points;
    fits.push_back(std::move(fitted));
  }
  return {{"mesh", c.mesh.to_string()},
          {"fits", fits},
          {"cost", cost_json(c.cost, c.mesh)}};
}

}  // namespace dtensor::examples
