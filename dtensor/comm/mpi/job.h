// The processes of an MPI job, and the communicators that all runs use.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "dtensor/comm/job.h"
#include "dtensor/comm/mpi/shared_rings.h"

namespace dtensor {

// Throws Error that says what MPI says, unless it is MPI_SUCCESS.
void check_mpi(int code, std::string_view function);

class MpiJob final : public ProcessJob {
 public:
  // Throws Error when MPI cannot be used, each time.
  static MpiJob& get();

  int process() const override { return process_; }
  int processes() const override { return processes_; }
  std::shared_ptr<HostBackend> backend(int64_t world,
                                       int64_t ranks_per_process) override;
  std::string launcher(int64_t processes) const override;
  void tell(int64_t matter, int process, std::string_view text) override;

  // For the data of a run, which begins: the number of the matter that it is,
  // and where its messages go. Called by all processes. When a run has failed,
  // what it had on its way never reaches those after it.
  int64_t begin_run(int64_t ranks_per_process);
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
  bool ours_ = false;  // we have begun MPI, and end it
  const std::unique_ptr<Mpi> mpi_;
  CommHandle data_ = 0;
  std::unique_ptr<SharedRings> rings_;
  int64_t rings_for_ = 0;  // ranks in each process
  bool clean_ = true;      // nothing of an earlier run is on its way

  std::mutex mutex_;  // of messages of few words
};

}  // namespace dtensor
