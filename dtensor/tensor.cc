// SPDX-License-Identifier: Apache-2.0
#include "dtensor/tensor.h"

#include <algorithm>
#include <optional>

#include "dtensor/allocator.h"
#include "dtensor/device/device.h"
#include "dtensor/device/out_of_memory.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/exact.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

// The allocator of threads without a rank.
const std::shared_ptr<Allocator>& shared_allocator() {
  static auto* allocator = new std::shared_ptr<Allocator>(Allocator::on(cpu()));
  return *allocator;
}

constexpr int64_t kUnit[] = {1};

bool row_major(const Shape& shape, const Shape& strides) {
  int64_t next = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (strides[i] != next) return false;
    next *= shape[i];
  }
  return true;
}

// Returns the strides with which the same memory has shape `to`, or nullopt if
// there are none. Dimensions that lie in memory like a single dimension form a
// group; each group is divided into dimensions of `to`.
std::optional<Shape> view_strides(const Shape& from, const Shape& strides,
                                  const Shape& to) {
  Shape result = Shape::filled(to.size(), 1);
  int j = to.size() - 1;
  for (int i = from.size() - 1; i >= 0;) {
    const int64_t step = strides[i];
    int64_t group = from[i--];
    while (i >= 0 && (from[i] == 1 || strides[i] == group * step))
      group *= from[i--];
    int64_t done = 1;
    while (j >= 0 && (done < group || to[j] == 1)) {
      result[j] = done * step;
      done *= to[j--];
    }
    if (done != group) return std::nullopt;
  }
  return result;
}

// Throws Error if a dimension repeats its elements (stride 0), because a write
// would be ambiguous. Does not find overlaps that as_strided() can make.
void check_writable(const Tensor& t, std::string_view where) {
  for (int i = 0; i < t.ndim(); ++i)
    DT_CHECK(
        t.strides()[i] != 0 || t.shape()[i] <= 1, where,
        "a tensor of shape {} repeats its elements along dimension {}; write "
        "to a clone() of it",
        to_string(t.shape()), i);
}

}  // namespace

std::shared_ptr<Storage> Storage::allocate(int64_t bytes) {
  const RankContext* context = RankContext::current_or_null();
  const bool rank = context && context->allocator;
  const auto& from = rank ? context->allocator : shared_allocator();
  const Stream stream = rank ? context->stream : Stream{};
  const MemoryKind kind =
      rank ? context->memory_kind : MemoryKind::kActivations;
  void* data = from->allocate(bytes, stream, rank ? context->op : "", kind);
  try {
    // make_shared() takes one allocation for the Storage and its reference
    // count. (Every tensor with memory of its own makes a Storage.)
    return std::make_shared<Storage>(Key(), data, bytes, from->device(), stream,
                                     kind, from);
  } catch (...) {
    from->release(data, bytes, stream, kind);
    throw;
  }
}

Storage::~Storage() {
  if (!away()) from_->release_behind(data_, bytes_, made_on_, stream_, kind_);
  if (host_) host_->from->release(host_->data, bytes_, made_on_, kind_);
}

void Storage::offload() {
  if (away() || device_->kind() == Device::Kind::kCpu) return;
  if (read_) finish_reader();
  const Stream stream = stream_here();
  DT_CHECK(!device_->is_captured(stream), "offload",
           "a graph's step moves {} to the host, but a replay uses the memory "
           "of the capture; leave the graph out (cuda_graph), or offloading",
           amount(bytes_));
  if (!host_) {
    const auto& from = from_->host();
    host_ = std::make_unique<HostCopy>(
        HostCopy{from, from->allocate(bytes_, stream, "offload", kind_)});
    host_->version = version_ + 1;  // differs from the storage's version
  }
  if (data_ && bytes_ > 0 && host_->version != version_)
    device_->copy_host(stream, host_->data, data_, bytes_);
  host_->version = version_;
  host_->only = true;
  from_->release_behind(std::exchange(data_, nullptr), bytes_, made_on_, stream,
                        kind_);
  made_on_ = stream_ = stream;
}

