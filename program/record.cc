// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/record.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "dtensor/allocator.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/execution.h"
#include "dtensor/gather.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/choice_report.h"
#include "dtensor/program/predicted.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

using Json = Record::Json;

double us(int64_t ps) { return static_cast<double>(ps) / 1e6; }

std::string_view text(Keep keep) {
  constexpr std::string_view kTexts[] = {"", "parameter", "gather on use"};
  return kTexts[static_cast<size_t>(keep)];
}

// The key of a call. Calls with equal keys share an entry in "calls".
std::string key_of(const OpRan& c) {
  std::string key = fmt::format("{}|{}", c.op, c.args());
  for (const DistTensor& in : c.given)
    key +=
        fmt::format("|{},{}", fmt::ptr(in.spec()), static_cast<int>(in.keep()));
  for (const SpecRef& s : c.choice.in)
    key += fmt::format("|{}", fmt::ptr(s.get()));
  for (const SpecRef& s : c.choice.out)
    key += fmt::format("|{}", fmt::ptr(s.get()));
  return key;
}

}  // namespace

struct Record::State {
  std::string path, phase;
  Json memory;  // bytes by kind
};

namespace {

struct Made {
  size_t by;  // the index of the operator that made the memory
  int64_t bytes;
};

// The storages that were freed since the last take(). Any thread of the rank
// may free one.
class Freed {
 public:
  void add(const Storage* s) {
    const std::lock_guard lock(mutex_);
    list_.push_back(s);
  }
  std::vector<const Storage*> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(list_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<const Storage*> list_;
};

// A storage holds its Token until it is freed. The Token then adds the storage
// to the list.
class Token {
 public:
  Token(std::shared_ptr<Freed> list, const Storage* of)
      : list_(std::move(list)), of_(of) {}
  ~Token() { list_->add(of_); }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

 private:
  const std::shared_ptr<Freed> list_;
  const Storage* const of_;
};

}  // namespace

// The operators of one rank in one run.
struct Record::Run {
  uint64_t id;
  int64_t rank;
  Json operators = Json::array();
  int64_t dropped = 0;
  Totals totals = {};  // ended() sets its `memory`
  bool ended = false;

  size_t seen = 0;  // the number of RankContext::events that are recorded
  // The states after events that are not recorded yet, by the event's index.
  std::map<size_t, State> after = {};
  std::set<int64_t> paid = {};  // the collectives whose latency is counted
  // The memory that outputs hold, and the operators that made it.
  std::shared_ptr<Freed> freed = std::make_shared<Freed>();
  std::unordered_map<const Storage*, Made> made = {};
  std::vector<Made> gone = {};
  // By operator: how many of its outputs' storages are in use.
  std::unordered_map<size_t, int64_t> held = {};

  // Moves the entries of freed storages from `made` to `gone`. Call it before a
  // look-up in `made`: a new storage may have the address of a freed one.
  void forget_freed() {
    for (const Storage* s : freed->take())
      if (const auto m = made.extract(s); !m.empty()) {
        gone.push_back(m.mapped());
        --held[gone.back().by];
      }
  }

  // [[input, operator that made its memory], ...] for the partial inputs.
  Json sums_of(std::span<const DistTensor> given) const {
    Json sums = Json::array();
    for (size_t i = 0; i < given.size(); ++i) {
      const Tensor& part = given[i].impl()->local;
      if (!given[i].spec()->partial_axes() || !part.defined()) continue;
      if (const auto m = made.find(part.storage().get()); m != made.end())
        sums.push_back({i, m->second.by});
    }
    return sums;
  }

  void makes(const std::shared_ptr<Storage>& storage, size_t by) {
    made.insert({storage.get(), {by, storage->bytes()}});
    ++held[by];
    storage->hold_until_freed(std::make_shared<Token>(freed, storage.get()));
  }

