// SPDX-License-Identifier: Apache-2.0
// Remembers which of cuBLASLt's proposals was the fastest for a product: for
// the threads of this process, and in a file for other processes and later
// runs. It does not need CUDA.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace dtensor::kernels::cuda {

// Any thread may call its functions, and any number of processes may use a
// folder at once. A file that is damaged, or cannot be read or written, is
// reported on standard error. The choices in a damaged file are forgotten.
// Choices that cannot be written are known to this process only.
class GemmChoices {
 public:
  // If `folder` is "", no file is kept. The folder is made when the first
  // choice is kept.
  explicit GemmChoices(std::string folder);
  // $XDG_CACHE_HOME/dtensor, or else $HOME/.cache/dtensor; "" if neither
  // variable is an absolute path.
  static std::string users_folder();

  // The choice kept for a product, in [0, proposals), if any. `product` names,
  // in one line, everything that the proposals and their speeds depend on.
  std::optional<int> find(const std::string& product, int proposals);
  // Keeps the choice unless another thread or process was first. Returns the
  // one that is kept.
  int keep(const std::string& product, int choice, int proposals);

 private:
  void load();
  void save(const std::string& key, int choice);
  void report(const std::string& text);

  const std::string folder_, path_;
  std::mutex mutex_;
  std::map<std::string, int> choices_;
  bool writes_ = true;
  std::string reported_;  // the last report; it is not repeated
};

}  // namespace dtensor::kernels::cuda
