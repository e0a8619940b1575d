// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/cases.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>

#include "dtensor/placement/error.h"

namespace dtensor::conformance {
namespace {

using nlohmann::json;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  DT_CHECK(in.good(), "conformance",
           "cannot read {}; name the folder that holds cases.jsonl and "
           "tensors.safetensors",
           path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void collect_inputs(const json& value, std::vector<std::string>& names) {
  if (value.is_object() && value.contains("tensor"))
    names.push_back(value["tensor"].get<std::string>());
  else if (value.is_structured())
    for (const json& v : value) collect_inputs(v, names);
}

Case parse_case(const json& j) {
  Case c;
  c.id = j.at("id");
  c.op = j.at("op");
  c.tier = j.at("tier");
  c.args = j.at("args");
  c.kwargs = j.at("kwargs");
  collect_inputs(c.args, c.inputs);
  collect_inputs(c.kwargs, c.inputs);
  c.throws = j.contains("throws");
  if (c.throws) return c;
  c.outputs = j.at("outputs").get<std::vector<std::string>>();
  c.rtol = j.at("rtol");
  c.atol = j.at("atol");
  const auto read = [&](const char* field, auto& to) {
    if (j.contains(field)) to = j.at(field).get<decltype(c.gradients)>();
  };
  read("cotangents", c.cotangents);
  read("gradients", c.gradients);
  return c;
}

std::optional<DType> dtype_named(std::string_view name) {
  if (name == "F64") return DType::kF64;
  if (name == "F32") return DType::kF32;
  if (name == "I64") return DType::kI64;
  if (name == "I32") return DType::kI32;
  if (name == "BOOL") return DType::kBool;
  return std::nullopt;
}

template <class T, class To>
void append(const char* data, size_t n, std::vector<To>& to) {
  for (size_t i = 0; i < n; ++i) {
    T x;
    std::memcpy(&x, data + i * sizeof(T), sizeof(T));
    to.push_back(static_cast<To>(x));
  }
}

Value read_value(DType dtype, const Shape& shape, const char* data) {
  Value a{{shape, {}, dtype}};
  auto n = static_cast<size_t>(numel(shape));
  if (dtype == DType::kF64) append<double>(data, n, a.v);
  if (dtype == DType::kF32) append<float>(data, n, a.v);
  if (dtype == DType::kI64) {
    append<int64_t>(data, n, a.v);
    append<int64_t>(data, n, a.integers);
  }
  if (dtype == DType::kI32) append<int32_t>(data, n, a.v);
  if (dtype == DType::kBool) append<uint8_t>(data, n, a.v);
  return a;
}

// The factor of a rank's part: the product of c_i over the axes of the sum.
int64_t coefficient(const Spec* spec, const Coord& c, int which) {
  int64_t product = 1;
  for (const Partial& p : spec->layout().partials) {
    DT_CHECK(p.op == ReduceOp::kSum, "conformance", "no parts for {}",
             spec->to_string());
    const int64_t last = spec->mesh().axis_size(p.axis) - 1;
    auto times = [&](int64_t k) {
      const int64_t v = k + 3 + which % 3;
      return k % 2 ? -v : v;  // 3, -4, 5, ...
    };
    int64_t mine = times(c[p.axis]);
    if (c[p.axis] == last) {
      mine = 1;
      for (int64_t k = 0; k < last; ++k) mine -= times(k);
    }
    product *= mine;
  }
  return product;
}

// Calls fn(index in the whole tensor) for every element of a part, in the
// part's order.
void each_index(const Region& region, const Shape& shape,
                const std::function<void(size_t)>& fn, int dim = 0,
                int64_t base = 0) {
  if (dim == shape.size()) {
    fn(static_cast<size_t>(base));
    return;
  }
  for (const Interval& r : region[static_cast<size_t>(dim)])
    for (int64_t i = r.lo; i < r.hi; ++i)
      each_index(region, shape, fn, dim + 1, base * shape[dim] + i);
}

}  // namespace

Cases::Cases(const std::string& folder) {
  const std::string path = folder + "/cases.jsonl";
  const std::string text = read_file(path);
  read_tensors(folder + "/tensors.safetensors");
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    ++line;
    if (end > at) try {
        cases_.push_back(parse_case(json::parse(text.substr(at, end - at))));
      } catch (const json::exception& e) {
        fail("conformance", "{}, line {}: {}", path, line, e.what());
      }
    at = end + 1;
  }
}

void Cases::read_tensors(const std::string& path) {
  const std::string bytes = read_file(path);
  uint64_t length = 0;
  if (bytes.size() >= 8) std::memcpy(&length, bytes.data(), 8);
  DT_CHECK(bytes.size() >= 8 && length <= bytes.size() - 8, "conformance",
           "{} is no safetensors file: {} bytes with a header of {}", path,
           bytes.size(), length);
  try {
    const json header = json::parse(bytes.substr(8, length));
    for (const auto& [name, info] : header.items()) {
      if (name == "__metadata__") continue;
      const auto type = info.at("dtype").get<std::string>();
      // The library has no u8. An input of it, such as an index, is read as
      // i32, which has all its values.
      const bool bytes_in =
          type == "U8" && name.substr(name.rfind('.') + 1).starts_with("in");
      const auto dtype = bytes_in ? DType::kI32 : dtype_named(type);
      if (!dtype) {
        foreign_[name] = info.at("dtype");
        continue;
      }
      const auto sizes = info.at("shape").get<std::vector<int64_t>>();
      const Shape shape{std::span<const int64_t>(sizes)};
      const uint64_t lo = info.at("data_offsets").at(0),
                     hi = info.at("data_offsets").at(1);
      const int64_t each = bytes_in ? 1 : size_of(*dtype);
      DT_CHECK(lo <= hi && hi <= bytes.size() - 8 - length &&
                   hi - lo == static_cast<uint64_t>(numel(shape) * each),
               "conformance", "{}: {} has bytes [{}, {})", path, name, lo, hi);
      // Like u8, a bool is stored as a byte.
      const char* const data = bytes.data() + 8 + length + lo;
      Value& value = tensors_[name];
      value = read_value(bytes_in ? DType::kBool : *dtype, shape, data);
      value.dtype = *dtype;
    }
  } catch (const json::exception& e) {
    fail("conformance", "{}: {}", path, e.what());
  }
}

bool Cases::known(const std::string& name) const {
  return tensors_.contains(name);
}

const Value& Cases::tensor(const std::string& name) const {
  auto it = tensors_.find(name);
  DT_CHECK(it != tensors_.end(), "conformance", "there is no tensor {}", name);
  return it->second;
}

Value value_of(const Tensor& t) {
  Value a{testing::array_of(t)};
  if (a.dtype == DType::kI64) a.integers = t.to_integers();
  return a;
}

Tensor tensor_of(const Value& a) {
  if (a.integers.empty()) return testing::tensor_of(a);
  return Tensor::from(a.shape, a.integers.data());
}

Value part_of(const Value& whole, const Spec* spec, const Coord& c, int which) {
  const Region region = spec->region(c);
  Value part{{local_shape(region), {}, whole.dtype}};
  const int64_t times = coefficient(spec, c, which);
  each_index(region, whole.shape, [&](size_t i) {
    part.v.push_back(whole.v[i] * static_cast<double>(times));
    // The products wrap around, and so does the sum of the parts.
    if (!whole.integers.empty())
      part.integers.push_back(
          static_cast<int64_t>(static_cast<uint64_t>(whole.integers[i]) *
                               static_cast<uint64_t>(times)));
  });
  return part;
}

std::string difference(const Value& got, const Value& want, double rtol,
                       double atol, double& worst) {
  if (got.shape != want.shape || got.dtype != want.dtype) {
    worst = std::numeric_limits<double>::infinity();
    return fmt::format("is {}{}, not {}{}", name(got.dtype),
                       to_string(got.shape), name(want.dtype),
                       to_string(want.shape));
  }
  std::string text;
  double largest = 0;
  auto differs = [&](size_t i, double g, double w, double error) {
    if (!(error <= largest)) {  // keeps the first NaN
      largest =
          std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
      text = fmt::format("element {} is {}, not {}", i, g, w);
    }
  };
  for (size_t i = 0; i < want.integers.size(); ++i) {
    const int64_t g = got.integers[i], w = want.integers[i];
    if (g == w) continue;
    worst = std::max(1.0, std::abs(got.v[i] - want.v[i]));
    return fmt::format("element {} is {}, not {}", i, g, w);
  }
  const bool exact = !is_float(want.dtype);
  for (size_t i = 0; i < want.v.size(); ++i) {
    const double g = got.v[i], w = want.v[i];
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    const double error = std::abs(g - w);
    if (std::isfinite(error)) worst = std::max(worst, error);
    if (exact || !(error <= atol + rtol * std::abs(w))) differs(i, g, w, error);
  }
  worst = std::max(worst, largest);
  return text;
}

}  // namespace dtensor::conformance
