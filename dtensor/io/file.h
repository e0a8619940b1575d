// Files and folders by the system's own calls, each of which may fail: an Error
// then names the file, the byte and the system's reason. Not for users.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace dtensor::io {

// An open file, closed with the object.
class File {
 public:
  // Makes it; it must not be there. `mode`: who may read and write it, as
  // open(2) takes it.
  static File create(std::string path, unsigned mode = 0666);
  // Of a regular file; a pipe, say, is refused, and not waited for.
  static File open(std::string path);
  // Nothing if another process, or another File, holds the folder's lock. It is
  // held until the File is destroyed or its process ends. (Where the file
  // system has no locks, everybody gets it.)
  static std::optional<File> lock_folder(std::string path);
  ~File();
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;

  const std::string& path() const { return path_; }
  int64_t size() const;
  // Is this what the path names? Not after it was removed, or another put
  // there.
  bool is_at(const std::string& path) const;
  void write(const void*, int64_t bytes, int64_t at) const;
  void read(void*, int64_t bytes, int64_t at) const;
  // The system may begin to bring these bytes to the disk.
  void begin_sync(int64_t at, int64_t bytes) const;
  // Returns when the disk has what was written.
  void sync() const;
  // The system may fetch these bytes ahead.
  void will_need(int64_t at, int64_t bytes) const;

 private:
  File(std::string path, int file) : path_(std::move(path)), file_(file) {}
  std::string path_;
  int file_;
};

// Makes the folder and those above it, on the disk when it returns.
void make_folders(const std::string& path);
void make_folder(const std::string& path);
// Returns when the disk has the names in the folder. (Some file systems cannot
// say: they are taken to have them.)
void sync_folder(const std::string& path);
void rename_file(const std::string& from, const std::string& to);
void remove_file(const std::string& path);
// With all that is in it; nothing when it is not there.
void remove_folder(const std::string& path);

}  // namespace dtensor::io
