// SPDX-License-Identifier: Apache-2.0
// Saves checkpoints. During a background save the ranks cannot communicate,
// since their main threads compute, so they agree through files: each rank with
// boxes writes them, flushes them to disk, and then writes a small file with
// their checksums, rank-00000.sums. When all .sums files exist, rank 0 writes
// the index from them, removes them, and renames the folder.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "dtensor/all_or_none.h"
#include "dtensor/io/checkpoint.h"
#include "dtensor/io/checkpoint_boxes.h"
#include "dtensor/io/checkpoint_folders.h"
#include "dtensor/io/checkpoint_index.h"
#include "dtensor/io/checksum.h"
#include "dtensor/io/file.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/rank_context.h"
#include "dtensor/visit.h"

namespace dtensor {

using namespace checkpoint;

namespace {

// Boxes are written in steps of this many bytes, while the bytes are in the
// cache from computing their checksum. Collected small boxes are written when
// they have this many bytes, before a larger box, and at the end.
constexpr int64_t kStep = 1 << 20;
// Boxes of fewer bytes than this are collected before they are written.
constexpr int64_t kDirect = 256 << 10;

// Returns the address of the bytes of box number i of this rank, in row-major
// order; valid until the next call.
using BytesOf = std::function<const char*(size_t i)>;

// Locks the folder for this job; called by rank 0. A folder stays locked until
// the process ends, since a program may save in several runs, or until a later
// claim() finds that it has been moved or removed.
void claim(const std::string& dir) {
  static std::mutex mutex;
  static std::vector<io::File> claimed;
  const std::lock_guard lock(mutex);
  io::make_folders(dir);
  std::erase_if(claimed, [](const io::File& f) { return !f.is_at(f.path()); });
  for (const io::File& f : claimed)
    if (f.is_at(dir)) return;
  auto folder = io::File::lock_folder(std::filesystem::absolute(dir).string());
  DT_CHECK(folder.has_value(), "checkpoint",
           "another job saves to {}; end it, or name another folder", dir);
  claimed.push_back(std::move(*folder));
}

// One rank's work for one checkpoint. Does not communicate.
class Save {
 public:
  Save(std::string dir, int64_t step, const std::vector<NamedTensor>& tensors,
       const CheckpointValues& values, int64_t keep, int64_t rank,
       int64_t world)
      : dir_(std::move(dir)),
        final_(folder(dir_, step)),
        temporary_(final_ + kUnfinished),
        keep_(keep),
        rank_(rank) {
    index_.step = step;
    index_.values = values;
    std::vector<const Spec*> specs;
    for (const NamedTensor& t : tensors) {
      specs.push_back(t.tensor.spec());
      infos_.push_back({t.name, t.tensor.dtype(), t.tensor.shape()});
    }
    boxes_ = boxes_by_rank(specs, world);
  }

  const std::vector<OwnedBox>& own() const {
    return boxes_[static_cast<size_t>(rank_)];
  }

  // Rank 0 makes the folder, before any rank writes.
  void begin() {
    if (rank_ != 0) return;
    index_with(std::vector<std::vector<uint64_t>>()).text();  // checks limits
    claim(dir_);
    DT_CHECK(!std::filesystem::exists(final_), "checkpoint",
             "{} exists already; remove it, or save another step", final_);
    io::remove_folder(temporary_);  // left by a save that was cut short
    io::make_folder(temporary_);
    begun_ = true;
  }

  void write(const BytesOf& bytes_of) {
    if (own().empty()) return;
    const io::File file = io::File::create(in_folder(index_.file_name(rank_)));
    std::vector<uint64_t> sums;
    // The header and the collected boxes, which will be written at `end`.
    const std::string header = header_of(own(), infos_);
    std::vector<char> small(header.begin(), header.end());
    int64_t end = 0;
    // Writes at `end`, and lets the disk work while the next checksums are
    // computed.
    const auto append = [&](const char* from, int64_t bytes) {
      file.write(from, bytes, end);
      file.begin_sync(end, bytes);
      end += bytes;
    };
    const auto flush = [&] {
      append(small.data(), std::ssize(small));
      small.clear();
    };
    Checksum sum;
    for (size_t i = 0; i < own().size(); ++i) {
      const char* from = bytes_of(i);
      const int64_t bytes = own()[i].bytes;
      if (bytes < kDirect) {
        sums.push_back(checksum(from, bytes));
        small.insert(small.end(), from, from + bytes);
        if (std::ssize(small) >= kStep) flush();
        continue;
      }
      flush();
      sum.reset();
      for (int64_t at = 0; at < bytes; at += kStep) {
        const int64_t n = std::min(kStep, bytes - at);
        sum.add(from + at, n);
        append(from + at, n);
      }
      sums.push_back(sum.value());
    }
    flush();
    file.sync();
    // The last number is the checksum of the others. It shows that the file is
    // complete.
    sums.push_back(checksum(sums.data(), std::ssize(sums) * 8));
    io::File::create(in_folder(sums_name(rank_)))
        .write(sums.data(), std::ssize(sums) * 8, 0);
  }

