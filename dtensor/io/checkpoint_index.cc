// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/checkpoint_index.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <variant>

#include "dtensor/io/checksum.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor::checkpoint {

using Json = nlohmann::ordered_json;

namespace {

constexpr int64_t kLine = 256 << 10;  // bytes, with comma, without \n
constexpr int64_t kFirstLine = 4096;
// The most bytes of a header that the safetensors library accepts.
constexpr int64_t kHeader = 100'000'000;
constexpr size_t kTensors = 1 << 16, kFiles = 1 << 16, kValues = 10'000;
// Errors explain what is wrong with a tensor's boxes only if it has at most
// this many.
constexpr size_t kExplained = 20'000;
constexpr const char* kFormat = "dtensor checkpoint";

// Returns a line of the index. Throws Error if it is too long or not UTF-8.
std::string line_of(const Json& object) {
  std::string line;
  try {
    line = object.dump();
  } catch (const nlohmann::json::exception&) {
    fail("checkpoint",
         "{}... is not UTF-8; write names and values of the checkpoint in "
         "UTF-8, and other bytes as hexadecimal digits",
         object.dump(-1, ' ', true, Json::error_handler_t::replace)
             .substr(0, 80));
  }
  DT_CHECK(std::ssize(line) < kLine, "checkpoint",
           "a line of the index, {}..., has {} bytes, but a line has at most "
           "{}; shorten the name or value in it",
           object.dump(-1, ' ', true).substr(0, 80), line.size(), kLine - 1);
  return line;
}

std::string first_line(int version, int64_t bytes, uint64_t sum) {
  return line_of({{"format", kFormat},
                  {"version", version},
                  {"bytes", bytes},
                  {"xxh3", checksum_text(sum)}});
}

std::string step_line(int64_t step) {
  return fmt::format(R"({{"step":{}}})", step);
}

std::string value_line(const std::string& name, const CheckpointValue& v) {
  constexpr const char* kType[] = {"i64", "u64", "text"};
  Json line = {{"value", name}};
  std::visit([&](const auto& x) { line[kType[v.index()]] = x; }, v);
  return line_of(line);
}

std::string file_line(int version, int64_t rank, const Index::RankFile& f) {
  if (version == 1)
    return fmt::format(R"({{"rank":{},"bytes":{}}})", rank, f.bytes);
  return fmt::format(R"({{"rank":{},"header":{},"bytes":{},"xxh3":"{}"}})",
                     rank, f.header, f.bytes, checksum_text(f.sum));
}

std::string tensor_line(const TensorInfo& t) {
  return line_of(
      {{"tensor", t.name},
       {"dtype", name(t.dtype)},
       {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())}});
}

std::string piece_line(const StoredBox& p) {
  return fmt::format(
      R"({{"box":[{}],"size":[{}],"rank":{},"offset":{},"bytes":{},)"
      R"("xxh3":"{}"}})",
      fmt::join(p.box.lo, ","), fmt::join(p.box.size, ","), p.rank, p.offset,
      p.bytes, checksum_text(p.sum));
}

// Reads the lines of a file.
class Lines {
 public:
  Lines(const io::File& file, int64_t from, int64_t bytes)
      : file_(file), at_(from), end_(from + bytes) {}
  // Returns false at the end. Throws Error for a line that is too long or does
  // not end in a line feed.
  bool next(std::string& line) {
    line.clear();
    for (;;) {
      const size_t feed = buffer_.find('\n', used_);
      if (feed != buffer_.npos) {
        line.append(buffer_, used_, feed - used_);
        used_ = feed + 1;
        return true;
      }
      line.append(buffer_, used_);
      DT_CHECK(std::ssize(line) <= kLine, "checkpoint",
               "{} is damaged: it has a line of over {} bytes; load another "
               "checkpoint",
               file_.path(), kLine);
      const int64_t n = std::min<int64_t>(64 << 10, end_ - at_);
      if (n == 0) {
        DT_CHECK(
            line.empty(), "checkpoint",
            "{} is damaged: {}; load another checkpoint", file_.path(),
            end_ == file_.size()
                ? "it ends within a line"
                : fmt::format("its first line has {} bytes or more", end_));
        return false;
      }
      buffer_.resize(static_cast<size_t>(n));
      file_.read(buffer_.data(), n, at_);
      at_ += n, used_ = 0;
    }
  }

