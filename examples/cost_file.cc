#include "examples/cost_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dtensor/program.h"
#include "placement/error.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::json;

double positive(const std::string& name, const Json& value) {
  DT_CHECK(value.is_number() && std::isfinite(value.get<double>()) &&
               value.get<double>() > 0,
           "--cost", "{} is {}; write a positive number", name, value.dump());
  return value.get<double>();
}

// True when `name` is one of a collective's prices, which then is in `cost`.
bool read_axis_price(const std::string& name, const Json& value,
                     AxisCost& cost) {
  if (name == "alpha_us")
    cost.alpha_ps = std::llround(positive(name, value) * 1e6);
  else if (name == "gb_per_s")
    cost.ps_per_byte = 1000 / positive(name, value);
  else
    return false;
  return true;
}

}  // namespace

CostTable read_cost_file(const std::string& path, const Mesh& mesh) {
  std::ifstream file(caller_path(path));
  DT_CHECK(file.good(), "--cost", "cannot read {}: {}; name a file that exists",
           path, std::strerror(errno));
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  DT_CHECK(json.is_object(), "--cost",
           "{} holds no JSON object; write {{\"alpha_us\": 5}} or the like",
           path);
  CostTable table;
  AxisCost common;
  for (const auto& [name, value] : json.items()) {
    if (name == "axes" || read_axis_price(name, value, common)) continue;
    if (name == "gflop_per_s")
      table.ps_per_flop = 1000 / positive(name, value);
    else if (name == "local_gb_per_s")
      table.ps_per_local_byte = 1000 / positive(name, value);
    else
      fail("--cost",
           "{} has a price '{}'; there are alpha_us, gb_per_s, gflop_per_s, "
           "local_gb_per_s and axes",
           path, name);
  }
  table.axes.assign(static_cast<size_t>(mesh.num_axes()), common);
  if (!json.contains("axes")) return table;
  for (const auto& [axis, prices] : json["axes"].items())
    for (const auto& [name, value] : prices.items())
      DT_CHECK(
          read_axis_price(name, value,
                          table.axes[static_cast<size_t>(mesh.axis(axis))]),
          "--cost", "axis {} has a price '{}'; there are alpha_us, gb_per_s",
          axis, name);
  return table;
}

}  // namespace dtensor::examples