void Storage::bring_back() {
  if (!away()) return;
  const Stream stream = stream_here();
  data_ = from_->allocate(bytes_, stream, "offload", kind_);
  made_on_ = stream_ = stream;
  if (data_ && bytes_ > 0)
    device_->copy_host(stream, data_, host_->data, bytes_);
  host_->only = false;
}

void Storage::set_kind(MemoryKind kind) {
  if (kind != kind_) {
    if (!away()) from_->recount(bytes_, kind_, kind);
    if (host_) host_->from->recount(bytes_, kind_, kind);
  }
  kind_ = kind;
}

Stream Storage::stream_here() const {
  const RankContext* context = RankContext::current_or_null();
  return context && context->device == device_ ? context->stream : stream_;
}

void Storage::finish_reader() {
  if (const auto reader = reader_.lock()) reader->finish();
  read_ = false;
}

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  Tensor t;
  t.numel_ = dtensor::numel(shape);
  t.storage_ = Storage::allocate(t.numel_ * size_of(dtype));
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  t.dtype_ = dtype;
  return t;
}

Tensor Tensor::full(const Shape& shape, DType dtype, double value) {
  Tensor t = empty(shape, dtype);
  t.device().fill(t.stream(), dtype, Sizes(&t.numel_, 1), t.mutable_data(),
                  kUnit, value);
  return t;
}

template <class T>
Tensor Tensor::from(const Shape& shape, const T* values) {
  Tensor t = empty(shape, dtype_of<T>);
  t.device().from_host(t.stream(), t.mutable_data(), values, t.bytes());
  return t;
}
template Tensor Tensor::from(const Shape&, const float*);
template Tensor Tensor::from(const Shape&, const double*);
template Tensor Tensor::from(const Shape&, const bf16*);
template Tensor Tensor::from(const Shape&, const f16*);
template Tensor Tensor::from(const Shape&, const int32_t*);
template Tensor Tensor::from(const Shape&, const int64_t*);
template Tensor Tensor::from(const Shape&, const bool*);
template Tensor Tensor::from(const Shape&, const int8_t*);

Tensor Tensor::view(const Shape& shape, const Shape& strides,
                    int64_t offset) const {
  Tensor t = *this;
  t.shape_ = shape;
  t.strides_ = strides;
  t.offset_ += offset;
  t.numel_ = dtensor::numel(shape);
  t.contiguous_ = t.numel_ == 0 || row_major(shape, strides);
  return t;
}

Tensor Tensor::permute(const Shape& order) const {
  DT_CHECK(order.size() == ndim(), "permute",
           "the order {} does not have {}; name each dimension once",
           to_string(order), quantity(ndim(), "dimension", "dimensions"));
  Shape shape, strides;
  uint32_t used = 0;
  for (int64_t o : order) {
    const int d = normalize_dim(o, ndim(), "permute");
    DT_CHECK(!(used >> d & 1), "permute",
             "the order {} names dimension {} twice; name each dimension once",
             to_string(order), d);
    used |= uint32_t{1} << d;
    shape.push_back(shape_[d]);
    strides.push_back(strides_[d]);
  }
  return view(shape, strides, 0);
}

Tensor Tensor::transpose(int a, int b) const {
  a = normalize_dim(a, ndim(), "transpose");
  b = normalize_dim(b, ndim(), "transpose");
  Shape shape = shape_, strides = strides_;
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return view(shape, strides, 0);
}

Tensor Tensor::slice(int d, int64_t lo, int64_t hi, int64_t step) const {
  d = normalize_dim(d, ndim(), "slice");
  DT_CHECK(step >= 1, "slice", "the step is {}; write 1 or more", step);
  DT_CHECK(
      lo >= 0 && lo <= hi && hi <= shape_[d], "slice",
      "[{}, {}) is not a range of dimension {} of {}; write 0 <= lo <= hi <= "
      "{}",
      lo, hi, d, to_string(shape_), shape_[d]);
  Shape shape = shape_, strides = strides_;
  shape[d] = (hi - lo) / step + ((hi - lo) % step != 0);
  // For at most one index, the stride does not matter, and the product could
  // overflow.
  if (shape[d] > 1) strides[d] *= step;
  return view(shape, strides, lo * strides_[d]);
}

