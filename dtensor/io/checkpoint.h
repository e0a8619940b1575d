// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: named tensors with any meshes and layouts, and values.
//
//   save_checkpoint("run", 100, {{"w", w}}, {{"position", position}});
//   ...
//   if (const auto path = latest_checkpoint("run")) {
//     const CheckpointReader saved(*path);
//     w = saved.read("w", other_mesh, "S1,R");
//   }
//
// A checkpoint is a folder, DIR/step-00000100, which is either complete or does
// not exist: it is written as step-00000100.tmp, flushed to disk, and renamed.
// Earlier checkpoints survive a crash of the program or the machine at any
// time. The folder may be copied, moved and renamed. It has a JSON file,
// index.json, that describes the contents, and the data in
// rank-00000.safetensors, ... (checkpoint_index.h); tools/read_checkpoint.py
// reads both without this library. Checkpoints of earlier versions, with an
// "index" and rank-00000.bin, can be read, too.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/io/stored.h"

namespace dtensor {

struct CheckpointOptions {
  // Whether save_checkpoint() returns once it has copied this rank's data to
  // the host. A thread of the rank then writes the data. When all ranks have
  // written, rank 0 completes the checkpoint. finish_saves(), the next save and
  // the end of run() wait for that and throw the errors of the save. If the run
  // fails, the save is given up unless all ranks complete their files shortly
  // afterwards.
  bool background = false;
  // How many checkpoints of steps up to this one to keep in DIR, including this
  // one. After the save, the ones with the smallest steps are removed.
  // Checkpoints of later steps and other files stay. 0 keeps all.
  int64_t keep = 0;
};

// Saves DIR/step-STEP; makes DIR if it is missing. Each rank that has elements
// to write makes a file of its own. Elements that several ranks hold are
// divided among them, so that each element is written once and all ranks write
// about the same amount. The ranks exchange only their success or failure.
//
// Collective over all ranks of the run, also those outside the meshes; all pass
// the same arguments. Throws Error, the same on every rank, if a name occurs
// twice, if a tensor is partial, if that step has been saved already, if
// another job saves to DIR, or if a system call fails. Then nothing has been
// saved, and the files are removed again if possible. (If only the removal of
// an older checkpoint fails, the new one exists nevertheless.) In a dry run,
// only checks the arguments.
void save_checkpoint(const std::string& dir, int64_t step,
                     const std::vector<NamedTensor>&, const CheckpointValues&,
                     const CheckpointOptions& = {});

// Claims DIR for the checkpoints of this job, until the process of rank 0 ends;
// makes DIR if it is missing. Another job that claims DIR gets an Error.
// save_checkpoint() claims DIR, too. Call this when a job begins, so that a
// second job fails before it has computed anything. Collective over all ranks
// of the run. Throws Error if another job has claimed DIR, which cannot be
// detected on a file system without locks. Does nothing in a dry run.
void claim_checkpoints(const std::string& dir);

// If a background save of this run is unfinished, waits for it, and throws its
// error if it fails. Collective over all ranks of the run.
void finish_saves();

// The paths of the complete checkpoints in a folder, by ascending step; empty
// if the folder does not exist. Ignores names other than step-STEP, and folders
// without an index.
std::vector<std::string> list_checkpoints(const std::string& dir);
// The last path of list_checkpoints(), or nullopt if that is empty.
std::optional<std::string> latest_checkpoint(const std::string& dir);
// The paths of incomplete checkpoints: a save or removal of each was cut short
// or is still running. You may remove those that were cut short. A save of the
// same step replaces an incomplete checkpoint whose path ends in ".tmp".
std::vector<std::string> unfinished_checkpoints(const std::string& dir);

// A tensor to read, and the mesh and layout for it.
struct CheckpointRequest {
  std::string name;
  Mesh mesh;
  Placements placements;
};

class CheckpointReader {
 public:
  // Opens one checkpoint, "run/step-00000100". Verifies every byte of the
  // index and of the files' headers, and that all files exist with the right
  // size. Throws Error if something is wrong. Any thread may call it.
  explicit CheckpointReader(std::string path);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  const std::string& path() const { return path_; }
  int64_t step() const;
  std::vector<TensorInfo> tensors() const;
  const CheckpointValues& values() const;
  bool contains(std::string_view name) const;

  // Reads tensors into new memory, on meshes of this run and in any layouts
  // without partial axes. The files hold tensors in boxes, usually of up to 4
  // MiB, with one checksum each. A rank that needs any element of a box reads
  // the whole box. The ranks exchange only their success or failure. Collective
  // over all ranks of the run. Throws Error on every rank if a name does not
  // exist, a layout is partial, a file cannot be read, or a checksum is wrong
  // (then the Error names the file, tensor, box and both checksums). Reads
  // nothing in a dry run.
  std::vector<DistTensor> read(const std::vector<CheckpointRequest>&) const;
  DistTensor read(std::string_view name, const Mesh&, const Placements&) const;

 private:
  struct Contents;

  std::string path_;
  std::unique_ptr<const Contents> contents_;
};

}  // namespace dtensor
