// SPDX-License-Identifier: Apache-2.0
// The Error of a job's processes that cannot meet, and the file in which the
// first process says where the others find it, for processes that share only a
// file system (--rendezvous PATH).
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "dtensor/placement/error.h"

namespace dtensor {

// Thrown if the processes cannot connect. All processes that were told the
// reason throw the same text.
class NotMet : public Error {
 public:
  // `heard` says whether the first process knows the reason, too.
  NotMet(const std::string& text, bool heard) : Error(text), first_(heard) {}
  // Whether the first process throws this text as well.
  bool first_says_it() const { return first_; }

 private:
  bool first_;
};

// The file exists while the first process waits for the others. A file left by
// an earlier run that failed does no harm: the others read it again until it
// leads them to their own job. Two jobs at the same time need two paths.
class RendezvousFile {
 public:
  // Throws Error if the file's folder does not exist, or if the path names
  // something other than a regular file.
  explicit RendezvousFile(std::string path);
  // Removes the file, if this object wrote it.
  ~RendezvousFile();
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

  // Replaces the file. Readers never see a part of it, and other users cannot
  // read it: a process that knows the text may join the job.
  void write(std::string_view text);
  // Returns nothing if there is no file, or it cannot be opened. Throws Error
  // if it is not a regular file.
  std::optional<std::string> read() const;

 private:
  const std::string path_;
  bool written_ = false;
};

}  // namespace dtensor
