// The processes of an MPI job, and the communicators that all runs use.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "dtensor/runtime/comm/mpi.h"
#include "dtensor/runtime/comm/mpi/shared_rings.h"
#include "dtensor/runtime/comm/wire.h"

namespace dtensor {

// Throws Error that says what MPI says, unless it is MPI_SUCCESS.
void check_mpi(int code, std::string_view function);

// An MPI_Comm as Fortran knows it: an integer, whichever MPI it is, so that
// mpi.h stays in the sources (MPI-4.0, section 19.3.4).
using CommHandle = int;

class Job {
 public:
  // Throws Error when MPI cannot be used, each time.
  static Job& get();

  int process() const { return process_; }
  int processes() const { return processes_; }

  // Few words about one matter, that of a number, to another process; never
  // waits. And the next about it that has come; each process's come in order.
  void tell(int64_t matter, int process, std::string_view text);
  std::optional<Wire::Told> told(int64_t matter);

  // For the data of a run, which begins: the number of the matter that it is,
  // and where its messages go. Called by all processes. When a run has failed,
  // what it had on its way never reaches those after it.
  int64_t begin_run(int64_t ranks_per_process);
  CommHandle data() const { return data_; }
  const SharedRings& rings() const { return *rings_; }
  void run_went_well() { clean_ = true; }

  MpiVerdict agree(const MpiVerdict& here);

 private:
  struct Mpi;
  Job();
  ~Job();
  static void end();
  void listen();

  int process_ = 0, processes_ = 1;
  bool ours_ = false;  // we have begun MPI, and end it
  const std::unique_ptr<Mpi> mpi_;
  CommHandle data_ = 0;
  std::unique_ptr<SharedRings> rings_;
  int64_t rings_for_ = 0;  // ranks in each process
  bool clean_ = true;      // nothing of an earlier run is on its way
  int64_t runs_ = 0, agreements_ = 0;
  bool failed_ = false;

  std::mutex mutex_;
  std::map<int64_t, std::deque<Wire::Told>> told_;  // by matter
};

}  // namespace dtensor
