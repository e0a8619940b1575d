// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "dtensor/comm/host_communicator.h"
#include "dtensor/comm/nccl.h"
#include "dtensor/device/combine.h"
#include "dtensor/device/copy.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/step_schedule.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/dtensor/fake_nccl.h"
#include "tests/dtensor/message_passing.h"
#include "tests/dtensor/tcp_processes.h"
#include "tests/one_tensor.h"
#include "tests/placement/traffic.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using Rng = std::mt19937;

int64_t below(Rng& rng, int64_t n) {
  return static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
}

Call call(StepKind kind, std::string_view op = "test",
          uint64_t fingerprint = 1) {
  return {kind, op, fingerprint};
}

// A number of ranks, and how they reach each other: as threads on the CPU, by
// messages between processes of one rank or of two, over TCP between such
// processes, as threads on one recording device or on one each, or through NCCL
// between threads, between processes of one rank, or over TCP between processes
// of two.
struct World {
  int64_t ranks;
  std::string_view backend = "threads";
};

void run_on(const World& world, const std::function<void(Runtime&)>& fn) {
  RunOptions options;
  options.world = world.ranks;
  if (world.backend == "messages")
    options.backend = testing::message_passing_backend;
  if (world.backend == "processes_of_2")
    options.backend = testing::processes_of_2;
  if (world.backend == "tcp") options.backend = testing::over_tcp;
  if (world.backend == "tcp_of_2") options.backend = testing::over_tcp_of_2;
  const auto nccl = testing::FakeNccl::make();
  const auto make = [&](int64_t all, int64_t ranks, ProcessJob* job) {
    return nccl_backend(all, ranks, job, nccl.get());
  };
  if (world.backend == "nccl")
    options.backend = [&](int64_t n) { return make(n, n, nullptr); };
  if (world.backend == "nccl_processes")
    options.backend = [&](int64_t n) {
      return testing::backend_over_messages(n, 1, make);
    };
  if (world.backend == "nccl_tcp_of_2")
    options.backend = [&](int64_t n) {
      return testing::backend_over_tcp(n, 2, make);
    };
  std::vector<std::unique_ptr<RecordingDevice>> devices;
  const bool one = world.backend == "device";
  if (one || world.backend == "devices" || world.backend.starts_with("nccl")) {
    for (int64_t i = 0; i < (one ? 1 : world.ranks); ++i)
      devices.push_back(RecordingDevice::make());
    options.device = [&](int64_t rank) -> Device& {
      return *devices[one ? 0 : static_cast<size_t>(rank)];
    };
  }
  run(options, fn);
  // No collective waits for the device.
  for (const auto& d : devices) EXPECT_EQ(d->synchronized(), 0);
}

// The stream and the device of the calling rank.
Stream stream() { return RankContext::current().stream; }
Device& device() { return *RankContext::current().device; }
bool on_host() { return device().kind() == Device::Kind::kCpu; }

// Bytes of a test in memory that the rank's work can use: on the CPU the bytes
// themselves, elsewhere a copy on the device.
class There {
 public:
  There() = default;
  There(void* host, int64_t bytes) : host_(host), bytes_(bytes), data_(host) {
    if (on_host() || bytes == 0) return;
    data_ = device().allocate(bytes, stream());
    device().from_host(stream(), data_, host, bytes);
  }
  There(There&& o) noexcept { *this = std::move(o); }
  There& operator=(There&& o) noexcept {
    std::swap(host_, o.host_);
    std::swap(bytes_, o.bytes_);
    std::swap(data_, o.data_);
    return *this;
  }
  // The host frees the copy at once, though the device may still use it.
  ~There() {
    if (data_ != host_) device().release(data_, bytes_, stream());
  }
  void* data() const { return data_; }
  void fetch() const {
    if (data_ != host_) device().to_host(stream(), host_, data_, bytes_);
  }
  // Overwrites the bytes with junk, as later work of the stream could.
  void spoil() const {
    const std::vector<char> junk(static_cast<size_t>(bytes_), 0x55);
    device().from_host(stream(), data_, junk.data(), bytes_);
  }

 private:
  void* host_ = nullptr;
  int64_t bytes_ = 0;
  void* data_ = nullptr;
};

// Calls fn(comm, rank) on every rank, with the group of the whole run.
void on_ranks(const World& world,
              const std::function<void(Communicator&, int)>& fn) {
  run_on(world, [&](Runtime& rt) {
    Mesh mesh = rt.mesh();
    Communicator& comm = rt.context().communicator(mesh, mesh.all_axes());
    ASSERT_EQ(comm.size(), world.ranks);
    ASSERT_EQ(comm.rank(), rt.rank());
    fn(comm, comm.rank());
  });
}

// --- Regions and their memory -----------------------------------------------

