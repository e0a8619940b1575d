// The processes of an MPI job, and the MPI communicators that all runs use.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "dtensor/comm/job.h"
#include "dtensor/comm/mpi/shared_rings.h"

namespace dtensor {

// Throws an Error with MPI's text unless the code is MPI_SUCCESS.
void check_mpi(int code, std::string_view function);

class MpiJob final : public ProcessJob {
 public:
  // Throws Error, on every call, if MPI cannot be used.
  static MpiJob& get();

  int process() const override { return process_; }
  int processes() const override { return processes_; }
  std::unique_ptr<Transport> begin_run(int64_t ranks_per_process) override;
  std::string launcher(int64_t processes) const override;
  void tell(int64_t matter, int process, std::string_view text) override;

  // Begins a run: returns the number of its matter and chooses the communicator
  // for its data. Called by all processes. Messages left over from a run that
  // failed never reach later runs.
  int64_t number_run(int64_t ranks_per_process);
  CommHandle data() const { return data_; }
  const SharedRings& rings() const { return *rings_; }
  void run_went_well() { clean_ = true; }

 private:
  struct Mpi;
  MpiJob();
  ~MpiJob() override;
  static void end();
  void listen() override;

  int process_ = 0, processes_ = 1;
  bool ours_ = false;  // this class initialized MPI, and finalizes it
  const std::unique_ptr<Mpi> mpi_;
  CommHandle data_ = 0;
  std::unique_ptr<SharedRings> rings_;
  int64_t rings_for_ = 0;  // ranks in each process
  bool clean_ = true;      // no message of an earlier run is under way

  std::mutex mutex_;  // guards control messages
};

}  // namespace dtensor