 private:
  const io::File& file_;
  int64_t at_, end_;
  std::string buffer_;
  size_t used_ = 0;
};

// Returns the beginning of a text, as an error shows it.
std::string shown(const std::string& text) {
  return Json(text.substr(0, 120))
      .dump(-1, ' ', true, Json::error_handler_t::replace);
}

// A line, parsed as a JSON object. The functions throw Error if the line, or
// the member that they read, is not as expected.
class Line {
 public:
  Line(const std::string& path, int64_t number, const std::string& text)
      : path_(path),
        number_(number),
        text_(text),
        json_(nlohmann::json::parse(text, nullptr, false)) {
    if (!json_.is_object()) bad("it is not a JSON object");
  }
  [[noreturn]] void bad(std::string_view why) const {
    fail("checkpoint",
         "line {} of {} is wrong: {}; it begins {}; load another checkpoint",
         number_, path_, why, shown(text_));
  }
  bool has(const char* key) const { return json_.contains(key); }
  const nlohmann::json& member(const char* key) const {
    if (!has(key)) bad(fmt::format("it lacks the member {}", key));
    return json_[key];
  }
  int64_t size(const char* key) const { return size(key, member(key)); }
  Shape shape(const char* key) const {
    const nlohmann::json& list = member(key);
    if (!list.is_array() || list.size() > kMaxDims)
      bad(fmt::format("{} is not a list of at most {} sizes", key, kMaxDims));
    Shape s;
    for (const nlohmann::json& x : list) s.push_back(size(key, x));
    return s;
  }
  std::string text(const char* key) const {
    if (!member(key).is_string()) bad(fmt::format("{} is not a string", key));
    return member(key).get<std::string>();
  }
  uint64_t sum(const char* key) const {
    const std::string digits = text(key);
    if (digits.size() != 16 ||
        digits.find_first_not_of("0123456789abcdef") != digits.npos)
      bad(fmt::format("{} is not a checksum of 16 hexadecimal digits", key));
    return std::stoull(digits, nullptr, 16);
  }
  // Throws Error unless the line equals `made`, which the caller writes from
  // the values that it has read. This detects duplicate and unknown members,
  // and numbers in another form.
  void expect(const std::string& made) const {
    if (made == text_) return;
    const auto at =
        std::mismatch(made.begin(), made.end(), text_.begin(), text_.end())
            .first -
        made.begin();
    bad(fmt::format("after {} bytes, this library would go on with {}", at,
                    shown(made.substr(static_cast<size_t>(at)))));
  }

 private:
  int64_t size(const char* key, const nlohmann::json& x) const {
    if (!x.is_number_unsigned() || x.get<uint64_t>() > uint64_t{INT64_MAX})
      bad(fmt::format("{} is not a size", key));
    return x.get<int64_t>();
  }
  const std::string& path_;
  const int64_t number_;
  const std::string& text_;
  // (Not of type Json, an ordered_json, which keeps members in a list: finding
  // members in long lines would take long.)
  const nlohmann::json json_;
};

// The weights of check_cover() are numbers modulo this prime.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

uint64_t times(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % kPrime);
}

uint64_t weight(const Box& b) {
  static const uint64_t seed = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  uint64_t product = 1;
  for (int d = 0; d < b.lo.size(); ++d) {
    const auto at = [&](int64_t i) {
      return hash_mix(seed + static_cast<uint64_t>(d),
                      static_cast<uint64_t>(i)) %
             kPrime;
    };
    product = times(product,
                    (at(b.lo[d] + b.size[d]) + kPrime - at(b.lo[d])) % kPrime);
  }
  return product;
}

