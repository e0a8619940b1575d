// SPDX-License-Identifier: Apache-2.0
#include "programs/report/schedule_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "dtensor/placement/error.h"
#include "dtensor/program/json_text.h"
#include "dtensor/text_file.h"

namespace dtensor::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMost = 100000;  // the most micro-batches, or chunks

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  nn::PipelineSchedule read() {
    // The parser keeps the last of several entries of the same name, so note
    // the names while it reads.
    std::set<std::string> names;
    std::string twice;
    const auto see = [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth == 1 && event == Json::parse_event_t::key &&
          !names.insert(parsed.get<std::string>()).second)
        twice = parsed.get<std::string>();
      return true;
    };
    const Json json =
        Json::parse(read_text_file("--schedule", path_), see, false);
    if (!json.is_object()) wrong("is not a JSON object; write {}", example());
    if (!twice.empty()) wrong("has two entries '{}'; write one", shown(twice));
    for (const auto& [name, value] : json.items())
      if (name != "micro_batches" && name != "chunks" && name != "tasks")
        wrong("has an entry '{}'; write only micro_batches, chunks and tasks",
              shown(name));
    nn::PipelineSchedule s;
    s.name = path_;
    s.micros = whole(json, "micro_batches");
    s.chunks = json.contains("chunks") ? whole(json, "chunks") : 1;
    const auto tasks = json.find("tasks");
    if (tasks == json.end() || !tasks->is_array() || tasks->empty())
      wrong("has no \"tasks\" with a list for each position; write {}",
            example());
    s.positions = static_cast<int64_t>(tasks->size());
    for (const Json& list : *tasks) {
      if (!list.is_array())
        wrong("has {} in place of a list of tasks; write [\"F0\", \"B0\"]",
              shown(list));
      auto& of_position = s.tasks.emplace_back();
      for (const Json& one : list) {
        of_position.push_back(
            task(one, static_cast<int64_t>(s.tasks.size()) - 1, s));
        s.weight_tasks |= of_position.back().work == nn::PipelineWork::kWeight;
      }
    }
    return checked(std::move(s), "--schedule " + path_);
  }

 private:
  template <class... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> text,
                          Args&&... args) const {
    fail("--schedule", "{} {}", path_,
         fmt::format(text, std::forward<Args>(args)...));
  }

  static std::string_view example() {
    return "{\"micro_batches\": 1, \"tasks\": [[\"F0\", \"B0\"]]}";
  }

  int64_t whole(const Json& json, const char* name) const {
    const auto it = json.find(name);
    if (it == json.end() || !it->is_number_integer() || it->get<double>() < 1 ||
        it->get<double>() > kMost)
      wrong("has {} as \"{}\"; write a whole number from 1 to {}",
            it == json.end() ? "nothing" : shown(*it), name, kMost);
    return it->get<int64_t>();
  }

  // Parses a task: "F3" or, with its chunk, "F3.1".
  nn::PipelineTask task(const Json& json, int64_t position,
                        const nn::PipelineSchedule& s) const {
    const std::string text = json.is_string() ? json.get<std::string>() : "";
    const size_t work = text.empty() ? std::string::npos
                                     : std::string_view("FBW").find(text[0]);
    const size_t dot = std::min(text.find('.'), text.size());
    const std::optional<int64_t> micro = number(std::string_view(text).substr(
        std::min<size_t>(1, dot), dot - std::min<size_t>(1, dot)));
    const std::optional<int64_t> chunk =
        dot == text.size() ? 0 : number(std::string_view(text).substr(dot + 1));
    if (work == std::string::npos || !micro || !chunk)
      wrong(
          "has the task {}; write F3, B3 or W3, or F3.1 for chunk 1, with "
          "numbers from 0 to {}",
          shown(json), kMost);
    if (*chunk >= s.chunks)
      wrong(
          "has the task {}, but the number of the last chunk is {}; write "
          "\"chunks\": {}",
          shown(json), s.chunks - 1, *chunk + 1);
    return {static_cast<nn::PipelineWork>(work),
            *chunk * s.positions + position, *micro};
  }

  static std::optional<int64_t> number(std::string_view digits) {
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() ||
        value < 0 || value > kMost)
      return std::nullopt;
    return value;
  }

  std::string path_;
};

}  // namespace

std::string schedule_of(const std::string& text) {
  std::string lower = text;
  for (char& c : lower)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return nn::is_schedule_name(lower) ? lower : text;
}

nn::PipelineSchedule read_schedule(const std::string& name_or_path,
                                   int64_t positions, int64_t micros,
                                   int64_t chunks) {
  if (const std::string name = schedule_of(name_or_path);
      nn::is_schedule_name(name)) {
    DT_CHECK(
        positions > 0 && micros > 0, "--schedule",
        "{} needs numbers of positions and micro-batches; write --stages 4 "
        "--micro 8",
        name);
    return nn::make_schedule(name, positions, micros,
                             std::max<int64_t>(chunks, 1));
  }
  std::error_code ignored;
  DT_CHECK(std::filesystem::exists(caller_path(name_or_path), ignored),
           "--schedule",
           "there is no file {}, and no schedule of that name; name a file "
           "that exists, or one of {}",
           name_or_path, fmt::join(nn::schedule_names(), ", "));
  nn::PipelineSchedule s = Reader(name_or_path).read();
  const auto same = [&](const char* what, const char* flag, int64_t here,
                        int64_t there) {
    DT_CHECK(there == 0 || here == there, "--schedule",
             "the number of {2} in {0} is {1}, but {3} is {4}; write the same "
             "number",
             name_or_path, here, what, flag, there);
  };
  same("positions", "--stages, or axis pp of --mesh,", s.positions, positions);
  same("micro-batches", "--micro, or --micro-batches,", s.micros, micros);
  same("chunks", "--chunks", s.chunks, chunks);
  return s;
}

std::string schedule_help() {
  return fmt::format(
      "a pipeline's schedule: {}, or a file with a list of tasks for each "
      "position, {{\"micro_batches\": 1, \"tasks\": [[\"F0\", \"B0\"], "
      "[\"F0\", "
      "\"B0\"]]}}: F forward, B backward, W weight gradient; F0.1 for chunk 1, "
      "with \"chunks\": 2",
      fmt::join(nn::schedule_names(), ", "));
}

}  // namespace dtensor::report