IntervalList random_list(Rng& rng, int64_t n) {
  std::vector<int64_t> cuts{0, n};
  for (int64_t i = below(rng, 4); i > 0; --i) cuts.push_back(below(rng, n + 1));
  std::sort(cuts.begin(), cuts.end());
  IntervalList pieces;
  for (size_t i = 0; i + 1 < cuts.size(); ++i)
    if (cuts[i] < cuts[i + 1] && below(rng, 3))
      pieces.push_back({cuts[i], cuts[i + 1]});
  if (below(rng, 3) == 0) std::shuffle(pieces.begin(), pieces.end(), rng);
  IntervalList list;
  for (const Interval& r : pieces)
    if (!list.empty() && list.back().hi == r.lo)
      list.back().hi = r.hi;
    else
      list.push_back(r);
  return list;
}

Region random_region(Rng& rng, const Shape& shape) {
  Region r;
  for (int64_t n : shape) r.push_back(random_list(rng, n));
  return r;
}

Region whole(const Shape& shape) {
  Region r;
  for (int64_t n : shape)
    r.push_back(n ? IntervalList{{0, n}} : IntervalList{});
  return r;
}

// Splits dimension d into parts, some of them empty. If `inner` > 1, d is split
// as a product dimension: part i has its indices in every group of `inner`.
std::vector<Region> split(Rng& rng, const Shape& shape, int d, int parts,
                          int64_t inner) {
  const int64_t n = shape[d];
  std::vector<int64_t> cuts{0, inner > 1 ? inner : n};
  for (int i = 1; i < parts; ++i) cuts.push_back(below(rng, cuts[1] + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Region> regions;
  for (int i = 0; i < parts; ++i) {
    const int64_t lo = cuts[static_cast<size_t>(i)];
    const int64_t hi = cuts[static_cast<size_t>(i) + 1];
    Region r = whole(shape);
    IntervalList& list = r[static_cast<size_t>(d)];
    list.clear();
    for (int64_t base = 0; lo < hi && base<n; base += inner> 1 ? inner : n) {
      if (!list.empty() && list.back().hi == base + lo)
        list.back().hi = base + hi;
      else
        list.push_back({base + lo, base + hi});
    }
    regions.push_back(r);
  }
  return regions;
}

// Calls fn(local index, row-major global index) in row-major local order.
template <class Fn>
void for_each_element(const Region& region, const Shape& shape, Fn fn) {
  std::vector<std::vector<int64_t>> indices;
  for (const IntervalList& list : region) {
    auto& v = indices.emplace_back();
    for (const Interval& r : list)
      for (int64_t i = r.lo; i < r.hi; ++i) v.push_back(i);
  }
  const int64_t n = volume(region);
  for (int64_t at = 0; at < n; ++at) {
    Shape local = Shape::filled(shape.size(), 0);
    int64_t rest = at, global = 0, step = 1;
    for (int d = shape.size() - 1; d >= 0; --d) {
      const auto& v = indices[static_cast<size_t>(d)];
      const int64_t size = static_cast<int64_t>(v.size());
      local[d] = rest % size;
      rest /= size;
      global += v[static_cast<size_t>(local[d])] * step;
      step *= shape[d];
    }
    fn(local, global);
  }
}

// Memory for a region, with dimensions in some order and gaps between them.
template <class T>
struct Memory {
  Memory(Rng& rng, const Region& r) : region(r) {
    const Shape shape = local_shape(r);
    std::vector<int> order(static_cast<size_t>(shape.size()));
    std::iota(order.begin(), order.end(), 0);
    if (below(rng, 2)) std::shuffle(order.begin(), order.end(), rng);
    strides = Shape::filled(shape.size(), 0);
    int64_t next = below(rng, 4) == 0 ? 2 : 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = next;
      next *= std::max<int64_t>(shape[order[i]], 1) + below(rng, 3) / 2;
    }
    // Bytes, since std::vector<bool> has no array of bool.
    bytes.resize(static_cast<size_t>(next) * sizeof(T));
    fill(dtype_of<T>, next, bytes.data(), kUntouched);
    size = next;
  }
  static constexpr double kUntouched = dtype_of<T> == DType::kBool ? 1 : 77;
  T* data() { return reinterpret_cast<T*>(bytes.data()); }
  T& at(const Shape& local) {
    int64_t i = 0;
    for (int d = 0; d < local.size(); ++d) i += local[d] * strides[d];
    return data()[i];
  }
  // Copies the values to where the rank computes.
  testing::Part part() {
    there = There(bytes.data(), static_cast<int64_t>(bytes.size()));
    return {volume(region) ? there.data() : nullptr, strides, &region};
  }

  Region region;
  Shape strides;
  std::vector<char> bytes;
  int64_t size;
  There there;
};

template <class T>
T make(double x) {
  if constexpr (is_half<T>)
    return T(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, bool>)
    return x != 0;
  else
    return static_cast<T>(x);
}
template <class T>
double number(T x) {
  if constexpr (is_half<T>)
    return static_cast<float>(x);
  else
    return static_cast<double>(x);
}

// Member m's value at a global index: a hash, so that values differ.
template <class T>
T value(int m, int64_t index, Rng::result_type salt) {
  const uint64_t h = hash_mix(hash_mix(salt, static_cast<uint64_t>(m)),
                              static_cast<uint64_t>(index));
  if constexpr (std::is_same_v<T, bool>)
    return h % 3 == 0;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<int64_t>(h % 19) - 9);
  else
    return make<T>((static_cast<double>(h % 20001) - 10000) / 997.0);
}