Tensor Tensor::expand(const Shape& to) const {
  const int added = to.size() - ndim();
  DT_CHECK(added >= 0, "expand",
           "{} cannot become {}, which has fewer dimensions; write at least {}",
           to_string(shape_), to_string(to), ndim());
  Shape strides = Shape::filled(to.size(), 0);
  for (int i = 0; i < ndim(); ++i) {
    const int64_t want = to[added + i];
    DT_CHECK(want == shape_[i] || shape_[i] == 1, "expand",
             "{} cannot become {}, because dimension {} is {} and only a "
             "dimension of size 1 can be repeated; keep its size",
             to_string(shape_), to_string(to), i, shape_[i]);
    if (want == shape_[i]) strides[added + i] = strides_[i];
  }
  return view(to, strides, 0);
}

Tensor Tensor::as_strided(const Shape& shape, const Shape& strides,
                          int64_t offset) const {
  DT_CHECK(shape.size() == strides.size(), "as_strided",
           "shape {} and strides {} differ in length; pass one stride for each "
           "dimension",
           to_string(shape), to_string(strides));
  int64_t first = 0;
  bool overflow = __builtin_add_overflow(offset_, offset, &first);
  int64_t lowest = first, highest = first;
  for (int i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    overflow |= __builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
    int64_t& end = reach < 0 ? lowest : highest;
    overflow |= __builtin_add_overflow(end, reach, &end);
  }
  DT_CHECK(!overflow, "as_strided",
           "shape {} with strides {} and offset {} reaches more elements than "
           "64 bits can count; write smaller ones",
           to_string(shape), to_string(strides), offset);
  const int64_t held = storage_->bytes() / size_of(dtype_);
  DT_CHECK(dtensor::numel(shape) == 0 || (lowest >= 0 && highest < held),
           "as_strided",
           "shape {} with strides {}, from element {} of the storage on, "
           "reaches elements {} to {}, but the storage has {}, numbered from "
           "0; choose a view inside the storage",
           to_string(shape), to_string(strides), first, lowest, highest, held);
  return view(shape, strides, offset);
}

bool Tensor::can_view(const Shape& to) const {
  if (dtensor::numel(to) != numel_) return false;
  return contiguous_ || view_strides(shape_, strides_, to).has_value();
}

Tensor Tensor::reshape(const Shape& to) const {
  DT_CHECK(dtensor::numel(to) == numel_, "reshape",
           "{} has {}, but {} has {}; write a shape with as many elements",
           to_string(shape_), quantity(numel_, "element", "elements"),
           to_string(to), dtensor::numel(to));
  if (contiguous_) return view(to, contiguous_strides(to), 0);
  const std::optional<Shape> strides = view_strides(shape_, strides_, to);
  if (strides) return view(to, *strides, 0);
  return clone().reshape(to);
}

Tensor Tensor::to_contiguous() const { return contiguous_ ? *this : clone(); }

Tensor Tensor::clone() const {
  Tensor t = empty(shape_, dtype_);
  device().copy(stream(), size_of(dtype_), shape_, t.mutable_data(), t.strides_,
                data(), strides_);
  return t;
}

void Tensor::copy_from(const Tensor& src) const {
  DT_CHECK(src.defined() && src.shape_ == shape_ && src.dtype_ == dtype_,
           "copy_from",
           "{} cannot be copied to {}{}; pass a tensor of that type and shape",
           src.defined()
               ? fmt::format("{}{}", name(src.dtype_), to_string(src.shape_))
               : "an undefined Tensor",
           name(dtype_), to_string(shape_));
  check_writable(*this, "copy_from");
  // Two views of one storage may overlap. Clone src, so that no element is read
  // after it has been written.
  const bool shared = src.storage_ == storage_;
  const Tensor from = shared ? src.clone() : src;
  device().copy(stream(), size_of(dtype_), shape_, mutable_data(), strides_,
                from.data(), from.strides_);
}