// Describes the elements that are in no box, or says that some are in two. Only
// the text of an error needs this, so it gives up early.
std::string holes(const Box& whole, const std::vector<Box>& boxes) {
  constexpr size_t kMost = 16;
  std::vector<Region> left = {region_of(whole)};
  for (const Box& b : boxes) {
    std::vector<Region> next;
    for (const Region& r : left)
      for (Region& rest : subtract(r, region_of(b)))
        next.push_back(std::move(rest));
    left = std::move(next);
    if (left.size() > kMost) return "some elements are in no box, or in two";
  }
  std::string text;
  for (size_t i = 0; i < left.size() && i < 4; ++i)
    for (const Window& w : windows(left[i], whole)) {
      text += (text.empty() ? "" : ", ") + to_string({w.in_box, w.size});
      if (text.size() > 300) break;
    }
  if (text.empty()) return "some elements are in two boxes";
  return text + (left.size() > 4 ? ", ..." : "") + " are in no box";
}

// Names two boxes that share elements; "" if none are found. Only the text of
// an error needs this, so it gives up early.
std::string overlap_of(const std::vector<Box>& boxes) {
  constexpr int64_t kMost = 10'000'000;
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto lo = [&](size_t i) {
    return boxes[i].lo.empty() ? 0 : boxes[i].lo[0];
  };
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return lo(a) < lo(b); });
  int64_t tried = 0;
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = i + 1; j < order.size(); ++j) {
      const Box &a = boxes[order[i]], &b = boxes[order[j]];
      if (!a.lo.empty() && b.lo[0] >= a.lo[0] + a.size[0]) break;
      if (++tried > kMost) return "";
      bool share = true;
      for (int d = 0; d < a.lo.size(); ++d)
        share &= a.lo[d] < b.lo[d] + b.size[d] && b.lo[d] < a.lo[d] + a.size[d];
      if (share)
        return " (boxes " + to_string(a) + " and " + to_string(b) + " overlap)";
    }
  return "";
}

}  // namespace

uint64_t checksum_of(const io::File& file, int64_t from, int64_t to) {
  Checksum sum;
  std::string buffer(256 << 10, '\0');
  for (int64_t at = from; at < to; at += std::ssize(buffer)) {
    const int64_t n = std::min(std::ssize(buffer), to - at);
    file.read(buffer.data(), n, at);
    sum.add(buffer.data(), n);
  }
  return sum.value();
}

std::string header_of(std::span<const OwnedBox> boxes,
                      std::span<const TensorInfo> tensors) {
  std::string text = "{";
  int64_t at = 0;
  for (const OwnedBox& b : boxes) {
    const TensorInfo& t = tensors[b.tensor];
    if (at > 0) text += ',';
    // (Replacing what is not UTF-8 does no harm: the index refuses such names.)
    text += Json(t.name + to_string(b.box))
                .dump(-1, ' ', false, Json::error_handler_t::replace);
    text +=
        fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    safetensors_name(t.dtype), fmt::join(b.box.size, ","), at,
                    at + b.bytes);
    at += b.bytes;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  std::string header(8, '\0');
  for (size_t i = 0; i < 8; ++i)
    header[i] = static_cast<char>(text.size() >> (8 * i));
  return header + text;
}

std::string Index::file_name(int64_t rank) const {
  return fmt::format("rank-{:05}.{}", rank,
                     version == 1 ? "bin" : "safetensors");
}

void Index::add(TensorInfo info) {
  tensors_.push_back({std::move(info), stored_.size(), 0});
}

