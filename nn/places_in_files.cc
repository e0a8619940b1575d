// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/places_in_files.h"

#include <fmt/format.h>

#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/view.h"

namespace dtensor::nn {
namespace {

using As = NameInFile::As;

std::string replaced(std::string name, std::string_view from,
                     std::string_view to) {
  return name.replace(name.find(from), from.size(), to);
}

}  // namespace

DistTensor PlaceInFile::part_of(const DistTensor& parameter) const {
  if (expert < 0 && viewed.empty()) return parameter;
  // Not marked as a parameter, so that these operators do not gather it.
  const DistTensor values =
      DistTensor::wrap(parameter.impl()->part(), parameter.spec());
  if (!viewed.empty()) return view(values, viewed);
  return slice(values, 0, expert, expert + 1);
}

PlacesInFiles::PlacesInFiles(const LanguageModel& model, bool without_prefix)
    : of_(architecture(model.config().name)),
      without_prefix_(without_prefix),
      heads_(model.config().heads),
      parameters_(model.named_parameters()) {
  std::erase_if(parameters_, [](const NamedParameter& p) {
    return p.name.ends_with(".weight_scale");
  });
}

std::vector<PlaceInFile> PlacesInFiles::of(const NamedParameter& p) const {
  std::vector<PlaceInFile> all = with_prefix(p);
  const std::string_view prefix = of_.optional_prefix;
  if (without_prefix_)
    for (PlaceInFile& t : all)
      if (t.name.starts_with(prefix)) t.name.erase(0, prefix.size());
  return all;
}

std::vector<PlaceInFile> PlacesInFiles::with_prefix(
    const NamedParameter& p) const {
  const Shape& shape = p.tensor.shape();
  for (const NameInFile& n : of_.names) {
    if (p.name.find(n.ours) == p.name.npos) continue;
    std::string theirs = replaced(p.name, n.ours, n.theirs);
    if (n.as == As::kByExperts) {
      std::vector<PlaceInFile> all;
      for (int64_t e = 0; e < shape[0]; ++e)
        all.push_back({.name = fmt::format(fmt::runtime(theirs), e),
                       .shape = {shape[1], shape[2]},
                       .expert = e});
      return all;
    }
    PlaceInFile t = n.as == As::kItself
                        ? PlaceInFile{.name = std::move(theirs), .shape = shape}
                        : beside_others(p, n);
    if (n.transposed && shape.size() == 2) {
      t.window.order = {1, 0};
      std::swap(t.shape[0], t.shape[1]);
      if (!t.window.offset.empty())
        std::swap(t.window.offset[0], t.window.offset[1]);
    }
    return {t};
  }
  return {{.name = p.name, .shape = shape}};
}

// The place of a parameter whose tensor in the file also holds other
// parameters.
PlaceInFile PlacesInFiles::beside_others(const NamedParameter& p,
                                         const NameInFile& n) const {
  const Shape& shape = p.tensor.shape();
  PlaceInFile t{.name = replaced(p.name, n.ours, n.theirs), .shape = shape};
  int64_t parts = 0, part = 0, first = 0, rows = 0;
  for (const NameInFile& other : of_.names) {
    if (std::string_view(other.theirs) != n.theirs) continue;
    if (&other == &n) part = parts, first = rows;
    rows += rows_of(replaced(p.name, n.ours, other.ours));
    ++parts;
  }
  t.shape[0] = rows;
  if (n.as == As::kConcatenated) {
    t.window.offset = Shape::filled(shape.size(), 0);
    t.window.offset[0] = first;
    return t;
  }
  // The file's tensor is seen as [heads, part, rows of a head, ...].
  t.viewed = {heads_, 1, shape[0] / heads_};
  t.window.seen_as = {heads_, parts, shape[0] / heads_};
  for (int i = 1; i < shape.size(); ++i) {
    t.viewed.push_back(shape[i]);
    t.window.seen_as.push_back(shape[i]);
  }
  t.window.offset = Shape::filled(t.viewed.size(), 0);
  t.window.offset[1] = part;
  return t;
}

int64_t PlacesInFiles::rows_of(const std::string& name) const {
  for (const NamedParameter& p : parameters_)
    if (p.name == name) return p.tensor.size(0);
  return 0;
}

}  // namespace dtensor::nn