void Tensor::fill(double value) const {
  check_writable(*this, "fill");
  device().fill(stream(), dtype_, shape_, mutable_data(), strides_, value);
}

void Tensor::to_host(void* values) const {
  const Tensor t = to_contiguous();
  t.device().to_host(t.stream(), values, t.data(), t.bytes());
}

template <class T>
std::vector<T> Tensor::to_host_as(DType type) const {
  std::vector<T> result(static_cast<size_t>(numel_));
  if (numel_ == 0) return result;
  Tensor wide = *this;
  if (dtype_ != type) {
    wide = empty(shape_, type);
    device().cast(stream(), shape_, type, wide.mutable_data(), wide.strides_,
                  dtype_, data(), strides_);
  }
  wide.to_host(result.data());
  return result;
}

std::vector<double> Tensor::to_doubles() const {
  return to_host_as<double>(DType::kF64);
}

std::vector<int64_t> Tensor::to_integers() const {
  DT_CHECK(dtype_ == DType::kI32 || dtype_ == DType::kI64, "to_integers",
           "the type is {}, not i32 or i64; call to_doubles()", name(dtype_));
  return to_host_as<int64_t>(DType::kI64);
}

Tensor Tensor::to_rank() const {
  const RankContext* context = RankContext::current_or_null();
  if (!context || context->device == &device()) return *this;
  Tensor t = empty(shape_, dtype_);
  std::vector<char> bytes(static_cast<size_t>(t.bytes()));
  if (t.device().kind() != Device::Kind::kNone) to_host(bytes.data());
  t.device().from_host(t.stream(), t.mutable_data(), bytes.data(), t.bytes());
  return t;
}

double Tensor::item() const {
  DT_CHECK(numel_ == 1, "item",
           "a tensor of shape {} has {} elements, not one; call to_doubles()",
           to_string(shape_), numel_);
  return to_doubles()[0];
}

int64_t Tensor::position(int64_t i, std::string_view where) const {
  DT_CHECK(i >= 0 && i < numel_, where,
           "there is no element {}: the tensor has {}, numbered from 0", i,
           quantity(numel_, "element", "elements"));
  DT_CHECK(data() != nullptr, where,
           "a tensor of a dry run has no values; read them only in a real run: "
           "if (!rt.dry_run())");
  int64_t element = 0;
  for (int d = ndim() - 1; d >= 0; --d) {
    element += i % shape_[d] * strides_[d];
    i /= shape_[d];
  }
  return element;
}

int64_t Tensor::integer_at(int64_t i) const {
  DT_CHECK(dtype_ == DType::kI32 || dtype_ == DType::kI64, "integer_at",
           "the type is {}, not i32 or i64; call at()", name(dtype_));
  const int64_t element = position(i, "integer_at");
  if (dtype_ == DType::kI32) {
    int32_t value;
    device().to_host(stream(), &value, ptr<int32_t>() + element, sizeof(value));
    return value;
  }
  int64_t value;
  device().to_host(stream(), &value, ptr<int64_t>() + element, sizeof(value));
  return value;
}

double Tensor::at(int64_t i) const {
  const int64_t element = position(i, "at");
  if (dtype_ == DType::kExact) {
    Exact sum;
    device().to_host(stream(), &sum, ptr<char>() + element * size_of(dtype_),
                     sizeof(sum));
    return sum.value();
  }
  return visit_stored(dtype_, [&]<class T>() -> double {
    T value;
    device().to_host(stream(), &value, ptr<T>() + element, sizeof(T));
    if constexpr (is_half<T>)
      return static_cast<float>(value);
    else
      return static_cast<double>(value);
  });
}

}  // namespace dtensor