struct Setting {
  Shape shape;
  std::vector<Region> sources, dests;
};

// Draws the members' sources and destinations. With `cover`, the sources
// together hold every index.
Setting random_setting(Rng& rng, int p, bool cover) {
  Setting s;
  const int ndim = static_cast<int>(below(rng, 4));
  for (int d = 0; d < ndim; ++d)
    s.shape.push_back(below(rng, 15) == 0 ? 0 : 1 + below(rng, 9));
  auto regions = [&](bool all) {
    std::vector<Region> r;
    const int64_t how = below(rng, 4);
    if (how == 0 && ndim > 0) {
      const int d = static_cast<int>(below(rng, ndim));
      int64_t inner = 1;
      for (int64_t i = 2; i < s.shape[d]; ++i)
        if (s.shape[d] % i == 0 && below(rng, 2)) inner = i;
      return split(rng, s.shape, d, p, inner);
    }
    for (int m = 0; m < p; ++m)
      r.push_back(how == 1 ? whole(s.shape) : random_region(rng, s.shape));
    if (all) r[static_cast<size_t>(below(rng, p))] = whole(s.shape);
    return r;
  };
  s.sources = regions(cover);
  s.dests = regions(false);
  return s;
}

std::set<int64_t> indices(const Region& region, const Shape& shape) {
  std::set<int64_t> all;
  for_each_element(region, shape,
                   [&](const Shape&, int64_t i) { all.insert(i); });
  return all;
}

template <class T>
void check_exchange(Communicator& comm, Rng::result_type seed) {
  Rng rng(seed);
  const Setting s = random_setting(rng, comm.size(), true);
  const size_t me = static_cast<size_t>(comm.rank());
  Rng own(seed * 31 + static_cast<unsigned>(me));
  Memory<T> src(own, s.sources[me]), dst(own, s.dests[me]);
  for_each_element(src.region, s.shape, [&](const Shape& at, int64_t i) {
    src.at(at) = value<T>(0, i, seed);
  });
  const std::vector<char> before = src.bytes;
  const int64_t counted = testing::exchange(
      comm, call(StepKind::kAllToAll, "test", seed), stream(), dtype_of<T>,
      src.part(), s.sources, dst.part(), s.dests);
  // Later work may overwrite the source.
  const bool spoil = below(rng, 2);
  spoil ? src.there.spoil() : src.there.fetch();
  dst.there.fetch();
  const std::set<int64_t> mine = indices(src.region, s.shape);
  int64_t from_others = 0;
  for_each_element(dst.region, s.shape, [&](const Shape& at, int64_t i) {
    EXPECT_EQ(number(dst.at(at)), number(value<T>(0, i, seed)))
        << "seed " << seed << " rank " << me << " index " << i;
    from_others += !mine.contains(i);
    dst.at(at) = make<T>(Memory<T>::kUntouched);
  });
  EXPECT_EQ(counted, from_others * size_of(dtype_of<T>)) << "seed " << seed;
  // Nothing beside the destination, and no source, was written.
  for (int64_t i = 0; i < dst.size; ++i)
    ASSERT_EQ(number(dst.data()[i]), Memory<T>::kUntouched) << "seed " << seed;
  if (!spoil) {
    EXPECT_EQ(src.bytes, before);
  }
}

std::vector<ReduceOp> ops_of(DType t) {
  using enum ReduceOp;
  if (t == DType::kI8) return {};  // has no arithmetic
  if (t == DType::kBool) return {kAny, kAll, kMax, kMin, kProd};
  if (is_float(t)) return {kSum, kAvg, kMax, kMin, kProd};
  return {kSum, kMax, kMin, kProd};
}

// Reduces values in member order, as Communicator promises.
template <class T>
T reduced(ReduceOp op, const std::vector<T>& v, int p) {
  using A = std::conditional_t<is_half<T>, float, T>;
  if (v.empty()) {
    const double e = identity(op);
    if (std::isinf(e) && !is_float(dtype_of<T>)) {
      using L = std::numeric_limits<A>;
      return T(e < 0 ? L::lowest() : L::max());
    }
    return make<T>(e);
  }
  A acc = A(v[0]);
  for (size_t i = 1; i < v.size(); ++i) {
    const A x = A(v[i]);
    switch (op) {
      case ReduceOp::kMax:
      case ReduceOp::kAny:
        acc = std::max(acc, x);
        break;
      case ReduceOp::kMin:
      case ReduceOp::kAll:
        acc = std::min(acc, x);
        break;
      case ReduceOp::kProd:
        acc = static_cast<A>(acc * x);
        break;
      default:
        acc = static_cast<A>(acc + x);
    }
  }
  if (op == ReduceOp::kAvg) acc = static_cast<A>(acc / A(p));
  return T(acc);
}

