#include "dtensor/graph.h"

#include <array>
#include <cstdint>
#include <exception>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "dtensor/capture.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

// Another one in every process.
uint64_t process() {
  static const uint64_t token = [] {
    std::random_device draw;
    return uint64_t{draw()} << 32 | draw();
  }();
  return token;
}

// What the ranks of one graph show each other, each at its number in the run:
// points in their streams. Of two, used in turn: who writes one again has met
// all others since they read it.
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
    // Those of the first one.
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

  // The others' streams go on behind the leader's.
  void spread() {
    if (leads()) show();
    meet();
    if (!leads()) wait_for(here[0]);
    ++turn;
  }
  // The leader's goes on behind the others'.
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
    // Nothing of before may be waited for, and what was freed is to be there.
    device.synchronize(context.stream);
    meet();
    try {
      const Scoped<Capture*> capturing(context.capture, &capture);
      if (leads()) device.begin_capture(context.stream);
      spread();
      step();
      join();
      // No rank's stream is used by the time that the capture ends.
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
  std::vector<size_t> here;  // the ranks of this graph, all of this process
  size_t turn = 0;
  Capture capture;
  std::shared_ptr<void> memory;
  std::shared_ptr<const CapturedWork> work;  // the leader's
};

Graph::Graph(const std::function<void()>& step) {
  const RankContext& context = RankContext::current();
  DT_CHECK(context.device->has_graphs(), "cuda graph",
           "this rank's device has no graphs; run on --device cuda, or call "
           "the step as often as it is to run");
  DT_CHECK(!context.capture, "cuda graph",
           "a graph is made within the step of another one; make them one "
           "after the other");
  impl_ = std::make_unique<Impl>();
  impl_->make(step);
}

Graph::~Graph() {
  try {
    impl_->context.device->synchronize(impl_->context.stream);
  } catch (...) {
    // Who uses the stream next will hear of it.
  }
}

void Graph::replay() { impl_->replay(); }

}  // namespace dtensor
