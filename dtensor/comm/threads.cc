#include "dtensor/comm/threads.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "dtensor/comm/pull.h"
#include "dtensor/comm/scratch.h"
#include "dtensor/comm/thread_rendezvous.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(Membership& run, Group& group, int index)
      : HostCommunicator(index, static_cast<int>(group.ranks.size())),
        rendezvous_(run, group, index),
        pull_(index, size()) {}
  bool reads_sources() const override { return true; }
  // On GPUs, kernels would read another GPU's memory over a link, and
  // repeatedly.
  bool reads_in_place() const override {
    return device().kind() == Device::Kind::kCpu;
  }

  void open(const Collective& c, const void* mine, int64_t bytes) override {
    static_assert(kMost <= Slot::kSmall);
    copy_bytes(rendezvous_.own(c.sequence).small, mine, bytes);
    rendezvous_.open(c);
  }
  const void* shown(int m) const override { return rendezvous_.small_of(m); }

 protected:
  void agree(const Collective& c) override {
    const bool on_host = device().kind() == Device::Kind::kCpu;
    if (!connected_) rendezvous_.own(c.sequence).device = &device();
    later_ = !on_host && !(c.transfers.empty() && c.buffers.empty());
    if (later_) {
      events_ = rendezvous_.own(c.sequence).events;
      shown_ = waited_ = 0;
      show(c.stream);
    }
    // Short buffers are shown together with the call.
    small_ = false;
    if (!c.buffers.empty() && on_host) {
      int64_t total = 0;
      for (const Buffer& b : c.buffers)
        total += in_one_step(b) ? padded(b) : Slot::kSmall + 1;
      small_ = total <= Slot::kSmall;
      if (small_) {
        char* to = rendezvous_.own(c.sequence).small;
        for (const Buffer& b : c.buffers) {
          copy_bytes(to, source(b), b.n * size_of(b.dtype));
          to += padded(b);
        }
      }
    }
    rendezvous_.open(c);
    if (!connected_) connect();
  }

  void do_exchange(const Call&, Stream stream,
                   std::span<Transfer> transfers) override {
    close_after(stream, [&] {
      for (size_t i = 0; i < transfers.size(); ++i)
        pull_.exchange({device(), stream}, transfers[i], peers(i));
    });
  }

  void do_exchange_in_place(const Call&, Stream stream,
                            std::span<Transfer> transfers, size_t which,
                            const ReadSources& read) override {
    close_after(stream, [&] {
      for (size_t i = 0; i < transfers.size(); ++i)
        if (i != which)
          pull_.exchange({device(), stream}, transfers[i], peers(i));
      std::vector<const Transfer*> sources;
      for (int m = 0; m < size(); ++m)
        sources.push_back(&rendezvous_.of(m).transfers[which]);
      read(sources);
    });
  }

  void do_reduce(const Call&, Stream stream,
                 std::span<Transfer> transfers) override {
    close_after(stream, [&] {
      for (size_t i = 0; i < transfers.size(); ++i)
        pull_.reduce({device(), stream}, transfers[i], peers(i));
    });
  }

  // Short buffers lie in the slots: every member reduces all of them, and
  // nothing has to be closed. Otherwise each member reduces its chunk into
  // every member's result; a one-shot buffer it reduces entirely into its own
  // result.
  void do_all_reduce(const Call&, Stream stream,
                     std::span<Buffer> buffers) override {
    if (small_)
      return each_buffer(buffers, [&](size_t, Buffer& b) {
        pull_.reduce({device(), stream}, b, b.data);
      });
    // Results of buffers that others still read as inputs.
    std::vector<Scratch> results;
    std::vector<Buffer*> to_copy;
    close_after(stream, [&] {
      each_buffer(buffers, [&](size_t i, Buffer& b) {
        if (!b.one_shot) return push_chunk(stream, i, b);
        if (b.from) return pull_.reduce({device(), stream}, b, b.data);
        results.emplace_back(device(), stream, b.n * size_of(b.dtype),
                             "all-reduce");
        to_copy.push_back(&b);
        pull_.reduce({device(), stream}, b, results.back().data());
      });
    });
    for (size_t i = 0; i < results.size(); ++i)
      copy(stream, *to_copy[i], results[i].data());
  }

  void do_all_gather_bytes(const Call&, const void*, int64_t bytes,
                           void* out) override {
    rendezvous_.gather(bytes, out);
  }

 private:
  Pull::PeerOf peers(size_t i) {
    return [this, i](int m) -> const Transfer& {
      return rendezvous_.of(m).transfers[i];
    };
  }
  // Calls fn(), and lets no member continue before the work that fn() enqueued
  // is ordered.
  template <class Fn>
  void close_after(Stream stream, Fn&& fn) {
    if (size() == 1) return fn();
    if (later_)
      close_streams_after(stream, fn);
    else
      rendezvous_.close_after(fn);
  }

  // On the first call. All members check all pairs, and throw the same Error.
  void connect() {
    for (int a = 0; a < size(); ++a)
      for (int b = 0; b < size(); ++b) {
        const Device &one = rendezvous_.device_of(a),
                     &other = rendezvous_.device_of(b);
        DT_CHECK(one.kind() == other.kind(), "threads",
                 "ranks {} and {} read each other's memory, but one computes "
                 "on the CPU and the other on a GPU; run all ranks on one kind "
                 "of device",
                 rendezvous_.world(a), rendezvous_.world(b));
        DT_CHECK(one.can_access_peer(other), "threads",
                 "the GPU of rank {} cannot reach the memory of the GPU of "
                 "rank {}, which thread ranks read directly; run with "
                 "--backend nccl, or with more --ranks-per-gpu",
                 rendezvous_.world(a), rendezvous_.world(b));
      }
    connected_ = true;
  }

  // On devices with asynchronous work, streams wait: each member shows an event
  // and waits for its peers' events. Work that reads the peers' memory then
  // runs after the work that produced it; work after the collective, which may
  // overwrite or free that memory, runs after all reads. The threads meet only
  // to exchange events. The order is kept even if something throws.
  template <class Fn>
  void close_streams_after(Stream stream, Fn&& fn) {
    std::exception_ptr error;
    const auto attempt = [&](auto&& part) {
      try {
        part();
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    };
    attempt([&] {
      wait_for_peers(stream);
      fn();
    });
    attempt([&] { show(stream); });
    rendezvous_.close();
    attempt([&] { wait_for_peers(stream); });
    if (error) std::rethrow_exception(error);
  }
  void show(Stream stream) {
    Event& event = events_[shown_++];
    event = {};
    event = device().record(stream);
  }
  // For all events that the peers have shown so far.
  void wait_for_peers(Stream stream) {
    for (; waited_ < shown_; ++waited_)
      for (int m = 0; m < size(); ++m)
        if (m != rank())
          device().wait(stream, rendezvous_.events_of(m)[waited_]);
  }

  void copy(Stream stream, const Buffer& b, const void* from) {
    const int64_t shape[] = {b.n}, unit[] = {1};
    if (b.n > 0)
      device().copy(stream, size_of(b.dtype), shape, b.data, unit, from, unit);
  }
  void push_chunk(Stream stream, size_t i, Buffer& b) {
    const int64_t pushed = pull_.push_chunk({device(), stream}, b);
    for (int m = 0; m < size(); ++m)
      if (m != rank())
        std::atomic_ref(rendezvous_.of(m).buffers[i].counted)
            .fetch_add(pushed, std::memory_order_relaxed);
  }

  // The bytes of a buffer in a slot, where each buffer begins aligned.
  static int64_t padded(const Buffer& b) {
    return (b.n * size_of(b.dtype) + 15) / 16 * 16;
  }
  // With two members, both ways move the same number of bytes.
  bool in_one_step(const Buffer& b) const { return b.one_shot || size() == 2; }
  static const void* source(const Buffer& b) {
    return b.from ? b.from : b.data;
  }
  // Calls fn for every buffer, after setting where each member's data is.
  template <class Fn>
  void each_buffer(std::span<Buffer> buffers, Fn&& fn) {
    int64_t offset = 0;
    for (size_t i = 0; i < buffers.size(); ++i) {
      for (int m = 0; m < size(); ++m) {
        const auto at = static_cast<size_t>(m);
        if (small_) {
          pull_.from()[at] = rendezvous_.small_of(m) + offset;
          continue;
        }
        const Buffer& theirs = rendezvous_.of(m).buffers[i];
        pull_.from()[at] = static_cast<const char*>(source(theirs));
        pull_.to()[at] = static_cast<char*>(theirs.data);
      }
      fn(i, buffers[i]);
      offset += padded(buffers[i]);
    }
  }

  ThreadRendezvous rendezvous_;
  Pull pull_;
  bool connected_ = false;  // the members' devices reach each other's memory
  // The collective that is open:
  bool small_ = false;
  bool later_ = false;       // its work on streams runs asynchronously
  Event* events_ = nullptr;  // this member's
  int shown_ = 0, waited_ = 0;
};

}  // namespace

std::unique_ptr<HostCommunicator> thread_communicator(Membership& run,
                                                      Group& group, int index) {
  return std::make_unique<ThreadCommunicator>(run, group, index);
}

}  // namespace dtensor
