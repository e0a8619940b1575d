// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cuda/gemm_choices.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>

#include "dtensor/io/file.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/text_file.h"

namespace dtensor::kernels::cuda {
namespace {

constexpr std::string_view kHeader =
    "dtensor's choices of cuBLASLt's proposals, 1";
constexpr std::string_view kWhere = "gemm";
// A process holds the lock for less than a millisecond.
constexpr std::chrono::seconds kPatience{5};

std::string key_of(const std::string& product, int proposals) {
  return fmt::format("{} of {} proposals", product, proposals);
}

// "KEY<tab>CHOICE<tab>HASH", where HASH is the hash of the text before it.
std::string line_of(const std::string& key, int choice) {
  const std::string text = fmt::format("{}\t{}\t", key, choice);
  return fmt::format("{}{:016x}\n", text, hash_text(text));
}
std::optional<std::pair<std::string, int>> parse(std::string_view line) {
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos) return {};
  int choice = -1;
  std::from_chars(line.data() + tab + 1, line.data() + line.size(), choice);
  std::string key(line.substr(0, tab));
  if (choice < 0 || line_of(key, choice) != fmt::format("{}\n", line))
    return {};
  return std::pair(std::move(key), choice);
}

io::File lock(const std::string& folder) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    if (auto locked = io::File::lock_folder(folder)) return *std::move(locked);
    DT_CHECK(std::chrono::steady_clock::now() < until, kWhere,
             "another process has locked {} for {} s; end it, or set "
             "XDG_CACHE_HOME to another folder",
             folder, kPatience.count());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

GemmChoices::GemmChoices(std::string folder)
    : folder_(std::move(folder)),
      path_(folder_.empty() ? "" : folder_ + "/gemm_choices.txt") {}

std::string GemmChoices::users_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    // The XDG specification says to ignore relative paths.
    return std::string(value && *value == '/' ? value : "");
  };
  if (auto cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/dtensor";
  const auto home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/dtensor";
}

std::optional<int> GemmChoices::find(const std::string& product,
                                     int proposals) {
  const std::string key = key_of(product, proposals);
  std::lock_guard lock(mutex_);
  auto found = choices_.find(key);
  if (found == choices_.end()) {
    load();
    found = choices_.find(key);
  }
  if (found == choices_.end() || found->second >= proposals) return {};
  return found->second;
}

int GemmChoices::keep(const std::string& product, int choice, int proposals) {
  const std::string key = key_of(product, proposals);
  std::lock_guard lock(mutex_);
  if (!choices_.contains(key) && writes_ && !path_.empty()) {
    try {
      save(key, choice);
    } catch (const std::exception& e) {
      writes_ = false;
      report(fmt::format("{}; this process keeps its choices to itself",
                         e.what()));
    }
  }
  const int kept = choices_.emplace(key, choice).first->second;
  return kept < proposals ? kept : choice;
}

// Adds the file's choices for products for which this process has none.
void GemmChoices::load() {
  if (path_.empty()) return;
  try {
    if (!std::filesystem::exists(path_)) return;
    const std::string text = read_text_file(kWhere, path_);
    std::map<std::string, int> read;
    std::string_view rest = text;
    for (int number = 1; !rest.empty(); ++number) {
      const size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      const auto choice = number > 1 && end != std::string_view::npos
                              ? parse(line)
                              : std::nullopt;
      DT_CHECK(choice || (number == 1 && line == kHeader), kWhere,
               "line {} of {} is damaged or of another version, so products "
               "are measured again, and the file is replaced",
               number, path_);
      if (choice) read.insert(*choice);
      rest.remove_prefix(end + 1);
    }
    choices_.merge(read);
  } catch (const std::exception& e) {
    report(e.what());
  }
}

void GemmChoices::report(const std::string& text) {
  if (text != reported_) fmt::print(stderr, "{}\n", text);
  reported_ = text;
}

void GemmChoices::save(const std::string& key, int choice) {
  io::make_folders(folder_);
  const io::File locked = lock(folder_);
  load();
  choices_.emplace(key, choice);
  std::string text = fmt::format("{}\n", kHeader);
  for (const auto& [key, choice] : choices_) text += line_of(key, choice);
  write_text_file(kWhere, path_, text);
}

}  // namespace dtensor::kernels::cuda
