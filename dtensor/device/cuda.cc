// SPDX-License-Identifier: Apache-2.0
#include "dtensor/device/cuda.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "dtensor/device/cuda_plugin.h"
#include "dtensor/device/graph_memory.h"
#include "dtensor/device/running_op.h"
#include "dtensor/placement/error.h"
#include "dtensor/version.h"

namespace dtensor {
namespace {

constexpr std::string_view kFile = "libdtensor_cuda.so";

void* open(const std::string& path) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

[[noreturn]] void cannot_load(std::string_view path, std::string_view why) {
  fail("cuda",
       "{} cannot be loaded: {}; set LD_LIBRARY_PATH to the folders of the "
       "CUDA libraries that it needs, or DTENSOR_CUDA_LIBRARY to the right "
       "file, or run with --device cpu",
       path, why);
}

// The library, and the path from which it was loaded.
struct Library {
  void* handle;
  std::string path;
};

Library find() {
  std::vector<std::string> looked;
  if (const char* named = std::getenv("DTENSOR_CUDA_LIBRARY");
      named && *named) {
    void* handle = open(named);
    if (!handle) cannot_load(named, dlerror());
    return {handle, named};
  }
  std::error_code ignored;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    const auto folder = program.parent_path();
    for (const std::filesystem::path& in :
         {folder,
          std::filesystem::path(program.native() + ".runfiles") /
              "dtensor/ops/cuda_plugin",
          folder.parent_path() / "lib"}) {
      const std::string path = in / kFile;
      looked.push_back(in);
      if (!std::filesystem::exists(path, ignored)) continue;
      void* handle = open(path);
      if (!handle) cannot_load(path, dlerror());
      return {handle, path};
    }
  }
  const std::string path(kFile);
  if (void* handle = open(path)) return {handle, path};
  // If the library exists but one of its dependencies does not, say so.
  const std::string why = dlerror();
  if (!why.starts_with(path + ": cannot open")) cannot_load(path, why);
  fail("cuda",
       "{} is in none of {}, nor where the system looks for libraries, so this "
       "program was built without CUDA or moved without that file; build it "
       "with --define=dtensor_cuda=1 where nvcc is installed (./setup.sh "
       "--cuda), or run with --device cpu",
       kFile, fmt::join(looked, ", "));
}

const CudaPlugin& load() {
  const Library library = find();
  const auto entry = reinterpret_cast<decltype(&dtensor_cuda_plugin)>(
      dlsym(library.handle, "dtensor_cuda_plugin"));
  DT_CHECK(entry != nullptr, "cuda",
           "{} is not a plugin of dtensor: it has no dtensor_cuda_plugin; set "
           "DTENSOR_CUDA_LIBRARY to the right {}, or unset it",
           library.path, kFile);
  static const CudaHost host{&running_op, &graph_memory};
  const CudaPlugin& plugin = *entry(&host);
  DT_CHECK(plugin.version == version(), "cuda",
           "{} has version {}, but this program has version {}; build both "
           "from the same sources",
           library.path, plugin.version, version());
  return plugin;
}

// Loads the library once. After a failure, the next call tries again.
const CudaPlugin& plugin() {
  static const CudaPlugin& loaded = load();
  return loaded;
}

}  // namespace

int cuda_devices() {
  const CudaPlugin& p = plugin();
  DT_CHECK(p.devices > 0, "cuda",
           "there is no CUDA device here: {}; run with --device cpu",
           p.why_none);
  return p.devices;
}

Device& cuda(int index) {
  const int n = cuda_devices();
  DT_CHECK(0 <= index && index < n, "cuda",
           "cuda:{} does not exist, because this process sees {} {}; write {}",
           index, n, n == 1 ? "GPU" : "GPUs",
           n == 1 ? "cuda:0" : fmt::format("one of cuda:0 to cuda:{}", n - 1));
  return plugin().device(index);
}

void cuda_set_options(const CudaOptions& options) {
  cuda_devices();
  plugin().set_options(options);
}

std::map<std::string, int64_t> cuda_declined() {
  cuda_devices();
  return plugin().declined();
}

NcclLibrary& cuda_nccl() {
  cuda_devices();
  return plugin().nccl();
}

}  // namespace dtensor