template <class T>
void check_reduce(Communicator& comm, ReduceOp op, Rng::result_type seed) {
  Rng rng(seed);
  const Setting s = random_setting(rng, comm.size(), false);
  const int p = comm.size();
  const size_t me = static_cast<size_t>(comm.rank());
  Rng own(seed * 31 + static_cast<unsigned>(me));
  Memory<T> src(own, s.sources[me]), dst(own, s.dests[me]);
  for_each_element(src.region, s.shape, [&](const Shape& at, int64_t i) {
    src.at(at) = value<T>(comm.rank(), i, seed);
  });
  const int64_t counted = testing::reduce(
      comm, call(StepKind::kReduceScatter, "test", seed), stream(), op,
      dtype_of<T>, src.part(), s.sources, dst.part(), s.dests);
  src.there.spoil();
  dst.there.fetch();
  std::vector<std::set<int64_t>> held;
  for (const Region& r : s.sources) held.push_back(indices(r, s.shape));
  int64_t reads = 0;
  for_each_element(dst.region, s.shape, [&](const Shape& at, int64_t i) {
    std::vector<T> v;
    for (int m = 0; m < p; ++m)
      if (held[static_cast<size_t>(m)].contains(i)) {
        v.push_back(value<T>(m, i, seed));
        reads += m != comm.rank();
      }
    EXPECT_EQ(number(dst.at(at)), number(reduced(op, v, p)))
        << name(op) << " seed " << seed << " rank " << me << " index " << i;
    dst.at(at) = make<T>(Memory<T>::kUntouched);
  });
  EXPECT_EQ(counted, reads * size_of(dtype_of<T>)) << "seed " << seed;
  for (int64_t i = 0; i < dst.size; ++i)
    ASSERT_EQ(number(dst.data()[i]), Memory<T>::kUntouched) << "seed " << seed;
}

template <class T>
void check_all_reduce(Communicator& comm, ReduceOp op, int64_t n) {
  const int p = comm.size(), me = comm.rank();
  std::vector<char> bytes(static_cast<size_t>(n + 1) * sizeof(T));
  T* x = reinterpret_cast<T*>(bytes.data());
  for (int64_t i = 0; i < n; ++i) x[i] = value<T>(me, i, 5);
  x[n] = make<T>(1);
  const auto all_reduce = [&](std::vector<char>& bytes, bool one_shot,
                              const void* from = nullptr) {
    const There there(bytes.data(), static_cast<int64_t>(bytes.size()));
    Buffer b{.op = op,
             .dtype = dtype_of<T>,
             .data = there.data(),
             .n = n,
             .one_shot = one_shot,
             .from = from};
    comm.all_reduce(call(StepKind::kAllReduce), stream(), {&b, 1});
    if (on_host()) return b.counted;
    // Read the result on the stream before later work overwrites it.
    std::vector<char> kept(bytes.size());
    const There copy(kept.data(), static_cast<int64_t>(kept.size()));
    const int64_t shape[] = {static_cast<int64_t>(bytes.size())}, unit[] = {1};
    device().copy(stream(), 1, shape, copy.data(), unit, there.data(), unit);
    there.spoil();
    copy.fetch();
    bytes = kept;
    return b.counted;
  };
  const int64_t counted = all_reduce(bytes, false);
  for (int64_t i = 0; i < n; ++i) {
    std::vector<T> v;
    for (int m = 0; m < p; ++m) v.push_back(value<T>(m, i, 5));
    ASSERT_EQ(number(x[i]), number(reduced(op, v, p)))
        << name(op) << " of " << name(dtype_of<T>) << " at " << i << " of "
        << n;
  }
  EXPECT_EQ(number(x[n]), 1);
  const int64_t own = (me + 1) * n / p - me * n / p;
  EXPECT_EQ(counted, ((p - 1) * own + n - own) * size_of(dtype_of<T>));
  // One-shot: the same values, another count.
  x = reinterpret_cast<T*>(bytes.data());
  for (int64_t i = 0; i < n; ++i) x[i] = value<T>(me, i, 5);
  std::vector<char> chunked = bytes;
  all_reduce(chunked, false);
  EXPECT_EQ(all_reduce(bytes, true), (p - 1) * n * size_of(dtype_of<T>));
  EXPECT_EQ(bytes, chunked);
  // All members but one pass another source: the bits are the same, and the
  // source does not change.
  std::vector<char> source(bytes.size());
  T* s = reinterpret_cast<T*>(source.data());
  for (int64_t i = 0; i < n; ++i) s[i] = value<T>(me, i, 5);
  s[n] = make<T>(1);
  const std::vector<char> as_it_was = source;
  const There elsewhere(source.data(), static_cast<int64_t>(source.size()));
  for (const bool one_shot : {false, true}) {
    std::vector<char> result(bytes.size(), 77);
    reinterpret_cast<T*>(result.data())[n] = make<T>(1);
    if (me == 1) result = as_it_was;  // in place
    all_reduce(result, one_shot, me == 1 ? nullptr : elsewhere.data());
    EXPECT_EQ(result, bytes) << "one-shot " << one_shot;
  }
  elsewhere.fetch();
  EXPECT_EQ(source, as_it_was);
}

