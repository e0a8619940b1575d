// SPDX-License-Identifier: Apache-2.0
// The ways in which ranks communicate: how ranks of several processes reach
// each other (ProcessBackend), and what moves the data of their tensors
// (DataBackend). Each is a row of a table in backend.cc: programs take the
// choices of --backend, their help and errors, and the variables of launchers
// from there.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/job.h"

namespace dtensor {

struct ProcessBackend {
  std::string_view name;      // the choice of --backend: "mpi"
  std::string_view launched;  // for --help, after "as processes": "of mpirun"
  // If the program is built without this backend: the library that it lacks and
  // how to get that, "MPI; build it where MPI is installed".
  std::string_view lacks = {};

  // Whether the environment says that a launcher started this process as one of
  // several. If only some of the variables of a row are set, it may throw an
  // Error that names the missing ones.
  bool (*started)();
  // Called if started() is false: whether a launcher started this process, as
  // the only one. Null if launchers do not say.
  bool (*alone)() = nullptr;
  // This process's number if it is one of several, else -1.
  int64_t (*process)();
  // The names of two environment variables: the index of this process among the
  // job's processes on its machine, and their count.
  struct Local {
    const char *index, *count;
  };
  std::span<const Local> local;

  // Whether the processes may meet through a file (--rendezvous).
  bool meets_by_file = false;
  // Returns the job. The first call connects the processes and compares the
  // facts of all; they disconnect at the end of the program. `file` is that of
  // --rendezvous, or "". Throws an Error that says why they cannot connect, or
  // which facts differ.
  ProcessJob& (*job)(const std::string& file, const JobFacts&);
};

std::span<const ProcessBackend> process_backends();
// Returns the row with this name. Null if there is none, as for "threads".
const ProcessBackend* process_backend(std::string_view name);
// Returns the names of all rows, with `between` between them: "mpi or tcp".
std::string backend_names(std::string_view between);

struct DataBackend {
  std::string_view name;  // the choice of --backend: "nccl"
  // If all ranks have to compute on GPUs: what connects these, "NCCL". The
  // ranks are then threads of one process, or of those that a ProcessBackend
  // connects.
  std::string_view between_gpus = {};
  bool one_rank_per_gpu = false;
  // Makes the backend of a run. The job is null if all ranks are threads of
  // this process; else it outlives the backend. Throws Error if the backend
  // cannot be used here.
  std::shared_ptr<Backend> (*make)(int64_t world, int64_t ranks_per_process,
                                   ProcessJob*);
};

std::span<const DataBackend> data_backends();
// Returns the row with this name, or the row "threads" for the name of a
// ProcessBackend. Null if there is neither.
const DataBackend* data_backend(std::string_view name);
// Returns the row for GPUs of several processes, which "threads" does not
// connect.
const DataBackend& gpu_backend();

}  // namespace dtensor
