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
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor::nn {
namespace {

// The place of a parameter, or of a part of it, in the file: a window of a
// tensor.
struct Target {
  std::string name;
  Shape shape;  // of the whole tensor in the file
  SafetensorsWindow window;
  int64_t expert = -1;  // if >= 0, only the part of this expert
};

// GPT-2's linear layers are Conv1D modules, with weights [in, out]; queries,
// keys and values are stored side by side in one of them.
Target gpt2_target(const std::string& name, const Shape& shape) {
  Target t{name, shape, {}};
  const auto replace = [&](std::string_view from, std::string_view to) {
    const size_t at = t.name.find(from);
    if (at == std::string::npos) return false;
    t.name.replace(at, from.size(), to);
    return true;
  };
  const bool linear = matches("transformer.h.*.attn.*", name) ||
                      matches("transformer.h.*.mlp.*", name);
  if (!linear) return t;
  if (shape.size() == 2) {
    t.shape = {shape[1], shape[0]};
    t.window.order = {1, 0};
  }
  t.window.offset = Shape::filled(shape.size(), 0);
  replace(".attn.o_proj.", ".attn.c_proj.");
  int part = 0;
  for (const char* p : {".attn.q_proj.", ".attn.k_proj.", ".attn.v_proj."}) {
    if (replace(p, ".attn.c_attn.")) {
      t.window.offset.back() = part * t.shape.back();
      t.shape.back() *= 3;
    }
    ++part;
  }
  return t;
}

// Mixtral stores one tensor for each expert, under other names.
std::vector<Target> mixtral_targets(const std::string& name,
                                    const Shape& shape) {
  const std::string layer = name.substr(0, name.find(".mlp."));
  if (layer == name) return {{name, shape, {}}};
  const std::string moe = layer + ".block_sparse_moe.";
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"*.experts.gate_proj", "w1"},
      {"*.experts.down_proj", "w2"},
      {"*.experts.up_proj", "w3"}};
  for (const auto& [ours, theirs] : kNames) {
    if (!matches(ours, name)) continue;
    std::vector<Target> all;
    for (int64_t e = 0; e < shape[0]; ++e)
      all.push_back({fmt::format("{}experts.{}.{}.weight", moe, e, theirs),
                     {shape[1], shape[2]},
                     {},
                     e});
    return all;
  }
  return {{moe + "gate.weight", shape, {}}};
}

std::vector<Target> targets(const ModelConfig& config, const std::string& name,
                            const Shape& shape) {
  if (config.name == "gpt") return {gpt2_target(name, shape)};
  if (config.name == "mixtral") return mixtral_targets(name, shape);
  // Our names of Llama's parameters are those of transformers.
  return {{name, shape, {}}};
}

// The part of the parameter that goes to this target, on the same ranks.
DistTensor part_of(const DistTensor& parameter, const Target& t) {
  if (t.expert < 0) return parameter;
  // Not marked as a parameter, so that slice() does not gather it.
  const DistTensor values =
      DistTensor::wrap(parameter.impl()->part(), parameter.spec());
  return slice(values, 0, t.expert, t.expert + 1);
}

[[noreturn]] void system_error(const std::string& path, const char* what) {
  fail("save", "{} cannot be {}: {}", path, what, std::strerror(errno));
}

// Writes a new file, which is on the disk when this returns. If that fails,
// removes the file and throws Error.
void write_text(const std::string& path, const std::string& text) {
  std::FILE* f = std::fopen(path.c_str(), "wxe");
  if (!f) system_error(path, "written");
  bool ok = std::fwrite(text.data(), 1, text.size(), f) == text.size();
  ok = std::fflush(f) == 0 && ok;
  ok = ::fsync(::fileno(f)) == 0 && ok;
  ok = std::fclose(f) == 0 && ok;
  if (ok) return;
  const int e = errno;
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

// Brings the names in the folder to the disk. Some file systems cannot do that,
// so errors are ignored.
void sync_folder(const std::string& dir) {
  const int f = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f < 0) return;
  (void)::fsync(f);
  ::close(f);
}

