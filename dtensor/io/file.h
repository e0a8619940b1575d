// SPDX-License-Identifier: Apache-2.0
// Files and folders, through system calls. If a call fails, the functions throw
// an Error with the path and the system's reason, and, if they read or write,
// the byte. The hints and is_at() do not throw. Not for users.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace dtensor::io {

// An open file or a locked folder, which the destructor closes or unlocks.
class File {
 public:
  // Creates the file, which must not exist. `mode` is the permissions, as for
  // open(2).
  static File create(std::string path, unsigned mode = 0666);
  // Opens a regular file for reading. Throws Error for anything else, such as a
  // pipe, without waiting.
  static File open(std::string path);
  // Opens a file for writing, but does not follow a link.
  static File open_to_write(std::string path);
  // Locks the folder. Returns nullopt if another process, or another File,
  // holds the lock. The lock is held until the File is destroyed or the process
  // ends. (On a file system without locks, every call succeeds.)
  static std::optional<File> lock_folder(std::string path);
  ~File();
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;

  const std::string& path() const { return path_; }
  int64_t size() const;
  // Whether `path` names this very file or folder: false if the file has been
  // removed or replaced.
  bool is_at(const std::string& path) const;
  // Gives the file this size and its space on the disk, so that a full disk is
  // found before anything is written.
  void reserve(int64_t bytes) const;
  void write(const void*, int64_t bytes, int64_t at) const;
  void read(void*, int64_t bytes, int64_t at) const;
  // Hints that the system may begin to flush these bytes to disk.
  void begin_sync(int64_t at, int64_t bytes) const;
  // Returns when everything written is on disk.
  void sync() const;
  // Hints that the system may read these bytes ahead.
  void will_need(int64_t at, int64_t bytes) const;

 private:
  File(std::string path, int file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  int file_;
};

// Makes the folder and its parents unless they exist, and flushes new ones to
// disk.
void make_folders(const std::string& path);
// Makes the folder, which must not exist, without flushing it.
void make_folder(const std::string& path);
// Flushes the names of the files in the folder to disk, and returns when they
// are there. (Returns at once on file systems that do not support this.)
void sync_folder(const std::string& path);
void rename_file(const std::string& from, const std::string& to);
// Does nothing if the file does not exist: another process may have removed it.
void remove_file(const std::string& path);
// Removes the folder and its contents; does nothing if it does not exist.
void remove_folder(const std::string& path);

}  // namespace dtensor::io
