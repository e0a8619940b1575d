#include "dtensor/runtime/all_or_none.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/comm/backend.h"
#include "dtensor/runtime/comm/communicator.h"
#include "dtensor/runtime/rank_context.h"

namespace dtensor {
namespace {

// What work() threw, in words; empty when it threw nothing.
std::string error_of(std::string_view op, int64_t rank,
                     const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const PeerFailed&) {
    throw;  // it did meet somebody, who is gone
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    return fmt::format("[{}] rank {} threw: {}", op, rank, e.what());
  } catch (...) {
    return fmt::format("[{}] rank {} threw what is no std::exception", op,
                       rank);
  }
}

}  // namespace

void all_or_none(std::string_view op, uint64_t fingerprint,
                 const std::function<void()>& work) {
  RankContext& context = RankContext::current();
  const std::string mine = error_of(op, context.world_rank, work);
  if (context.dry_run) {
    if (!mine.empty()) throw Error(mine);
    return;
  }
  const size_t world = static_cast<size_t>(context.world_size);
  std::vector<int64_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  Communicator& all = context.communicator(ranks);
  const Call call{
      .kind = StepKind::kAllGatherBytes, .op = op, .fingerprint = fingerprint};
  const int64_t size = std::ssize(mine);
  std::vector<int64_t> sizes(world);
  all.all_gather_bytes(call, &size, sizeof(size), sizes.data());
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  if (most == 0) return;

  std::string padded = mine, texts(static_cast<size_t>(most) * world, ' ');
  padded.resize(static_cast<size_t>(most), ' ');
  all.all_gather_bytes(call, padded.data(), most, texts.data());
  std::string first;
  int64_t failed = 0;
  for (size_t r = 0; r < world; ++r) {
    if (sizes[r] == 0) continue;
    if (failed++ == 0)
      first = texts.substr(r * static_cast<size_t>(most),
                           static_cast<size_t>(sizes[r]));
  }
  if (failed > 1)
    first += fmt::format(" ({} of {} ranks failed)", failed, world);
  throw Error(first);
}

}  // namespace dtensor
