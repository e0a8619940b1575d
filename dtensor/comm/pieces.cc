// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/pieces.h"

#include <algorithm>

namespace dtensor {

void Boxes::reset(const Region& region, std::span<const HeldArray> arrays) {
  runs_.clear();
  at_.clear();
  step_.clear();
  ends_.clear();
  strides_.clear();
  data_.clear();
  for (const HeldArray& a : arrays) {
    data_.push_back(a.data);
    strides_.insert(strides_.end(), a.strides.begin(), a.strides.end());
  }
  offsets_.resize(arrays.size());
  next_.resize(arrays.size());
  for (size_t d = 0; d < region.size(); ++d) {
    range_.assign(arrays.size(), 0);
    start_.assign(arrays.size(), 0);
    int64_t passed = 0;
    for (const Interval& r : region[d]) {
      for (int64_t lo = r.lo; lo < r.hi;) {
        int64_t hi = r.hi;
        for (size_t a = 0; a < arrays.size(); ++a) {
          if (!arrays[a].held) {
            next_[a] = passed;
            continue;
          }
          const IntervalList& list = arrays[a].held->ascending()[d];
          const auto starts = arrays[a].held->starts(d);
          size_t& i = range_[a];
          for (; list[i].hi <= lo; ++i) start_[a] += list[i].size();
          if (!starts.empty()) start_[a] = starts[i];
          hi = std::min(hi, list[i].hi);
          next_[a] = start_[a] + lo - list[i].lo;
        }
        add(hi - lo);
        passed += hi - lo;
        lo = hi;
      }
    }
    ends_.push_back(runs_.size());
  }
}

void Boxes::add(int64_t length) {
  const size_t arrays = next_.size();
  if (runs_.size() > begin(ends_.size())) {
    Run& run = runs_.back();
    int64_t* at = at_.data() + at_.size() - arrays;
    int64_t* step = step_.data() + step_.size() - arrays;
    // The range joins the last run if it lies directly after the run's only
    // range in every array. Or it has the run's length, and is the second
    // range, which sets the steps, or lies one step after the last range.
    bool longer = run.count == 1;
    bool further = run.length == length;
    for (size_t a = 0; a < arrays; ++a) {
      longer = longer && next_[a] == at[a] + run.length;
      further = further &&
                (run.count == 1 || next_[a] == at[a] + run.count * step[a]);
    }
    if (longer) {
      run.length += length;
      return;
    }
    if (further) {
      if (run.count == 1)
        for (size_t a = 0; a < arrays; ++a) step[a] = next_[a] - at[a];
      ++run.count;
      return;
    }
  }
  runs_.push_back({1, length});
  at_.insert(at_.end(), next_.begin(), next_.end());
  step_.resize(at_.size());
}

void Boxes::select() {
  const size_t arrays = offsets_.size(), ndim = ends_.size();
  shape_.clear();
  box_strides_.clear();
  for (size_t d = 0; d < ndim; ++d) {
    const Run& run = runs_[begin(d) + at_run_[d]];
    if (run.count > 1) shape_.push_back(run.count);
    shape_.push_back(run.length);
  }
  for (size_t a = 0; a < arrays; ++a) {
    offsets_[a] = 0;
    for (size_t d = 0; d < ndim; ++d) {
      const size_t i = begin(d) + at_run_[d];
      const int64_t stride = strides_[a * ndim + d];
      offsets_[a] += at_[i * arrays + a] * stride;
      if (runs_[i].count > 1)
        box_strides_.push_back(step_[i * arrays + a] * stride);
      box_strides_.push_back(stride);
    }
  }
}

}  // namespace dtensor
