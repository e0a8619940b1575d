// SPDX-License-Identifier: Apache-2.0
// Reads and writes whole text files, with paths as given to flags.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace dtensor {

// `path` relative to the caller's folder: `bazel run` starts programs in
// another folder, and sets BUILD_WORKING_DIRECTORY to the caller's.
std::string caller_path(const std::string& path);

// Throws Error if `where` is a flag ("--svg"), and this process answers a
// question of a playground (explore/playground.h), which may not choose files.
// All functions below call it.
void check_may_use_files(std::string_view where);

// Returns the content of the file at caller_path(path). Throws Error, headed by
// `where`, if it cannot be read.
std::string read_text_file(std::string_view where, const std::string& path);

// Writes a temporary file beside `path`, which replaces `path` when it is
// complete, so that a full disk does not destroy the old content. A link at
// `path` is replaced, not followed. If `path` is not a regular file (a pipe, a
// terminal), writes to it directly. Throws Error, headed by `where`, if a
// system call fails.
class TextWriter {
 public:
  TextWriter(std::string_view where, const std::string& path);
  // Removes the temporary file unless commit() returned.
  ~TextWriter();
  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;

  // Appends the text.
  void put(std::string_view text);
  // Gives the file its name. Nothing may be added afterwards.
  void commit();

 private:
  [[noreturn]] void refused(int error) const;

  const std::string where_, path_;
  std::string part_;  // the temporary file; empty if `path` is written directly
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// Throws Error if the file cannot be written. Changes nothing; lets a program
// report the problem before its work rather than after.
void check_writable(std::string_view where, const std::string& path);

// Replaces the file, like TextWriter.
void write_text_file(std::string_view where, const std::string& path,
                     std::string_view text);

}  // namespace dtensor
