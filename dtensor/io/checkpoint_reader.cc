// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "dtensor/all_or_none.h"
#include "dtensor/io/checkpoint.h"
#include "dtensor/io/checkpoint_index.h"
#include "dtensor/io/checksum.h"
#include "dtensor/io/file.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/rank_context.h"

namespace dtensor {

using namespace checkpoint;

namespace {

// Files are read in steps of this many bytes. The checksum of a step is
// computed while its bytes are in the cache.
constexpr int64_t kStep = 1 << 20;
// The most boxes, including the current one, that the system prefetches.
constexpr size_t kAhead = 4;

std::string path_of(const std::string& dir, const std::string& name) {
  return (std::filesystem::path(dir) / name).string();
}

}  // namespace

struct CheckpointReader::Contents {
  Index index;

  void read_part(const std::string& path, const Index::Entry&,
                 const Tensor& part, const Region& held) const;
};

CheckpointReader::CheckpointReader(std::string path) : path_(std::move(path)) {
  auto contents = std::make_unique<Contents>();
  std::string name = path_of(path_, kIndexName);
  std::error_code ignored;
  if (const std::string old = path_of(path_, kIndexNameOfVersion1);
      !std::filesystem::exists(name, ignored) &&
      std::filesystem::exists(old, ignored))
    name = old;
  contents->index = Index::read(io::File::open(name));
  const Index& index = contents->index;
  for (const auto& [rank, expected] : index.files) {
    const std::string path = path_of(path_, index.file_name(rank));
    try {
      const io::File file = io::File::open(path);
      // (The sum of `header` and `bytes` may overflow.)
      DT_CHECK(file.size() - expected.header == expected.bytes, "checkpoint",
               "{} has {} bytes, but {} says {} bytes after a header of {}",
               path, file.size(), name, expected.bytes, expected.header);
      if (index.version == 1) continue;
      const uint64_t sum = checksum_of(file, 0, expected.header);
      DT_CHECK(sum == expected.sum, "checkpoint",
               "the first {} bytes of {} have the checksum {}, but {} says {}",
               expected.header, path, checksum_text(sum), name,
               checksum_text(expected.sum));
    } catch (const Error& e) {
      fail("checkpoint",
           "{} cannot be read completely: {}; that file should have {}; load "
           "another checkpoint",
           path_, e.what(), index.content(rank));
    }
  }
  contents_ = std::move(contents);
}

CheckpointReader::~CheckpointReader() = default;

std::vector<TensorInfo> CheckpointReader::tensors() const {
  std::vector<TensorInfo> all;
  for (const Index::Entry& e : contents_->index.tensors())
    all.push_back(e.info);
  return all;
}

int64_t CheckpointReader::step() const { return contents_->index.step; }

const CheckpointValues& CheckpointReader::values() const {
  return contents_->index.values;
}

bool CheckpointReader::contains(std::string_view name) const {
  return contents_->index.find(name) != nullptr;
}

// Fills `part`, which has the indices `held`, from the boxes that have some of
// these indices.
void CheckpointReader::Contents::read_part(const std::string& path,
                                           const Index::Entry& entry,
                                           const Tensor& part,
                                           const Region& held) const {
  const bool on_host = &part.device() == &cpu();
  std::vector<char> buffer;
  Checksum sum;
  // Only one file is open at a time: a checkpoint of many ranks might have more
  // files than the limit of open files.
  std::optional<io::File> file;
  int64_t rank = -1, start = 0;  // of `file`: its rank, where boxes begin
  std::vector<StoredBox> needed;
  for (size_t i = entry.first; i < entry.first + entry.pieces; ++i)
    if (const StoredBox p = index.piece(entry, i);
        !windows(held, p.box).empty())
      needed.push_back(p);
  size_t ahead = 0;
  for (size_t i = 0; i < needed.size(); ++i) {
    const StoredBox& p = needed[i];
    if (p.rank != rank) {
      file.emplace(io::File::open(path_of(path, index.file_name(p.rank))));
      rank = p.rank;
      start = index.files.at(rank).header;
    }
    // Let the disk work while checksums are computed.
    for (; ahead < std::min(i + kAhead, needed.size()); ++ahead)
      if (needed[ahead].rank == rank)
        file->will_need(start + needed[ahead].offset, needed[ahead].bytes);
    const std::vector<Window> shared = windows(held, p.box);
    // Read into the part if the whole box is contiguous there, else into a
    // tensor of its own. (Data for a GPU is read into `buffer` first.)
    Tensor box;
    if (shared.size() == 1 && shared[0].size == p.box.size)
      box = view_of(part, shared[0].in_part, shared[0].size);
    const bool in_place = box.defined() && box.contiguous();
    if (!in_place) box = Tensor::empty(p.box.size, entry.info.dtype);
    char* to = nullptr;
    if (on_host) {
      to = box.mutable_ptr<char>();
    } else {
      buffer.resize(static_cast<size_t>(p.bytes));
      to = buffer.data();
    }
    sum.reset();
    for (int64_t at = 0; at < p.bytes; at += kStep) {
      const int64_t n = std::min(kStep, p.bytes - at);
      file->read(to + at, n, start + p.offset + at);
      sum.add(to + at, n);
    }
    DT_CHECK(sum.value() == p.sum, "checkpoint",
             "{} is damaged: box {} of {} (bytes {} to {}) has the checksum "
             "{}, but the box that was saved had {}; load another checkpoint",
             file->path(), to_string(p.box), entry.info.name, start + p.offset,
             start + p.offset + p.bytes, checksum_text(sum.value()),
             checksum_text(p.sum));
    if (!on_host)
      box.device().from_host(box.stream(), box.mutable_data(), to, p.bytes);
    if (in_place) continue;
    for (const Window& w : shared)
      view_of(part, w.in_part, w.size)
          .copy_from(view_of(box, w.in_box, w.size));
  }
}

std::vector<DistTensor> CheckpointReader::read(
    const std::vector<CheckpointRequest>& requests) const {
  RankContext& context = RankContext::current();
  uint64_t asked = hash_text("read_checkpoint");
  std::vector<SpecRef> specs;
  std::vector<const Index::Entry*> tensors;
  for (const CheckpointRequest& r : requests) {
    const Index::Entry* found = contents_->index.find(r.name);
    DT_CHECK(found, "checkpoint",
             "{} has no tensor {}; tensors() lists those that it has", path_,
             r.name);
    const TensorInfo& info = found->info;
    const Spec* spec =
        Spec::get(r.mesh, info.shape, r.placements.resolve(r.mesh, info.shape),
                  info.dtype);
    DT_CHECK(spec->partial_axes() == 0, "checkpoint",
             "{} cannot be read as {}, which is partial; write R or S<dim>",
             r.name, spec->to_string());
    specs.push_back(spec);
    tensors.push_back(found);
    asked = hash_mix(hash_text(r.name, asked), spec->hash());
  }
  std::vector<DistTensor> out;
  all_or_none("checkpoint", asked, [&] {
    for (size_t i = 0; i < specs.size(); ++i) {
      out.push_back(DistTensor::empty(specs[i]));
      const Coord* at = context.coordinate_or_null(specs[i]->mesh());
      if (!at || context.dry_run) continue;
      const Tensor& part = out.back().local();
      if (part.numel())
        contents_->read_part(path_, *tensors[i], part, specs[i]->region(*at));
    }
  });
  return out;
}

DistTensor CheckpointReader::read(std::string_view name, const Mesh& mesh,
                                  const Placements& placements) const {
  return read({{std::string(name), mesh, placements}})[0];
}

}  // namespace dtensor
