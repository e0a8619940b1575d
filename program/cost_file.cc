// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/cost_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/named_cost.h"
#include "dtensor/placement/step_kind.h"
#include "dtensor/program/flags.h"
#include "dtensor/program/json_text.h"
#include "dtensor/text_file.h"

namespace dtensor {
namespace {

using Json = nlohmann::ordered_json;

// Limits that keep 64-bit sums of picoseconds far from overflow: a step that
// moves kMostBytes takes at most 2^60 picoseconds.
constexpr int64_t kMostBytes = int64_t{1} << 36;
constexpr double kMostPicoseconds = 0x1p60;
constexpr int64_t kLeastBlock = 64;  // so that an int can count the blocks
constexpr double kMostMicroseconds = 1e7;
constexpr double kLeastRate = 1e-3, kMostRate = 1e9;
static_assert(1000 / kLeastRate * kMostBytes < kMostPicoseconds / 8);

// Converts a price, such as ps per byte, to a rate, such as GB/s. Rounds off
// the last digits: the price was computed from a rate, which made them inexact.
double per_second(double picoseconds) {
  return std::stod(fmt::format("{:.12g}", 1000 / picoseconds));
}

class Reader {
 public:
  Reader(std::string path, const Mesh& mesh)
      : path_(std::move(path)), mesh_(mesh) {}

  CostTable read() {
    const Json json = parse(read_text_file("--cost", path_));
    only(json, "the file",
         {"axes", "groups", "alpha_us", "gbytes_per_s", "beyond", "gflop_per_s",
          "local_gbytes_per_s", "block_bytes", "one_shot_bytes"});
    CostTable table;
    AxisCost common;
    read_link(json, "the file", common);
    if (auto it = json.find("gflop_per_s"); it != json.end())
      table.ps_per_flop = 1000 / rate(*it, "gflop_per_s");
    if (auto it = json.find("local_gbytes_per_s"); it != json.end())
      table.ps_per_local_byte = 1000 / rate(*it, "local_gbytes_per_s");
    if (auto it = json.find("block_bytes"); it != json.end())
      table.block_bytes = whole(*it, "block_bytes", kLeastBlock);
    if (auto it = json.find("one_shot_bytes"); it != json.end())
      table.one_shot_bytes = whole(*it, "one_shot_bytes", 0);
    table.axes.assign(static_cast<size_t>(mesh_.num_axes()), common);
    if (auto it = json.find("axes"); it != json.end())
      read_axes(*it, table.axes);
    if (auto it = json.find("groups"); it != json.end())
      read_groups(*it, table);
    for (const AxisCost& axis : table.axes)
      check_blocks(axis, table.block_bytes);
    for (const CostTable::Group& group : table.groups)
      check_blocks(group.cost, table.block_bytes);
    return table;
  }

 private:
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> text,
                          Args&&... args) const {
    fail("--cost", "{}: {}", path_,
         fmt::format(text, std::forward<Args>(args)...));
  }

