// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/rendezvous.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "dtensor/io/file.h"
#include "dtensor/placement/error.h"

namespace dtensor {

RendezvousFile::RendezvousFile(std::string path) : path_(std::move(path)) {
  std::error_code ignored;
  const auto folder = std::filesystem::absolute(path_, ignored).parent_path();
  DT_CHECK(std::filesystem::is_directory(folder, ignored), "rendezvous",
           "the folder of {} does not exist; name another file in --rendezvous",
           path_);
  read();
}

RendezvousFile::~RendezvousFile() {
  std::error_code ignored;
  if (written_) std::filesystem::remove(path_, ignored);
}

void RendezvousFile::write(std::string_view text) {
  const std::string part = fmt::format("{}.{}.part", path_, getpid());
  io::remove_file(part);
  {
    const io::File file = io::File::create(part, 0600);
    file.write(text.data(), static_cast<int64_t>(text.size()), 0);
  }
  io::rename_file(part, path_);
  written_ = true;
}

std::optional<std::string> RendezvousFile::read() const {
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (!std::filesystem::exists(status)) return {};
  DT_CHECK(std::filesystem::is_regular_file(status), "rendezvous",
           "{} is not a regular file; name a path where nothing exists", path_);
  std::ifstream in(path_, std::ios::binary);
  if (!in) return {};
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace dtensor