  // Called by rank 0 when all ranks have written.
  std::vector<std::vector<uint64_t>> sums_of_all() const {
    auto all = sums();
    DT_CHECK(all.has_value(), "checkpoint",
             "{} lacks files of some ranks, or parts of them; save to a "
             "folder that all ranks share, and do not remove it",
             temporary_);
    return std::move(*all);
  }

  // The checksums of all boxes, by rank; nullopt until the .sums files of all
  // ranks with boxes are complete.
  std::optional<std::vector<std::vector<uint64_t>>> sums() const {
    std::vector<std::vector<uint64_t>> all(boxes_.size());
    for (size_t r = 0; r < boxes_.size(); ++r) {
      if (boxes_[r].empty()) continue;
      const std::string path = in_folder(sums_name(static_cast<int64_t>(r)));
      if (!std::filesystem::exists(path)) return {};
      std::vector<uint64_t>& sums = all[r];
      sums.resize(boxes_[r].size() + 1);
      const io::File file = io::File::open(path);
      const int64_t bytes = std::ssize(sums) * 8;
      if (file.size() != bytes) return {};
      file.read(sums.data(), bytes, 0);
      if (sums.back() != checksum(sums.data(), bytes - 8)) return {};
      sums.pop_back();
    }
    return all;
  }

  // Makes the checkpoint. Called by rank 0, with the result of sums().
  void commit(const std::vector<std::vector<uint64_t>>& sums) {
    const std::string text = index_with(sums).text();
    {
      const io::File file = io::File::create(in_folder(kIndexName));
      file.write(text.data(), std::ssize(text), 0);
      file.sync();
    }
    for (size_t r = 0; r < boxes_.size(); ++r)
      if (!boxes_[r].empty())
        io::remove_file(in_folder(sums_name(static_cast<int64_t>(r))));
    io::sync_folder(temporary_);
    // Checks that the checkpoint can be opened before it gets its name.
    const CheckpointReader complete(temporary_);
    io::rename_file(temporary_, final_);
    try {
      io::sync_folder(dir_);
    } catch (...) {
      io::rename_file(final_, temporary_);
      throw;
    }
    if (keep_ > 0) remove_old();
  }

  // Removes the files of a save that has failed. Every rank may call this, but
  // only rank 0 has files to remove. (If that fails, they stay, but they are
  // not a checkpoint.)
  void discard() noexcept {
    if (!begun_) return;
    // Removal fails if another rank makes a file there meanwhile, so retry. A
    // rank makes at most two files.
    std::error_code e;
    for (int i = 0; i < 3; ++i) {
      std::filesystem::remove_all(temporary_, e);
      if (!e) return;
    }
  }

 private:
  void remove_old() const {
    std::vector<std::string> old = list_checkpoints(dir_);
    // Checkpoints of later steps do not belong to this training.
    old.erase(std::find(old.begin(), old.end(), final_), old.end());
    for (int64_t left = std::ssize(old); left >= keep_; --left) {
      const std::string& path = old[size_t(std::ssize(old) - left)];
      // Rename it first. If the removal stops halfway, the folder that is left
      // must not have a checkpoint's name.
      io::remove_folder(path + kUnfinished);
      io::rename_file(path, path + kUnfinished);
      io::remove_folder(path + kUnfinished);
    }
  }
  static std::string sums_name(int64_t rank) {
    return fmt::format("rank-{:05}.sums", rank);
  }
  std::string in_folder(const std::string& name) const {
    return (std::filesystem::path(temporary_) / name).string();
  }

