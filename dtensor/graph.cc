// SPDX-License-Identifier: Apache-2.0
#include "dtensor/graph.h"

#include <array>
#include <cstdint>
#include <exception>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "dtensor/capture.h"
#include "dtensor/device/graph_memory.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/scoped.h"

namespace dtensor {
namespace {

// A random number that identifies this process.
uint64_t process() {
  static const uint64_t token = [] {
    std::random_device draw;
    return uint64_t{draw()} << 32 | draw();
  }();
  return token;
}

// The ranks that share a graph show each other how far their streams are: rank
// r sets events[r][0] and events[r][1] in turn. Before it sets one of them
// again, all other ranks have waited for the old one, since a meet() lies
// between.
struct Shown {
  std::vector<std::array<Event, 2>> events;
};

}  // namespace

struct Graph::Impl {
  Impl() : context(RankContext::current()), all(context.communicator(world())) {
    struct Card {
      uint64_t process;
      std::shared_ptr<Shown>* shown;
    };
    shown = std::make_shared<Shown>();
    shown->events.resize(static_cast<size_t>(context.world_size));
    const std::vector<Card> cards = gather(Card{process(), &shown});
    const bool together = context.backend->joins_streams();
    for (size_t r = 0; r < cards.size(); ++r)
      if (r == me() || (together && cards[r].process == process()))
        here.push_back(r);
    // All ranks of the graph use the `shown` of the first of them.
    std::shared_ptr<Shown> common = *cards[here[0]].shown;
    meet();
    shown = std::move(common);
    meet();
  }
  std::vector<int64_t> world() const {
    std::vector<int64_t> ranks(static_cast<size_t>(context.world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  template <class T>
  std::vector<T> gather(const T& mine) {
    std::vector<T> values(static_cast<size_t>(all.size()));
    all.all_gather_bytes({StepKind::kAllGatherBytes, "graph"}, &mine, sizeof(T),
                         values.data());
    return values;
  }
  void meet() { gather(char{}); }

  size_t me() const { return static_cast<size_t>(context.world_rank); }
  bool leads() const { return me() == here[0]; }
  Event& event(size_t rank) { return shown->events[rank][turn % 2]; }
  void show() { event(me()) = context.device->record(context.stream); }
  void wait_for(size_t rank) {
    context.device->wait(context.stream, event(rank));
  }

  // Makes the other ranks' streams wait for the leader's.
  void spread() {
    if (leads()) show();
    meet();
    if (!leads()) wait_for(here[0]);
    ++turn;
  }
  // Makes the leader's (first rank's) stream wait for the other ranks' streams.
  void join() {
    if (!leads()) show();
    meet();
    if (leads())
      for (const size_t r : here)
        if (r != me()) wait_for(r);
    ++turn;
  }

  void make(const std::function<void()>& step) {
    Device& device = *context.device;
    memory = context.allocator->begin_capture(context.stream);
    // Wait for earlier work now: a captured stream cannot wait for it later,
    // and the capture may reuse memory that was freed behind it.
    device.synchronize(context.stream);
    meet();
    try {
      const Scoped<Capture*> capturing(context.capture, &capture);
      const GraphMemory blocks = [this](int64_t bytes, Stream stream) {
        return block(bytes, stream);
      };
      const Scoped<const GraphMemory*> keeping(current_graph_memory(), &blocks);
      if (leads()) device.begin_capture(context.stream);
      spread();
      step();
      join();
      // Since join(), the other ranks have not used their streams. They wait in
      // meet() until the capture has ended.
      if (leads()) work = device.end_capture(context.stream);
      meet();
    } catch (...) {
      if (leads()) device.drop_capture(context.stream);
      context.allocator->end_capture();
      end();
      throw;
    }
    context.allocator->end_capture();
    end();
  }
  // Allocates a block, and releases it when the capture has ended. From then on
  // `memory` keeps the block for the captured work.
  void* block(int64_t bytes, Stream stream) {
    void* const data = context.allocator->allocate(bytes, stream, context.op);
    capture.at_end([this, data, bytes, stream] {
      context.allocator->release(data, bytes, stream);
    });
    return data;
  }
  void end() {
    for (const auto& fn : capture.at_end_) fn();
    capture.at_end_.clear();
  }

  void replay() {
    for (const auto& fn : capture.before_) fn();
    join();
    if (leads()) context.device->replay(context.stream, *work);
    spread();
  }

  RankContext& context;
  Communicator& all;
  std::shared_ptr<Shown> shown;
  std::vector<size_t> here;  // the ranks that share the graph, ascending
  size_t turn = 0;
  Capture capture;
  std::shared_ptr<void> memory;
  std::shared_ptr<const CapturedWork> work;  // null except on the leader
};

Graph::Graph(const std::function<void()>& step) {
  const RankContext& context = RankContext::current();
  DT_CHECK(context.device->has_graphs(), "cuda graph",
           "{} cannot capture graphs; run on --device cuda without --dry-run, "
           "or call the step itself each time",
           context.dry_run ? "a dry run" : "this rank's device");
  DT_CHECK(!context.capture, "cuda graph",
           "a graph cannot be made within the step of another graph; make them "
           "one after the other");
  impl_ = std::make_unique<Impl>();
  impl_->make(step);
}

Graph::~Graph() {
  try {
    impl_->context.device->synchronize(impl_->context.stream);
  } catch (...) {
    // The next use of the stream reports the error.
  }
}

void Graph::replay() { impl_->replay(); }

}  // namespace dtensor
