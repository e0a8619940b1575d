// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/cuda_plugin/failure.h"

#include <algorithm>
#include <cstring>

#include "dtensor/placement/error.h"

namespace dtensor::cuda {

void Given::note(std::string_view op) {
  op = op.substr(0, kLetters);
  if (op.empty()) return;
  std::lock_guard lock(mutex_);
  if (noted_ > 0 && names_[(noted_ - 1) % kNames].text() == op) return;
  Name& name = names_[noted_++ % kNames];
  std::memcpy(name.letters.data(), op.data(), op.size());
  name.size = static_cast<uint8_t>(op.size());
}

void Given::clear() {
  std::lock_guard lock(mutex_);
  noted_ = 0;
}

std::vector<std::string> Given::names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (size_t i = noted_ - std::min(noted_, kNames); i < noted_; ++i) {
    const std::string name(names_[i % kNames].text());
    if (std::find(all.begin(), all.end(), name) == all.end())
      all.push_back(name);
  }
  return all;
}

namespace {
std::string for_op(std::string_view op) {
  return op.empty() ? "" : fmt::format(" for '{}'", op);
}
}  // namespace

void refused(const Failure& f) {
  fail("cuda", "{} failed on cuda:{}{}: CUDA says {} ({}){}", f.what, f.device,
       for_op(f.op), f.name, f.text,
       f.name == "cudaErrorNoKernelImageForDevice"
           ? "; build libdtensor_cuda.so for this GPU too: "
             "DTENSOR_CUDA_ARCHS=86-real,90 covers compute capability 8.6, and "
             "9.0 and later"
           : "; look up this code in CUDA's manual");
}

void failed_later(const Failure& f, const std::vector<std::string>& given) {
  const std::string suspects =
      given.empty() ? ""
                    : fmt::format("; the work since the last wait is from {}",
                                  fmt::join(given, ", "));
  fail(
      "cuda",
      "earlier work of cuda:{} has failed: CUDA says {} ({}) in reply to "
      "'{}'{}{}; run with CUDA_LAUNCH_BLOCKING=1 to see which work failed, and "
      "restart, because the device accepts no more work from this program",
      f.device, f.name, f.text, f.what, for_op(f.op), suspects);
}

}  // namespace dtensor::cuda
