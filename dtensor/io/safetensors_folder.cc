// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/safetensors_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dtensor/io/safetensors_boxes.h"
#include "dtensor/placement/error.h"

namespace dtensor {

bool SafetensorsFolder::exists(const std::string& dir) {
  std::error_code ignored;
  const std::string file = dir + "/model.safetensors";
  return std::filesystem::exists(file, ignored) ||
         std::filesystem::exists(file + ".index.json", ignored);
}

SafetensorsFolder::SafetensorsFolder(const std::string& dir)
    : path_(dir + "/model.safetensors") {
  std::error_code ignored;
  const std::string index = path_ + ".index.json";
  if (std::filesystem::exists(path_, ignored) ||
      !std::filesystem::exists(index, ignored)) {
    open(path_);
    return;
  }
  path_ = index;
  std::ifstream file(index, std::ios::binary);
  DT_CHECK(file, "safetensors",
           "{} cannot be opened: {}; name a folder whose files you may read",
           index, std::strerror(errno));
  const auto json = nlohmann::json::parse(file, nullptr, false);
  const auto bad = [&](std::string_view why) {
    fail("safetensors", "{} {}", index, why);
  };
  if (!json.is_object() || !json.contains("weight_map") ||
      !json["weight_map"].is_object())
    bad("is not a JSON object with an object \"weight_map\"; download or save "
        "the files again");
  std::map<std::string, size_t> files;
  for (const auto& [name, value] : json["weight_map"].items()) {
    const std::string in = value.is_string() ? value.get<std::string>() : "";
    if (in.empty() || in.find('/') != in.npos)
      bad(fmt::format(
          "puts {} into {}; write the name of a file in the same "
          "folder",
          safetensors::shown(name), value.dump(-1, ' ', true).substr(0, 80)));
    if (files.emplace(in, files_.size()).second) open(dir + "/" + in);
    const auto found = at_.find(name);
    if (found == at_.end() || found->second.second != files[in])
      bad(
          fmt::format("has {} in {}, but that file does not have it; download "
                      "or save the files again",
                      safetensors::shown(name), in));
  }
}

void SafetensorsFolder::open(const std::string& path) {
  files_.push_back(std::make_unique<SafetensorsReader>(path));
  for (const TensorInfo& t : files_.back()->tensors()) {
    const bool fresh =
        at_.emplace(t.name, std::pair(tensors_.size(), files_.size() - 1))
            .second;
    DT_CHECK(fresh, "safetensors",
             "{} is in two files of {}, the second of which is {}; remove it "
             "from one of them",
             safetensors::shown(t.name), path_, path);
    tensors_.push_back(t);
  }
}

const TensorInfo* SafetensorsFolder::find(std::string_view name) const {
  const auto found = at_.find(name);
  return found == at_.end() ? nullptr : &tensors_[found->second.first];
}

const SafetensorsReader& SafetensorsFolder::file_of(
    std::string_view name) const {
  const auto found = at_.find(name);
  DT_CHECK(found != at_.end(), "safetensors",
           "{} has no tensor {}; tensors() lists those that it has", path_,
           name);
  return *files_[found->second.second];
}

DistTensor SafetensorsFolder::read(std::string_view name, const Mesh& mesh,
                                   const Placements& placements,
                                   const SafetensorsWindow& window) const {
  return file_of(name).read(name, mesh, placements, window);
}

void SafetensorsFolder::read_into(const DistTensor& to, std::string_view name,
                                  const SafetensorsWindow& window) const {
  file_of(name).read_into(to, name, window);
}

}  // namespace dtensor