  // Returns the index with the boxes of all ranks. If `sums` is empty, the
  // checksums are zeros, and the text has the same length.
  Index index_with(const std::vector<std::vector<uint64_t>>& sums) const {
    Index index = index_;
    struct Numbered {
      int64_t rank, offset;
      size_t number;
    };
    std::vector<std::vector<Numbered>> by_tensor(infos_.size());
    for (size_t r = 0; r < boxes_.size(); ++r) {
      int64_t end = 0;
      for (size_t i = 0; i < boxes_[r].size(); ++i) {
        by_tensor[boxes_[r][i].tensor].push_back(
            {static_cast<int64_t>(r), end, i});
        end += boxes_[r][i].bytes;
      }
      if (end == 0) continue;
      const std::string header = header_of(boxes_[r], infos_);
      index.files[static_cast<int64_t>(r)] = {
          std::ssize(header), end, checksum(header.data(), std::ssize(header))};
    }
    for (size_t t = 0; t < infos_.size(); ++t) {
      index.add(infos_[t]);
      for (const Numbered& n : by_tensor[t]) {
        const size_t r = static_cast<size_t>(n.rank);
        const OwnedBox& b = boxes_[r][n.number];
        index.add(StoredBox{b.box, n.rank, n.offset, b.bytes,
                            sums.empty() ? 0 : sums[r][n.number]});
      }
    }
    return index;
  }

  const std::string dir_, final_, temporary_;
  const int64_t keep_, rank_;
  bool begun_ = false;  // this rank has made the folder
  Index index_;         // with step and values, without tensors
  std::vector<TensorInfo> infos_;
  std::vector<std::vector<OwnedBox>> boxes_;  // the boxes of each rank
};

// Brings the boxes of this rank's parts, one at a time, into contiguous host
// memory. Copies only those that are not there already.
class Parts {
 public:
  Parts(const Save& save, const std::vector<NamedTensor>& tensors)
      : save_(save), tensors_(tensors) {}

  const char* operator()(size_t i) {
    const OwnedBox& b = save_.own()[i];
    const DistTensor& x = tensors_[b.tensor].tensor;
    const Coord& at = RankContext::current().coordinate(x.mesh());
    // One window, since a box is within one interval of each dimension.
    const Window w = windows(x.spec()->region(at), b.box)[0];
    return visit_part(x, [&](const Tensor& part) -> const char* {
      packed_ = view_of(part, w.in_part, w.size).to_contiguous();
      if (&packed_.device() == &cpu()) return packed_.ptr<char>();
      host_.resize(static_cast<size_t>(b.bytes));
      packed_.device().to_host(packed_.stream(), host_.data(), packed_.data(),
                               b.bytes);
      return host_.data();
    });
  }

 private:
  const Save& save_;
  const std::vector<NamedTensor>& tensors_;
  Tensor packed_;
  std::vector<char> host_;
};

// One rank's part of a background save.
class Background final : public RankServices::Service {
 public:
  Background(std::shared_ptr<Save> save, Parts parts, int64_t rank)
      : save_(std::move(save)), rank_(rank) {
    size_t bytes = 0;
    for (const OwnedBox& b : save_->own()) bytes += size_t(b.bytes);
    copy_ = std::make_unique_for_overwrite<char[]>(bytes);
    char* to = copy_.get();
    for (size_t i = 0; i < save_->own().size(); ++i) {
      const size_t n = size_t(save_->own()[i].bytes);
      std::memcpy(to, parts(i), n);
      starts_.push_back(to);
      to += n;
    }
    thread_ = std::thread([this] { work(); });
  }
  // If the run failed or was interrupted, a complete save still becomes a
  // checkpoint, and an incomplete one is removed.
  ~Background() override {
    stop();
    if (!committed_) save_->discard();
  }

  void finish() override {
    try {
      all_or_none("checkpoint", hash_text("written"), [&] {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return written_; });
        if (error_) std::rethrow_exception(error_);
      });
      // All ranks have written: rank 0 finds their files, unless they have been
      // removed.
      all_or_none("checkpoint", hash_text("committed"), [&] {
        stop();
        if (error_) std::rethrow_exception(error_);
        if (rank_ == 0 && !committed_) save_->commit(save_->sums_of_all());
      });
    } catch (...) {
      stop();
      save_->discard();
      throw;
    }
  }