  Json parse(const std::string& text) const {
    // Refuse two entries with one name: the JSON library would silently keep
    // the last one.
    std::vector<std::set<std::string>> names;
    const auto check = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) names.emplace_back();
      if (event == Json::parse_event_t::object_end) names.pop_back();
      if (event == Json::parse_event_t::key &&
          !names.back().insert(value.get<std::string>()).second)
        wrong("'{}' occurs twice in one object; write it once",
              shown(value.get<std::string>()));
      return true;
    };
    Json json;
    try {
      json = Json::parse(text, check);
    } catch (const Json::parse_error& e) {
      // e.byte counts the last byte that was read, or one beyond the end.
      const size_t before = std::max<size_t>(e.byte, 1) - 1;
      const auto end = text.begin() + static_cast<std::ptrdiff_t>(
                                          std::min(before, text.size()));
      wrong(
          "invalid JSON from line {} on; write {{\"alpha_us\": 5}} or the like",
          1 + std::count(text.begin(), end, '\n'));
    } catch (const Json::out_of_range&) {
      wrong("a number does not fit into 64 bits; write one nearer to 0");
    }
    if (!json.is_object())
      wrong(
          "the file is not a JSON object; write {{\"alpha_us\": 5}} or the "
          "like");
    return json;
  }

  // Throws Error if `what` is not an object, such as `example`, or has other
  // entries than these.
  void only(const Json& json, std::string_view what,
            const std::vector<std::string>& names,
            std::string_view example = "{\"alpha_us\": 5}") const {
    if (!json.is_object())
      wrong("{} is {}; write an object like {}", what, shown(json), example);
    for (const auto& [name, value] : json.items())
      if (std::count(names.begin(), names.end(), name) == 0)
        wrong("{} has an unknown entry '{}'; write one of {}", what,
              shown(name), joined(names));
  }

  double number(const Json& value, std::string_view name, double least,
                double most) const {
    // A value that is not a number becomes NaN, which fails both comparisons.
    const double x = value.is_number() ? value.get<double>() : NAN;
    if (!(x >= least && x <= most))
      wrong("{} is {}; write a number from {:g} to {:g}", name, shown(value),
            least, most);
    return x;
  }

  double rate(const Json& value, std::string_view name) const {
    return number(value, name, kLeastRate, kMostRate);
  }

  int64_t whole(const Json& value, std::string_view name, int64_t least) const {
    if (!value.is_number_integer() || value.get<int64_t>() < least)
      wrong(
          "{} is {}; write a whole number of at least {}, in at most 18 digits",
          name, shown(value), least);
    return value.get<int64_t>();
  }

  // Throws Error if blocks are so small that the time of kMostBytes could
  // overflow: every block takes the latency.
  void check_blocks(const AxisCost& cost, int64_t block_bytes) const {
    int64_t alpha_ps = cost.alpha_ps;
    for (const auto& own : cost.kinds)
      if (own) alpha_ps = std::max(alpha_ps, own->alpha_ps);
    const int64_t blocks = (kMostBytes - 1) / block_bytes + 1;
    if (static_cast<double>(alpha_ps) * static_cast<double>(blocks) >
        kMostPicoseconds / 2)
      wrong(
          "block_bytes is {}, and every block takes a latency of up to {:g} "
          "us, so the time of {} GiB is too large to compute with; write a "
          "larger block_bytes or a smaller alpha_us",
          block_bytes, static_cast<double>(alpha_ps) / 1e6, kMostBytes >> 30);
  }

  // Reads the cost of the bytes that do not fit into a cache.
  void read_beyond(const Json& json, const std::string& what,
                   LinkCost& cost) const {
    constexpr std::string_view kExample =
        "{\"bytes\": 1048576, \"gbytes_per_s\": 5}";
    only(json, what, {"bytes", "gbytes_per_s"}, kExample);
    for (const char* entry : {"bytes", "gbytes_per_s"})
      if (!json.contains(entry))
        wrong("{} has no {}; write {} or the like", what, entry, kExample);
    cost.cached_bytes = whole(json["bytes"], "bytes of " + what, 0);
    const double beyond = rate(json["gbytes_per_s"], "gbytes_per_s of " + what);
    cost.extra_ps_per_byte = 1000 / beyond - cost.ps_per_byte;
    if (!(cost.extra_ps_per_byte > 0))
      wrong(
          "gbytes_per_s of {} is {:g}, but the rate of fewer bytes is {:g}; "
          "write a lower rate",
          what, beyond, per_second(cost.ps_per_byte));
  }

  void read_link(const Json& json, std::string_view what,
                 LinkCost& cost) const {
    if (auto it = json.find("alpha_us"); it != json.end())
      cost.alpha_ps =
          std::llround(number(*it, fmt::format("alpha_us of {}", what), 0,
                              kMostMicroseconds) *
                       1e6);
    if (auto it = json.find("gbytes_per_s"); it != json.end())
      cost = {.alpha_ps = cost.alpha_ps,
              .ps_per_byte =
                  1000 / rate(*it, fmt::format("gbytes_per_s of {}", what))};
    if (auto it = json.find("beyond"); it != json.end())
      read_beyond(*it, fmt::format("beyond of {}", what), cost);
  }

  void read_price(const Json& json, std::string_view what,
                  AxisCost& cost) const {
    read_link(json, what, cost);
    const auto kinds = json.find("kinds");
    if (kinds == json.end()) return;
    if (!kinds->is_object())
      wrong("kinds of {} is {}; write an object like {{\"all_gather\": {{}}}}",
            what, shown(*kinds));
    for (const auto& [name, value] : kinds->items()) {
      const std::optional<StepKind> kind = parse_kind(name);
      if (!kind || !sends(*kind)) wrong_kind(name, what);
      const std::string of = fmt::format("{} of {}", name, what);
      only(value, of, {"alpha_us", "gbytes_per_s", "beyond"});
      std::optional<LinkCost>& own = cost.kinds[static_cast<size_t>(*kind)];
      if (own)
        wrong("kinds of {} has {} twice; write it once", what, key(*kind));
      own = cost;
      read_link(value, of, *own);
    }
  }

  [[noreturn]] void wrong_kind(const std::string& name,
                               std::string_view what) const {
    std::vector<std::string> keys;
    for (int k = 0; k < kNumStepKinds; ++k)
      if (const auto kind = static_cast<StepKind>(k); sends(kind))
        keys.push_back(key(kind));
    wrong("kinds of {} has an unknown entry '{}'; write one of {}", what,
          shown(name), joined(keys));
  }

  void read_axis(const Json& json, int axis, AxisCost& cost) const {
    const std::string what = fmt::format("axis {}", mesh_.axis_name(axis));
    only(json, what, {"alpha_us", "gbytes_per_s", "beyond", "kinds"});
    read_price(json, what, cost);
  }

  void read_axes(const Json& json, std::vector<AxisCost>& axes) const {
    if (json.is_object()) {
      for (const auto& [name, value] : json.items()) {
        if (!mesh_.has_axis(name))
          wrong(
              "axes has an entry '{}', which is not an axis of mesh {}; write "
              "one of {}",
              shown(name), mesh_.to_string(),
              mesh_.axes_to_string(mesh_.all_axes()));
        const int axis = mesh_.axis(name);
        read_axis(value, axis, axes[static_cast<size_t>(axis)]);
      }
      return;
    }
    if (!json.is_array())
      wrong("axes is {}; write a list with an entry per mesh axis",
            shown(json));
    if (json.size() != axes.size())
      wrong(
          "the length of axes is {}, but the number of axes of mesh {} is {}; "
          "write an entry for each axis",
          json.size(), mesh_.to_string(), axes.size());
    for (size_t a = 0; a < axes.size(); ++a)
      read_axis(json[a], static_cast<int>(a), axes[a]);
  }

  AxisMask axis_bit(const Json& value, std::string_view what) const {
    if (value.is_string() && mesh_.has_axis(value.get<std::string>()))
      return AxisMask{1} << mesh_.axis(value.get<std::string>());
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() < static_cast<uint64_t>(mesh_.num_axes()))
      return AxisMask{1} << value.get<uint64_t>();
    wrong(
        "{} has an axis {}, which mesh {} does not have; write one of {}, or "
        "its number, counted from 0",
        what, shown(value), mesh_.to_string(),
        mesh_.axes_to_string(mesh_.all_axes()));
  }

  void read_groups(const Json& json, CostTable& table) const {
    if (!json.is_array())
      wrong(
          "groups is {}; write a list like [{{\"axes\": [0, 1], "
          "\"alpha_us\": 5}}]",
          shown(json));
    for (size_t g = 0; g < json.size(); ++g) {
      const std::string what = fmt::format("group {}", g);
      only(json[g], what,
           {"axes", "alpha_us", "gbytes_per_s", "beyond", "kinds"},
           "{\"axes\": [0, 1], \"alpha_us\": 5}");
      const auto axes = json[g].find("axes");
      if (axes == json[g].end() || !axes->is_array() || axes->size() < 2)
        wrong("axes of {} is {}; write two axes or more, like [0, 1]", what,
              axes == json[g].end() ? "missing" : shown(*axes));
      CostTable::Group group{0, {LinkCost{0, 0}, {}}};
      for (const Json& axis : *axes) {
        const AxisMask bit = axis_bit(axis, what);
        if (group.axes & bit)
          wrong("{} names axis {} twice; write two or more different axes",
                what, mesh_.axes_to_string(bit));
        group.axes |= bit;
      }
      for (const CostTable::Group& other : table.groups)
        if (other.axes == group.axes)
          wrong(
              "{} has the axes {}, as an earlier group has; write only one of "
              "them",
              what, mesh_.axes_to_string(group.axes));
      for (int a = 0; a < mesh_.num_axes(); ++a) {
        if (!(group.axes >> a & 1)) continue;
        group.cost.raise_to(table.axes[static_cast<size_t>(a)]);
      }
      read_price(json[g], what, group.cost);
      table.groups.push_back(std::move(group));
    }
  }

  std::string path_;
  const Mesh& mesh_;
};

