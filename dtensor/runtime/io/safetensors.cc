#include "dtensor/runtime/io/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/runtime/comm/communicator.h"
#include "dtensor/runtime/rank_context.h"

namespace dtensor {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kBuffer = 1 << 20;
// What the format's own implementation accepts.
constexpr int64_t kMaxHeader = 100'000'000;
static_assert(std::endian::native == std::endian::little,
              "the format is little-endian");

constexpr std::pair<DType, std::string_view> kNames[] = {
    {DType::kF32, "F32"}, {DType::kF64, "F64"}, {DType::kBF16, "BF16"},
    {DType::kI32, "I32"}, {DType::kI64, "I64"}, {DType::kBool, "BOOL"}};

// The bytes of a tensor, or -1 when they do not fit into int64.
int64_t bytes_of(const Shape& shape, DType t) {
  int64_t n = size_of(t);
  for (int64_t s : shape)
    if (__builtin_mul_overflow(n, s, &n)) return -1;
  return n;
}

void read_exactly(int file, void* to, int64_t bytes, int64_t at,
                  const std::string& path) {
  char* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(file, p, static_cast<size_t>(bytes), at);
    if (n < 0 && errno == EINTR) continue;
    DT_CHECK(n > 0, "safetensors", "{} cannot be read at byte {}: {}", path, at,
             n < 0 ? std::strerror(errno) : "the file ends");
    p += n, at += n, bytes -= n;
  }
}

}  // namespace

std::string_view safetensors_name(DType t) {
  for (const auto& [dtype, text] : kNames)
    if (dtype == t) return text;
  return "";
}

// --- Writer -----------------------------------------------------------------

SafetensorsWriter::SafetensorsWriter(const Mesh& mesh, std::string path,
                                     std::vector<TensorInfo> tensors)
    : mesh_(mesh), path_(std::move(path)), temporary_(path_ + ".tmp") {
  ordered_json header;
  // transformers reads no file without it.
  header["__metadata__"] = {{"format", "pt"}};
  int64_t at = 0;
  for (TensorInfo& info : tensors) {
    DT_CHECK(!header.contains(info.name), "safetensors",
             "tensor {} is declared twice", info.name);
    const int64_t bytes = bytes_of(info.shape, info.dtype);
    int64_t end = 0;
    DT_CHECK(bytes >= 0 && !__builtin_add_overflow(at, bytes, &end),
             "safetensors", "the size of {} {} overflows", info.name,
             to_string(info.shape));
    ordered_json shape = ordered_json::array();
    for (int64_t s : info.shape) shape.push_back(s);
    header[info.name] = {{"dtype", safetensors_name(info.dtype)},
                         {"shape", std::move(shape)},
                         {"data_offsets", {at, end}}};
    entries_.push_back({std::move(info), at, 0});
    at = end;
  }
  RankContext& context = RankContext::current();
  active_ = !context.dry_run;
  if (!active_) return;
  rank_ = mesh_.rank(context.coordinate(mesh_));

  std::string text = header.dump();
  while (text.size() % 8) text += ' ';  // so that the data is aligned
  const int64_t data = 8 + std::ssize(text);
  for (Entry& e : entries_) e.offset += data;
  if (rank_ == 0) {
    file_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
                   0666);
    if (file_ < 0) system_error("created");
    // Space for all of it now, rather than a failure half-way.
    if (const int e = ::posix_fallocate(file_, 0, data + at)) {
      errno = e;
      system_error("given its size");
    }
    const uint64_t length = text.size();
    put(&length, 8, 0);
    put(text.data(), std::ssize(text), 8);
  }
  barrier();
  if (rank_ != 0) {
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) system_error("opened");
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ >= 0) ::close(file_);
  if (active_ && !finished_ && rank_ == 0) ::unlink(temporary_.c_str());
}

