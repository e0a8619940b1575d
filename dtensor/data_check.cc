// SPDX-License-Identifier: Apache-2.0
#include "dtensor/data_check.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "dtensor/capture.h"
#include "dtensor/io/checksum.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

void judge(RankContext& context, const DataCheck& c,
           std::span<const int64_t> found) {
  std::vector<int64_t> most(found.begin(), found.end());
  if (c.axes) {
    Communicator& others = context.communicator(c.mesh, c.axes);
    std::vector<int64_t> all(found.size() * static_cast<size_t>(others.size()));
    others.all_gather_bytes({StepKind::kAllGatherBytes, c.op}, found.data(),
                            static_cast<int64_t>(found.size_bytes()),
                            all.data());
    for (size_t i = 0; i < all.size(); ++i)
      most[i % found.size()] = std::max(most[i % found.size()], all[i]);
  }
  c.judge(most);
}

struct Kept : RankServices::Service {
  explicit Kept(RankContext& c) : context(c) {}
  // Makes the checks that are left at the end of the run.
  void finish() override {
    while (!checks.empty()) run(Mesh(checks.front().mesh), Tensor());
  }

  // Makes and removes the checks of the mesh. Returns the values of `also`.
  std::vector<double> run(const Mesh& mesh, const Tensor& also) {
    std::vector<DataCheck> mine;
    for (auto it = checks.begin(); it != checks.end();)
      if (it->mesh == mesh) {
        mine.push_back(std::move(*it));
        it = checks.erase(it);
      } else {
        ++it;
      }
    const std::vector<int64_t> words = read(mine, also);
    const int64_t* next = words.data();
    std::vector<double> values(
        also.defined() ? static_cast<size_t>(also.numel()) : 0);
    for (double& v : values) v = std::bit_cast<double>(*next++);
    for (const DataCheck& c : mine) {
      const auto n = static_cast<size_t>(c.found.numel());
      judge(context, c, {next, n});
      next += n;
    }
    return values;
  }

  // Copies the bits of `also`, converted to f64, and then the `found` of each
  // check to the host. Waits for the device only once.
  static std::vector<int64_t> read(const std::vector<DataCheck>& checks,
                                   const Tensor& also) {
    int64_t n = also.defined() ? also.numel() : 0;
    for (const DataCheck& c : checks) n += c.found.numel();
    const Tensor all = Tensor::empty({n}, DType::kI64);
    int64_t at = 0;
    const auto add = [&](const Tensor& t) {
      constexpr int64_t kUnit[] = {1};
      const int64_t shape[] = {t.numel()};
      all.device().copy(all.stream(), sizeof(int64_t), shape,
                        all.mutable_ptr<int64_t>() + at, kUnit,
                        t.to_contiguous().data(), kUnit);
      at += t.numel();
    };
    if (also.defined()) add(converted(also, DType::kF64));
    for (const DataCheck& c : checks) add(c.found);
    return all.to_integers();
  }

  RankContext& context;
  std::vector<DataCheck> checks;
};

// Calls fn(offset in elements) for up to 64 evenly spaced elements, in
// row-major order.
template <class Fn>
void each_sampled(const Tensor& t, Fn&& fn) {
  constexpr int64_t kMost = 64;
  const int64_t n = t.numel(), count = std::min(n, kMost);
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = count == n ? i : i * (n - 1) / (count - 1), offset = 0;
    if (t.contiguous()) {
      fn(at);
      continue;
    }
    for (int d = t.ndim() - 1; d >= 0; --d) {
      offset += at % t.shape()[d] * t.strides()[d];
      at /= t.shape()[d];
    }
    fn(offset);
  }
}

}  // namespace

void check(RankContext& context, DataCheck check) {
  if (context.device->kind() == Device::Kind::kCpu)
    return judge(context, check, check.found.to_integers());
  auto& kept = context.services.get<Kept>(context).checks;
  if (!context.capture) return kept.push_back(std::move(check));
  // Before each replay, add the check to the kept checks, unless it is there
  // already. The next item() then judges what the replay has found.
  context.capture->before_replay([&kept, check = std::move(check)] {
    for (const DataCheck& c : kept)
      if (c.found.data() == check.found.data()) return;
    kept.push_back(check);
  });
}

std::vector<double> read_checked(RankContext& context, const Mesh& mesh,
                                 const Tensor& values) {
  if (auto* kept = context.services.find<Kept>())
    return kept->run(mesh, values);
  return values.defined() ? values.to_doubles() : std::vector<double>();
}

uint64_t sample_hash(const Tensor& t) {
  if (t.device().kind() != Device::Kind::kCpu || !t.data()) return 0;
  const auto size = static_cast<size_t>(size_of(t.dtype()));
  uint64_t h = 0;
  each_sampled(t, [&](int64_t offset) {
    uint64_t element = 0;
    std::memcpy(&element, t.ptr<char>() + offset * static_cast<int64_t>(size),
                size);
    h = fold_lineage(h, element);
  });
  return h;
}

void check_same(RankContext& context, const Spec* spec, const Tensor& value) {
  std::vector<char> host(static_cast<size_t>(value.bytes()));
  value.to_host(host.data());
  const uint64_t mine = checksum(host.data(), value.bytes());
  const Mesh& mesh = spec->mesh();
  std::vector<uint64_t> all(static_cast<size_t>(mesh.num_ranks()));
  context.communicator(mesh, mesh.all_axes())
      .all_gather_bytes(
          {StepKind::kAllGatherBytes, "from_global", spec->hash()}, &mine,
          sizeof(mine), all.data());
  for (size_t r = 1; r < all.size(); ++r)
    DT_CHECK(all[r] == all[0], "from_global",
             "ranks {} and {} pass different values for {} (XXH3 checksums {} "
             "and {}); pass the same whole value on every rank, or each rank's "
             "own part to from_local()",
             mesh.world_rank(0), mesh.world_rank(static_cast<int64_t>(r)),
             spec->to_string(), checksum_text(all[0]), checksum_text(all[r]));
}

}  // namespace dtensor
