#include "dtensor/runtime/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

}  // namespace

std::string caller_path(const std::string& path) {
  const char* caller = std::getenv("BUILD_WORKING_DIRECTORY");
  if (!caller || path.empty() || path[0] == '/') return path;
  return (std::filesystem::path(caller) / path).string();
}

std::string read_text_file(std::string_view where, const std::string& path) {
  File file(std::fopen(caller_path(path).c_str(), "rb"), std::fclose);
  DT_CHECK(file != nullptr, where,
           "cannot read {}: {}; name a file that exists", path,
           std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> chunk;
  while (size_t n = std::fread(chunk.data(), 1, chunk.size(), file.get()))
    text.append(chunk.data(), n);
  DT_CHECK(!std::ferror(file.get()), where, "cannot read {}: {}; name a file",
           path, std::strerror(errno));
  return text;
}

void check_writable(std::string_view where, const std::string& path) {
  const std::string file = caller_path(path);
  const bool existed = access(file.c_str(), F_OK) == 0;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT, 0666);
  DT_CHECK(fd >= 0, where, "cannot write {}: {}; name another file", path,
           std::strerror(errno));
  close(fd);
  if (!existed) unlink(file.c_str());
}

void write_text_file(std::string_view where, const std::string& path,
                     std::string_view text) {
  File file(std::fopen(caller_path(path).c_str(), "wb"), std::fclose);
  DT_CHECK(file != nullptr, where, "cannot write {}: {}; name another file",
           path, std::strerror(errno));
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  DT_CHECK(std::fclose(file.release()) == 0 && written, where,
           "cannot write {}: {}", path, std::strerror(errno));
}

}  // namespace dtensor
