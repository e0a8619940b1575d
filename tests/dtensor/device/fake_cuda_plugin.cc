// SPDX-License-Identifier: Apache-2.0
// A fake libdtensor_cuda.so for cuda_test, without CUDA. $FAKE_CUDA may be
// "old" (its version), "none" or "one" (its devices).
#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "dtensor/device/cuda_plugin.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

const CudaHost* host = nullptr;

CudaOptions options;

// Makes no device: throws an Error with this file, the running op and the
// options.
Device& device(int index) {
  Dl_info info;
  dladdr(&host, &info);
  fail("fake", "cuda:{} of {} for '{}'{}{}{}", index, info.dli_fname,
       host->running_op(), options.tf32 ? " in TF32" : "",
       options.tune_gemm ? ", tuned" : "",
       options.deterministic ? ", deterministic" : "");
}

}  // namespace
}  // namespace dtensor

const dtensor::CudaPlugin* dtensor_cuda_plugin(const dtensor::CudaHost* host) {
  dtensor::host = host;
  const char* set = std::getenv("FAKE_CUDA");
  const std::string_view like = set ? set : "";
  static dtensor::CudaPlugin plugin;
  plugin.version = like == "old" ? "0.0.1" : DTENSOR_VERSION;
  plugin.devices = like == "none" ? 0 : like == "one" ? 1 : 2;
  plugin.why_none = "cudaErrorNoDevice (no CUDA-capable device is detected)";
  plugin.device = &dtensor::device;
  plugin.set_options = [](const dtensor::CudaOptions& options) {
    dtensor::options = options;
  };
  return &plugin;
}
