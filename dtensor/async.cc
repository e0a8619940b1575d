// SPDX-License-Identifier: Apache-2.0
#include "dtensor/async.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/execute.h"
#include "dtensor/exposed.h"
#include "dtensor/redistribute.h"
#include "dtensor/trace.h"

namespace dtensor {
namespace {

// The state of moves that are carried out together, and the tensors they read.
class Progress final : public StorageReader {
 public:
  explicit Progress(const RankContext& ctx)
      : backend_(ctx.backend),
        rank_(ctx.world_rank),
        device_(*ctx.device),
        stream_(ctx.stream) {}

  // Keeps a tensor alive until the device has read it.
  void hold(const Tensor& t) { read_.push_back(t); }
  bool holds(const Tensor& t) const {
    return std::any_of(read_.begin(), read_.end(), [&](const Tensor& r) {
      return r.storage() == t.storage();
    });
  }

  // Called by the worker when it has enqueued all work. The device has done
  // that work when it passes `made`.
  void given(const Event& made) {
    std::lock_guard lock(mutex_);
    if (waited_for_) backend_->set_idle(rank_, 0, false);
    made_ = made;
    done_ = true;
    came_.notify_all();
  }
  // Called by the worker after given(). Drops the tensors if the device has
  // read them. Returns whether none are held any more.
  bool let_go() {
    std::lock_guard lock(mutex_);
    if (device_.passed(made_)) read_.clear();
    return read_.empty();
  }

  // Makes the host wait until the worker has enqueued all work, and the rank's
  // stream until the device has done that work.
  void finish() override {
    std::unique_lock lock(mutex_);
    if (!done_) {
      waited_for_ = true;
      backend_->set_idle(rank_, 0, true);
      came_.wait(lock, [&] { return done_; });
    }
    if (ordered_) return;
    device_.wait(stream_, made_);
    ordered_ = true;
    read_.clear();
  }

  Stream stream() const { return stream_; }

 private:
  const std::shared_ptr<Backend> backend_;
  const int64_t rank_;
  Device& device_;
  const Stream stream_;  // of the rank's main thread

  std::mutex mutex_;
  std::condition_variable came_;
  bool done_ = false, waited_for_ = false;
  bool ordered_ = false;  // stream_ already waits for made_
  Event made_;
  // The tensors of hold(). Until done_ is set, used without mutex_: by the main
  // thread until it hands the moves to the worker, then by the worker.
  std::vector<Tensor> read_;
};

// Moves that are carried out together.
class AsyncMoves {
 public:
  AsyncMoves(RankContext& ctx, std::span<const Move> moves,
             std::vector<Tensor> parts, bool consume,
             std::shared_ptr<AsyncMoves> after)
      : progress_(std::make_shared<Progress>(ctx)),
        moves_(moves.begin(), moves.end()),
        parts_(std::move(parts)),
        consume_(consume),
        after_(std::move(after)),
        op_(ctx.op.empty() ? "redistribute" : ctx.op),
        phase_(ctx.phase),
        about_(ctx.about ? *ctx.about : Lineage()),
        kind_(ctx.memory_kind),
        record_(ctx.record),
        ready_(ctx.device->record(ctx.stream)),
        results_(moves.size()),
        versions_(moves.size()) {}

  // Called by the worker. When this returns, the worker's stream may still be
  // busy with the moves. Returns false if the moves failed.
  bool carry_out(RankContext& ctx) {
    std::exception_ptr error;
    Event made;
    try {
      // The worker carries out moves in order, so `after_` is done.
      if (after_ && after_->error_) std::rethrow_exception(after_->error_);
      if (after_) {
        parts_[0] = after_->results_[0];
        if (parts_[0].defined()) progress_->hold(parts_[0]);
      }
      Scoped<std::string_view> op(ctx.op, op_);
      Scoped<const Lineage*> about(ctx.about, &about_);
      Scoped<std::string> phase(ctx.phase, phase_);
      Scoped<bool> record(ctx.record, record_);
      Scoped<MemoryKind> kind(ctx.memory_kind, kind_);
      ctx.device->wait(ctx.stream, ready_);
      // Parts that only this object holds are freed once they have been sent.
      // Move them to the worker's stream: only its later work may reuse their
      // memory.
      for (const Tensor& t : parts_)
        if (t.defined() && !progress_->holds(t))
          t.storage()->move_to(ctx.stream);
      execute(ctx, *execution(ctx, moves_), parts_, consume_);
      for (size_t i = 0; i < parts_.size(); ++i)
        if (ctx.coordinate_or_null(moves_[i].to->mesh()))
          results_[i] = std::move(parts_[i]);
      made = ctx.device->record(ctx.stream);
    } catch (const std::exception& e) {
      error = std::current_exception();
      // Other ranks may be waiting for this one.
      ctx.backend->failed(ctx.world_rank, ctx.lane, e.what());
    } catch (...) {
      error = std::current_exception();
      ctx.backend->failed(ctx.world_rank, ctx.lane, "an unknown error");
    }
    if (error) try {
        made = ctx.device->record(ctx.stream);  // enqueued work still runs
      } catch (...) {                           // the device itself has failed
      }
    parts_.clear();
    after_ = nullptr;
    for (size_t i = 0; i < results_.size(); ++i)
      if (results_[i].defined())
        versions_[i] = results_[i].storage()->version();
    error_ = error;
    events_ = std::exchange(ctx.events, {});
    progress_->given(made);
    return error == nullptr;
  }

