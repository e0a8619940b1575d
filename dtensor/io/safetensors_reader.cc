// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "dtensor/io/file.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/io/safetensors_boxes.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {

using namespace safetensors;
using nlohmann::json;

namespace {

// The most bytes of a header that the reference implementation accepts.
constexpr int64_t kMaxHeader = 100'000'000;

// Finds a key that occurs twice in the outermost object. json::parse() does not
// show this: it keeps the last of the two values. (With a callback, parse()
// takes a time quadratic in the number of keys.)
class KeysOnce : public nlohmann::json_sax<json> {
 public:
  const std::string& twice() const { return twice_; }

  bool key(string_t& name) override {
    if (depth_ == 1 && !keys_.insert(name).second) twice_ = name;
    return true;
  }
  bool start_object(size_t) override { return ++depth_; }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override { return ++depth_; }
  bool end_array() override { return --depth_, true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&,
                   const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  int64_t depth_ = 0;
  std::unordered_set<std::string> keys_;
  std::string twice_;
};

}  // namespace

SafetensorsReader::SafetensorsReader(std::string path)
    : path_(std::move(path)),
      file_(std::make_unique<io::File>(io::File::open(path_))) {
  const int64_t size = file_->size();
  DT_CHECK(
      size >= 8, "safetensors",
      "{} has {}, too few for a header's length; download or save the file "
      "again",
      path_, quantity(size, "byte", "bytes"));
  uint64_t length = 0;
  file_->read(&length, 8, 0);
  DT_CHECK(
      length <= kMaxHeader && static_cast<int64_t>(length) <= size - 8,
      "safetensors",
      "{} declares a {}-byte header, but the rest of the file has {}, and a "
      "header has at most {} bytes; download or save the file again",
      path_, length, size - 8, kMaxHeader);
  std::string header(length, '\0');
  file_->read(header.data(), std::ssize(header), 8);
  data_start_ = 8 + std::ssize(header);
  parse(header, size - data_start_);
}

SafetensorsReader::~SafetensorsReader() = default;

void SafetensorsReader::parse(std::string_view header, int64_t data_bytes) {
  const auto bad = [&](std::string_view what) {
    fail("safetensors",
         "{} has a bad header: {}; download or save the file again", path_,
         what);
  };
  const json all = json::parse(header.begin(), header.end(), nullptr, false);
  if (!all.is_object()) bad("it is not a JSON object");
  KeysOnce keys;
  json::sax_parse(header.begin(), header.end(), &keys);
  if (!keys.twice().empty()) bad(shown(keys.twice()) + " occurs twice");
  struct Found {
    TensorInfo info;
    int64_t begin, end;
  };
  std::vector<Found> found;
  for (const auto& [key, value] : all.items()) {
    const std::string name = shown(key);
    if (!value.is_object()) bad(name + " is not an object");
    if (key == "__metadata__") {
      for (const auto& [k, v] : value.items()) {
        if (!v.is_string()) bad("metadata " + shown(k) + " is not a string");
        metadata_[k] = v.get<std::string>();
      }
      continue;
    }
    // Named, because clang before 16 captures no structured binding by itself.
    const auto list = [&, &value = value](const char* what, size_t at_most) {
      std::vector<int64_t> out;
      if (!value.contains(what) || !value[what].is_array() ||
          value[what].size() > at_most)
        bad(fmt::format("{} of {} is not a list of at most {} numbers", what,
                        name, at_most));
      for (const json& x : value[what]) {
        if (!x.is_number_unsigned() ||
            x.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
          bad(fmt::format("{} of {} has {}, not a size", what, name,
                          x.dump(-1, ' ', true).substr(0, 80)));
        out.push_back(x.get<int64_t>());
      }
      return out;
    };
    Found f;
    f.info.name = key;
    if (!value.contains("dtype") || !value["dtype"].is_string())
      bad("the dtype of " + name + " is missing, or not a string");
    const std::string dtype = value["dtype"].get<std::string>();
    const auto known =
        std::find_if(std::begin(kNames), std::end(kNames),
                     [&](const auto& p) { return p.second == dtype; });
    if (known == std::end(kNames))
      fail("safetensors",
           "{} stores {} as {}, which this library does not read; convert it "
           "to F32, F64, BF16, F16, I32, I64, BOOL or I8",
           path_, name, shown(dtype));
    f.info.dtype = known->first;
    DT_CHECK(!value.contains("shape") || !value["shape"].is_array() ||
                 value["shape"].size() <= kMaxDims,
             "safetensors",
             "{} stores {} with {} dimensions, but a tensor has at most {}; "
             "store it with fewer",
             path_, name, value["shape"].size(), kMaxDims);
    f.info.shape = Shape(list("shape", kMaxDims));
    const std::vector<int64_t> offsets = list("data_offsets", 2);
    if (offsets.size() != 2) bad(name + " does not have two data_offsets");
    f.begin = offsets[0], f.end = offsets[1];
    const int64_t bytes = bytes_of(f.info.shape, f.info.dtype);
    if (bytes < 0) bad("the size of " + name + " overflows");
    if (f.begin > f.end || f.end - f.begin != bytes)
      bad(fmt::format("the bytes of {} are {}, its data_offsets {} to {}", name,
                      bytes, f.begin, f.end));
    found.push_back(std::move(f));
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.begin, a.end, a.info.name) <
           std::tie(b.begin, b.end, b.info.name);
  });
  int64_t at = 0;
  for (Found& f : found) {
    if (f.begin != at)
      bad(fmt::format(
          "{} begins at byte {} of the data, but the tensors before "
          "it end at {}",
          shown(f.info.name), f.begin, at));
    at = f.end;
    begins_.push_back(f.begin);
    at_.emplace(f.info.name, tensors_.size());
    tensors_.push_back(std::move(f.info));
  }
  if (at != data_bytes)
    bad(fmt::format(
        "the tensors end at byte {} of the data, but the file at {}", at,
        data_bytes));
}