 private:
  void work() {
    try {
      save_->write([&](size_t i) { return starts_[i]; });
    } catch (...) {
      error_ = std::current_exception();
    }
    std::unique_lock lock(mutex_);
    written_ = true;
    changed_.notify_all();
    if (rank_ != 0 || error_) return;
    lock.unlock();
    try {
      auto sums = save_->sums();
      for (int left = kLastLooks; !sums && left > 0;) {
        lock.lock();
        const bool given_up = given_up_;
        if (!given_up)
          changed_.wait_for(lock, kLook, [&] { return given_up_; });
        lock.unlock();
        if (given_up) std::this_thread::sleep_for(kLook), --left;
        sums = save_->sums();
      }
      if (!sums) return;
      save_->commit(*sums);
      committed_ = true;
    } catch (...) {
      lock.lock();
      error_ = std::current_exception();
    }
  }
  void stop() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      given_up_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // The interval at which rank 0 looks for the files of other ranks, and how
  // many more times it looks once the save is given up, since other ranks may
  // be about to finish.
  static constexpr std::chrono::milliseconds kLook{10};
  static constexpr int kLastLooks = 30;

  const std::shared_ptr<Save> save_;
  const int64_t rank_;
  std::unique_ptr<char[]> copy_;
  std::vector<const char*> starts_;  // where the bytes of each box begin
  std::mutex mutex_;
  std::condition_variable changed_;
  bool written_ = false, given_up_ = false;
  bool committed_ = false;  // set by the thread, read after it has ended
  std::exception_ptr error_;
  std::thread thread_;
};

uint64_t fingerprint_of(const std::string& dir, int64_t step,
                        const std::vector<NamedTensor>& tensors,
                        const CheckpointValues& values,
                        const CheckpointOptions& options) {
  uint64_t h = hash_mix(hash_text(dir), static_cast<uint64_t>(step));
  for (const NamedTensor& t : tensors)
    h = hash_mix(hash_text(t.name, h), t.tensor.spec()->hash());
  for (const auto& [name, v] : values) {
    h = hash_mix(hash_text(name, h), v.index());
    if (const auto* text = std::get_if<std::string>(&v))
      h = hash_text(*text, h);
    else if (const auto* i = std::get_if<int64_t>(&v))
      h = hash_mix(h, static_cast<uint64_t>(*i));
    else
      h = hash_mix(h, std::get<uint64_t>(v));
  }
  return hash_mix(hash_mix(h, options.background),
                  static_cast<uint64_t>(options.keep));
}

}  // namespace

void claim_checkpoints(const std::string& dir) {
  const RankContext& context = RankContext::current();
  if (context.dry_run) return;
  all_or_none("checkpoint", hash_text(dir), [&] {
    if (context.world_rank == 0) claim(dir);
  });
}

void save_checkpoint(const std::string& dir, int64_t step,
                     const std::vector<NamedTensor>& tensors,
                     const CheckpointValues& values,
                     const CheckpointOptions& options) {
  DT_CHECK(step >= 0, "checkpoint", "step {} is negative; write 0 or more",
           step);
  DT_CHECK(options.keep >= 0, "checkpoint",
           "{} checkpoints cannot be kept; write 1 or more, or 0 to keep all",
           options.keep);
  std::set<std::string_view> names;
  for (const NamedTensor& t : tensors) {
    DT_CHECK(names.insert(t.name).second, "checkpoint",
             "two tensors are called \"{}\"; give each its own name", t.name);
    DT_CHECK(t.tensor.spec()->partial_axes() == 0, "checkpoint",
             "{} is {}, which is partial; redistribute it to R or S<dim> first",
             t.name, t.tensor.spec()->to_string());
  }
  RankContext& context = RankContext::current();
  if (context.dry_run) return;
  finish_saves();
  const int64_t rank = context.world_rank;
  const uint64_t asked = fingerprint_of(dir, step, tensors, values, options);
  std::shared_ptr<Save> save;
  std::unique_ptr<Background> started;
  try {
    all_or_none("checkpoint", asked, [&] {
      save = std::make_shared<Save>(dir, step, tensors, values, options.keep,
                                    rank, context.world_size);
      save->begin();
    });
    if (options.background) {
      all_or_none("checkpoint", asked, [&] {
        started =
            std::make_unique<Background>(save, Parts(*save, tensors), rank);
      });
      context.services.set(std::move(started));
      return;
    }
    all_or_none("checkpoint", asked,
                [&] { save->write(Parts(*save, tensors)); });
    all_or_none("checkpoint", asked, [&] {
      if (rank != 0) return;
      save->commit(save->sums_of_all());
    });
  } catch (...) {
    started = nullptr;  // stops its thread
    if (save) save->discard();
    throw;
  }
}

void finish_saves() {
  if (const auto save = RankContext::current().services.take<Background>())
    save->finish();
}

}  // namespace dtensor