Json link_json(const LinkCost& cost) {
  Json json = {{"alpha_us", static_cast<double>(cost.alpha_ps) / 1e6},
               {"gbytes_per_s", per_second(cost.ps_per_byte)}};
  if (cost.extra_ps_per_byte > 0)
    json["beyond"] = {{"bytes", cost.cached_bytes},
                      {"gbytes_per_s",
                       per_second(cost.ps_per_byte + cost.extra_ps_per_byte)}};
  return json;
}

Json price_json(const AxisCost& cost) {
  Json json = link_json(cost);
  for (int k = 0; k < kNumStepKinds; ++k)
    if (const auto& own = cost.kinds[static_cast<size_t>(k)])
      json["kinds"][key(static_cast<StepKind>(k))] = link_json(*own);
  return json;
}

}  // namespace

CostTable read_cost_file(const std::string& path, const Mesh& mesh) {
  return Reader(path, mesh).read();
}

std::string cost_help() {
  return "prices: a JSON file, or the name of a machine: " + cost_names();
}

CostTable read_cost(const std::string& name_or_path, const Mesh& mesh) {
  if (auto named = named_cost(name_or_path, mesh)) return *std::move(named);
  std::error_code ignored;
  DT_CHECK(std::filesystem::exists(caller_path(name_or_path), ignored),
           "--cost",
           "there is no file {}, and no machine of that name; name an existing "
           "file, or one of {}",
           name_or_path, cost_names());
  return read_cost_file(name_or_path, mesh);
}

nlohmann::ordered_json cost_json(const CostTable& cost, const Mesh& mesh) {
  Json json;
  json["axes"] = Json::array();
  for (int a = 0; a < mesh.num_axes(); ++a)
    json["axes"].push_back(price_json(static_cast<size_t>(a) < cost.axes.size()
                                          ? cost.axes[static_cast<size_t>(a)]
                                          : AxisCost{}));
  for (const CostTable::Group& g : cost.groups) {
    Json group = {{"axes", Json::array()}};
    for (int a = 0; a < mesh.num_axes(); ++a)
      if (g.axes >> a & 1) group["axes"].push_back(mesh.axis_name(a));
    group.update(price_json(g.cost));
    json["groups"].push_back(std::move(group));
  }
  json["gflop_per_s"] = per_second(cost.ps_per_flop);
  json["local_gbytes_per_s"] = per_second(cost.ps_per_local_byte);
  json["block_bytes"] = cost.block_bytes;
  json["one_shot_bytes"] = cost.one_shot_bytes;
  return json;
}

}  // namespace dtensor
