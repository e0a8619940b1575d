// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

std::vector<DistTensor> each(std::string_view op, TensorList list,
                             DistTensor (*f)(const DistTensor&)) {
  check_defined(op, list);
  DT_CHECK(!list.empty(), op, "got an empty list; pass at least one tensor");
  std::vector<DistTensor> out;
  for (const DistTensor& x : list) out.push_back(f(x));
  return out;
}

}  // namespace

DistTensor flatten(const DistTensor& x, int start, int end) {
  check_defined("flatten", x);
  if (x.ndim() == 0) return reshape(x, {1});
  const int lo = normalize_dim(start, x.ndim(), "flatten"),
            hi = normalize_dim(end, x.ndim(), "flatten");
  DT_CHECK(lo <= hi, "flatten",
           "the start dimension {} comes after the end dimension {} in {}; "
           "swap them",
           start, end, x.spec()->to_string());
  Shape shape;
  int64_t size = 1;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d < lo || d > hi) {
      shape.push_back(x.shape()[d]);
      continue;
    }
    size *= x.shape()[d];
    if (d == hi) shape.push_back(size);
  }
  return reshape(x, shape);
}

DistTensor unflatten(const DistTensor& x, int dim, const Shape& sizes) {
  check_defined("unflatten", x);
  const int at = normalize_dim(dim, x.ndim(), "unflatten");
  // The product of the given sizes, and the number of those that are -1.
  int64_t known = 1, open = 0;
  bool fits = true;
  for (int64_t n : sizes) {
    open += n == -1;
    if (n != -1) fits &= n >= 0 && !__builtin_mul_overflow(known, n, &known);
  }
  const int64_t size = x.size(at), rest = known > 0 ? size / known : 0;
  DT_CHECK(
      fits && (open == 0 ? known == size
                         : open == 1 && known > 0 && known * rest == size),
      "unflatten",
      "dimension {} of {} cannot become {}; write sizes whose product is {}",
      dim, x.spec()->to_string(), to_string(sizes), size);
  Shape shape = x.shape();
  shape.erase(at);
  for (int i = 0; i < sizes.size(); ++i)
    shape.insert(at + i, sizes[i] == -1 ? rest : sizes[i]);
  return reshape(x, shape);
}

DistTensor movedim(const DistTensor& x, const std::vector<int>& from,
                   const std::vector<int>& to) {
  check_defined("movedim", x);
  DT_CHECK(from.size() == to.size(), "movedim",
           "the list of dimensions has length {}, but the list of positions "
           "has length {}; pass one position for each dimension",
           from.size(), to.size());
  const auto n = static_cast<size_t>(x.ndim());
  std::vector<int> order(n, -1);
  std::vector<bool> moved(n, false);
  for (size_t i = 0; i < from.size(); ++i) {
    const int source = normalize_dim(from[i], x.ndim(), "movedim"),
              target = normalize_dim(to[i], x.ndim(), "movedim");
    DT_CHECK(!moved[static_cast<size_t>(source)], "movedim",
             "dimension {} of {} is moved twice; name it once", source,
             x.spec()->to_string());
    DT_CHECK(order[static_cast<size_t>(target)] < 0, "movedim",
             "two dimensions of {} are moved to position {}; give each its own",
             x.spec()->to_string(), target);
    moved[static_cast<size_t>(source)] = true;
    order[static_cast<size_t>(target)] = source;
  }
  int next = 0;
  for (int& d : order) {
    if (d >= 0) continue;
    while (moved[static_cast<size_t>(next)]) ++next;
    d = next++;
  }
  return permute(x, order);
}

DistTensor transpose(const DistTensor& x) {
  check_defined("transpose", x);
  DT_CHECK(x.ndim() <= 2, "transpose",
           "{} has more than two dimensions; write permute()",
           x.spec()->to_string());
  return x.ndim() == 2 ? transpose(x, 0, 1) : alias(x);
}

DistTensor atleast_1d(const DistTensor& x) {
  check_defined("atleast_1d", x);
  return x.ndim() >= 1 ? alias(x) : reshape(x, {1});
}
DistTensor atleast_2d(const DistTensor& x) {
  check_defined("atleast_2d", x);
  return x.ndim() >= 2 ? alias(x) : unsqueeze(atleast_1d(x), 0);
}
DistTensor atleast_3d(const DistTensor& x) {
  check_defined("atleast_3d", x);
  return x.ndim() >= 3 ? alias(x) : unsqueeze(atleast_2d(x), 2);
}

std::vector<DistTensor> unbind(const DistTensor& x, int dim) {
  check_defined("unbind", x);
  const int d = normalize_dim(dim, x.ndim(), "unbind");
  std::vector<DistTensor> list;
  for (int64_t i = 0; i < x.size(d); ++i) list.push_back(select(x, d, i));
  return list;
}