  // Notes that operator `last` was the last one to run before the memory in
  // `gone` was freed: as "until" of the operator that made the memory if none
  // of its outputs is left, else in its "frees".
  void note_freed(size_t last) {
    forget_freed();
    for (const Made& m : gone)
      if (held[m.by] > 0)
        operators[m.by]["frees"].push_back({last, m.bytes});
      else
        operators[m.by]["until"] = last;
    gone.clear();
  }
};

Record::Record(std::string title, const Mesh& mesh, CostTable cost)
    : title_(std::move(title)),
      cost_(std::move(cost)),
      mesh_(tables_.mesh(mesh)) {}

Record::~Record() = default;

Record::Run& Record::run_of(RankContext& context) {
  if (runs_.empty() || runs_.back()->id != context.run_id)
    runs_.push_back(std::make_unique<Run>(
        Run{.id = context.run_id, .rank = context.world_rank}));
  return *runs_.back();
}

void Record::step_begins(RankContext& context,
                         std::span<const NamedTensor> parameters) {
  Run& run = run_of(context);
  run = Run{.id = context.run_id, .rank = context.world_rank};
  run.seen = context.events.size();
  for (const NamedTensor& p : parameters)
    if (parameter_names_.insert(p.name).second)
      parameters_.push_back(
          {{"name", p.name}, {"spec", tables_.spec(p.tensor.spec())}});
}

void Record::ended(RankContext& context) {
  Run& run = run_of(context);
  run.totals.memory = memory_use(*context.allocator);
  if (run.ended) return;
  add_moves(context, run, context.events.size());
  run.ended = true;
}

bool Record::reads_events(const RankContext& context) const {
  return runs_.empty() || runs_.back()->id != context.run_id ||
         !runs_.back()->ended;
}

void Record::ran(RankContext& context, const OpRan& c) {
  Run& run = run_of(context);
  // Operators of other pipeline stages do nothing on this rank.
  if (run.ended || c.kept || !c.out[0].here()) return;
  add_moves(context, run, c.first_event);
  run.totals.work_ps += c.choice.work_ps;
  Json op = {{"call", call(context, c)}};
  run.forget_freed();
  if (Json sums = run.sums_of(c.given); !sums.empty())
    op["sums"] = std::move(sums);
  add_sends(run, op, c.op, c.first_event, context.events.size());
  run.seen = context.events.size();
  run.after.clear();
  const size_t index = run.operators.size();
  const bool kept = std::ssize(run.operators) < most_;
  int64_t makes = 0;
  for (const DistTensor& t : c.out) {
    if (!kept) break;
    const std::shared_ptr<Storage>& storage = t.local().storage();
    const auto is_view_of = [&](const DistTensor& given) {
      const Tensor& part = given.impl()->local;
      return part.defined() && part.storage() == storage;
    };
    if (run.made.contains(storage.get()) ||
        std::any_of(c.given.begin(), c.given.end(), is_view_of))
      continue;  // memory that another tensor holds too
    run.makes(storage, index);
    makes += storage->bytes();
  }
  if (makes) op["makes"] = makes;
  add(run, std::move(op), state_of(context));
}

void Record::ran(RankContext& context, const KernelRan& k) {
  Run& run = run_of(context);
  if (run.ended) return;
  add_moves(context, run, context.events.size());
  add(run, {{"kernel", k.name}, {"tensors", k.tensors}, {"touches", k.touches}},
      state_of(context));
}

void Record::sent(RankContext& context) {
  Run& run = run_of(context);
  if (!run.ended && !context.events.empty())
    run.after.insert_or_assign(context.events.size() - 1, state_of(context));
}

Record::State Record::state_of(const RankContext& context) {
  const std::string_view path =
      context.path.empty() ? context.gradient_of : context.path;
  State state{std::string(path),
              context.phase == "update" ? "optimizer" : context.phase,
              Json::array()};
  const Allocator::Stats stats = context.allocator->stats();
  for (const Allocator::Stats::Kind& kind : stats.kinds)
    state.memory.push_back(kind.current_bytes);
  return state;
}

void Record::add(Run& run, Json op, const State& state) {
  DT_CHECK(!bound_ || std::ssize(run.operators) < *bound_, "operators",
           "this program runs more than {} operators, the most that this page "
           "takes; ask for fewer layers or micro-batches, run the program "
           "itself, as a dry run with --html FILE, or, if the page is that of "
           "//:explore, start it with a larger --operators",
           *bound_);
  if (std::ssize(run.operators) >= most_) {
    ++run.dropped;
    return;
  }
  op["path"] = tables_.path(state.path);
  op["phase"] = tables_.phase(state.phase);
  op["memory"] = state.memory;
  run.operators.push_back(std::move(op));
  run.note_freed(run.operators.size() - 1);
}

void Record::add_sends(Run& run, Json& op, std::string_view name, size_t begin,
                       size_t end) {
  const RankContext& context = RankContext::current();
  Json sends = Json::array(), moves = Json::array();
  for (size_t i = begin; i < std::min(end, context.events.size()); ++i) {
    CommEvent e = context.events[i];
    if (const Step* step = step_of(e))
      e.by_all = tables_.received_by_all(*step, cost_);
    // A transfer to another stage is in the run of that stage.
    if (e.mesh.mesh_rank_of(run.rank) >= 0) {
      sends.push_back(
          tables_.event(e, us(price(e, cost_, run.paid)), !context.dry_run));
      if (e.execution && e.op != name)
        if (const Json move = move_of(e);
            std::find(moves.begin(), moves.end(), move) == moves.end())
          moves.push_back(move);
    }
    e.execution = nullptr;
    run.totals.events.push_back(std::move(e));
  }
  if (!sends.empty()) op["sends"] = std::move(sends);
  if (!moves.empty()) op["moves"] = std::move(moves);
}

size_t Record::move_of(const CommEvent& e) {
  const auto tensor = static_cast<size_t>(step_of(e)->tensor);
  const auto [at, added] = move_numbers_.try_emplace({e.execution, tensor}, 0);
  if (added)
    at->second = tables_.move(e.execution->moves()[tensor], e.execution->plan(),
                              tensor, cost_);
  return at->second;
}

void Record::add_moves(RankContext& context, Run& run, size_t end) {
  const std::vector<CommEvent>& all = context.events;
  end = std::min(end, all.size());
  while (run.seen < end) {
    size_t last = run.seen + 1;
    while (last < end && all[last].op == all[run.seen].op &&
           all[last].phase == all[run.seen].phase)
      ++last;
    Json op = {{"move", all[run.seen].op}};
    add_sends(run, op, "", run.seen, last);
    // A move on the rank's second thread is recorded when the rank waits for
    // the move, in whichever module. Therefore the move gets no path.
    const auto found = run.after.find(last - 1);
    State after = found != run.after.end() ? found->second : state_of(context);
    if (found == run.after.end()) after.path.clear();
    if (op.contains("sends")) add(run, std::move(op), after);
    run.seen = last;
  }
}

std::vector<size_t> Record::moves_of(RankContext& context, const OpRan& c) {
  std::vector<size_t> numbers;
  if (c.moves.empty()) return numbers;
  const Plan& plan = context.planner.plan(c.moves);
  for (size_t m = 0; m < c.moves.size(); ++m)
    numbers.push_back(tables_.move(c.moves[m], plan, m, cost_));
  return numbers;
}

void Record::describe_choice(RankContext& context, const OpRan& c, Json& call) {
  std::vector<DType> out_types;
  for (const Spec* s : c.choice.out) out_types.push_back(s->dtype());
  // The inputs as the operator saw them: a parameter that is gathered where it
  // is used counts as gathered.
  std::vector<OpInput> in;
  for (size_t i = 0; i < c.given.size(); ++i)
    in.push_back({c.choice.in[i],
                  gathers(c.given[i]) ? Keep::kStay : c.given[i].keep()});
  for (size_t m = 0; m < c.moved.size(); ++m)
    in[c.moved[m]].spec = c.moves[m].from;
  const std::vector<Choice> all =
      all_choices(*c.rule, in, out_types, c.work, context.planner, kMostPriced);
  const ChoiceMade made{*c.rule, c.choice, in, all};
  call["rule"] = c.rule->rule().to_string();
  call["split"] = made.split(c.choice);
  call["candidates"] = choices_json(made, kMostCandidates);
  const size_t count = all.size() + !made.chosen_is_listed();
  if (count > call["candidates"].size())
    call["more_candidates"] = count - call["candidates"].size();
  call["why"] = why(made);
}

size_t Record::call(RankContext& context, const OpRan& c) {
  const auto [at, added] = call_numbers_.try_emplace(key_of(c), calls_.size());
  if (!added) return at->second;
  Json call = {{"op", c.op}};
  if (std::string args = c.args(); !args.empty())
    call["args"] = std::move(args);
  for (const char* list : {"in", "keep", "to", "out", "moves"})
    call[list] = Json::array();
  for (const DistTensor& in : c.given) {
    call["in"].push_back(tables_.spec(in.spec()));
    call["keep"].push_back(text(in.keep()));
    call["moves"].push_back(nullptr);
  }
  for (const Spec* s : c.choice.in) call["to"].push_back(tables_.spec(s));
  for (const Spec* s : c.choice.out) call["out"].push_back(tables_.spec(s));
  const std::vector<size_t> moves = moves_of(context, c);
  for (size_t m = 0; m < moves.size(); ++m)
    call["moves"][c.moved[m]] = moves[m];
  call["comm_us"] = us(c.choice.comm_ps);
  call["work_us"] = us(c.choice.work_ps);
  call["reduce_us"] = us(c.choice.reduce_ps);
  if (c.rule) describe_choice(context, c, call);
  calls_.push_back(std::move(call));
  return at->second;
}

void Record::add_move(const Move& move, const Plan& plan) {
  Run& run =
      *runs_.emplace_back(std::make_unique<Run>(Run{.id = 0, .rank = 0}));
  Json list = Json::array();
  for (const Step& step : plan.steps) {
    if (!dtensor::sends(step.kind)) continue;
    const CommEvent& sent = run.totals.events.emplace_back(
        CommEvent{.mesh = step.to->mesh(),
                  .axes = step.axes,
                  .kind = step.kind,
                  .op = "redistribute",
                  .phase = "forward",
                  .predicted = step.bytes,
                  .counted = 0,
                  .times = plan.chunks,
                  .by_all = tables_.received_by_all(step, cost_)});
    list.push_back(tables_.event(sent, us(price(sent, cost_, run.paid)),
                                 /*counted=*/false));
  }
  Json op = {{"move", "redistribute"},
             {"moves", Json::array({tables_.move(move, plan, 0, cost_)})}};
  if (!list.empty()) op["sends"] = std::move(list);
  op["path"] = tables_.path("");
  op["phase"] = tables_.phase("forward");
  run.operators.push_back(std::move(op));
}

void Record::discard() { runs_.clear(); }

void Record::add_picture(std::string name, std::string title, std::string svg) {
  pictures_.push_back({{"name", std::move(name)},
                       {"title", std::move(title)},
                       {"svg", std::move(svg)}});
}

Totals Record::totals() const {
  std::vector<Totals> ranks;
  for (const auto& run : runs_) ranks.push_back(run->totals);
  return merge(ranks);
}

Json Record::json() const {
  Json record = {{"version", 1},
                 {"title", title_},
                 {"prices", cost_.to_string()},
                 {"mesh", mesh_}};
  tables_.write(record);
  record["calls"] = calls_;
  record["parameters"] = parameters_;
  Json kinds = Json::array(), runs = Json::array();
  for (size_t k = 0; k < kMemoryKinds; ++k)
    kinds.push_back(name(static_cast<MemoryKind>(k)));
  record["memory_kinds"] = std::move(kinds);
  for (const auto& r : runs_) {
    const MemoryUse& use = r->totals.memory;
    Json memory = {{"peak", use.peak}};
    for (size_t k = 0; k < kMemoryKinds; ++k)
      memory[std::string(name(static_cast<MemoryKind>(k)))] = use.kinds[k];
    Json& run = runs.emplace_back(Json{{"rank", r->rank},
                                       {"operators", r->operators},
                                       {"memory", std::move(memory)}});
    if (r->dropped) run["dropped"] = r->dropped;
  }
  record["runs"] = std::move(runs);
  const Totals all = totals();
  record["collectives"] = comm_json(comm_rows(all.events), false);
  int64_t by_all = 0;
  for (const CommEvent& e : all.events) by_all += e.by_all;
  const Predicted step = predicted(all, cost_);
  record["totals"] = {{"bytes", step.bytes},
                      {"by_all", by_all},
                      {"communication_us", us(step.communication_ps)},
                      {"work_us", us(step.work_ps)},
                      {"peak_bytes", all.memory.peak}};
  if (!pictures_.empty()) record["pictures"] = pictures_;
  for (const auto& [member, value] : extra_.items()) record[member] = value;
  return record;
}

}  // namespace dtensor
