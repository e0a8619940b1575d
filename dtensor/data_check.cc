// SPDX-License-Identifier: Apache-2.0
#include "dtensor/data_check.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dtensor/capture.h"
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

struct Kept : RankContext::Memory {
  explicit Kept(RankContext& c) : context(c) {}
  // Makes the checks that no item() has made.
  void finish() override {
    while (!checks.empty()) run(Mesh(checks.front().mesh), Tensor());
  }

  // Makes and drops the checks of the mesh. Returns the values of `also`.
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

  // Copies all findings, behind the bits of `also`, to the host in one wait.
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

}  // namespace

void check(RankContext& context, DataCheck check) {
  if (context.device->kind() == Device::Kind::kCpu)
    return judge(context, check, check.found.to_integers());
  if (!context.checks) context.checks = std::make_unique<Kept>(context);
  auto& kept = static_cast<Kept&>(*context.checks).checks;
  if (!context.capture) return kept.push_back(std::move(check));
  // A captured check is judged after each replay.
  context.capture->before_replay([&kept, check = std::move(check)] {
    for (const DataCheck& c : kept)
      if (c.found.data() == check.found.data()) return;
    kept.push_back(check);
  });
}

std::vector<double> read_checked(RankContext& context, const Mesh& mesh,
                                 const Tensor& values) {
  if (!context.checks) return values.to_doubles();
  return static_cast<Kept&>(*context.checks).run(mesh, values);
}

}  // namespace dtensor