void Index::add(const StoredBox& p) {
  stored_.push_back(
      {p.offset, p.sum, boxes_.size(), static_cast<uint32_t>(p.rank)});
  ++tensors_.back().pieces;
  // Seven bits per byte; the eighth is set in all bytes but the last.
  for (const Shape* numbers : {&p.box.lo, &p.box.size})
    for (int64_t x : *numbers) {
      auto u = static_cast<uint64_t>(x);
      for (; u >= 128; u >>= 7) boxes_.push_back(uint8_t(u) | 128);
      boxes_.push_back(uint8_t(u));
    }
}

StoredBox Index::piece(const Entry& entry, size_t number) const {
  const Stored& s = stored_[number];
  StoredBox p{{}, s.rank, s.offset, size_of(entry.info.dtype), s.sum};
  size_t at = s.box;
  for (Shape* numbers : {&p.box.lo, &p.box.size})
    for (int d = 0; d < entry.info.shape.size(); ++d) {
      uint64_t u = 0;
      int bits = 0;
      for (; boxes_[at] & 128; bits += 7)
        u |= uint64_t(boxes_[at++] & 127) << bits;
      numbers->push_back(
          static_cast<int64_t>(u | uint64_t(boxes_[at++]) << bits));
    }
  for (int64_t n : p.box.size) p.bytes *= n;
  return p;
}

const Index::Entry& Index::owner(size_t piece) const {
  return *std::partition_point(
      tensors_.begin(), tensors_.end(),
      [&](const Entry& e) { return e.first + e.pieces <= piece; });
}

std::string Index::content(int64_t rank) const {
  std::string text;
  int64_t more = -4;
  for (const Entry& e : tensors_)
    for (size_t i = e.first; i < e.first + e.pieces; ++i)
      if (stored_[i].rank == rank && ++more <= 0)
        text += fmt::format("{}{} of {}", text.empty() ? "" : ", ",
                            to_string(piece(e, i).box), e.info.name);
  if (text.empty()) return "no box";
  return more > 0 ? fmt::format("{} and {} more", text, more) : text;
}

std::string Index::text() const {
  DT_CHECK(tensors_.size() <= kTensors && values.size() <= kValues &&
               files.size() <= kFiles,
           "checkpoint",
           "the numbers of tensors, values and files are {}, {} and {}, but a "
           "checkpoint has at most {}, {} and {}; save fewer",
           tensors_.size(), values.size(), files.size(), kTensors, kValues,
           kFiles);
  std::string rest;
  const auto add = [&](const std::string& line) {
    rest += ',';
    rest += line;
    rest += '\n';
  };
  add(step_line(step));
  for (const auto& [name, v] : values) add(value_line(name, v));
  for (const auto& [rank, file] : files) add(file_line(version, rank, file));
  for (const Entry& e : tensors_) {
    add(tensor_line(e.info));
    for (size_t i = e.first; i < e.first + e.pieces; ++i)
      add(piece_line(piece(e, i)));
  }
  rest += "]\n";
  const int64_t bytes = std::ssize(rest);
  return '[' + first_line(version, bytes, checksum(rest.data(), bytes)) + '\n' +
         rest;
}

