// Whole files of text, as flags name them.
#pragma once
#include <string>
#include <string_view>

namespace dtensor {

// `path` as the caller means it: `bazel run` starts programs elsewhere, and
// says in BUILD_WORKING_DIRECTORY where the caller is.
std::string caller_path(const std::string& path);

// Throws Error, headed by `where`, when it cannot be read.
std::string read_text_file(std::string_view where, const std::string& path);

// Throws Error when the file could not be written. Changes nothing: a user
// hears of it before the work, not after.
void check_writable(std::string_view where, const std::string& path);

// Replaces the file. Throws Error when it cannot be written.
void write_text_file(std::string_view where, const std::string& path,
                     std::string_view text);

}  // namespace dtensor
