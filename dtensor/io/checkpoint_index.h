// The index of a checkpoint: which tensors and values it has, and where their
// boxes lie. Text, a JSON object per line:
//   {"format":"dtensor checkpoint","version":1,"bytes":B,"xxh3":C}
//   {"step":100}
//   {"value":"data_position","u64":4096}             or "i64", or "text"
//   {"rank":0,"bytes":96}                            rank-00000.bin has 96
//   bytes
//   {"tensor":"w","dtype":"f32","shape":[4,6]}
//   {"box":[0,0],"size":[2,6],"rank":0,"offset":0,"bytes":48,"xxh3":C}
// B and C are the bytes and the checksum (XXH3, 16 digits) of what follows the
// line, and of a box. A box is of the tensor above it, row-major by itself. The
// boxes of a file lie end to end, those of a tensor have each element once.
//
// Not for users: see checkpoint.h.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/io/checkpoint_boxes.h"
#include "dtensor/io/checkpoint_value.h"
#include "dtensor/io/file.h"
#include "dtensor/io/tensor_info.h"

namespace dtensor::checkpoint {

inline constexpr const char* kIndexName = "index";

// "rank-00003.bin".
std::string file_name(int64_t rank);

// A box and where its bytes are.
struct StoredBox {
  Box box;
  int64_t rank, offset, bytes;
  uint64_t sum;
};

class Index {
 public:
  struct Entry {
    TensorInfo info;
    size_t first = 0, pieces = 0;  // its pieces: number first, first + 1, ...
  };

  int64_t step = 0;
  CheckpointValues values;
  // Bytes by rank; those that have none have no file.
  std::map<int64_t, int64_t> files;

  void add(TensorInfo);
  // Of the tensor that was added last.
  void add(const StoredBox&);
  // Throws Error for what the format cannot hold.
  std::string text() const;

  // Reads what text() wrote, of which nothing is believed. Needs less memory
  // than the file has bytes, plus 16 MiB. Throws Error that names the file and
  // the line or the tensor: also when a box leaves its tensor, some element has
  // no box or two, or the boxes do not lie end to end in their files.
  static Index read(const io::File&);

  const std::deque<Entry>& tensors() const { return tensors_; }
  // Of one that was read. Null when there is none of that name.
  const Entry* find(std::string_view name) const;
  size_t num_pieces() const { return stored_.size(); }
  StoredBox piece(const Entry&, size_t number) const;
  // "[0:2, 4:6] of w, [2:4, 4:6] of w and 3 more": what is in a rank's file.
  std::string content(int64_t rank) const;

 private:
  struct Stored {
    int64_t offset;
    uint64_t sum;
    size_t box;  // where its numbers begin in boxes_
    uint32_t rank;
  };
  const Entry& owner(size_t piece) const;
  void sort_names(const std::string& path);
  void check_cover(const std::string& path) const;
  void check_files(const std::string& path) const;

  std::deque<Entry> tensors_;
  std::vector<uint32_t> by_name_;  // their numbers
  // They grow without being copied; and small numbers take one byte, as they do
  // in the text: so the memory is bounded.
  std::deque<Stored> stored_;
  std::deque<uint8_t> boxes_;
};

}  // namespace dtensor::checkpoint