class CommunicatorTest : public ::testing::TestWithParam<World> {};
INSTANTIATE_TEST_SUITE_P(
    Worlds, CommunicatorTest,
    ::testing::Values(World{1}, World{2}, World{3}, World{4}, World{8},
                      World{1, "messages"}, World{3, "messages"},
                      World{4, "messages"}, World{3, "processes_of_2"},
                      World{4, "tcp"}, World{3, "tcp_of_2"},
                      World{4, "processes_of_2"}, World{1, "device"},
                      World{2, "device"}, World{4, "device"},
                      World{3, "devices"}, World{1, "nccl"}, World{2, "nccl"},
                      World{4, "nccl"}, World{3, "nccl_processes"},
                      World{4, "nccl_tcp_of_2"}),
    [](const auto& info) {
      return fmt::format("{}{}", info.param.backend, info.param.ranks);
    });

TEST_P(CommunicatorTest, ExchangeAgainstBruteForce) {
  on_ranks(GetParam(), [](Communicator& comm, int) {
    for (unsigned seed = 0; seed < 240; ++seed)
      visit_stored(static_cast<DType>(seed % kNumDTypes),
                   [&]<class T>() { check_exchange<T>(comm, seed); });
  });
}

TEST_P(CommunicatorTest, ReduceAgainstBruteForce) {
  on_ranks(GetParam(), [](Communicator& comm, int) {
    unsigned seed = 1000;
    for (int round = 0; round < 8; ++round)
      for (int t = 0; t < kNumDTypes; ++t)
        for (ReduceOp op : ops_of(static_cast<DType>(t)))
          visit(static_cast<DType>(t),
                [&]<class T>() { check_reduce<T>(comm, op, ++seed); });
  });
}

TEST_P(CommunicatorTest, AllReduceAgainstBruteForce) {
  on_ranks(GetParam(), [](Communicator& comm, int) {
    for (int64_t n : {0, 1, 2, 5, 17, 128, 129, 257, 1000, 9001})
      for (int t = 0; t < kNumDTypes; ++t)
        for (ReduceOp op : ops_of(static_cast<DType>(t)))
          visit(static_cast<DType>(t),
                [&]<class T>() { check_all_reduce<T>(comm, op, n); });
  });
}

// One tensor of several that move in one collective.
struct Moving {
  virtual ~Moving() = default;
  Setting setting;
  Schedule schedule;
  virtual Transfer transfer() = 0;
  virtual void check(const Communicator&, const Transfer&) = 0;
};

template <class T>
struct MovingOf : Moving {
  MovingOf(const Communicator& comm, bool reduces, Rng::result_type seed)
      : rng(seed), own(seed * 31 + static_cast<unsigned>(comm.rank())) {
    setting = random_setting(rng, comm.size(), !reduces);
    salt = seed;
    if (reduces) {
      const auto ops = ops_of(dtype_of<T>);
      op = ops[seed % ops.size()];
    }
    const size_t me = static_cast<size_t>(comm.rank());
    src = std::make_unique<Memory<T>>(own, setting.sources[me]);
    dst = std::make_unique<Memory<T>>(own, setting.dests[me]);
    for_each_element(
        src->region, setting.shape, [&](const Shape& at, int64_t i) {
          src->at(at) = value<T>(reduces ? comm.rank() : 0, i, salt);
        });
    schedule = reduces
                   ? reduce_schedule(dst->region, setting.sources, comm.rank())
                   : exchange_schedule(dst->region, setting.sources,
                                       comm.rank(), "test");
    if (!comm.needs_serves()) return;
    if (reduces)
      serve_reduction(schedule, setting.dests);
    else
      serve_exchange(schedule, setting.dests);
  }
  Transfer transfer() override {
    return {.schedule = &schedule,
            .dtype = dtype_of<T>,
            .src = src->part().data,
            .src_strides = src->strides,
            .dst = dst->part().data,
            .dst_strides = dst->strides,
            .op = op.value_or(ReduceOp::kSum)};
  }
  void check(const Communicator& comm, const Transfer& t) override {
    src->there.spoil();
    dst->there.fetch();
    EXPECT_EQ(t.counted, testing::received(schedule) * size_of(dtype_of<T>));
    std::vector<std::set<int64_t>> held;
    for (const Region& r : setting.sources)
      held.push_back(indices(r, setting.shape));
    for_each_element(
        dst->region, setting.shape, [&](const Shape& at, int64_t i) {
          T expected = value<T>(0, i, salt);
          if (op) {
            std::vector<T> v;
            for (int m = 0; m < comm.size(); ++m)
              if (held[static_cast<size_t>(m)].contains(i))
                v.push_back(value<T>(m, i, salt));
            expected = reduced(*op, v, comm.size());
          }
          EXPECT_EQ(number(dst->at(at)), number(expected))
              << name(dtype_of<T>) << " seed " << salt << " index " << i;
        });
  }

  Rng rng, own;
  Rng::result_type salt;
  std::optional<ReduceOp> op;
  std::unique_ptr<Memory<T>> src, dst;
};

// Each type in turn; i8 is not reduced.
DType type_at(unsigned i, bool reduces) {
  const auto t = static_cast<DType>(i % kNumDTypes);
  return reduces && t == DType::kI8 ? DType::kF32 : t;
}