  // Waits for result i and returns it. Drops this object's reference to the
  // result, so that the caller alone keeps it alive, unless `keep` is set: then
  // a later move may begin with the result.
  Tensor wait(size_t i, bool keep) {
    RankContext& ctx = RankContext::current();
    {
      const Exposed waiting(ctx);
      const TraceSpan span(ctx, "wait for redistribute_async");
      progress_->finish();
    }
    // The worker has its own counter of collectives. Renumber the collectives
    // by the counter of this thread.
    std::map<int64_t, int64_t> numbers;
    for (CommEvent& e : events_) {
      int64_t& number = numbers[e.collective];
      if (!number) number = ++ctx.collectives;
      e.collective = number;
      ctx.events.push_back(std::move(e));
    }
    bound_record(ctx);
    events_.clear();
    seen_ = true;
    if (error_) std::rethrow_exception(error_);
    Tensor result = keep ? results_[i] : std::move(results_[i]);
    if (result.defined()) result.storage()->move_to(progress_->stream());
    if (const auto reader = reader_.lock(); reader && result.defined())
      result.storage()->set_reader(reader);
    return result;
  }
  uint64_t version(size_t i) const { return versions_[i]; }

  const std::shared_ptr<Progress>& progress() const { return progress_; }
  // Sets the reader that a write to the result has to wait for. REQUIRES: there
  // is only one move.
  void set_reader(const std::shared_ptr<StorageReader>& r) { reader_ = r; }
  // The error of the moves; null if there is none, or a wait() has thrown it.
  std::exception_ptr unseen_error() const { return seen_ ? nullptr : error_; }

 private:
  const std::shared_ptr<Progress> progress_;
  const std::vector<Move> moves_;
  std::vector<Tensor> parts_;
  const bool consume_;
  std::shared_ptr<AsyncMoves> after_;
  const std::string op_, phase_;
  const Lineage about_;
  const MemoryKind kind_;
  const bool record_;
  const Event ready_;  // passes once the parts are complete
  // Used by the rank's main thread only.
  std::weak_ptr<StorageReader> reader_;
  bool seen_ = false;

  // Written by the worker before Progress::given(). Afterwards only the main
  // thread changes them, in wait().
  std::vector<Tensor> results_;
  std::vector<uint64_t> versions_;
  std::exception_ptr error_;
  std::vector<CommEvent> events_;
};

// One result of an AsyncMoves.
class AsyncPart final : public Pending {
 public:
  AsyncPart(std::shared_ptr<AsyncMoves> of, size_t which, bool alone)
      : of_(std::move(of)), which_(which), alone_(alone) {}
  const Tensor& wait() override {
    if (!came_) result_ = of_->wait(which_, alone_);
    came_ = true;
    return result_;
  }
  uint64_t version() const override { return of_->version(which_); }
  // The move that makes this part if its call had `continues`; else null.
  std::shared_ptr<AsyncMoves> its_move() const {
    return alone_ ? of_ : nullptr;
  }

 private:
  const std::shared_ptr<AsyncMoves> of_;
  const size_t which_;
  const bool alone_;  // BeginOptions::continues: later moves may begin with it
  bool came_ = false;
  Tensor result_;
};

class Worker final : public RankServices::Service {
  struct Task {
    std::shared_ptr<AsyncMoves> moves;
    std::shared_ptr<Progress> progress;
  };
  // A list, so that the thread can splice tasks from queue to queue without
  // allocating nodes.
  using Queue = std::list<Task>;
  // The most tasks in the queue. Each holds a few KB and the parts that it
  // reads.
  static constexpr size_t kMostAhead = 256;