std::vector<DistTensor> tensor_split(const DistTensor& x, int64_t sections,
                                     int dim) {
  check_defined("tensor_split", x);
  DT_CHECK(sections >= 1, "tensor_split", "sections is {}; write at least 1",
           sections);
  const int64_t n = x.size(normalize_dim(dim, x.ndim(), "tensor_split"));
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < sections; ++i)
    sizes.push_back(n / sections + (i < n % sections));
  return split(x, sizes, dim);
}

std::vector<DistTensor> tensor_split(const DistTensor& x,
                                     const std::vector<int64_t>& indices,
                                     int dim) {
  check_defined("tensor_split", x);
  std::vector<DistTensor> list;
  int64_t lo = 0;
  const int64_t n = x.size(normalize_dim(dim, x.ndim(), "tensor_split"));
  for (size_t i = 0; i <= indices.size(); ++i) {
    const int64_t hi = i < indices.size() ? indices[i] : n;
    list.push_back(slice(x, dim, lo, hi));
    lo = hi;
  }
  return list;
}

DistTensor vstack(TensorList list) {
  return cat(each("vstack", list, atleast_2d), 0);
}
DistTensor hstack(TensorList list) {
  const auto thick = each("hstack", list, atleast_1d);
  return cat(thick, thick[0].ndim() == 1 ? 0 : 1);
}
DistTensor dstack(TensorList list) {
  return cat(each("dstack", list, atleast_3d), 2);
}
DistTensor column_stack(TensorList list) {
  return cat(
      each("column_stack", list,
           [](const DistTensor& x) {
             return x.ndim() >= 2 ? x : reshape(x, {numel(x.shape()), 1});
           }),
      1);
}

std::vector<DistTensor> broadcast_tensors(TensorList list) {
  check_defined("broadcast_tensors", list);
  Shape shape;
  for (size_t i = 0; i < list.size(); ++i) {
    const Shape& x = list[i].shape();
    // broadcast_shapes() below names the shapes of the first two tensors.
    for (int d = 1; i >= 2 && d <= std::min(x.size(), shape.size()); ++d) {
      const int64_t a = shape[shape.size() - d], b = x[x.size() - d];
      DT_CHECK(
          a == b || a == 1 || b == 1, "broadcast_tensors",
          "tensor {} of shape {} does not broadcast with the tensors before "
          "it: size {} of its dimension {} meets size {}; make the two "
          "equal, or one of them 1",
          i, to_string(x), b, x.size() - d, a);
    }
    shape = broadcast_shapes(shape, x, "broadcast_tensors");
  }
  std::vector<DistTensor> out;
  for (const DistTensor& x : list) out.push_back(expand(x, shape));
  return out;
}

std::vector<DistTensor> meshgrid(TensorList list, bool xy) {
  check_defined("meshgrid", list);
  const bool swap = xy && list.size() >= 2;
  const auto n = static_cast<int>(list.size());
  Shape all = Shape::filled(n, 1);
  auto place = [&](int i) { return swap && i < 2 ? 1 - i : i; };
  for (int i = 0; i < n; ++i) {
    const DistTensor& x = list[static_cast<size_t>(i)];
    DT_CHECK(x.ndim() <= 1, "meshgrid",
             "{} is not a vector; pass tensors of at most one dimension",
             x.spec()->to_string());
    all[place(i)] = numel(x.shape());
  }
  std::vector<DistTensor> out;
  for (int i = 0; i < n; ++i) {
    const DistTensor& x = list[static_cast<size_t>(i)];
    out.push_back(expand(along_dim(x, n, place(i)), all));
  }
  return out;
}

// The first `added` numbers of `times` are not from the caller.
static DistTensor repeated(std::string_view op, const DistTensor& x,
                           const std::vector<int64_t>& times, int added) {
  const auto n = static_cast<int>(times.size());
  DT_CHECK(n >= x.ndim(), op,
           "times has length {}, which is too short for {}; write at least one "
           "number for each dimension",
           n, x.spec()->to_string());
  // Views a repeated dimension [d] as [1, d], expands the 1, and merges both.
  Shape thin, wide, out;
  for (int d = 0; d < n; ++d) {
    const int64_t by = times[static_cast<size_t>(d)];
    const int own = d - (n - x.ndim());
    const int64_t size = own < 0 ? 1 : x.shape()[own];
    DT_CHECK(by >= 0, op, "times[{}] is {}; write 0 or more", d - added, by);
    if (by != 1 && own >= 0) {
      thin.push_back(1);
      wide.push_back(by);
    }
    thin.push_back(size);
    wide.push_back(own < 0 ? by : size);
    out.push_back(size * by);
  }
  return reshape(expand(reshape(x, thin), wide), out);
}

