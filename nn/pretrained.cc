// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/io/safetensors_folder.h"
#include "dtensor/nn/architecture.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/places_in_files.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor::nn {
namespace {

[[noreturn]] void system_error(const std::string& path, const char* what) {
  fail(
      "save",
      "{} cannot be {}: {}; check the path, its permissions and the free space",
      path, what, std::strerror(errno));
}

// Writes a new file, which is on the disk when this returns. Throws Error if
// the path exists already. If writing fails, removes the file and throws Error.
void write_text(const std::string& path, const std::string& text) {
  std::FILE* f = std::fopen(path.c_str(), "wxe");
  if (!f) system_error(path, "written");
  bool ok = std::fwrite(text.data(), 1, text.size(), f) == text.size() &&
            std::fflush(f) == 0 && ::fsync(::fileno(f)) == 0;
  int e = errno;  // of the first call that failed
  if (std::fclose(f) != 0 && std::exchange(ok, false)) e = errno;
  if (ok) return;
  std::remove(path.c_str());
  errno = e;
  system_error(path, "written");
}

std::string text_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

// Flushes the folder's entries to the disk. Some file systems cannot do that,
// so errors are ignored.
void sync_folder(const std::string& dir) {
  const int f = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f < 0) return;
  (void)::fsync(f);
  ::close(f);
}

// Writes dir/config.json unless it has this text already. Called when the new
// weights are written but not yet renamed. The old weights belong to another
// config. They are removed first, so that the files are never of two models.
void commit_config(const std::string& dir, const std::string& text) {
  const std::string path = dir + "/config.json", fresh = path + ".tmp";
  const std::string weights = dir + "/model.safetensors";
  // A save that was interrupted may have left this file behind.
  if (::unlink(fresh.c_str()) != 0 && errno != ENOENT)
    system_error(fresh, "replaced");
  if (text_of(path) == text) return;
  write_text(fresh, text);
  if (::unlink(weights.c_str()) != 0 && errno != ENOENT)
    system_error(weights, "replaced");
  sync_folder(dir);
  if (std::rename(fresh.c_str(), path.c_str()) != 0)
    system_error(path, "written");
  sync_folder(dir);
}

}  // namespace

void save_pretrained(const LanguageModel& model, const std::string& dir) {
  const ModelConfig& config = model.config();
  for (const NamedParameter& p : model.named_parameters())
    DT_CHECK(p.tensor.dtype() != DType::kI8, "save",
             "{} became int8 when it was loaded, and transformers' files hold "
             "floats; load the model without int8_weights to save it",
             p.name);
  const PlacesInFiles places(
      model, architecture(config.name).head_kind == Architecture::Head::kNone);
  std::vector<TensorInfo> tensors;
  for (const NamedParameter& p : places.parameters())
    for (const PlaceInFile& t : places.of(p)) {
      const bool known =
          std::any_of(tensors.begin(), tensors.end(),
                      [&](const TensorInfo& i) { return i.name == t.name; });
      if (!known) tensors.push_back({t.name, p.tensor.dtype(), t.shape});
    }
  RankContext& context = RankContext::current();
  const Mesh& mesh = model.mesh();
  const bool first = !context.dry_run && mesh.rank(context.coordinate(
                                             mesh, "save_pretrained")) == 0;
  if (first) {
    std::error_code e, ignored;
    std::filesystem::create_directories(dir, e);
    DT_CHECK(
        std::filesystem::is_directory(dir, ignored), "save",
        "{} is not a folder and cannot be created: {}; name another folder",
        dir, e ? e.message() : "a file of that name exists");
  }
  SafetensorsWriter writer(mesh, dir + "/model.safetensors",
                           std::move(tensors));
  const NoGrad no_grad;
  for (const NamedParameter& p : places.parameters())
    for (const PlaceInFile& t : places.of(p))
      // Moves the parameters of a pipeline stage to the whole mesh, one at a
      // time.
      writer.write(t.name, onto(mesh, t.part_of(p.tensor)), t.window);
  writer.finish([&] { commit_config(dir, config_text(config)); });
}

std::unique_ptr<LanguageModel> from_pretrained(const std::string& dir,
                                               const Mesh& mesh,
                                               const LoadOptions& options) {
  ModelConfig config = read_config(dir + "/config.json");
  if (options.dtype) config.dtype = *options.dtype;
  auto model = internal::make_model(
      config, mesh, options.plan ? *options.plan : default_plan(config, mesh),
      0, true, options.int8_weights);
  if (RankContext::current().dry_run && !SafetensorsFolder::exists(dir))
    return model;
  const SafetensorsFolder files(dir);
  const Architecture& of = architecture(config.name);
  const std::string_view prefix = of.optional_prefix;
  // Files of a model without its head leave the prefix out.
  const bool bare = std::none_of(
      files.tensors().begin(), files.tensors().end(),
      [&](const TensorInfo& t) { return t.name.starts_with(prefix); });
  std::set<std::string> unread;
  for (const TensorInfo& t : files.tensors()) {
    const std::string name = bare ? std::string(prefix) + t.name : t.name;
    const bool needless =
        std::any_of(of.unread.begin(), of.unread.end(),
                    [&](const char* p) { return matches(p, name); });
    if (!needless) unread.insert(t.name);
  }
  // Some files have a tensor for the head, although the model's head is tied.
  if (config.is_tied() && of.head)
    unread.erase(std::string(of.head) + ".weight");
  const PlacesInFiles places(*model, bare);
  for (const NamedParameter& p : places.parameters()) {
    std::vector<DistTensor> parts;
    for (PlaceInFile& t : places.of(p)) {
      unread.erase(t.name);
      const TensorInfo* info = files.find(t.name);
      DT_CHECK(info, "load",
               "{} has no tensor {}, which the model needs; check that "
               "config.json belongs to these weights",
               files.path(), t.name);
      DT_CHECK(info->shape == t.shape, "load",
               "{} of {} has shape {}, but config.json says {}; check that it "
               "belongs to these weights",
               t.name, files.path(), to_string(info->shape),
               to_string(t.shape));
      DT_CHECK(is_float(info->dtype), "load",
               "{} of {} is {}, but only weights that are stored as floats are "
               "read; save them as floats; for int8 in memory, also set "
               "int8_weights (--weights int8)",
               t.name, files.path(), name(info->dtype));
      const DistTensor part = t.part_of(p.tensor);
      t.window.shape = part.shape();
      // Usually, the values can be read directly into the parameter's memory.
      if (part.same_as(p.tensor) && info->dtype == part.dtype()) {
        files.read_into(part, t.name, t.window);
        continue;
      }
      parts.push_back(files.read(t.name, part.mesh(), part.layout(), t.window));
    }
    if (parts.empty()) continue;
    DistTensor value = parts.size() == 1 ? parts[0] : cat(parts, 0);
    if (value.shape() != p.tensor.shape())
      value = view(value, p.tensor.shape());
    if (p.tensor.dtype() != DType::kI8) {
      assign(p.tensor, value);
      continue;
    }
    const Int8Weight q = to_int8(value);
    assign(p.tensor, q.weight);
    assign(model->parameter(p.name + "_scale"), q.scale);
  }
  DT_CHECK(unread.empty(), "load",
           "{} has tensors that a {} does not have: their number is {}, and "
           "the first is {}; check that config.json belongs to these weights",
           files.path(), config.name, unread.size(), *unread.begin());
  return model;
}

}  // namespace dtensor::nn
