// SPDX-License-Identifier: Apache-2.0
// The ways in which ranks of several processes reach each other. Each is a row
// of the table in backend.cc: programs take the choices of --backend, their
// help and errors, and the variables of launchers from there.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dtensor/comm/job.h"

namespace dtensor {

struct ProcessBackend {
  std::string_view name;      // of --backend
  std::string_view launched;  // for --help: "of mpirun"
  // If the program is built without it: the library and how to get it, "MPI;
  // build it where MPI is installed".
  std::string_view lacks = {};

  // These read the environment. started(): a launcher started this process as
  // one of several; throws the Error that names what is missing if only some
  // variables are set. alone(): as the only one; null if launchers do not say.
  // process(): this process's number if it is one of several, else -1.
  bool (*started)();
  bool (*alone)() = nullptr;
  int64_t (*process)();
  // The variables that say which of the job's processes on its machine a
  // process is, and how many these are.
  struct Local {
    const char *index, *count;
  };
  std::span<const Local> local;

  // Whether the processes may meet through a file (--rendezvous).
  bool meets_by_file = false;
  // The first call connects the processes and compares the facts of all; they
  // disconnect at the end of the program. `file` is that of --rendezvous, or
  // "". Throws the Error that says why they cannot connect, or what differs.
  ProcessJob& (*job)(const std::string& file, const JobFacts&);
};

std::span<const ProcessBackend> process_backends();
// Null if no row has the name: the ranks are threads of this process.
const ProcessBackend* process_backend(std::string_view name);
// The names of all rows: "mpi or tcp".
std::string backend_names(std::string_view between);

}  // namespace dtensor
