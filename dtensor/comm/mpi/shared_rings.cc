// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/mpi/shared_rings.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "dtensor/comm/backend.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// If a machine has more ranks than this, its messages go through MPI, because
// every pair of ranks would need rings.
constexpr int64_t kMostRanks = 64;

// A value that the other processes of this machine read, to test whether they
// may read this process's memory.
constexpr uint64_t kSign = 0x6d656d6f72794f4bull;
uint64_t sign = kSign;

bool read_process(pid_t pid, void* to, const void* there, size_t bytes) {
  while (bytes > 0) {
    iovec mine{to, bytes}, theirs{const_cast<void*>(there), bytes};
    const ssize_t n = process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
    if (n <= 0) return false;
    to = static_cast<char*>(to) + n;
    there = static_cast<const char*>(there) + n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

void check_mpi(int code, std::string_view function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int size = 0;
  MPI_Error_string(code, text, &size);
  fail("mpi", "{} failed: {}; look for the cause in MPI's output", function,
       std::string_view(text));
}

SharedRings::SharedRings(MPI_Comm all, int64_t ranks_per_process)
    : per_process_(ranks_per_process) {
  MPI_Comm machine;
  DT_MPI(MPI_Comm_split_type, all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
         &machine);
  int processes = 0, count = 0;
  DT_MPI(MPI_Comm_size, all, &processes);
  DT_MPI(MPI_Comm_size, machine, &count);
  place_.assign(static_cast<size_t>(processes), -1);
  senders_ = count * per_process_;
  const char* wanted = std::getenv("DTENSOR_MPI_SHARED_MEMORY");
  const int mine_wants = !wanted || std::strcmp(wanted, "0") != 0;
  int all_want = 0;
  DT_MPI(MPI_Allreduce, &mine_wants, &all_want, 1, MPI_INT, MPI_MIN, all);
  if (!all_want || count == 1 || senders_ > kMostRanks) return;
  const auto rings =
      static_cast<size_t>(per_process_ * senders_ * Backend::kLanes);
  void* memory = nullptr;
  MPI_Win window;  // never freed: another process may still be in its run
  DT_MPI(MPI_Win_allocate_shared, static_cast<MPI_Aint>(bytes_of_rings(rings)),
         1, MPI_INFO_NULL, machine, &memory, &window);
  Ring* const own = first_ring(memory);
  // Each process tells the others its number, its pid, and the address of its
  // `sign`.
  struct Card {
    int process;
    pid_t pid;
    const void* sign;
  };
  Card mine{0, getpid(), &sign};
  DT_MPI(MPI_Comm_rank, all, &mine.process);
  std::vector<Card> cards(static_cast<size_t>(count));
  DT_MPI(MPI_Allgather, &mine, sizeof(Card), MPI_BYTE, cards.data(),
         sizeof(Card), MPI_BYTE, machine);
  for (size_t i = 0; i < rings; ++i) {
    Ring* r = new (own + i) Ring;
    r->sent = r->received = 0;
    for (uint64_t t = 0; t < Ring::kSlots; ++t) r->slots[t].turn = t;
  }
  int reads = 1;
  for (int i = 0; i < count; ++i) {
    const Card& card = cards[static_cast<size_t>(i)];
    place_[static_cast<size_t>(card.process)] = i;
    MPI_Aint bytes = 0;
    int unit = 0;
    void* theirs = nullptr;
    DT_MPI(MPI_Win_shared_query, window, i, &bytes, &unit, &theirs);
    // All processes find the same ring in this memory: they map it at different
    // addresses, but pages are aligned to more than a Ring is.
    here_.push_back({card.pid, first_ring(theirs)});
    // Before Linux 5.3 there is no pidfd_open; then only mpirun notices a
    // process that ends.
    const int fd = card.pid == getpid()
                       ? -1
                       : static_cast<int>(syscall(SYS_pidfd_open, card.pid, 0));
    if (fd >= 0) {
      ends_.push_back({fd, POLLIN, 0});
      processes_.push_back(card.process);
    }
    uint64_t seen = 0;
    if (!read_process(card.pid, &seen, card.sign, sizeof(seen)) ||
        seen != kSign)
      reads = 0;
  }
  // Both ends of a channel have to choose the same way for a message, so either
  // all processes read each other's memory or none does.
  int all_read = 0;
  DT_MPI(MPI_Allreduce, &reads, &all_read, 1, MPI_INT, MPI_MIN, machine);
  reads_ = all_read != 0;
}

SharedRings::~SharedRings() {
  for (const pollfd& p : ends_) close(p.fd);
}

int SharedRings::lost() const {
  std::vector<pollfd> now = ends_;
  if (poll(now.data(), now.size(), 0) <= 0) return -1;
  for (size_t i = 0; i < now.size(); ++i)
    if (now[i].revents) return processes_[i];
  return -1;
}

const SharedRings::Neighbour* SharedRings::neighbour(int64_t rank) const {
  const int at = place_[static_cast<size_t>(rank / per_process_)];
  return at < 0 ? nullptr : &here_[static_cast<size_t>(at)];
}

Ring* SharedRings::ring(const Channel& c, int64_t bytes) const {
  const Neighbour *from = neighbour(c.from), *to = neighbour(c.to);
  if (!from || !to || (!reads_ && bytes > Ring::kShort)) return nullptr;
  const int64_t sender =
      (from - here_.data()) * per_process_ + c.from % per_process_;
  return to->rings +
         (c.to % per_process_ * senders_ + sender) * Backend::kLanes + c.lane;
}

void SharedRings::read(int64_t rank, void* to, const void* there,
                       int64_t bytes) const {
  DT_CHECK(
      read_process(neighbour(rank)->pid, to, there, static_cast<size_t>(bytes)),
      "mpi", "the memory of rank {}'s process cannot be read: {}; {}", rank,
      std::strerror(errno),
      errno == ESRCH
          ? "the process has ended, so look for its error"
          : "set DTENSOR_MPI_SHARED_MEMORY=0 to send all messages through MPI");
}

}  // namespace dtensor
