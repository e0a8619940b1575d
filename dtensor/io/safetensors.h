// SPDX-License-Identifier: Apache-2.0
// The safetensors format (https://github.com/huggingface/safetensors): eight
// bytes with the length of a JSON header, the header, and the tensors end to
// end.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/io/stored.h"

namespace dtensor {

namespace io {
class File;
}

// Maps a value to a part of a tensor in the file. Dimension i of the file's
// tensor is dimension order[i] of the value (i if `order` is empty). In that
// dimension of the file's tensor, the value begins at index offset[i] (0 if
// `offset` is empty). For example, order {1, 0} is a transpose; if q, k and v,
// of size h, are concatenated in the last dimension, their offsets in it are 0,
// h and 2h. If the value has more dimensions than the file's tensor, the file's
// tensor gets dimensions of size 1 in front: [3, 4] becomes [1, 3, 4].
struct SafetensorsWindow {
  Shape order, offset;
  // The shape of the value, for reading. If it is empty, the value reaches to
  // the end of the file's tensor in its own shape. Set it if `seen_as` is set.
  Shape shape = {};
  // The shape as which the file's tensor is viewed, with the same number of
  // elements. If it is empty, that is the tensor's own shape.
  Shape seen_as = {};
};

// Writes one file from all ranks of a mesh. Each rank writes the indices that
// it holds, box by box, directly to their places in the file. But a rank writes
// nothing if its coordinate is not 0 on an axis that does not split the value,
// since another rank writes the same indices. The ranks send each other no
// elements, and a rank needs memory only for its part and buffers of a few MiB.
// Until finish(), the file is called path + ".tmp".
//
// Every member but the destructor is collective over the mesh. Nothing is
// written in a dry run. If a system call fails, the Error names the file and
// the system's reason.
class SafetensorsWriter {
 public:
  // Makes the file, with all tensors in this list, which is the same on all
  // ranks. Throws Error if a name occurs twice or the sizes overflow.
  SafetensorsWriter(const Mesh&, std::string path, std::vector<TensorInfo>);
  // Removes the temporary file unless finish() has renamed it.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Writes a value to a declared tensor or to a part of it. Throws Error if the
  // name is not declared, the dtypes differ, the window does not fit the
  // tensor, or the value is partial or on another mesh.
  void write(std::string_view name, const DistTensor&,
             const SafetensorsWindow& = {});

  // Flushes the file to disk and then renames it to its path. Before the
  // rename, rank 0 of the mesh calls `commit` if it is set. Throws Error unless
  // as many elements have been written to each declared tensor as it has.
  void finish(const std::function<void()>& commit = {});

 private:
  struct Entry {
    TensorInfo info;
    int64_t offset;   // bytes from the start of the file to the tensor
    int64_t written;  // elements of the values that write() was given
  };
  // Opens the file under its temporary name, after rank 0 has made it, with
  // `bytes` bytes and the header.
  void open(const std::string& header, int64_t bytes);
  // Removes the file unless finish() has renamed it.
  void discard() noexcept;
  void put(const Tensor& packed, int64_t at);
  void barrier();

  Mesh mesh_;
  std::string path_, temporary_;
  std::vector<Entry> entries_;
  bool active_ = false;  // false in a dry run
  bool finished_ = false;
  int64_t rank_ = 0;
  std::unique_ptr<io::File> file_;
};

// Reads one safetensors file. The constructor verifies the whole header.
class SafetensorsReader {
 public:
  // Opens the file and reads its header. Throws Error if something is wrong.
  explicit SafetensorsReader(std::string path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  // The tensors in the order of their data in the file.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  bool contains(std::string_view name) const;
  // Reads the whole tensor into this rank's memory. Throws Error if the name
  // does not exist.
  Tensor read(std::string_view name) const;
  // Reads the tensor, or a part of it, onto a mesh. Each rank reads only the
  // indices that it holds, box by box, and needs memory only for its part and
  // buffers of 1 MiB. Sends nothing. Ranks outside the mesh read nothing, nor
  // does any rank in a dry run. Throws Error if the name does not exist, the
  // window does not fit the tensor, or the layout is partial.
  DistTensor read(std::string_view name, const Mesh&, const Placements&,
                  const SafetensorsWindow& = {}) const;
  // Like read() onto a mesh, but into the memory of `to`. The shape of the
  // value is that of `to`; SafetensorsWindow::shape is ignored. Throws Error
  // also if `to` and the file's tensor have different dtypes.
  void read_into(const DistTensor& to, std::string_view name,
                 const SafetensorsWindow& = {}) const;

 private:
  size_t find(std::string_view name) const;
  // The window with its defaults filled in, for a value of that shape. Throws
  // Error if it does not fit.
  SafetensorsWindow fitted(size_t tensor, const Shape& value,
                           const SafetensorsWindow&) const;
  [[noreturn]] void refuse(size_t tensor, const Shape& value,
                           std::string_view why) const;
  // Fills `box` from the file. The first element of `box` is element number
  // `at` of the file's tensor; `shape` is the tensor's shape, seen with as many
  // dimensions as the box has.
  void read_box(size_t tensor, const Shape& shape, const Tensor& box,
                int64_t at) const;
  void parse(std::string_view header, int64_t data_bytes);
  const std::string path_;
  const std::unique_ptr<const io::File> file_;
  int64_t data_start_ = 0;
  std::vector<TensorInfo> tensors_;
  std::vector<int64_t> begins_;  // the data bytes before each tensor
  std::map<std::string, size_t, std::less<>> at_;  // name -> index in tensors_
  std::map<std::string, std::string> metadata_;
};

// Writes a file with these tensors, all on one mesh and none of them partial.
// Collective over the mesh. Throws Error as SafetensorsWriter does.
void save_safetensors(const std::string& path, const std::vector<NamedTensor>&);
// Reads all tensors of a file, in the order of their data, each in this layout.
// Sends nothing. Throws Error as SafetensorsReader does.
std::vector<NamedTensor> load_safetensors(const std::string& path, const Mesh&,
                                          const Placements& = {});

// The name of a dtype in the format: "F32", "BF16", ...
std::string_view safetensors_name(DType);

}  // namespace dtensor