bool SafetensorsReader::contains(std::string_view name) const {
  return at_.contains(name);
}

size_t SafetensorsReader::find(std::string_view name) const {
  const auto found = at_.find(name);
  DT_CHECK(found != at_.end(), "safetensors",
           "{} has no tensor {}; tensors() lists those that it has", path_,
           name);
  return found->second;
}

void SafetensorsReader::read_box(size_t tensor, const Shape& shape,
                                 const Tensor& box, int64_t at) const {
  const int64_t begin = data_start_ + begins_[tensor];
  const int64_t item = size_of(box.dtype());
  std::vector<char> host;
  each_run(shape, box, 0, at, [&](const Tensor& part, int64_t first) {
    const Tensor packed =
        part.contiguous() ? part : Tensor::empty(part.shape(), part.dtype());
    const int64_t n = part.numel(), most = kBuffer / item;
    for (int64_t i = 0; i < n; i += most) {
      const int64_t count = std::min(most, n - i);
      host.resize(static_cast<size_t>(count * item));
      file_->read(host.data(), count * item, begin + (first + i) * item);
      packed.device().from_host(packed.stream(),
                                packed.mutable_ptr<char>() + i * item,
                                host.data(), count * item);
    }
    if (!part.contiguous()) part.copy_from(packed);
  });
}

Tensor SafetensorsReader::read(std::string_view name) const {
  const size_t i = find(name);
  const Tensor out = Tensor::empty(tensors_[i].shape, tensors_[i].dtype);
  if (out.data() && out.numel()) read_box(i, out.shape(), out, 0);
  return out;
}

void SafetensorsReader::refuse(size_t tensor, const Shape& value,
                               std::string_view why) const {
  const TensorInfo& info = tensors_[tensor];
  fail("safetensors", "{} cannot be read from {} {}{} of {}: {}",
       value.empty() ? "a value" : to_string(value), info.name,
       safetensors_name(info.dtype), to_string(info.shape), path_, why);
}

DistTensor SafetensorsReader::read(std::string_view name, const Mesh& mesh,
                                   const Placements& placements,
                                   const SafetensorsWindow& window) const {
  const size_t i = find(name);
  const TensorInfo& info = tensors_[i];
  Shape shape = window.shape;
  if (shape.empty()) {
    // The value is the rest of the file's tensor, from the window's offset on.
    shape = info.shape;
    for (int d = 0; d < info.shape.size(); ++d) {
      const int64_t to = d < window.order.size() ? window.order[d] : d;
      const int64_t from = d < window.offset.size() ? window.offset[d] : 0;
      if (to < 0 || to >= shape.size() || from < 0 || from > info.shape[d])
        refuse(i, {},
               fmt::format("order {} or offset {} is outside the tensor; keep "
                           "both within its dimensions",
                           to_string(window.order), to_string(window.offset)));
      shape[static_cast<int>(to)] = info.shape[d] - from;
    }
  }
  // Throws if the window does not fit, before memory is taken for the value.
  fitted(i, shape, window);
  const Spec* spec =
      Spec::get(mesh, shape, placements.resolve(mesh, shape), info.dtype);
  if (spec->partial_axes())
    refuse(i, shape, "the layout is partial; write R or S<dim>");
  const DistTensor x = DistTensor::empty(spec);
  read_into(x, name, window);
  return x;
}

SafetensorsWindow SafetensorsReader::fitted(
    size_t tensor, const Shape& value, const SafetensorsWindow& window) const {
  const Refuse refused = [&](std::string_view why) {
    refuse(tensor, value, why);
  };
  const Shape file =
      seen_as(window, tensors_[tensor].shape, value.size(), refused);
  SafetensorsWindow full = checked(window, value, file, refused);
  full.seen_as = file;
  return full;
}

void SafetensorsReader::read_into(const DistTensor& to, std::string_view name,
                                  const SafetensorsWindow& window) const {
  const size_t i = find(name);
  const Spec* spec = to.spec();
  if (spec->dtype() != tensors_[i].dtype)
    refuse(i, spec->shape(),
           fmt::format("the value has type {}; give it the file's, then cast",
                       dtensor::name(spec->dtype())));
  if (spec->partial_axes())
    refuse(i, spec->shape(), "the layout is partial; write R or S<dim>");
  const SafetensorsWindow w = fitted(i, spec->shape(), window);
  const Coord* at = RankContext::current().coordinate_or_null(spec->mesh());
  if (!at || !to.local().data() || to.local().numel() == 0) return;
  each_box(to.local().permute(w.order), reordered(spec->region(*at), w.order),
           w.offset, w.seen_as, [&](const Tensor& box, int64_t first) {
             read_box(i, w.seen_as, box, first);
           });
}

std::vector<NamedTensor> load_safetensors(const std::string& path,
                                          const Mesh& mesh,
                                          const Placements& layout) {
  const SafetensorsReader reader(path);
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& t : reader.tensors())
    tensors.push_back({t.name, reader.read(t.name, mesh, layout)});
  return tensors;
}

}  // namespace dtensor