 public:
  explicit Worker(RankContext& rank) {
    context_.world_rank = rank.world_rank;
    context_.world_size = rank.world_size;
    context_.run_id = rank.run_id;
    context_.device = rank.device;
    context_.stream = rank.device->open_stream();
    context_.allocator = rank.allocator;
    context_.planner = rank.planner.for_another_thread();
    context_.backend = rank.backend;
    context_.lane = 1;
    rank.observers.follow(context_);
    context_.grad_enabled = false;
    thread_ = std::thread([this] { work(); });
  }
  ~Worker() override { stop(); }

  void add(std::shared_ptr<AsyncMoves> move) {
    Queue one;
    one.push_back({move, move->progress()});
    {
      std::unique_lock lock(mutex_);
      if (queue_.size() >= kMostAhead) wait_for_room(lock);
      queue_.splice(queue_.end(), one);
      set_idle(1, false);
    }
    more_.notify_one();
  }

  void finish() override {
    set_idle(0, true);
    stop();
    set_idle(0, false);
    for (const Task& task : failed_)
      if (const auto error = task.moves->unseen_error())
        std::rethrow_exception(error);
  }

 private:
  void set_idle(int lane, bool idle) {
    context_.backend->set_idle(context_.world_rank, lane, idle);
  }
  void wait_for_room(std::unique_lock<std::mutex>& lock) {
    RankContext& rank = RankContext::current();
    const Exposed waiting(rank);
    const TraceSpan span(rank, "wait to begin redistribute_async");
    wants_room_ = true;
    set_idle(0, true);
    room_.wait(lock, [&] { return !wants_room_; });
  }
  void stop() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    more_.notify_one();
    thread_.join();
    // Make the rank's stream wait for these tasks, because its later work may
    // reuse the memory that they read.
    for (const Queue* tasks : {&reading_, &failed_})
      for (const Task& task : *tasks) try {
          task.progress->finish();
        } catch (...) {  // the device has failed: no more work uses it
        }
    reading_.clear();
  }

  void work() {
    RankContext::set_current(&context_);
    for (;;) {
      Queue one;
      {
        std::unique_lock lock(mutex_);
        if (queue_.empty()) set_idle(1, true);
        more_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) break;
        one.splice(one.end(), queue_, queue_.begin());
        if (wants_room_) {
          set_idle(0, false);
          wants_room_ = false;
          room_.notify_one();
        }
      }
      if (one.front().moves->carry_out(context_)) {
        one.front().moves = nullptr;  // only pending results keep them alive
        reading_.splice(reading_.end(), one);
      } else {
        failed_.splice(failed_.end(), one);
      }
      // The device finishes the tasks in the order of reading_.
      while (!reading_.empty() && reading_.front().progress->let_go())
        reading_.pop_front();
    }
    RankContext::set_current(nullptr);
  }

  RankContext context_;
  std::mutex mutex_;
  std::condition_variable more_, room_;
  Queue queue_;
  bool stopping_ = false;
  bool wants_room_ = false;  // the rank's main thread waits for a shorter queue
  Queue failed_;
  Queue reading_;  // enqueued, but the device may still read
  std::thread thread_;
};

Worker& worker(RankContext& ctx) { return ctx.services.get<Worker>(ctx); }

}  // namespace

std::vector<std::shared_ptr<Pending>> begin_moves(RankContext& ctx,
                                                  std::span<const Move> moves,
                                                  std::vector<Tensor> parts,
                                                  const BeginOptions& o) {
  const auto* moving = dynamic_cast<const AsyncPart*>(o.after.get());
  const auto source = moving ? moving->its_move() : nullptr;
  if (o.after && !source) parts[0] = o.after->wait();
  // Find the parts that must not be overwritten. Do it now: another holder may
  // read its part and drop it before the worker carries out the moves.
  std::vector<Tensor> read;
  for (const Tensor& t : parts)
    if (t.defined() && (!o.consume || t.storage().use_count() > 1))
      read.push_back(t);
  auto made = std::make_shared<AsyncMoves>(ctx, moves, std::move(parts),
                                           o.consume, source);
  for (const Tensor& t : read) made->progress()->hold(t);
  worker(ctx).add(made);
  // Set the readers only after the worker has the moves: a write to a storage
  // waits for its reader, and only the worker ends the reading.
  if (source) source->set_reader(made->progress());
  for (const Tensor& t : read) t.storage()->set_reader(made->progress());
  std::vector<std::shared_ptr<Pending>> results;
  for (size_t i = 0; i < moves.size(); ++i)
    results.push_back(std::make_shared<AsyncPart>(made, i, o.continues));
  return results;
}

}  // namespace dtensor