TEST_P(CommunicatorTest, SeveralTensorsInOneCollective) {
  on_ranks(GetParam(), [](Communicator& comm, int) {
    for (unsigned round = 0; round < 60; ++round) {
      const bool reduces = round % 2;
      std::vector<std::unique_ptr<Moving>> tensors;
      for (unsigned i = 0; i < round % 5; ++i)
        visit_stored(type_at(round + i, reduces), [&]<class T>() {
          tensors.push_back(
              std::make_unique<MovingOf<T>>(comm, reduces, round * 100 + i));
        });
      std::vector<Transfer> transfers;
      for (auto& t : tensors) transfers.push_back(t->transfer());
      if (reduces)
        comm.reduce(call(StepKind::kReduceScatter, "test", round), stream(),
                    transfers);
      else
        comm.exchange(call(StepKind::kAllToAll, "test", round), stream(),
                      transfers);
      for (size_t i = 0; i < tensors.size(); ++i)
        tensors[i]->check(comm, transfers[i]);
    }
  });
}

TEST_P(CommunicatorTest, SeveralBuffersInOneAllReduce) {
  on_ranks(GetParam(), [](Communicator& comm, int me) {
    const int p = comm.size();
    // The buffers together fit into a small all-reduce, or they do not.
    for (const auto& [n, one_shot] : std::vector<std::pair<int64_t, bool>>{
             {0, false}, {3, true}, {60, false}, {100, true}, {5000, true}}) {
      std::vector<float> a(static_cast<size_t>(n));
      std::vector<int64_t> b(7);
      bf16 c[3];
      for (size_t i = 0; i < a.size(); ++i)
        a[i] = static_cast<float>(i) + static_cast<float>(me);
      for (size_t i = 0; i < b.size(); ++i)
        b[i] = static_cast<int64_t>(i) * (me + 1);
      for (bf16& x : c) x = bf16(static_cast<float>(me + 1));
      const There there[] = {There(a.data(), n * 4), There(b.data(), 7 * 8),
                             There(c, 3 * 2)};
      Buffer buffers[] = {
          {ReduceOp::kAvg, DType::kF32, there[0].data(), n},
          {ReduceOp::kMax, DType::kI64, there[1].data(), 7, one_shot},
          {ReduceOp::kSum, DType::kF32, nullptr, 0},
          {ReduceOp::kSum, DType::kBF16, there[2].data(), 3},
      };
      comm.all_reduce(call(StepKind::kAllReduce), stream(), {});
      comm.all_reduce(call(StepKind::kAllReduce), stream(), buffers);
      for (const There& t : there) t.fetch();
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_EQ(a[i], (static_cast<float>(i * static_cast<size_t>(p)) +
                         static_cast<float>(p * (p - 1) / 2)) /
                            static_cast<float>(p));
      for (size_t i = 0; i < b.size(); ++i)
        EXPECT_EQ(b[i], static_cast<int64_t>(i) * p);
      for (bf16 x : c)
        EXPECT_EQ(static_cast<float>(x), static_cast<float>(p * (p + 1) / 2));
      for (const Buffer& x : buffers) {
        const int64_t own = (me + 1) * x.n / p - me * x.n / p;
        const int64_t read =
            x.one_shot ? (p - 1) * x.n : (p - 1) * own + x.n - own;
        EXPECT_EQ(x.counted, p == 1 ? 0 : read * size_of(x.dtype));
      }
    }
  });
}

// An average divides by the number of parts that a step combines, not by that
// of all members.
TEST(ThreadsScheduleTest, StepsOfEveryKind) {
  on_ranks({4}, [](Communicator& comm, int me) {
    const Mesh mesh = Mesh::parse("2x2");
    const Shape shape{5, 6};
    auto spec = [&](std::vector<std::vector<int>> axes,
                    std::vector<Partial> partials) {
      Layout l;
      for (int d = 0; d < 2; ++d)
        l.dims.push_back(
            Dim(shape[d], Split::over(axes[static_cast<size_t>(d)])));
      l.partials = std::move(partials);
      return Spec::get(mesh, shape, l, DType::kF64);
    };
    const std::tuple<const Spec*, const Spec*, ReduceOp> steps[] = {
        {spec({{0}, {1}}, {}), spec({{1}, {0}}, {}), ReduceOp::kSum},
        {spec({{0}, {}}, {}), spec({{}, {1, 0}}, {}), ReduceOp::kSum},
        {spec({{0}, {}}, {{1, ReduceOp::kAvg}}), spec({{}, {1}}, {}),
         ReduceOp::kAvg},
        {spec({{}, {1}}, {{0, ReduceOp::kSum}}), spec({{0, 1}, {}}, {}),
         ReduceOp::kSum},
    };
    for (const auto& [from, to, op] : steps) {
      const bool reduces = from->partial_axes() != 0;
      const Step step{
          .kind = reduces ? StepKind::kReduceExchange : StepKind::kExchange,
          .axes = mesh.all_axes(),
          .from = from,
          .to = to,
          .op = op};
      const Schedule s = schedule(step, me);
      const Coord at = mesh.coordinate(me);
      const Region has = from->region(at), wants = to->region(at);
      std::vector<double> x(static_cast<size_t>(volume(has)));
      std::vector<double> y(static_cast<size_t>(volume(wants)));
      // The term that is added to every element depends on the partial's
      // coordinate.
      double term = 0, combined = 0;
      for (const Partial& p : from->layout().partials) {
        term = 100 * (at[p.axis] + 1);
        combined = op == ReduceOp::kAvg ? 150 : 300;
      }
      const double times = op == ReduceOp::kSum && reduces ? 2 : 1;
      size_t next = 0;
      for_each_element(has, shape, [&](const Shape&, int64_t i) {
        x[next++] = static_cast<double>(i) + term;
      });
      Transfer t{.schedule = &s,
                 .dtype = DType::kF64,
                 .src = x.data(),
                 .src_strides = contiguous_strides(local_shape(has)),
                 .dst = y.data(),
                 .dst_strides = contiguous_strides(local_shape(wants)),
                 .op = op};
      if (reduces)
        comm.reduce(call(StepKind::kReduceExchange), {}, {&t, 1});
      else
        comm.exchange(call(StepKind::kExchange), {}, {&t, 1});
      next = 0;
      for_each_element(wants, shape, [&](const Shape&, int64_t i) {
        EXPECT_EQ(y[next++], static_cast<double>(i) * times + combined)
            << to_string(step) << " rank " << me << " index " << i;
      });
      EXPECT_EQ(t.counted, testing::received(s) * 8);
      EXPECT_EQ(t.counted, testing::traffic(step, me).received);
    }
  });
}

