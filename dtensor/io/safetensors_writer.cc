// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/comm/communicator.h"
#include "dtensor/io/file.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/io/safetensors_boxes.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/rank_context.h"

namespace dtensor {

using namespace safetensors;
using nlohmann::ordered_json;
static_assert(std::endian::native == std::endian::little,
              "the format is little-endian");

SafetensorsWriter::SafetensorsWriter(const Mesh& mesh, std::string path,
                                     std::vector<TensorInfo> tensors)
    : mesh_(mesh), path_(std::move(path)), temporary_(path_ + ".tmp") {
  ordered_json header;
  // The transformers library refuses files without this entry.
  header["__metadata__"] = {{"format", "pt"}};
  int64_t at = 0;
  for (TensorInfo& info : tensors) {
    DT_CHECK(info.name != "__metadata__", "safetensors",
             "a tensor is named __metadata__, which the format keeps for "
             "itself; give it another name");
    DT_CHECK(!header.contains(info.name), "safetensors",
             "tensor {} is declared twice; declare it once", info.name);
    const bool negative = std::any_of(info.shape.begin(), info.shape.end(),
                                      [](int64_t s) { return s < 0; });
    const int64_t bytes = bytes_of(info.shape, info.dtype);
    int64_t end = 0;
    DT_CHECK(
        !negative && bytes >= 0 && !__builtin_add_overflow(at, bytes, &end),
        "safetensors",
        "the shape of {}, {}, has a negative size, or the tensors up to it "
        "have 2^63 bytes or more; write other sizes",
        info.name, to_string(info.shape));
    ordered_json shape = ordered_json::array();
    for (int64_t s : info.shape) shape.push_back(s);
    header[info.name] = {{"dtype", safetensors_name(info.dtype)},
                         {"shape", std::move(shape)},
                         {"data_offsets", {at, end}}};
    entries_.push_back({std::move(info), at, 0});
    at = end;
  }
  RankContext& context = RankContext::current();
  active_ = !context.dry_run;
  if (!active_) return;
  rank_ = mesh_.rank(context.coordinate(mesh_, "SafetensorsWriter"));

  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    using Handler = ordered_json::error_handler_t;
    const auto as = [](const Entry& e, Handler h) {
      return ordered_json(e.info.name).dump(-1, ' ', true, h);
    };
    for (const Entry& e : entries_)
      DT_CHECK(as(e, Handler::ignore) == as(e, Handler::replace), "safetensors",
               "the name {} of a tensor is not UTF-8; write names in UTF-8",
               shown(as(e, Handler::replace)));
    throw;
  }
  while (text.size() % 8) text += ' ';  // so that the data is aligned
  const int64_t data = 8 + std::ssize(text);
  for (Entry& e : entries_) e.offset += data;
  try {
    open(text, data + at);
  } catch (...) {
    discard();
    throw;
  }
}

void SafetensorsWriter::open(const std::string& header, int64_t bytes) {
  if (rank_ == 0) {
    // Remove the file of a save that was cut short, or a link, which must not
    // be followed.
    io::remove_file(temporary_);
    file_ = std::make_unique<io::File>(io::File::create(temporary_));
    file_->reserve(bytes);
    const uint64_t length = header.size();
    file_->write(&length, 8, 0);
    file_->write(header.data(), std::ssize(header), 8);
  }
  barrier();
  if (rank_ != 0)
    file_ = std::make_unique<io::File>(io::File::open_to_write(temporary_));
  barrier();  // rank 0 must not remove the file before all have opened it
}

SafetensorsWriter::~SafetensorsWriter() { discard(); }

void SafetensorsWriter::discard() noexcept {
  file_ = nullptr;
  std::error_code ignored;
  if (active_ && !finished_ && rank_ == 0)
    std::filesystem::remove(temporary_, ignored);
}

