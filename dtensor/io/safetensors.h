// The safetensors format (https://github.com/huggingface/safetensors): eight
// bytes with the length of a JSON header, the header, the tensors end to end.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/io/tensor_info.h"

namespace dtensor {

// Which part of the file's tensor a value is: the file's dimension i is the
// value's dimension order[i] (empty: i) and begins at offset[i] (empty: 0).
// order {1, 0} writes or reads a transpose; q, k and v at offsets 0, h and 2h
// of the last dimension are parts of a concatenation. Where the value has more
// dimensions than the file's tensor, that has as many of size 1 ahead: [3, 4]
// of the file is [1, 3, 4].
struct SafetensorsWindow {
  Shape order, offset;
  // Of the value, when it is read. Empty: as far as the file's tensor goes.
  Shape shape = {};
};

// Writes one file from all ranks of a mesh. A rank writes the index ranges that
// it holds, box by box, where they belong; a value that several ranks hold is
// written by the one whose coordinate is 0 on every axis that does not split
// it. Nothing is sent, and no rank holds more than its part and a buffer of
// 1 MiB. The file has a temporary name (path + ".tmp") until finish().
//
// Every member is collective over the mesh and does nothing in a dry run. An
// Error names the file and the system's reason.
class SafetensorsWriter {
 public:
  // Declares every tensor of the file; all ranks give the same list. Throws
  // Error for a name that occurs twice, or when the sizes overflow.
  SafetensorsWriter(const Mesh&, std::string path, std::vector<TensorInfo>);
  // Removes the temporary file unless finish() returned.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Throws Error when the name is not declared, the dtype is another, the
  // window leaves the tensor, or the value is partial.
  void write(std::string_view name, const DistTensor&,
             const SafetensorsWindow& = {});

  // Brings the file to the disk and gives it its name; `commit` is called by
  // mesh rank 0 between the two. Throws Error when some declared tensor was not
  // written in full.
  void finish(const std::function<void()>& commit = {});

 private:
  struct Entry {
    TensorInfo info;
    int64_t offset;   // in the file, bytes
    int64_t written;  // elements, of all ranks
  };
  // The file under its temporary name, of so many bytes; and away with it,
  // unless it is finished.
  void open(const std::string& header, int64_t bytes);
  void close();
  void put(const Tensor& packed, int64_t at);
  void put(const void*, int64_t bytes, int64_t at);
  void barrier();
  [[noreturn]] void system_error(std::string_view what) const;

  Mesh mesh_;
  std::string path_, temporary_;
  std::vector<Entry> entries_;
  bool active_ = false;  // false in a dry run
  bool finished_ = false;
  int64_t rank_ = 0;
  int file_ = -1;
};

// Reads a file, every byte of whose header is checked before it is believed.
class SafetensorsReader {
 public:
  // Throws Error that says what is wrong with the file.
  explicit SafetensorsReader(std::string path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  // In the order of their data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  bool contains(std::string_view name) const;
  // The whole tensor, into this rank's memory.
  Tensor read(std::string_view name) const;
  // The tensor, or a window of it, on a mesh: a rank reads the index ranges
  // that it holds, box by box, and no others, and needs memory for its part and
  // a buffer of 1 MiB. Sends nothing; a rank that is not in the mesh reads
  // nothing, and in a dry run nobody does. Throws Error when the name is not
  // there, the window leaves the tensor, or the layout is partial.
  DistTensor read(std::string_view name, const Mesh&, const Placements&,
                  const SafetensorsWindow& = {}) const;

 private:
  size_t find(std::string_view name) const;
  // `shape`: of the tensor, with as many dimensions as the box.
  void read_box(size_t tensor, const Shape& shape, const Tensor& box,
                int64_t at) const;
  void parse(std::string_view header, int64_t data_bytes);
  std::string path_;
  int file_ = -1;
  int64_t data_start_ = 0;
  std::vector<TensorInfo> tensors_;
  std::vector<int64_t> begins_;  // in the data, bytes
  std::map<std::string, std::string> metadata_;
};

// The name of a dtype in the format: "F32", "BF16", ...
std::string_view safetensors_name(DType);

}  // namespace dtensor