void SafetensorsWriter::write(std::string_view name, const DistTensor& x,
                              const Window& window) {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const Entry& e) { return e.info.name == name; });
  DT_CHECK(entry != entries_.end(), "safetensors", "tensor {} is not declared",
           name);
  const TensorInfo& info = entry->info;
  const Spec* spec = x.spec();
  const int n = spec->ndim();
  const auto refuse = [&](std::string_view why) {
    fail("safetensors", "{} cannot be written to {} {}{}: {}",
         spec->to_string(), name, safetensors_name(info.dtype),
         to_string(info.shape), why);
  };
  if (!(spec->mesh() == mesh_))
    refuse("the file is written by mesh " + mesh_.to_string());
  if (spec->partial_axes()) refuse("it is partial; redistribute it first");
  if (spec->dtype() != info.dtype) refuse("the types differ");
  Shape order = window.order, offset = window.offset;
  if (order.empty())
    for (int i = 0; i < n; ++i) order.push_back(i);
  if (offset.empty()) offset = Shape::filled(n, 0);
  if (n != info.shape.size() || order.size() != n || offset.size() != n)
    refuse("the numbers of dimensions differ");
  uint32_t seen = 0;
  for (int i = 0; i < n; ++i) {
    if (order[i] < 0 || order[i] >= n || (seen >> order[i] & 1))
      refuse("its order " + to_string(order) + " is no permutation");
    seen |= 1u << order[i];
    const int64_t size = spec->shape()[static_cast<int>(order[i])];
    if (offset[i] < 0 || offset[i] > info.shape[i] - size)
      refuse(fmt::format("with order {} and offset {} it leaves the tensor",
                         to_string(order), to_string(offset)));
  }
  entry->written += numel(spec->shape());

  if (!active_) return;
  const Coord& c = RankContext::current().coordinate(mesh_);
  for (int a = 0; a < mesh_.num_axes(); ++a)
    if (c[a] != 0 && !(spec->split_axes() >> a & 1)) return;
  const Tensor local = x.local().permute(order);
  if (local.numel() == 0) return;
  Region region;
  const Region own = spec->region(c);
  for (int64_t d : order) region.push_back(own[static_cast<size_t>(d)]);

  // Every box of the region: one range of each dimension, `which` says which.
  const Shape strides = contiguous_strides(info.shape);
  std::vector<size_t> which(static_cast<size_t>(n), 0);
  Shape start = Shape::filled(n, 0);  // of the ranges in local memory
  for (;;) {
    Tensor box = local;
    int64_t at = 0;
    for (int d = 0; d < n; ++d) {
      const Interval& r = region[size_t(d)][which[size_t(d)]];
      box = box.slice(d, start[d], start[d] + r.size());
      at += (offset[d] + r.lo) * strides[d];
    }
    write_box(*entry, box, 0, entry->offset + at * size_of(info.dtype));
    int d = n - 1;
    for (; d >= 0; --d) {
      const auto& ranges = region[size_t(d)];
      start[d] += ranges[which[size_t(d)]].size();
      if (++which[size_t(d)] < ranges.size()) break;
      which[size_t(d)] = 0;
      start[d] = 0;
    }
    if (d < 0) break;
  }
}

// Writes the box, whose first element belongs at byte `at`. Dimensions before
// `dim` have size 1 here.
void SafetensorsWriter::write_box(const Entry& entry, const Tensor& box,
                                  int dim, int64_t at) {
  const Shape& file = entry.info.shape;
  const int n = file.size();
  bool adjacent = true;  // in the file, from one index of `dim` to the next
  for (int d = dim + 1; d < n; ++d) adjacent &= box.shape()[d] == file[d];
  if (adjacent && (box.contiguous() || box.bytes() <= kBuffer)) {
    const Tensor packed = box.to_contiguous();
    put(packed.data(), packed.bytes(), at);
    return;
  }
  int64_t row = size_of(entry.info.dtype);  // bytes in the file
  for (int d = dim + 1; d < n; ++d) row *= file[d];
  const int64_t size = box.shape()[dim];
  const int64_t step =
      adjacent ? std::clamp<int64_t>(kBuffer / row, 1, size) : 1;
  for (int64_t i = 0; i < size; i += step) {
    const Tensor part = box.slice(dim, i, std::min(i + step, size));
    // One index that is still too large is cut along the next dimension.
    write_box(entry, part,
              part.shape()[dim] == 1 && dim + 1 < n ? dim + 1 : dim,
              at + i * row);
  }
}

void SafetensorsWriter::finish() {
  for (const Entry& e : entries_)
    DT_CHECK(e.written == numel(e.info.shape), "safetensors",
             "{} of the {} elements of {} were written to {}", e.written,
             numel(e.info.shape), e.info.name, path_);
  if (!active_) {
    finished_ = true;
    return;
  }
  if (::fsync(file_) != 0) system_error("brought to the disk");
  barrier();
  if (rank_ == 0) {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
      system_error("renamed to " + path_);
    // The name itself is on the disk when its folder is. Some file systems
    // cannot do that; the file is whole all the same.
    std::string folder = std::filesystem::path(path_).parent_path().string();
    if (folder.empty()) folder = ".";
    const int f = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f >= 0) {
      (void)::fsync(f);
      ::close(f);
    }
  }
  finished_ = true;
  barrier();
}

void SafetensorsWriter::put(const void* from, int64_t bytes, int64_t at) {
  const char* p = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(file_, p, static_cast<size_t>(bytes), at);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) system_error("written");
    p += n, at += n, bytes -= n;
  }
}

void SafetensorsWriter::barrier() {
  RankContext& context = RankContext::current();
  context.communicator(mesh_, mesh_.all_axes())
      .barrier({.kind = StepKind::kBarrier,
                .op = "safetensors",
                .fingerprint = hash_text(path_),
                .describe =
                    [](const void* path) {
                      return *static_cast<const std::string*>(path);
                    },
                .what = &path_});
}

void SafetensorsWriter::system_error(std::string_view what) const {
  fail("safetensors", "{} cannot be {}: {}", temporary_, what,
       std::strerror(errno));
}

// --- Reader -----------------------------------------------------------------