// Writes dir/config.json, when the new weights are written but not yet renamed.
// Weights that belong to another config are removed first, so that the two
// files never belong to different models.
void commit_config(const std::string& dir, const std::string& text) {
  const std::string path = dir + "/config.json", fresh = path + ".tmp";
  const std::string weights = dir + "/model.safetensors";
  // Left behind by a save that was interrupted.
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

// Tensors that transformers writes and never reads back: masks and tables.
bool is_buffer(const std::string& name) {
  for (const char* p :
       {"*.attn.bias", "*.attn.masked_bias", "*.rotary_emb.inv_freq"})
    if (matches(p, name)) return true;
  return false;
}

}  // namespace

void save_pretrained(const LanguageModel& model, const std::string& dir) {
  const ModelConfig& config = model.config();
  const std::vector<NamedParameter> parameters = model.named_parameters();
  std::vector<TensorInfo> tensors;
  for (const NamedParameter& p : parameters)
    for (const Target& t : targets(config, p.name, p.tensor.shape())) {
      const bool known =
          std::any_of(tensors.begin(), tensors.end(),
                      [&](const TensorInfo& i) { return i.name == t.name; });
      if (!known) tensors.push_back({t.name, p.tensor.dtype(), t.shape});
    }
  RankContext& context = RankContext::current();
  const Mesh& mesh = model.mesh();
  const bool first =
      !context.dry_run && mesh.rank(context.coordinate(mesh)) == 0;
  if (first) {
    std::error_code e;
    std::filesystem::create_directories(dir, e);
    DT_CHECK(std::filesystem::is_directory(dir), "save",
             "{} is not a folder and cannot be created: {}", dir,
             e ? e.message() : "a file of that name exists");
  }
  SafetensorsWriter writer(mesh, dir + "/model.safetensors",
                           std::move(tensors));
  const NoGrad no_grad;
  for (const NamedParameter& p : parameters)
    for (const Target& t : targets(config, p.name, p.tensor.shape()))
      // Moves the parameters of a pipeline stage to the whole mesh, one at a
      // time.
      writer.write(t.name, onto(mesh, part_of(p.tensor, t)), t.window);
  writer.finish([&] { commit_config(dir, config_text(config)); });
}

std::unique_ptr<LanguageModel> load_pretrained(const std::string& dir,
                                               const Mesh& mesh,
                                               const LoadOptions& options) {
  ModelConfig config = read_config(dir + "/config.json");
  if (options.dtype) config.dtype = *options.dtype;
  auto model = options.plan ? make_model(config, mesh, *options.plan)
                            : make_model(config, mesh);
  const SafetensorsReader file(dir + "/model.safetensors");
  // Older files of GPT-2 omit the first word of the names.
  const std::string prefix = "transformer.";
  const bool bare =
      config.name == "gpt" && !file.contains(prefix + "wte.weight");
  std::set<std::string> unread;
  for (const TensorInfo& t : file.tensors())
    if (!is_buffer(t.name)) unread.insert(t.name);
  // Some files repeat the tied head.
  if (config.name == "gpt") unread.erase("lm_head.weight");
  for (NamedParameter& p : model->named_parameters()) {
    std::vector<DistTensor> parts;
    for (Target& t : targets(config, p.name, p.tensor.shape())) {
      if (bare) t.name = t.name.substr(prefix.size());
      unread.erase(t.name);
      const auto info =
          std::find_if(file.tensors().begin(), file.tensors().end(),
                       [&](const TensorInfo& i) { return i.name == t.name; });
      DT_CHECK(info != file.tensors().end(), "load",
               "{}/model.safetensors has no tensor {}, which the model needs",
               dir, t.name);
      DT_CHECK(info->shape == t.shape, "load",
               "{} of {}/model.safetensors is {}, but the config says {}",
               t.name, dir, to_string(info->shape), to_string(t.shape));
      const DistTensor part = part_of(p.tensor, t);
      t.window.shape = part.shape();
      parts.push_back(file.read(t.name, part.mesh(), part.layout(), t.window));
    }
    assign(p.tensor, parts.size() == 1 ? parts[0] : cat(parts, 0));
  }
  DT_CHECK(unread.empty(), "load",
           "{}/model.safetensors has {} tensors that a {} does not have; the "
           "first is {}",
           dir, unread.size(), config.name, *unread.begin());
  return model;
}

}  // namespace dtensor::nn
