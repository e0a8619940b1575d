// SPDX-License-Identifier: Apache-2.0
// The safetensors files of one model.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/io/safetensors.h"

namespace dtensor {

// Reads the tensors of a folder in the form of Hugging Face transformers:
// model.safetensors, or else the files that model.safetensors.index.json lists.
class SafetensorsFolder {
 public:
  // Whether the folder has model.safetensors or model.safetensors.index.json.
  static bool exists(const std::string& dir);
  // Opens the files and reads their headers. Throws Error if one is missing or
  // wrong, or if the index names a file outside the folder, or lists a tensor
  // that its file lacks.
  explicit SafetensorsFolder(const std::string& dir);

  // The path of model.safetensors, or of the index if that was read.
  const std::string& path() const { return path_; }
  // The tensors of all files, file by file, in the order of their data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // The tensor of that name; null if there is none.
  const TensorInfo* find(std::string_view name) const;
  // Like SafetensorsReader::read() and read_into().
  DistTensor read(std::string_view name, const Mesh&, const Placements&,
                  const SafetensorsWindow& = {}) const;
  void read_into(const DistTensor& to, std::string_view name,
                 const SafetensorsWindow& = {}) const;

 private:
  void open(const std::string& path);
  const SafetensorsReader& file_of(std::string_view name) const;

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::vector<TensorInfo> tensors_;
  // For each name, the numbers of its tensor and of its file.
  std::map<std::string, std::pair<size_t, size_t>, std::less<>> at_;
};

}  // namespace dtensor
