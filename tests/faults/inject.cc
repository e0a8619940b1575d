// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/inject.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm/agreement.h"
#include "dtensor/placement/error.h"

namespace dtensor::testing {
namespace {

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

constexpr int64_t kMostRanks = 64;
std::atomic<int64_t> begun[kMostRanks];

// Passes all calls on to a communicator of the real backend, except for the
// rank's collective that has the fault.
class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> real, int64_t me, int lane)
      : Communicator(real->rank(), real->size()),
        real_(std::move(real)),
        me_(me),
        lane_(lane) {}
  bool needs_serves() const override { return real_->needs_serves(); }

 protected:
  void agree(const Collective&) override {}  // the real communicator agrees

  void do_move(const Collective& c) override {
    with_types(*c.call, c.transfers,
               [&](const Call& call, std::span<Transfer> t) {
                 if (reduces(call.kind))
                   real_->reduce(call, c.stream, t);
                 else
                   real_->exchange(call, c.stream, t);
               });
  }
  void do_all_reduce(const Collective& c) override {
    with_types(*c.call, c.buffers, [&](const Call& call, std::span<Buffer> b) {
      real_->all_reduce(call, c.stream, b);
    });
  }
  void do_all_gather_bytes(const Collective& c) override {
    each(*c.call, [&](const Call& call, bool other) {
      std::vector<char> more(static_cast<size_t>(c.num_bytes) + 1);
      std::vector<char> all(more.size() * static_cast<size_t>(size()));
      if (other)
        real_->all_gather_bytes(call, more.data(), c.num_bytes + 1, all.data());
      else
        real_->all_gather_bytes(call, c.bytes, c.num_bytes, c.out);
    });
  }
  void do_barrier(const Collective& c) override {
    each(
        *c.call, [&](const Call& call, bool) { real_->barrier(call); }, false);
  }

 private:
  // Calls work(call, other) with the call to make. `other` is true if the call
  // has to send another type; this requires `has_type`.
  template <class Work>
  void each(const Call& call, Work&& work, bool has_type = true) {
    real_->set_device(device());
    const int64_t n = ++begun[me_];
    static const int64_t at = std::stoll(environment("FAULT_AT", "0"));
    static const int64_t rank = std::stoll(environment("FAULT_RANK", "1"));
    if (n != at || me_ != rank) return work(call, false);
    static const std::string kind = environment("FAULT", "crash");
    say(me_, "fault");
    const std::string where = fmt::format("collective {}", n);
    if (kind == "kill") raise(SIGKILL);
    if (kind == "exit") _exit(3);
    // (A rank's second thread cannot return from the run's function.)
    if (kind == "leave" && lane_ == 0) throw Leave{};
    if (kind == "crash" || kind == "leave")
      fail("fault", "rank {} crashes at its {}", me_, where);
    Call other = call;
    if (kind == "stall")
      std::this_thread::sleep_for(std::chrono::duration<double>(
          std::stod(environment("FAULT_SECONDS", "0.8"))));
    else if (kind == "fingerprint" || !has_type)
      other.fingerprint += 1;
    else
      DT_CHECK(kind == "dtype", "fault", "there is no FAULT={}", kind);
    work(other, kind == "dtype" && has_type);
  }

  // The same for collectives of tensors, which may have another type.
  template <class Tensor, class Work>
  void with_types(const Call& call, std::span<Tensor> tensors, Work&& work) {
    const bool has = std::any_of(
        tensors.begin(), tensors.end(),
        [](const Tensor& t) { return other_type(t.dtype) != t.dtype; });
    each(
        call,
        [&](const Call& c, bool changed) {
          if (!changed) return work(c, tensors);
          std::vector<Tensor> others(tensors.begin(), tensors.end());
          for (Tensor& t : others) t.dtype = other_type(t.dtype);
          work(c, std::span<Tensor>(others));
        },
        has);
  }
  // Another type of the same size; t itself if there is none, as for bool.
  static DType other_type(DType t) {
    using enum DType;
    for (const auto& [a, b] :
         {std::pair(kF32, kI32), {kF64, kI64}, {kBF16, kF16}})
      if (t == a || t == b) return t == a ? b : a;
    return t;
  }

  const std::unique_ptr<Communicator> real_;
  const int64_t me_;
  const int lane_;
};

class FaultyBackend final : public Backend {
 public:
  explicit FaultyBackend(std::shared_ptr<Backend> real)
      : real_(std::move(real)) {
    for (auto& n : begun) n = 0;
  }
  std::unique_ptr<Communicator> group(std::span<const int64_t> ranks,
                                      int64_t me, int lane) override {
    auto real = real_->group(ranks, me, lane);
    if (ranks.size() == 1) return real;
    return std::make_unique<FaultyCommunicator>(std::move(real), me, lane);
  }
  void set_timeout(std::chrono::milliseconds t) override {
    real_->set_timeout(t);
  }
  void set_checksum(bool on) override { real_->set_checksum(on); }
  void failed(int64_t rank, int lane, std::string_view what) noexcept override {
    real_->failed(rank, lane, what);
  }
  std::pair<int64_t, int64_t> local_ranks(int64_t world) const override {
    return real_->local_ranks(world);
  }
  std::optional<Failure> conclude(const std::optional<Failure>& here) override {
    return real_->conclude(here);
  }
  void check() override { real_->check(); }
  void left(int64_t rank) noexcept override { real_->left(rank); }
  FlightRing* flight(int64_t rank, int lane) override {
    return real_->flight(rank, lane);
  }
  void set_idle(int64_t rank, int lane, bool idle) noexcept override {
    real_->set_idle(rank, lane, idle);
  }
  std::chrono::nanoseconds waited_for(int64_t rank) override {
    return real_->waited_for(rank);
  }

 private:
  const std::shared_ptr<Backend> real_;
};

}  // namespace

BackendFactory with_fault(BackendFactory factory) {
  return [factory = std::move(factory)](int64_t world) {
    DT_CHECK(world <= kMostRanks, "fault", "{} ranks are too many", world);
    return std::make_shared<FaultyBackend>(factory(world));
  };
}

int64_t collectives_of(int64_t rank) { return begun[rank]; }

void say(int64_t rank, std::string_view text) {
  const double now = std::chrono::duration<double>(
                         std::chrono::steady_clock::now().time_since_epoch())
                         .count();
  // Print the line in one piece, since other processes print, too.
  fmt::print(stderr, "{}",
             fmt::format("@ {:.6f} rank {}: {}\n", now, rank, text));
}

}  // namespace dtensor::testing
