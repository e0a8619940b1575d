// Whole files of text, as flags name them.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace dtensor {

// `path` as the caller means it: `bazel run` starts programs elsewhere, and
// says in BUILD_WORKING_DIRECTORY where the caller is.
std::string caller_path(const std::string& path);

// Throws Error, headed by `where`, when it cannot be read.
std::string read_text_file(std::string_view where, const std::string& path);

// A file under a name of its own beside `path`, which takes the place of `path`
// when it is whole: what was there before is not lost to a full disk. A link at
// `path` is replaced, not followed. Only what is no regular file (a pipe, a
// terminal) is written to directly. Throws Error, headed by `where`, when the
// system says no.
class TextWriter {
 public:
  TextWriter(std::string_view where, const std::string& path);
  // Leaves nothing over unless commit() returned.
  ~TextWriter();
  TextWriter(const TextWriter&) = delete;
  TextWriter& operator=(const TextWriter&) = delete;

  void put(std::string_view text);
  void commit();

 private:
  [[noreturn]] void refused(int error) const;

  const std::string where_, path_;
  std::string part_;  // empty where `path` is written to directly
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// Throws Error when the file could not be written. Changes nothing: a user
// hears of it before the work, not after.
void check_writable(std::string_view where, const std::string& path);

// Replaces the file, as TextWriter does.
void write_text_file(std::string_view where, const std::string& path,
                     std::string_view text);

}  // namespace dtensor
