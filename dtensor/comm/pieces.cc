#include "dtensor/comm/pieces.h"

#include <algorithm>

namespace dtensor {

void Boxes::reset(const Region& region,
                  std::span<const HeldRegion* const> arrays,
                  std::span<const Sizes> strides) {
  runs_.clear();
  at_.clear();
  step_.clear();
  ends_.clear();
  strides_.clear();
  for (const Sizes& s : strides)
    strides_.insert(strides_.end(), s.begin(), s.end());
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
          if (!arrays[a]) {
            next_[a] = passed;
            continue;
          }
          const IntervalList& list = arrays[a]->ascending()[d];
          const auto starts = arrays[a]->starts(d);
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
    // Does the range lie where the run would continue: directly after the only
    // range, or one step after the last?
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

void PieceWork::reset(const Region& piece, const HeldArray& first,
                      std::span<const HeldArray> others) {
  arrays_.assign(1, first.held);
  strides_.assign(1, first.strides);
  for (const HeldArray& a : others) {
    arrays_.push_back(a.held);
    strides_.push_back(a.strides);
  }
  boxes_.reset(piece, arrays_, strides_);
}

int64_t PieceWork::copy(const Place& on, int64_t item, const Region& piece,
                        const HeldArray& to, const HeldArray& from) {
  int64_t copied = 0;
  reset(piece, to, {&from, 1});
  boxes_.each([&](Sizes shape) {
    copied += on.device.copy(
        on.stream, item, shape, advance(to.data, boxes_.offset(0), item),
        boxes_.strides(0), advance(from.data, boxes_.offset(1), item),
        boxes_.strides(1));
  });
  return copied;
}

int64_t PieceWork::reduce(const Place& on, ReduceOp op, DType dtype,
                          const Region& piece, const HeldArray& to,
                          int64_t terms) {
  const int64_t item = size_of(dtype);
  int64_t read = 0;
  reset(piece, to, sources_);
  operands_.resize(sources_.size());
  boxes_.each([&](Sizes shape) {
    for (size_t j = 0; j < sources_.size(); ++j)
      operands_[j] = {advance(sources_[j].data, boxes_.offset(1 + j), item),
                      boxes_.strides(1 + j)};
    read += on.device.reduce(on.stream, op, dtype, shape,
                             advance(to.data, boxes_.offset(0), item),
                             boxes_.strides(0), operands_, terms);
  });
  return read;
}

void* PieceWork::whole(int64_t item, const Region& piece, const HeldArray& in) {
  const auto is_packed = [](Sizes shape, Sizes strides) {
    int64_t next = 1;
    for (size_t d = shape.size(); d-- > 0; next *= shape[d])
      if (shape[d] != 1 && strides[d] != next) return false;
    return true;
  };
  reset(piece, in, {});
  void* at = nullptr;
  int count = 0;
  boxes_.each([&](Sizes shape) {
    if (count++ == 0 && is_packed(shape, boxes_.strides(0)))
      at = advance(in.data, boxes_.offset(0), item);
  });
  return count == 1 ? at : nullptr;
}

}  // namespace dtensor