Index Index::read(const io::File& file) {
  const std::string& path = file.path();
  const int64_t size = file.size();
  std::string text;
  DT_CHECK(Lines(file, 0, std::min(size, kFirstLine)).next(text), "checkpoint",
           "{} is empty; load another checkpoint", path);
  Index index;
  const int64_t from = std::ssize(text) + 1;
  if (text.starts_with('['))
    text.erase(0, 1);
  else
    index.version = 1;
  {
    const Line first(path, 1, text);
    if (first.text("format") != kFormat)
      first.bad("it is not the index of a checkpoint");
    if (first.size("version") != index.version)
      first.bad(
          "this library reads version 2, with [ in front, and 1, without");
    const int64_t bytes = first.size("bytes");
    const uint64_t sum = first.sum("xxh3");
    first.expect(first_line(index.version, bytes, sum));
    DT_CHECK(bytes == size - from, "checkpoint",
             "{} is damaged: it has {} bytes after its first line, but that "
             "line says {}; load another checkpoint",
             path, size - from, bytes);
    const uint64_t found = checksum_of(file, from, size);
    DT_CHECK(found == sum, "checkpoint",
             "{} is damaged: the text after its first line has the checksum "
             "{}, but that line says {}; load another checkpoint",
             path, checksum_text(found), checksum_text(sum));
  }

  Lines lines(file, from, size - from);
  index.step = -1;
  bool ended = index.version == 1;
  for (int64_t number = 2; lines.next(text); ++number) {
    if (index.version == 2) {
      const bool comma = text.starts_with(',');
      DT_CHECK(!ended && (comma || text == "]"), "checkpoint",
               "line {} of {} is wrong: it does not begin with a comma, or "
               "follows the end of the list; load another checkpoint",
               number, path);
      ended = !comma;
      if (ended) continue;
      text.erase(0, 1);
    }
    const Line line(path, number, text);
    if (line.has("box")) {
      if (index.tensors_.empty())
        line.bad("it is a box, but no line above it names a tensor");
      const TensorInfo& info = index.tensors_.back().info;
      const StoredBox p{{line.shape("box"), line.shape("size")},
                        line.size("rank"),
                        line.size("offset"),
                        line.size("bytes"),
                        line.sum("xxh3")};
      line.expect(piece_line(p));
      const int n = info.shape.size();
      bool inside = p.box.lo.size() == n && p.box.size.size() == n;
      for (int d = 0; inside && d < n; ++d)
        inside = p.box.size[d] > 0 && p.box.size[d] <= info.shape[d] &&
                 p.box.lo[d] <= info.shape[d] - p.box.size[d];
      if (!inside)
        line.bad(fmt::format("it is not a box of {} {}", info.name,
                             dtensor::to_string(info.shape)));
      if (!index.files.contains(p.rank))
        line.bad("no earlier line has that rank");
      index.add(p);
      if (index.piece(index.tensors_.back(), index.stored_.size() - 1).bytes !=
          p.bytes)
        line.bad("its bytes do not match its size");
    } else if (line.has("tensor")) {
      TensorInfo info{line.text("tensor"), DType::kF32, line.shape("shape")};
      const std::string type = line.text("dtype");
      int known = 0;
      while (known < kNumDTypes && name(DType(known)) != type) ++known;
      if (known == kNumDTypes) line.bad("its dtype is unknown");
      info.dtype = DType(known);
      line.expect(tensor_line(info));
      int64_t bytes = size_of(info.dtype);
      for (int64_t n : info.shape)
        if (__builtin_mul_overflow(bytes, n, &bytes))
          line.bad("its size overflows");
      if (index.tensors_.size() == kTensors)
        line.bad(fmt::format("the index has more than {} tensors", kTensors));
      index.add(std::move(info));
    } else if (line.has("value")) {
      CheckpointValue v = std::string();
      if (line.has("text"))
        v = line.text("text");
      else if (line.has("u64") && line.member("u64").is_number_unsigned())
        v = line.member("u64").get<uint64_t>();
      else if (line.has("i64") && line.member("i64").is_number_integer())
        v = line.member("i64").get<int64_t>();
      const std::string name = line.text("value");
      line.expect(value_line(name, v));
      if (!index.values.emplace(name, std::move(v)).second)
        line.bad("an earlier line has a value of that name");
      if (index.values.size() > kValues)
        line.bad(fmt::format("the index has more than {} values", kValues));
    } else if (line.has("step")) {
      if (index.step >= 0) line.bad("an earlier line has a step, too");
      index.step = line.size("step");
      line.expect(step_line(index.step));
    } else {
      const int64_t rank = line.size("rank");
      RankFile f{0, line.size("bytes"), 0};
      if (index.version == 2)
        f.header = line.size("header"), f.sum = line.sum("xxh3");
      line.expect(file_line(index.version, rank, f));
      if (f.header > kHeader) line.bad("its header is too long");
      if (rank > INT32_MAX || !index.files.emplace(rank, f).second)
        line.bad(
            "an earlier line has that rank, too, or the rank is too large");
      if (index.files.size() > kFiles)
        line.bad(fmt::format("the index has more than {} files", kFiles));
    }
  }
  DT_CHECK(ended && index.step >= 0, "checkpoint",
           "{} lacks the line with its step, or its last line; load another "
           "checkpoint",
           path);
  index.sort_names(path);
  index.check_cover(path);
  index.check_files(path);
  return index;
}