DistTensor repeat(const DistTensor& x, const std::vector<int64_t>& times) {
  check_defined("repeat", x);
  return repeated("repeat", x, times, 0);
}

DistTensor tile(const DistTensor& x, const std::vector<int64_t>& times) {
  check_defined("tile", x);
  const int added = std::max(0, x.ndim() - static_cast<int>(times.size()));
  std::vector<int64_t> all(times);
  all.insert(all.begin(), static_cast<size_t>(added), 1);
  return repeated("tile", x, all, added);
}

DistTensor repeat_interleave(const DistTensor& x, int64_t times, int dim) {
  check_defined("repeat_interleave", x);
  DT_CHECK(times >= 0, "repeat_interleave", "times is {}; write 0 or more",
           times);
  if (x.ndim() == 0) return repeat_interleave(reshape(x, {1}), times, dim);
  const int d = normalize_dim(dim, x.ndim(), "repeat_interleave");
  Shape wide = x.shape(), out = x.shape();
  wide.insert(d + 1, times);
  out[d] *= times;
  return reshape(expand(unsqueeze(x, d + 1), wide), out);
}

DistTensor repeat_interleave(const DistTensor& x,
                             const std::vector<int64_t>& times, int dim) {
  check_defined("repeat_interleave", x);
  if (times.size() == 1) return repeat_interleave(x, times[0], dim);
  const int d = normalize_dim(dim, x.ndim(), "repeat_interleave");
  DT_CHECK(std::ssize(times) == x.size(d), "repeat_interleave",
           "times has length {}, but dimension {} of {} has size {}; write one "
           "number for each index",
           times.size(), d, x.spec()->to_string(), x.size(d));
  std::vector<int64_t> index;
  for (int64_t i = 0; i < x.size(d); ++i) {
    const int64_t n = times[static_cast<size_t>(i)];
    DT_CHECK(n >= 0, "repeat_interleave", "times[{}] is {}; write 0 or more", i,
             n);
    index.insert(index.end(), static_cast<size_t>(n), i);
  }
  return index_select(x, d, vector_of(index, x.mesh()));
}

DistTensor repeat_interleave(const DistTensor& x, int64_t times) {
  check_defined("repeat_interleave", x);
  return repeat_interleave(flatten(x), times, 0);
}

DistTensor roll(const DistTensor& x, const std::vector<int64_t>& shifts,
                const std::vector<int>& dims) {
  check_defined("roll", x);
  DT_CHECK(shifts.size() == dims.size(), "roll",
           "shifts has length {}, but dims has length {}; pass one shift for "
           "each dimension",
           shifts.size(), dims.size());
  DistTensor y = alias(x);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int d = normalize_dim(dims[i], x.ndim(), "roll");
    const int64_t n = x.size(d);
    if (n == 0) continue;
    const int64_t by = (shifts[i] % n + n) % n;
    if (by != 0) y = cat({slice(y, d, n - by, n), slice(y, d, 0, n - by)}, d);
  }
  return y;
}

DistTensor pad(const DistTensor& x, const std::vector<int64_t>& widths,
               double value) {
  check_defined("pad", x);
  DT_CHECK(
      widths.size() % 2 == 0 && static_cast<int>(widths.size()) <= 2 * x.ndim(),
      "pad",
      "the list of widths has length {} for {}; write two for each dimension, "
      "beginning with the last dimension",
      widths.size(), x.spec()->to_string());
  DistTensor y = alias(x);
  for (size_t i = 0; i < widths.size(); i += 2) {
    const int d = x.ndim() - 1 - static_cast<int>(i / 2);
    const int64_t lo = widths[i], hi = widths[i + 1];
    DT_CHECK(static_cast<__int128>(lo) + hi + x.size(d) >= 0, "pad",
             "widths {} and {} cut more than dimension {} of {} has; write "
             "widths whose sum is at least {}",
             lo, hi, d, x.spec()->to_string(), -x.size(d));
    // Adds padding before it cuts. So, as in torch, a negative width also cuts
    // the padding that the dimension's other width added.
    auto border = [&](int64_t n) {
      Shape s = y.shape();
      s[d] = n;
      return full(s, value, x.mesh(), {}, x.dtype());
    };
    std::vector<DistTensor> pieces{y};
    if (lo > 0) pieces.insert(pieces.begin(), border(lo));
    if (hi > 0) pieces.push_back(border(hi));
    y = cat(pieces, d);
    if (lo < 0) y = slice(y, d, std::min(-lo, y.size(d)), y.size(d));
    if (hi < 0) y = slice(y, d, 0, std::max<int64_t>(0, y.size(d) + hi));
  }
  return y;
}

}  // namespace dtensor