SafetensorsReader::SafetensorsReader(std::string path)
    : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  DT_CHECK(file_ >= 0, "safetensors", "{} cannot be opened: {}", path_,
           std::strerror(errno));
  try {
    const int64_t size = ::lseek(file_, 0, SEEK_END);
    DT_CHECK(size >= 8, "safetensors",
             "{} has {} bytes, too few for the length of a header", path_,
             size);
    uint64_t length = 0;
    read_exactly(file_, &length, 8, 0, path_);
    DT_CHECK(
        length <= kMaxHeader && static_cast<int64_t>(length) <= size - 8,
        "safetensors",
        "{} says its header has {} bytes; after the length there are {}, and "
        "at most {} are allowed",
        path_, length, size - 8, kMaxHeader);
    std::string header(length, '\0');
    read_exactly(file_, header.data(), std::ssize(header), 8, path_);
    data_start_ = 8 + std::ssize(header);
    parse(header, size - data_start_);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

SafetensorsReader::~SafetensorsReader() { ::close(file_); }

void SafetensorsReader::parse(std::string_view header, int64_t data_bytes) {
  const auto bad = [&](std::string_view what) {
    fail("safetensors", "{} has a bad header: {}", path_, what);
  };
  std::set<std::string> keys;
  std::string twice;
  const json::parser_callback_t note_keys =
      [&](int depth, json::parse_event_t e, json& value) {
        // The parser itself would let the last of two win.
        if (e == json::parse_event_t::key && depth == 1 &&
            !keys.insert(value.get<std::string>()).second)
          twice = value.get<std::string>();
        return true;
      };
  const json all = json::parse(header.begin(), header.end(), note_keys, false);
  if (!all.is_object()) bad("it is not a JSON object");
  if (!twice.empty()) bad(twice + " occurs twice");
  struct Found {
    TensorInfo info;
    int64_t begin, end;
  };
  std::vector<Found> found;
  for (const auto& [key, value] : all.items()) {
    if (!value.is_object()) bad(key + " is not an object");
    if (key == "__metadata__") {
      for (const auto& [k, v] : value.items()) {
        if (!v.is_string()) bad("metadata " + k + " is not a string");
        metadata_[k] = v.get<std::string>();
      }
      continue;
    }
    const auto list = [&](const char* what, size_t at_most) {
      std::vector<int64_t> out;
      if (!value.contains(what) || !value[what].is_array() ||
          value[what].size() > at_most)
        bad(fmt::format("{} of {} is not a list of at most {}", what, key,
                        at_most));
      for (const json& x : value[what]) {
        if (!x.is_number_unsigned() ||
            x.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
          bad(fmt::format("{} of {} has {}, not a size", what, key, x.dump()));
        out.push_back(x.get<int64_t>());
      }
      return out;
    };
    Found f;
    f.info.name = key;
    if (!value.contains("dtype") || !value["dtype"].is_string())
      bad(key + " has no dtype");
    const std::string dtype = value["dtype"].get<std::string>();
    const auto known =
        std::find_if(std::begin(kNames), std::end(kNames),
                     [&](const auto& p) { return p.second == dtype; });
    if (known == std::end(kNames))
      bad(key + " has dtype " + dtype +
          ", not one of F32, F64, BF16, I32, I64, BOOL");
    f.info.dtype = known->first;
    f.info.shape = Shape(list("shape", kMaxDims));
    const std::vector<int64_t> offsets = list("data_offsets", 2);
    if (offsets.size() != 2) bad(key + " does not have two data_offsets");
    f.begin = offsets[0], f.end = offsets[1];
    const int64_t bytes = bytes_of(f.info.shape, f.info.dtype);
    if (bytes < 0) bad("the size of " + key + " overflows");
    if (f.begin > f.end || f.end - f.begin != bytes)
      bad(fmt::format("{} has {} bytes and data_offsets {} to {}", key, bytes,
                      f.begin, f.end));
    found.push_back(std::move(f));
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.begin, a.end, a.info.name) <
           std::tie(b.begin, b.end, b.info.name);
  });
  int64_t at = 0;
  for (Found& f : found) {
    if (f.begin != at)
      bad(
          fmt::format("{} begins at byte {} of the data, and what is before "
                      "it ends at {}",
                      f.info.name, f.begin, at));
    at = f.end;
    begins_.push_back(f.begin);
    tensors_.push_back(std::move(f.info));
  }
  if (at != data_bytes)
    bad(fmt::format("the tensors end at byte {} of the data, the file at {}",
                    at, data_bytes));
}

bool SafetensorsReader::contains(std::string_view name) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const TensorInfo& t) { return t.name == name; });
}

Tensor SafetensorsReader::read(std::string_view name) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& t = tensors_[i];
    if (t.name != name) continue;
    const Tensor out = Tensor::empty(t.shape, t.dtype);
    if (out.data())
      read_exactly(file_, out.data(), out.bytes(), data_start_ + begins_[i],
                   path_);
    return out;
  }
  fail("safetensors", "{} has no tensor {}", path_, name);
}

}  // namespace dtensor
