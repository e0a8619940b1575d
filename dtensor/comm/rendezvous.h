// SPDX-License-Identifier: Apache-2.0
// How processes of a job that cannot meet report it; and the file through which
// the first one says where the others find it, if they share only a file system
// (--rendezvous PATH).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "dtensor/placement/error.h"

namespace dtensor {

// Thrown if the processes cannot connect: the same text in all processes that
// were told it.
class NotMet : public Error {
 public:
  NotMet(const std::string& text, bool heard) : Error(text), first_(heard) {}
  // Whether the first process also reports it.
  bool first_says_it() const { return first_; }

 private:
  bool first_;
};

// The file exists while the first process waits for the others. A file left by
// an earlier run that failed does no harm: the others read it again until it
// leads them to their own job. Two jobs at the same time need two paths.
class RendezvousFile {
 public:
  // Throws Error if the folder does not exist, or if there is something else
  // than a regular file at the path.
  explicit RendezvousFile(std::string path);
  // Removes the file, if this object wrote it.
  ~RendezvousFile();
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

  // Replaces the file. Readers never see a part of it, and other users cannot
  // read it: a process that knows the text may join the job.
  void write(std::string_view text);
  // Returns nothing if there is no file.
  std::optional<std::string> read() const;

 private:
  const std::string path_;
  bool written_ = false;
};

}  // namespace dtensor