TEST_P(CommunicatorTest, AllGatherBytesAndBarrier) {
  const int p = static_cast<int>(GetParam().ranks);
  std::atomic<int> come{0};
  on_ranks(GetParam(), [&](Communicator& comm, int me) {
    for (int64_t bytes : {0, 1, 8, 1024, 1025, 5000}) {
      const size_t n = static_cast<size_t>(bytes);
      std::vector<char> in(n, static_cast<char>('a' + me)), out(n * p + 1, '.');
      comm.all_gather_bytes(call(StepKind::kAllGatherBytes), in.data(), bytes,
                            out.data());
      std::string want;
      for (int m = 0; m < p; ++m) want += std::string(n, char('a' + m));
      EXPECT_EQ(std::string(out.data(), out.size()), want + ".");
    }
    for (int round = 1; round <= 20; ++round) {
      ++come;
      comm.barrier(call(StepKind::kBarrier));
      EXPECT_GE(come, round * p);
      comm.barrier(call(StepKind::kBarrier));
      EXPECT_EQ(come, round * p);
      comm.barrier(call(StepKind::kBarrier));
    }
  });
}

// When a call returns, its memory may be freed or overwritten at once.
TEST_P(CommunicatorTest, MemoryIsFreeAfterwards) {
  on_ranks(GetParam(), [](Communicator& comm, int me) {
    for (int round = 0; round < 50; ++round) {
      for (int64_t n : {3, 600}) {
        std::vector<float> x(static_cast<size_t>(n), float(me + round));
        const There there(x.data(), n * 4);
        comm.all_reduce(call(StepKind::kAllReduce), stream(), ReduceOp::kMax,
                        DType::kF32, there.data(), n);
        if (round % 10 == 0 || on_host()) {
          there.fetch();
          EXPECT_EQ(x[0], comm.size() - 1 + round);
        }
        std::fill(x.begin(), x.end(), -1e9f);
      }
    }
  });
}

TEST(ThreadsDeviceTest, AMemberWithoutMemoryFailsAlone) {
  constexpr int64_t kBytes = 4096, kN = kBytes / 4;
  // Memory for the buffers of both ranks, and for the result of one.
  const auto device = RecordingDevice::make(3 * kBytes);
  RunOptions options;
  options.world = 2;
  options.device = [&](int64_t) -> Device& { return *device; };
  std::atomic<int> good{0};
  EXPECT_EQ(
      testing::error_of([&] {
        run(options, [&](Runtime& rt) {
          std::vector<float> x(kN, static_cast<float>(rt.rank() + 1));
          const There there(x.data(), kBytes);
          const Mesh mesh = rt.mesh();
          Communicator& comm = rt.context().communicator(mesh, 1);
          Buffer b{ReduceOp::kSum, DType::kF32, there.data(), kN, true};
          try {
            comm.all_reduce(call(StepKind::kAllReduce), stream(), {&b, 1});
          } catch (const Error&) {
            there.spoil();
            // Runs the work that overwrites the buffer.
            there.fetch();
            throw;
          }
          there.fetch();
          EXPECT_EQ(x, std::vector<float>(kN, 3));
          ++good;
        });
      }),
      "[all-reduce] the device has no memory left for 4096 bytes; use a "
      "smaller batch, or split the tensors over more ranks");
  EXPECT_EQ(good, 1);
}

