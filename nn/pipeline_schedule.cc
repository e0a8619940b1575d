// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/pipeline_schedule.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

constexpr auto kF = PipelineWork::kForward;
constexpr auto kB = PipelineWork::kBackward;
constexpr auto kW = PipelineWork::kWeight;

// The tasks that are done, by stage and micro-batch.
class Done {
 public:
  explicit Done(const PipelineSchedule& s) : schedule_(s) {
    for (auto& list : done_)
      list.resize(static_cast<size_t>(s.stages() * s.micros));
  }
  bool operator()(const PipelineTask& t) const { return of(t.work)[at(t)]; }
  void set(const PipelineTask& t) { of(t.work)[at(t)] = true; }
  bool ready(const PipelineTask& t) const {
    const auto all = needs(t, schedule_);
    return std::all_of(all.begin(), all.end(),
                       [&](const PipelineTask& n) { return (*this)(n); });
  }

 private:
  size_t at(const PipelineTask& t) const {
    return static_cast<size_t>(t.stage * schedule_.micros + t.micro);
  }
  const std::vector<bool>& of(PipelineWork w) const {
    return done_[static_cast<size_t>(w)];
  }
  std::vector<bool>& of(PipelineWork w) {
    return done_[static_cast<size_t>(w)];
  }

  const PipelineSchedule& schedule_;
  std::vector<bool> done_[3];
};

void gpipe(PipelineSchedule& s) {
  for (int64_t r = 0; r < s.positions; ++r)
    for (PipelineWork w : {kF, kB})
      for (int64_t i = 0; i < s.micros; ++i)
        s.tasks[static_cast<size_t>(r)].push_back({w, r, i});
}

// Cuts the micro-batches into even groups of at least `positions` (a single
// group if there are fewer micro-batches). A group passes one chunk at every
// position before it comes to the next chunk. With one chunk this is 1F1B.
void one_forward_one_backward(PipelineSchedule& s) {
  std::vector<std::pair<int64_t, int64_t>> chunk_and_micro;
  const int64_t p = s.positions, m = s.micros;
  const int64_t groups = std::max<int64_t>(1, m / p);
  const int64_t largest = (m + groups - 1) / groups;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t c = 0; c < s.chunks; ++c)
      for (int64_t i = g * m / groups; i < (g + 1) * m / groups; ++i)
        chunk_and_micro.emplace_back(c, i);
  const auto total = static_cast<int64_t>(chunk_and_micro.size());
  for (int64_t r = 0; r < p; ++r) {
    auto& list = s.tasks[static_cast<size_t>(r)];
    const auto forward = [&](int64_t k) {
      const auto& [c, i] = chunk_and_micro[static_cast<size_t>(k)];
      list.push_back({kF, c * p + r, i});
    };
    const auto backward = [&](int64_t k) {
      const auto& [c, i] = chunk_and_micro[static_cast<size_t>(k)];
      list.push_back({kB, (s.chunks - 1 - c) * p + r, i});
    };
    // The number of forwards that position r does before it alternates. With
    // one chunk: p - 1 - r. With several: those of a group in all chunks but
    // the last, and two for each position after r, one for the way there and
    // one for the way back.
    const int64_t ahead =
        s.chunks == 1 ? p - 1 - r : 2 * (p - 1 - r) + (s.chunks - 1) * largest;
    const int64_t warm = std::min(ahead, total);
    for (int64_t k = 0; k < warm; ++k) forward(k);
    for (int64_t k = warm; k < total; ++k) {
      forward(k);
      backward(k - warm);
    }
    for (int64_t k = total - warm; k < total; ++k) backward(k);
  }
}

// 1F1B in which position r computes the weight gradient of micro-batch i after
// the backward of micro-batch i + r, so that tasks that earlier positions wait
// for come first. No position holds more than `positions` micro-batches.
void zb_h1(PipelineSchedule& s) {
  for (int64_t r = 0; r < s.positions; ++r) {
    auto& list = s.tasks[static_cast<size_t>(r)];
    const int64_t warm = std::min(s.positions - 1 - r, s.micros);
    for (int64_t i = 0; i < warm; ++i) list.push_back({kF, r, i});
    for (int64_t i = 0; i < s.micros + r; ++i) {
      if (warm + i < s.micros) list.push_back({kF, r, warm + i});
      if (i < s.micros) list.push_back({kB, r, i});
      if (i >= r) list.push_back({kW, r, i - r});
    }
  }
}

