// SPDX-License-Identifier: Apache-2.0
#include "dtensor/replicas.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/all_or_none.h"
#include "dtensor/comm/agreement.h"
#include "dtensor/io/checksum.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/rank_context.h"
#include "dtensor/visit.h"

namespace dtensor {
namespace {

uint64_t checksum_of(const Tensor& part) {
  std::vector<char> host(static_cast<size_t>(part.bytes()));
  part.to_host(host.data());
  return checksum(host.data(), part.bytes());
}

// For each checksum: the ranks that have it, in ascending order.
using Held = std::map<uint64_t, std::vector<int64_t>>;

std::string listed(const std::vector<int64_t>& ranks, uint64_t sum) {
  return fmt::format("{} {} {}", ranks.size() == 1 ? "rank" : "ranks",
                     ranks_to_string(ranks), checksum_text(sum));
}

[[noreturn]] void differ(const NamedTensor& t, const Held& held) {
  size_t all = 0;
  const std::pair<const uint64_t, std::vector<int64_t>>* most = nullptr;
  for (const auto& one : held) {
    all += one.second.size();
    if (!most || one.second.size() > most->second.size()) most = &one;
  }
  const bool majority = 2 * most->second.size() > all;
  constexpr size_t kMost = 8;
  const size_t odds = held.size() - (majority ? 1 : 0);
  size_t named = 0;
  std::string odd;
  for (const auto& [sum, ranks] : held)
    if ((!majority || sum != most->first) && named++ < kMost)
      odd += (odd.empty() ? "" : ", ") + listed(ranks, sum);
  if (odds > kMost) odd += fmt::format(", ... ({} values)", odds);
  const std::string_view name = t.name;
  const std::string spec = t.tensor.spec()->to_string();
  if (majority)
    fail("check_replicas",
         "the copies of {} {} differ: {} against {} (XXH3 checksums); copy the "
         "part from a rank of the majority, or load a checkpoint from before "
         "they differed; if they differ again, look for an update that only "
         "some ranks make",
         name, spec, odd, listed(most->second, most->first));
  fail(
      "check_replicas",
      "the copies of {} {} differ, and none has a majority: {} (XXH3 "
      "checksums); load a checkpoint from before they differed; if they differ "
      "again, look for an update that only some ranks make",
      name, spec, odd);
}

}  // namespace

void check_replicas(std::span<const NamedTensor> tensors) {
  RankContext& context = RankContext::current();
  if (context.dry_run) return;
  uint64_t asked = hash_text("check_replicas");
  for (const NamedTensor& t : tensors)
    asked = hash_mix(hash_text(t.name, asked), t.tensor.spec()->hash());
  std::vector<uint64_t> mine(tensors.size());
  all_or_none("check_replicas", asked, [&] {
    for (size_t i = 0; i < tensors.size(); ++i)
      mine[i] = visit_part(tensors[i].tensor, [](const Tensor& part) {
        return part.defined() ? checksum_of(part) : 0;
      });
  });
  const std::vector<std::string> all = all_gather_bytes(
      "check_replicas", asked,
      {reinterpret_cast<const char*>(mine.data()), mine.size() * 8});
  const auto sum_of = [&](int64_t rank, size_t i) {
    uint64_t sum = 0;
    std::memcpy(&sum, all[static_cast<size_t>(rank)].data() + i * 8, 8);
    return sum;
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Spec* spec = tensors[i].tensor.spec();
    const Mesh& mesh = spec->mesh();
    const AxisMask own = spec->split_axes() | spec->partial_axes();
    for_each_coord(mesh, own, [&](const Coord& c) {
      Held held;
      for (int64_t r : mesh.group(mesh.all_axes() & ~own, c)) {
        const int64_t rank = mesh.world_rank(r);
        held[sum_of(rank, i)].push_back(rank);
      }
      if (held.size() > 1) differ(tensors[i], held);
    });
  }
}

}  // namespace dtensor
