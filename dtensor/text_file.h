// SPDX-License-Identifier: Apache-2.0
// Reads and writes whole text files.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace dtensor {

// Returns the path of the file that the user of the program means by `path`.
// (`bazel run` starts programs in a folder of its own. The user's folder is in
// BUILD_WORKING_DIRECTORY.)
std::string caller_path(const std::string& path);

// Throws Error if `where` is a flag ("--svg") and this process answers a
// question of a playground (program/explore/playground.h): its users may not
// choose files. All functions below that have a parameter `where` call this.
void check_may_use_files(std::string_view where);

// Returns the content of the file at caller_path(path). Throws an Error that
// begins with `where` if the file cannot be read.
std::string read_text_file(std::string_view where, const std::string& path);

// Writes a temporary file beside `path`, to which caller_path() is not applied.
// commit() renames it to `path`, so that a full disk does not destroy the old
// content. If `path` exists but is not a regular file (a pipe, a terminal, or a
// link to one), writes to it directly. Any other link at `path` is replaced,
// not followed. Throws an Error that begins with `where` if `path` is a folder
// or a system call fails.
class TextWriter {
 public:
  TextWriter(std::string_view where, const std::string& path);
  // Removes the temporary file unless commit() returned.
  ~TextWriter();
  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;

  // Appends the text.
  void put(std::string_view text);
  // Completes the file at `path`. Nothing may be appended afterwards.
  void commit();

 private:
  [[noreturn]] void refused(int error) const;

  const std::string where_, path_;
  std::string part_;  // the temporary file; empty if `path` is written directly
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// Throws Error if the file at caller_path(path) cannot be written. Changes
// nothing. A program calls it before its work, so that the user learns of the
// problem then, and not after the work.
void check_writable(std::string_view where, const std::string& path);

// Replaces the file at caller_path(path) as TextWriter does.
void write_text_file(std::string_view where, const std::string& path,
                     std::string_view text);

}  // namespace dtensor