// In each slot, every position does the first of these that it can: a backward,
// since other positions wait for it; a forward, if fewer than most_live
// micro-batches are live; a weight gradient, which no task waits for.
// `ahead(r)` is the number of forwards that position r does before its first
// backward.
template <class Ahead>
void zero_bubble(PipelineSchedule& s, int64_t most_live, Ahead&& ahead) {
  const auto p = static_cast<size_t>(s.positions);
  struct At {
    int64_t forward = 0, backward = 0, weight = 0;  // done so far
  };
  std::vector<At> at(p);
  Done done(s);
  for (size_t finished = 0; finished < p;) {
    std::vector<PipelineTask> now;
    for (size_t r = 0; r < p; ++r) {
      At& a = at[r];
      const auto stage = static_cast<int64_t>(r);
      const PipelineTask f{kF, stage, a.forward}, b{kB, stage, a.backward},
          w{kW, stage, a.weight};
      const bool room = a.forward - a.weight < most_live &&
                        (a.backward > 0 || a.forward < ahead(stage));
      if (a.backward < s.micros && done.ready(b)) {
        ++a.backward;
        now.push_back(b);
      } else if (a.forward < s.micros && room && done.ready(f)) {
        ++a.forward;
        now.push_back(f);
      } else if (a.weight < a.backward) {
        if (++a.weight == s.micros) ++finished;
        now.push_back(w);
      } else {
        continue;
      }
      s.tasks[r].push_back(now.back());
    }
    for (const PipelineTask& t : now) done.set(t);
  }
}

// Describes the tasks that wait for each other in a cycle. The search starts at
// the first position that is not done.
std::string circle(const PipelineSchedule& s, const Done& done,
                   const std::vector<size_t>& next) {
  std::vector<PipelineTask> seen;
  const auto head = [&](int64_t position) {
    const auto r = static_cast<size_t>(position);
    PipelineTask t = s.tasks[r][next[r]];
    t.slot = -1;  // as in needs(); an earlier checked() may have set it
    return t;
  };
  int64_t r = 0;
  while (next[static_cast<size_t>(r)] == s.tasks[static_cast<size_t>(r)].size())
    ++r;
  const auto waits_for = [&](const PipelineTask& t) {
    for (const PipelineTask& n : needs(t, s))
      if (!done(n)) return n;
    return t;
  };
  PipelineTask t = head(r);
  while (std::find(seen.begin(), seen.end(), t) == seen.end()) {
    seen.push_back(t);
    t = head(s.position(waits_for(t).stage));
  }
  std::string text;
  const auto from = std::find(seen.begin(), seen.end(), t);
  for (auto it = from; it != seen.end(); ++it) {
    const PipelineTask n = waits_for(*it);
    const PipelineTask before = head(s.position(n.stage));
    text += it == from ? to_string(*it) : ", which";
    text += " waits for " + to_string(n);
    if (before != n) text += ", which comes after " + to_string(before);
  }
  return text;
}

void check_sizes(const PipelineSchedule& s, std::string_view where) {
  DT_CHECK(s.positions >= 1 && s.chunks >= 1 && s.micros >= 1, where,
           "the schedule has positions {}, chunks {} and micro-batches {}; "
           "write 1 or more for each",
           s.positions, s.chunks, s.micros);
  DT_CHECK(s.positions <= kMostScheduled / s.chunks / s.micros, where,
           "the schedule has positions {}, chunks {} and micro-batches {}; "
           "write numbers whose product is {} or less",
           s.positions, s.chunks, s.micros, kMostScheduled);
}

// Checks that every task is there once, in the list of its position.
void check_tasks(const PipelineSchedule& s, std::string_view where) {
  DT_CHECK(static_cast<int64_t>(s.tasks.size()) == s.positions, where,
           "the number of lists of tasks is {}, but that of positions is {}; "
           "write one list for each position",
           s.tasks.size(), s.positions);
  std::set<std::tuple<int64_t, int64_t, PipelineWork>> seen;
  for (int64_t r = 0; r < s.positions; ++r)
    for (const PipelineTask& t : s.tasks[static_cast<size_t>(r)]) {
      DT_CHECK(
          t.stage >= 0 && t.stage < s.stages(), where,
          "the schedule lists {}, but the stages are 0 to {}; list only these",
          to_string(t), s.stages() - 1);
      DT_CHECK(t.micro >= 0 && t.micro < s.micros, where,
               "the schedule lists {}, but the micro-batches are 0 to {}; list "
               "only these",
               to_string(t), s.micros - 1);
      DT_CHECK(s.position(t.stage) == r, where,
               "{} is in the list of position {}, but the stage is at {}; "
               "write it there",
               to_string(t), r, s.position(t.stage));
      DT_CHECK(t.work != kW || s.weight_tasks, where,
               "{} is in a schedule without weight tasks; leave it out",
               to_string(t));
      const bool first = seen.insert({t.stage, t.micro, t.work}).second;
      DT_CHECK(first, where, "{} is in the schedule twice; write it once",
               to_string(t));
    }
  for (int64_t stage = 0; stage < s.stages(); ++stage)
    for (int64_t i = 0; i < s.micros; ++i)
      for (PipelineWork w : {kF, kB, kW})
        DT_CHECK((w == kW && !s.weight_tasks) ||
                     seen.contains(std::tuple(stage, i, w)),
                 where, "{} is missing; add {} to the list of position {}",
                 to_string(PipelineTask{w, stage, i}),
                 short_name({w, stage, i}, s), s.position(stage));
}

}  // namespace