void Index::sort_names(const std::string& path) {
  const auto name = [&](uint32_t t) -> const std::string& {
    return tensors_[t].info.name;
  };
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  for (size_t i = 1; i < by_name_.size(); ++i)
    DT_CHECK(name(by_name_[i]) != name(by_name_[i - 1]), "checkpoint",
             "{} has two tensors with the name {}; load another checkpoint",
             path, name(by_name_[i]));
}

const Index::Entry* Index::find(std::string_view name) const {
  const auto at = std::partition_point(
      by_name_.begin(), by_name_.end(),
      [&](uint32_t t) { return tensors_[t].info.name < name; });
  if (at == by_name_.end() || tensors_[*at].info.name != name) return nullptr;
  return &tensors_[*at];
}

void Index::check_cover(const std::string& path) const {
  // The weight of a box is the product over its dimensions d of
  // f(d, end) - f(d, begin), for a random function f. The weights of boxes that
  // hold every element exactly once add up to the weight of the whole tensor;
  // those of any other boxes do so with a probability of about 2^-58. The time
  // is linear in the number of boxes.
  for (const Entry& e : tensors_) {
    const Box whole{Shape::filled(e.info.shape.size(), 0), e.info.shape};
    uint64_t sum = 0;
    for (size_t i = e.first; i < e.first + e.pieces; ++i)
      sum = (sum + weight(piece(e, i).box)) % kPrime;
    if (sum == weight(whole)) continue;
    std::string why;
    if (e.pieces <= kExplained) {
      std::vector<Box> boxes;
      for (size_t i = e.first; i < e.first + e.pieces; ++i)
        boxes.push_back(piece(e, i).box);
      why = ": " + holes(whole, boxes) + overlap_of(boxes);
    }
    fail("checkpoint",
         "the boxes of {} {} in {}, {} in all, do not hold every element "
         "exactly once{}; load another checkpoint",
         e.info.name, dtensor::to_string(e.info.shape), path, e.pieces, why);
  }
}

void Index::check_files(const std::string& path) const {
  std::vector<size_t> order(stored_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(stored_[a].rank, stored_[a].offset) <
           std::tie(stored_[b].rank, stored_[b].offset);
  });
  size_t next = 0;
  for (const auto& [rank, file] : files) {
    const int64_t bytes = file.bytes;
    int64_t end = 0;
    for (; next < order.size() && stored_[order[next]].rank == rank; ++next) {
      const Entry& e = owner(order[next]);
      const StoredBox p = piece(e, order[next]);
      DT_CHECK(p.offset == end && p.bytes <= bytes - end, "checkpoint",
               "{} puts {} of {} at bytes {} to {} of the {} bytes of data in "
               "{}; the boxes before it end at {}; load another checkpoint",
               path, to_string(p.box), e.info.name, p.offset,
               static_cast<uint64_t>(p.offset) + uint64_t(p.bytes), bytes,
               file_name(rank), end);
      end += p.bytes;
    }
    DT_CHECK(end == bytes, "checkpoint",
             "the boxes in the data of {} end at byte {}, but {} says that "
             "this data has {} bytes; load another checkpoint",
             file_name(rank), end, path, bytes);
  }
}

}  // namespace dtensor::checkpoint