void SafetensorsWriter::write(std::string_view name, const DistTensor& x,
                              const SafetensorsWindow& window) {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const Entry& e) { return e.info.name == name; });
  DT_CHECK(entry != entries_.end(), "safetensors",
           "tensor {} is not declared; list it in the constructor", name);
  const TensorInfo& info = entry->info;
  const Spec* spec = x.spec();
  const Refuse refuse = [&](std::string_view why) {
    fail("safetensors", "{} cannot be written to {} {}{}: {}",
         spec->to_string(), name, safetensors_name(info.dtype),
         to_string(info.shape), why);
  };
  if (!(spec->mesh() == mesh_))
    refuse("the file is written by mesh " + mesh_.to_string() +
           "; redistribute it to that mesh");
  if (spec->partial_axes()) refuse("it is partial; redistribute it first");
  if (spec->dtype() != info.dtype) refuse("the types differ; cast it first");
  const Shape file = seen_as(window, info.shape, spec->shape().size(), refuse);
  const auto [order, offset, shape, seen] =
      checked(window, spec->shape(), file, refuse);
  entry->written += numel(spec->shape());

  if (!active_) return;
  const Coord& c = RankContext::current().coordinate(mesh_);
  for (int a = 0; a < mesh_.num_axes(); ++a)
    if (c[a] != 0 && !(spec->split_axes() >> a & 1)) return;
  const Tensor local = x.local().permute(order);
  if (local.numel() == 0) return;
  each_box(local, reordered(spec->region(c), order), offset, file,
           [&](const Tensor& box, int64_t at) {
             each_run(file, box, 0, at, [&](const Tensor& part, int64_t first) {
               put(part.to_contiguous(),
                   entry->offset + first * size_of(info.dtype));
             });
           });
}

void SafetensorsWriter::finish(const std::function<void()>& commit) {
  for (const Entry& e : entries_)
    DT_CHECK(e.written == numel(e.info.shape), "safetensors",
             "write() got {} of the elements of {} for {}, but the tensor has "
             "{}; write each element once",
             e.written, e.info.name, path_, numel(e.info.shape));
  if (!active_) {
    finished_ = true;
    return;
  }
  file_->sync();
  barrier();
  if (rank_ == 0) {
    if (commit) commit();
    io::rename_file(temporary_, path_);
    // Flushing the folder brings the name to disk. Some file systems cannot do
    // that, but the file is complete in any case.
    const std::string above = std::filesystem::path(path_).parent_path();
    try {
      io::sync_folder(above.empty() ? "." : above);
    } catch (const Error&) {
    }
  }
  finished_ = true;
  barrier();
}

// Copies to the file through a host buffer of at most kMost bytes.
void SafetensorsWriter::put(const Tensor& packed, int64_t at) {
  constexpr int64_t kMost = int64_t{4} << 20;
  std::vector<char> host(static_cast<size_t>(std::min(kMost, packed.bytes())));
  for (int64_t done = 0; done < packed.bytes(); done += kMost) {
    const int64_t n = std::min(kMost, packed.bytes() - done);
    packed.device().to_host(packed.stream(), host.data(),
                            packed.ptr<char>() + done, n);
    file_->write(host.data(), n, at + done);
  }
}

void SafetensorsWriter::barrier() {
  RankContext& context = RankContext::current();
  context.communicator(mesh_, mesh_.all_axes())
      .barrier({.kind = StepKind::kBarrier,
                .op = "safetensors",
                .fingerprint = hash_text(path_),
                .describe =
                    [](const void* path) {
                      return *static_cast<const std::string*>(path);
                    },
                .what = &path_});
}

void save_safetensors(const std::string& path,
                      const std::vector<NamedTensor>& tensors) {
  DT_CHECK(!tensors.empty(), "safetensors",
           "no tensor is to be saved in {}; pass one or more", path);
  std::vector<TensorInfo> infos;
  for (const auto& [name, x] : tensors)
    infos.push_back({name, x.dtype(), x.shape()});
  SafetensorsWriter writer(tensors[0].tensor.mesh(), path, std::move(infos));
  for (const auto& [name, x] : tensors) writer.write(name, x);
  writer.finish();
}

}  // namespace dtensor
