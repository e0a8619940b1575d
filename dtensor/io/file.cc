// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor::io {
namespace {

[[noreturn]] void refused(const std::string& path, std::string_view what,
                          int error) {
  fail(
      "file",
      "{} cannot be {}: {}; check the path, its permissions and the free space",
      path.empty() ? "\"\"" : path, what, std::strerror(error));
}

std::string folder_above(const std::string& path) {
  const std::string above = std::filesystem::path(path).parent_path().string();
  return above.empty() ? "." : above;
}

}  // namespace

File File::create(std::string path, unsigned mode) {
  const int f =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (f < 0) refused(path, "created", errno);
  return File(std::move(path), f);
}

File File::open(std::string path) {
  // O_NONBLOCK: opening a pipe would otherwise wait for a writer.
  const int f = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (f < 0) refused(path, "opened", errno);
  File file(std::move(path), f);
  file.size();  // throws unless the file is regular
  return file;
}

File File::open_to_write(std::string path) {
  const int f = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (f < 0) refused(path, "opened", errno);
  return File(std::move(path), f);
}

std::optional<File> File::lock_folder(std::string path) {
  const int f = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f < 0) refused(path, "opened", errno);
  File folder(std::move(path), f);
  if (::flock(f, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
  return folder;
}

File::~File() {
  if (file_ >= 0) ::close(file_);
}

File::File(File&& o) noexcept
    : path_(std::move(o.path_)), file_(std::exchange(o.file_, -1)) {}

File& File::operator=(File&& o) noexcept {
  std::swap(path_, o.path_);
  std::swap(file_, o.file_);
  return *this;
}

int64_t File::size() const {
  struct stat s;
  if (::fstat(file_, &s) != 0) refused(path_, "measured", errno);
  if (S_ISDIR(s.st_mode)) refused(path_, "read as a file", EISDIR);
  DT_CHECK(S_ISREG(s.st_mode), "file", "{} is {}; name a regular file", path_,
           S_ISFIFO(s.st_mode) ? "a pipe" : "a device");
  return s.st_size;
}

bool File::is_at(const std::string& path) const {
  struct stat open, named;
  return ::fstat(file_, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

void File::reserve(int64_t bytes) const {
  if (const int error = ::posix_fallocate(file_, 0, bytes))
    refused(path_, "given its size", error);
}

void File::write(const void* from, int64_t bytes, int64_t at) const {
  const char* p = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(file_, p, static_cast<size_t>(bytes), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      refused(path_, fmt::format("written at byte {}", at),
              n == 0 ? ENOSPC : errno);
    p += n, at += n, bytes -= n;
  }
}

void File::read(void* to, int64_t bytes, int64_t at) const {
  char* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(file_, p, static_cast<size_t>(bytes), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) refused(path_, fmt::format("read at byte {}", at), errno);
    DT_CHECK(n > 0, "file",
             "{} cannot be read at byte {}, because the file ends there; copy "
             "or save it again",
             path_, at);
    p += n, at += n, bytes -= n;
  }
}

void File::begin_sync(int64_t at, int64_t bytes) const {
  (void)::sync_file_range(file_, at, bytes, SYNC_FILE_RANGE_WRITE);
}

void File::sync() const {
  if (::fsync(file_) != 0) refused(path_, "flushed to disk", errno);
}

void File::will_need(int64_t at, int64_t bytes) const {
  (void)::posix_fadvise(file_, at, bytes, POSIX_FADV_WILLNEED);
}

void make_folders(const std::string& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) == 0) {
    if (!S_ISDIR(s.st_mode)) refused(path, "used as a folder", ENOTDIR);
    return;
  }
  const std::string above = folder_above(path);
  if (above != path) make_folders(above);
  make_folder(path);
  sync_folder(above);
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0) refused(path, "created", errno);
}

void sync_folder(const std::string& path) {
  const int f = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f < 0) refused(path, "opened", errno);
  const int error = ::fsync(f) == 0 ? 0 : errno;
  ::close(f);
  if (error != 0 && error != EINVAL && error != ENOTSUP)
    refused(path, "flushed to disk", error);
}

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    refused(from, "renamed to " + to, errno);
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    refused(path, "removed", errno);
}

void remove_folder(const std::string& path) {
  std::error_code e;
  std::filesystem::remove_all(path, e);
  if (e) refused(path, "removed", e.value());
}

}  // namespace dtensor::io
