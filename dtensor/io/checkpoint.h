// Checkpoints of a run: named tensors of any meshes and layouts, and values.
//
//   save_checkpoint("run", 100, {{"w", w}}, {{"position", position}});
//   ...
//   if (const auto path = latest_checkpoint("run")) {
//     const CheckpointReader saved(*path);
//     w = saved.read("w", other_mesh, "S1,R");
//   }
//
// One is a folder, DIR/step-00000100, which is complete or not there: it is
// written as step-00000100.tmp, brought to the disk, and renamed. What was
// saved before stays as it is, whenever the program, or the machine, ends. It
// may be copied, moved and renamed. In it are "index", a text that tells what
// is where, and rank-00000.bin, ... with the bytes (checkpoint_index.h).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/io/checkpoint_value.h"
#include "dtensor/io/tensor_info.h"
#include "dtensor/named_tensor.h"

namespace dtensor {

struct CheckpointOptions {
  // Copies what this rank is to write, to the host, and returns: a thread of
  // the rank's own writes it. The checkpoint is there when all ranks have done
  // so; finish_saves(), the next save and the end of run() wait for that, and
  // throw what went wrong. Only when the run fails it is given up unless it is
  // about to be there.
  bool background = false;
  // How many checkpoints of DIR stay, this one among them: when it is there,
  // those of the smallest steps go. Those of later steps, and what is no
  // checkpoint, are not touched. 0: all stay.
  int64_t keep = 0;
};

// Saves as DIR/step-STEP; DIR is made when it is missing. Each rank writes, to
// a file of its own, a part of what it holds; what several hold is shared out
// among them, so that every element is written once, and all ranks write about
// as much. Nothing is sent but whether it went well.
//
// Collective over the run: all ranks give the same, also one that is in none of
// the meshes. Throws Error, on every rank alike, when a name occurs twice or a
// tensor is partial, when that step is saved already, when another job saves
// there, and, with the system's reason, when the disk says no; then nothing was
// saved, and nothing is left over. (Only when an older checkpoint cannot be
// removed is the new one there all the same.) Does nothing in a dry run.
void save_checkpoint(const std::string& dir, int64_t step,
                     const std::vector<NamedTensor>&, const CheckpointValues&,
                     const CheckpointOptions& = {});

// Keeps the checkpoints of DIR, which is made when it is missing, for this job:
// until the process of rank 0 ends, another job that saves there hears an
// Error. save_checkpoint() does so too; call it where a job begins, so that the
// second one is refused before it has worked for nothing. Collective over the
// run. Does nothing in a dry run.
void claim_checkpoints(const std::string& dir);

// Returns when what this run saves in the background is saved, and throws what
// went wrong. Collective over the run.
void finish_saves();

// The complete checkpoints in a folder, as paths, by step ascending; none where
// there is no such folder. Not in the list is what is called otherwise, and a
// folder without an index.
std::vector<std::string> list_checkpoints(const std::string& dir);
// The last of them.
std::optional<std::string> latest_checkpoint(const std::string& dir);
// What saves that were cut short have left in the folder. Nobody reads it. The
// next save of that step replaces it; else it is yours to remove.
std::vector<std::string> unfinished_checkpoints(const std::string& dir);

// What to read, and to where.
struct CheckpointRequest {
  std::string name;
  Mesh mesh;
  Placements placements;
};

class CheckpointReader {
 public:
  // Of one checkpoint: "run/step-00000100". Reads and checks the index, every
  // byte of it, and whether the files are there with the sizes it says. Throws
  // Error that says what is wrong. By any thread.
  explicit CheckpointReader(std::string path);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  const std::string& path() const { return path_; }
  int64_t step() const;
  std::vector<TensorInfo> tensors() const;
  const CheckpointValues& values() const;
  bool contains(std::string_view name) const;

  // The tensors on meshes of this run, in any layouts without partials, in new
  // memory. A rank reads the boxes that it needs some of, whole, since a
  // checksum is of a box (of 4 MiB, mostly), and sends nothing but whether it
  // went well. Collective over the run. Throws Error on every rank when a name
  // is not there, a layout is partial, a file cannot be read, or a checksum is
  // another: it names file, tensor, box and both checksums. In a dry run
  // nothing is read.
  std::vector<DistTensor> read(const std::vector<CheckpointRequest>&) const;
  DistTensor read(std::string_view name, const Mesh&, const Placements&) const;

 private:
  struct Contents;

  std::string path_;
  std::unique_ptr<const Contents> contents_;
};

}  // namespace dtensor
