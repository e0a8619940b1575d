// SPDX-License-Identifier: Apache-2.0
// The index of a checkpoint: its tensors and values, and where their boxes are.
// It is a JSON list with an object per line:
//   [{"format":"dtensor checkpoint","version":2,"bytes":B,"xxh3":C}
//   ,{"step":100}
//   ,{"value":"data_position","u64":4096}            or "i64", or "text"
//   ,{"rank":0,"header":144,"bytes":96,"xxh3":C}
//   ,{"tensor":"w","dtype":"f32","shape":[4,6]}
//   ,{"box":[0,0],"size":[2,6],"rank":0,"offset":0,"bytes":48,"xxh3":C}
//   ]
// B is the number of bytes below the first line. C is a checksum (XXH3, 16
// hexadecimal digits): of the text below the first line, of a file's header, or
// of a box. A box belongs to the tensor above it, and its elements are in
// row-major order. The boxes of a file lie end to end. The boxes of a tensor
// have each of its elements exactly once.
//
// The file of rank 0, rank-00000.safetensors, is a safetensors file: 144 bytes
// of header, in which a box has the name of its tensor and its indices,
// "w[0:2, 0:6]", and 96 bytes of boxes. (Its second box is left out above.)
//
// Version 1 is read, too: the index is called "index" and has neither brackets
// nor commas around its lines; the files are called rank-00000.bin and have no
// header.
//
// Not for users: see checkpoint.h.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/io/checkpoint_boxes.h"
#include "dtensor/io/file.h"
#include "dtensor/io/stored.h"

namespace dtensor::checkpoint {

inline constexpr const char* kIndexName = "index.json";
inline constexpr const char* kIndexNameOfVersion1 = "index";

// The checksum of the bytes [from, to) of a file, read piece by piece.
uint64_t checksum_of(const io::File&, int64_t from, int64_t to);

// Returns the header of a safetensors file with these boxes of these tensors,
// including the eight bytes that hold the header's length.
std::string header_of(std::span<const OwnedBox>, std::span<const TensorInfo>);

// A box, the place of its bytes in a rank's file, and their checksum.
struct StoredBox {
  Box box;
  int64_t rank, offset, bytes;
  uint64_t sum;
};

class Index {
 public:
  struct Entry {
    TensorInfo info;
    // The numbers of its boxes, for piece(): first to first + pieces - 1.
    size_t first = 0, pieces = 0;
  };

  struct RankFile {
    int64_t header, bytes;  // how many bytes the header and the boxes have
    uint64_t sum;           // the checksum of the header
  };

  int version = 2;
  int64_t step = 0;
  CheckpointValues values;
  // Ranks without boxes have no file.
  std::map<int64_t, RankFile> files;

  // "rank-00003.safetensors" for rank 3, or "rank-00003.bin" in version 1.
  std::string file_name(int64_t rank) const;

  void add(TensorInfo);
  // Adds a box to the tensor that was added last.
  void add(const StoredBox&);
  // The text of the index. Throws Error if the format cannot represent it.
  std::string text() const;

  // Reads and verifies a file with the text of text(). Needs no more memory
  // than the size of the file plus 16 MiB. Throws Error also if a box is not
  // within its tensor, an element is in no box or in two, or the boxes do not
  // lie end to end in their files. Errors name the file and the line or tensor.
  static Index read(const io::File&);

  const std::deque<Entry>& tensors() const { return tensors_; }
  // The tensor of that name in an index from read(); null if there is none.
  const Entry* find(std::string_view name) const;
  StoredBox piece(const Entry&, size_t number) const;
  // Says which boxes a rank's file has: "[0:2, 4:6] of w, [2:4, 4:6] of w". If
  // there are seven, names four, and adds " and 3 more".
  std::string content(int64_t rank) const;

 private:
  struct Stored {
    int64_t offset;
    uint64_t sum;
    size_t box;  // where the numbers of its Box begin in boxes_
    uint32_t rank;
  };
  const Entry& owner(size_t piece) const;
  void sort_names(const std::string& path);
  void check_cover(const std::string& path) const;
  void check_files(const std::string& path) const;

  std::deque<Entry> tensors_;
  std::vector<uint32_t> by_name_;  // indices of tensors_, sorted by name
  // Deques grow without copying their contents, and boxes_ encodes a number
  // below 128 in one byte. So an index takes no more memory than its text.
  std::deque<Stored> stored_;
  std::deque<uint8_t> boxes_;
};

}  // namespace dtensor::checkpoint
