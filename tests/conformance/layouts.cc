// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/layouts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace dtensor::conformance {
namespace {

// The FNV-1a hash, which is the same on every machine, unlike std::hash.
uint64_t hash_of(std::string_view text, uint64_t seed) {
  uint64_t h = 14695981039346656037u ^ seed;
  for (char c : text) {
    h ^= static_cast<unsigned char>(c);
    h *= 1099511628211u;
  }
  return h;
}

std::vector<std::string> choices(const Array& a) {
  std::vector<std::string> list{"R"};
  for (int d = 0; d < a.shape.size(); ++d)
    list.push_back("S" + std::to_string(d));
  // The parts of a sum can add up exactly only if all numbers are finite, and
  // have fewer digits than their type, as those of f64 have.
  if (a.dtype != DType::kBool &&
      (!is_float(a.dtype) || a.dtype == DType::kF64) &&
      std::ranges::all_of(a.v, [](double x) { return std::isfinite(x); }))
    list.push_back("P");
  return list;
}

}  // namespace

std::vector<Combination> combinations(const Cases& cases, const Case& c,
                                      const Mesh& mesh, int64_t most,
                                      uint64_t seed) {
  const auto axes = static_cast<size_t>(mesh.num_axes());
  std::vector<std::vector<std::string>> tensors;
  for (const std::string& name : c.inputs)
    tensors.push_back(choices(cases.tensor(name)));
  const size_t inputs = tensors.size();
  for (const std::string& name : c.outputs)
    if (auto it = c.cotangents.find(name); it != c.cotangents.end())
      tensors.push_back(choices(cases.tensor(it->second)));

  // A combination is a number with one digit for each input and axis.
  std::vector<size_t> bases;
  double count = 1;
  for (size_t t = 0; t < inputs; ++t)
    for (size_t a = 0; a < axes; ++a) {
      bases.push_back(tensors[t].size());
      count *= static_cast<double>(tensors[t].size());
    }
  if (mesh.num_ranks() == 1) count = 1;
  const bool all = count <= static_cast<double>(most);
  std::mt19937_64 random(hash_of(c.id + " " + mesh.to_string(), seed));
  std::set<std::vector<size_t>> taken;
  std::vector<Combination> list;
  std::vector<size_t> digits(bases.size(), 0);
  const auto wanted = static_cast<size_t>(all ? count : double(most));
  while (list.size() < wanted) {
    if (!all)
      for (size_t i = 0; i < digits.size(); ++i)
        digits[i] = random() % bases[i];
    if (taken.insert(digits).second) {
      Combination layouts;
      for (size_t t = 0; t < tensors.size(); ++t) {
        std::string text;
        for (size_t a = 0; a < axes; ++a) {
          const size_t digit =
              t < inputs ? digits[t * axes + a] : random() % tensors[t].size();
          text += (a ? "," : "") + tensors[t][digit];
        }
        layouts.push_back(text);
      }
      list.push_back(layouts);
    }
    if (all)
      for (size_t i = 0; i < digits.size() && ++digits[i] == bases[i]; ++i)
        digits[i] = 0;
  }
  return list;
}

}  // namespace dtensor::conformance
