// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/checkpoint_folders.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "dtensor/io/checkpoint.h"
#include "dtensor/io/checkpoint_index.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

namespace fs = std::filesystem;

// Whether the name is "step-" and 8 digits or more.
bool is_step(const std::string& name) {
  const std::string prefix = "step-";
  return name.size() >= prefix.size() + 8 && name.starts_with(prefix) &&
         std::all_of(name.begin() + std::ssize(prefix), name.end(),
                     [](unsigned char c) { return std::isdigit(c); });
}

// Returns the paths of the files and folders in `dir` for which wanted(name) is
// true, shorter names first: by ascending step, if all names end alike.
template <class Wanted>
std::vector<std::string> those(const std::string& dir, const Wanted& wanted) {
  std::vector<std::string> names;
  std::error_code e;
  for (fs::directory_iterator i(dir, e), end; !e && i != end; i.increment(e))
    if (const std::string name = i->path().filename().string(); wanted(name))
      names.push_back(name);
  DT_CHECK(!e || e == std::errc::no_such_file_or_directory, "checkpoint",
           "{} cannot be listed: {}; name a folder that you may read", dir,
           e.message());
  // A name with more digits is that of a later step.
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) {
              return a.size() != b.size() ? a.size() < b.size() : a < b;
            });
  for (std::string& name : names) name = (fs::path(dir) / name).string();
  return names;
}

bool has_index(const std::string& path) {
  std::error_code e;
  return fs::exists(fs::path(path) / checkpoint::kIndexName, e) ||
         fs::exists(fs::path(path) / checkpoint::kIndexNameOfVersion1, e);
}

}  // namespace

namespace checkpoint {

std::string folder(const std::string& dir, int64_t step) {
  return (fs::path(dir) / fmt::format("step-{:08}", step)).string();
}

}  // namespace checkpoint

std::vector<std::string> list_checkpoints(const std::string& dir) {
  return those(dir, [&](const std::string& name) {
    return is_step(name) && has_index((fs::path(dir) / name).string());
  });
}

std::optional<std::string> latest_checkpoint(const std::string& dir) {
  std::vector<std::string> all = list_checkpoints(dir);
  if (all.empty()) return {};
  return std::move(all.back());
}

std::vector<std::string> unfinished_checkpoints(const std::string& dir) {
  const std::string end = checkpoint::kUnfinished;
  return those(dir, [&](const std::string& name) {
    if (name.ends_with(end))
      return is_step(name.substr(0, name.size() - end.size()));
    return is_step(name) && !has_index((fs::path(dir) / name).string());
  });
}

}  // namespace dtensor
