// SPDX-License-Identifier: Apache-2.0
#include "dtensor/text_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

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

void check_may_use_files(std::string_view where) {
  DT_CHECK(!where.starts_with("--") || !std::getenv("DTENSOR_NO_FILES"), where,
           "a program that this page starts cannot use files; leave the flag "
           "out, or run the program itself");
}

std::string read_text_file(std::string_view where, const std::string& path) {
  check_may_use_files(where);
  File file(std::fopen(caller_path(path).c_str(), "rb"), std::fclose);
  DT_CHECK(file != nullptr, where,
           "cannot read {}: {}; name a file that exists and that you may read",
           path, std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> chunk;
  while (size_t n = std::fread(chunk.data(), 1, chunk.size(), file.get()))
    text.append(chunk.data(), n);
  DT_CHECK(!std::ferror(file.get()), where,
           "cannot read {}: {}; name a regular file", path,
           std::strerror(errno));
  return text;
}

TextWriter::TextWriter(std::string_view where, const std::string& path)
    : where_(where), path_(path), file_(nullptr, std::fclose) {
  check_may_use_files(where);
  struct stat there;
  const bool exists = stat(path_.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) refused(EISDIR);
  if (exists && access(path_.c_str(), W_OK) != 0) refused(errno);
  if (exists && !S_ISREG(there.st_mode)) return;
  const std::string part = fmt::format("{}.{}.part", path_, getpid());
  unlink(part.c_str());  // left by an earlier process with the same id
  file_.reset(std::fopen(part.c_str(), "wbxe"));  // x: new; e: close on exec
  if (!file_) refused(errno);
  part_ = part;
}

TextWriter::~TextWriter() {
  if (!part_.empty()) unlink(part_.c_str());
}

void TextWriter::put(std::string_view text) {
  if (!file_) file_.reset(std::fopen(path_.c_str(), "wb"));
  if (!file_ ||
      std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size())
    refused(errno);
}

void TextWriter::commit() {
  put("");
  if (std::fclose(file_.release()) != 0) refused(errno);
  if (part_.empty()) return;
  if (std::rename(part_.c_str(), path_.c_str()) != 0) refused(errno);
  part_.clear();
}

void TextWriter::refused(int error) const {
  fail(where_, "cannot write {}: {}; {}", path_, std::strerror(error),
       error == ENOSPC || error == EDQUOT
           ? "free some space, or name a file on another disk"
           : "name another file");
}

void check_writable(std::string_view where, const std::string& path) {
  TextWriter(where, caller_path(path));
}

void write_text_file(std::string_view where, const std::string& path,
                     std::string_view text) {
  TextWriter file(where, caller_path(path));
  file.put(text);
  file.commit();
}

}  // namespace dtensor