// Ranks read each other's memory, so their devices must be able to.
TEST(ThreadsDeviceTest, DevicesThatCannotReachEachOtherAreRefused) {
  const auto first = RecordingDevice::make(), third = RecordingDevice::make();
  third->cannot_reach(*first);
  RunOptions options;
  options.world = 3;
  const auto refused = [&](Device& second) {
    options.device = [&](int64_t rank) -> Device& {
      return rank == 0 ? *first : rank == 1 ? second : *third;
    };
    std::vector<std::string> said(3);
    run(options, [&](Runtime& rt) {
      said[static_cast<size_t>(rt.rank())] = error_of([&] {
        RankContext::current()
            .communicator(rt.mesh(), 1)
            .barrier(call(StepKind::kBarrier));
      });
    });
    EXPECT_EQ(said[1], said[0]);
    EXPECT_EQ(said[2], said[0]);
    return said[0];
  };
  EXPECT_EQ(refused(*first),
            "[threads] ranks of one process read each other's memory, but the "
            "GPU of rank 2 cannot reach that of rank 0; run with --backend "
            "nccl and --ranks-per-gpu 1, or put all ranks on one GPU with "
            "--ranks-per-gpu 3");
  EXPECT_EQ(
      refused(cpu()),
      "[threads] ranks 0 and 1 read each other's memory, but one computes on "
      "the CPU and the other on a GPU; run all ranks on one kind of device");
}

TEST(ThreadsGroupTest, SubsetsAtTheSameTime) {
  run(8, [](Runtime& rt) {
    Mesh mesh = rt.mesh({{"a", 2}, {"b", 4}});
    RankContext& ctx = rt.context();
    const int a = static_cast<int>(rt.rank() / 4);
    const int b = static_cast<int>(rt.rank() % 4);
    Communicator& rows = ctx.communicator(mesh, 0b10);
    Communicator& columns = ctx.communicator(mesh, 0b01);
    Communicator& all = ctx.communicator(mesh, 0b11);
    Communicator& self = ctx.communicator(mesh, 0);
    EXPECT_EQ(&rows, &ctx.communicator(mesh, 0b10));
    EXPECT_EQ(rows.size(), 4);
    EXPECT_EQ(rows.rank(), b);
    EXPECT_EQ(columns.size(), 2);
    EXPECT_EQ(columns.rank(), a);
    EXPECT_EQ(self.size(), 1);
    auto sum = [&](Communicator& c) {
      int64_t x = rt.rank();
      c.all_reduce(call(StepKind::kAllReduce), {}, ReduceOp::kSum, DType::kI64,
                   &x, 1);
      return x;
    };
    for (int i = 0; i < 60; ++i) {
      // Groups of one kind run different numbers of rounds.
      for (int j = 0; j <= a; ++j) EXPECT_EQ(sum(rows), a * 16 + 6);
      for (int j = 0; j <= b; ++j) EXPECT_EQ(sum(columns), 4 + 2 * b);
      EXPECT_EQ(sum(self), rt.rank());
      if (i % 10 == 0) {
        EXPECT_EQ(sum(all), 28);
      }
    }
  });
}

// Two meshes over the same ranks share a group, and so its sequence of calls.
TEST(ThreadsGroupTest, MeshesOfTheSameRanks) {
  run(4, [](Runtime& rt) {
    Mesh x = rt.mesh({{"x", 4}}), y = rt.mesh({{"y", 2}, {"z", 2}});
    RankContext& ctx = rt.context();
    for (int i = 0; i < 5; ++i) {
      ctx.communicator(x, 1).barrier(call(StepKind::kBarrier));
      ctx.communicator(y, 3).barrier(call(StepKind::kBarrier));
    }
    Mesh turned({{"x", 4}}, {3, 1, 0, 2});
    Communicator& c = ctx.communicator(turned, 1);
    const int64_t me = rt.rank();
    int64_t all[4];
    c.all_gather_bytes(call(StepKind::kAllGatherBytes), &me, sizeof(me), all);
    EXPECT_EQ(all[0], 3);
    EXPECT_EQ(all[1], 1);
    EXPECT_EQ(all[2], 0);
    EXPECT_EQ(all[3], 2);
  });
}

TEST(ThreadsGroupTest, RanksOutsideTheMesh) {
  run(3, [](Runtime& rt) {
    Mesh mesh = rt.mesh({{"x", 2}});
    if (rt.rank() < 2) {
      rt.context().communicator(mesh, 1).barrier(call(StepKind::kBarrier));
      return;
    }
    EXPECT_EQ(
        testing::error_of([&] { rt.context().communicator(mesh, 1); }),
        "[mesh] rank 2 of the run is not in mesh x=2; make this call on the "
        "ranks of that mesh only: if (mesh.contains(rt.rank()))");
  });
}

TEST(ThreadsTest1, NullCommunicatorDoesNothing) {
  const std::vector<int64_t> ranks{4, 0, 5};
  auto c = null_backend()->group(ranks, 5, 0);
  EXPECT_EQ(c->rank(), 2);
  EXPECT_EQ(c->size(), 3);
  EXPECT_EQ(c->all_reduce(call(StepKind::kAllReduce), {}, ReduceOp::kSum,
                          DType::kF32, nullptr, 9),
            0);
  c->barrier(call(StepKind::kBarrier));
  int in = 4, out[3] = {};
  c->all_gather_bytes(call(StepKind::kAllGatherBytes), &in, sizeof(in), out);
  EXPECT_EQ(out[0] + out[1] + out[2], 12);
}

}  // namespace
}  // namespace dtensor
