// SPDX-License-Identifier: Apache-2.0
// The calls of functions of one tensor, element by element.
#include <string>
#include <utility>
#include <vector>

#include "dtensor/ops/pointwise.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

// Calls call(0, 1, ..., n - 1), where n, from `least` to `most`, is the number
// of given parameters.
template <int least, int most, class Call>
DistTensor by_count(size_t given, Call call) {
  if constexpr (least < most)
    if (given > static_cast<size_t>(least))
      return by_count<least + 1, most>(given, call);
  return [&]<int... i>(std::integer_sequence<int, i...>) { return call(i...); }
  (std::make_integer_sequence<int, least>());
}

// The parameters of a function, by position and name as in torch. A null counts
// as not given. The first parameter has the position `at`.
std::vector<Number> parameters(A a, const fn::Function& f, size_t at) {
  std::vector<Number> list;
  for (int i = 0; i < f.num_params; ++i) {
    const size_t position = at + static_cast<size_t>(i);
    if (!a.has(position, f.params[i].name)) continue;
    while (static_cast<int>(list.size()) < i)  // the parameters before it
      list.push_back(f.params[list.size()].fallback);
    const auto& raw = a.raw(position, f.params[i].name);
    if (raw.is_boolean())
      list.push_back(raw.get<bool>());
    else if (raw.is_number_integer())
      list.push_back(raw.get<int64_t>());
    else
      list.push_back(a.number(position, f.params[i].name));
  }
  return list;
}

// Adds a function under all names that it could have in torch's modules.
void add(CallTable& t, std::string_view name, Call call) {
  for (const char* module : {"", "nn.functional.", "special."})
    t[module + std::string(name)] = call;
}

}  // namespace

void add_pointwise_calls(CallTable& t) {
#define DT_CALL(F, name) \
  add(t, #name, [](A a) -> T { return {name(a.tensor(0, "input"))}; });
#define DT_CALL_P(F, name)                                           \
  add(t, #name, [](A a) -> T {                                       \
    constexpr int kIndex = fn::index_of<fn::F>;                      \
    const auto p = parameters(a, fn::unary_function(kIndex), 1);     \
    const DistTensor x = a.tensor(0, "input");                       \
    auto call = [&](auto... i) { return name(x, p[size_t(i)]...); }; \
    constexpr int kLeast = fn::facts<fn::F>().num_required;          \
    constexpr int kMost = fn::facts<fn::F>().num_params;             \
    return {by_count<kLeast, kMost>(p.size(), call)};                \
  });
  DT_UNARY_FUNCTIONS(DT_CALL, DT_CALL_P)
#undef DT_CALL
#undef DT_CALL_P
  t["nn.functional.gelu"] = [](A a) -> T {
    const DistTensor x = a.tensor(0, "input");
    return {a.text(kNamed, "approximate", "none") == "tanh" ? gelu_tanh(x)
                                                            : gelu(x)};
  };
}

}  // namespace dtensor::conformance