std::string_view name(PipelineWork w) {
  return w == kF ? "forward" : w == kB ? "backward" : "weight";
}

std::string short_name(const PipelineTask& t, const PipelineSchedule& s) {
  const int64_t chunk = t.stage / s.positions;
  const char letter = t.work == kF ? 'F' : t.work == kB ? 'B' : 'W';
  return chunk == 0 ? fmt::format("{}{}", letter, t.micro)
                    : fmt::format("{}{}.{}", letter, t.micro, chunk);
}

std::string to_string(const PipelineTask& t) {
  return fmt::format("the {}{} of micro-batch {} at stage {}", name(t.work),
                     t.work == kW ? " gradient" : "", t.micro, t.stage);
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"gpipe", "1f1b", "interleaved",
                                                 "zb-h1", "zb-h2"};
  return names;
}

bool is_schedule_name(std::string_view text) {
  const auto& names = schedule_names();
  return std::find(names.begin(), names.end(), text) != names.end();
}

std::vector<PipelineTask> needs(const PipelineTask& t,
                                const PipelineSchedule& s) {
  std::vector<PipelineTask> list;
  if (t.work == kF && t.stage > 0) list.push_back({kF, t.stage - 1, t.micro});
  if (t.work == kB) {
    list.push_back({kF, t.stage, t.micro});
    if (t.stage + 1 < s.stages()) list.push_back({kB, t.stage + 1, t.micro});
  }
  if (t.work == kW) list.push_back({kB, t.stage, t.micro});
  return list;
}

PipelineSchedule checked(PipelineSchedule s, std::string_view where) {
  check_sizes(s, where);
  check_tasks(s, where);
  Done done(s);
  std::vector<size_t> next(s.tasks.size());
  size_t left = 0;
  for (const auto& list : s.tasks) left += list.size();
  for (int64_t slot = 0; left > 0; ++slot) {
    std::vector<PipelineTask> now;
    for (size_t r = 0; r < s.tasks.size(); ++r) {
      if (next[r] == s.tasks[r].size()) continue;
      PipelineTask& t = s.tasks[r][next[r]];
      if (!done.ready(t)) continue;
      t.slot = slot;
      now.push_back(t);
    }
    DT_CHECK(!now.empty(), where, "the order deadlocks: {}; change the order",
             circle(s, done, next));
    for (const PipelineTask& t : now) {
      done.set(t);
      ++next[static_cast<size_t>(s.position(t.stage))];
      --left;
    }
  }
  return s;
}

PipelineSchedule make_schedule(std::string_view name, int64_t positions,
                               int64_t micros, int64_t chunks) {
  DT_CHECK(is_schedule_name(name), "pipeline",
           "there is no schedule '{}'; write one of {}", name,
           fmt::join(schedule_names(), ", "));
  PipelineSchedule s{.name = std::string(name),
                     .positions = positions,
                     .chunks = chunks,
                     .micros = micros,
                     .weight_tasks = name.starts_with("zb-"),
                     .tasks = {}};
  check_sizes(s, "pipeline");
  s.tasks.resize(static_cast<size_t>(positions));
  DT_CHECK(chunks == 1 || name == "interleaved", "pipeline",
           "the schedule {} cannot have {} chunks at each position; write the "
           "schedule interleaved, or 1 chunk",
           name, chunks);
  DT_CHECK(name != "interleaved" || micros >= positions, "pipeline",
           "interleaved needs at least as many micro-batches as positions, {}, "
           "but their number is {}; write {} micro-batches or more, or 1f1b "
           "with 1 chunk",
           positions, micros, positions);
  if (name == "gpipe") {
    gpipe(s);
  } else if (name == "zb-h1") {
    zb_h1(s);
  } else if (name == "zb-h2") {
    zero_bubble(s, 2 * positions - 1,
                [&](int64_t r) { return 2 * (positions - r) - 1; });
  } else {
    one_forward_one_backward(s);
  }
  return checked(std::move(s));
}

}  // namespace dtensor::nn
