// SPDX-License-Identifier: Apache-2.0
// Buffers of one size in pinned host memory. A device copies to and from them
// while the host goes on.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dtensor::cuda {

// May be used by several threads; the buffers' device must be current.
class Staging {
 public:
  // Makes at most `most` buffers of `bytes` bytes. Adds 1 to `waits` each time
  // that the host waits for a buffer.
  Staging(int64_t bytes, size_t most, std::atomic<int64_t>& waits)
      : bytes_(bytes), most_(most), waits_(waits) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  struct Buffer {
    char* data = nullptr;
    cudaEvent_t done = nullptr;  // when the stream has finished with it
    bool given = false;          // used by a stream, until `done`
  };

  // A buffer that the host holds, or none.
  class Piece {
   public:
    Piece() = default;
    Piece(Staging& of, Buffer& buffer) : of_(&of), buffer_(&buffer) {}
    Piece(Piece&& o) noexcept { *this = std::move(o); }
    Piece& operator=(Piece&& o) noexcept {
      std::swap(of_, o.of_);
      std::swap(buffer_, o.buffer_);
      return *this;
    }
    ~Piece() {
      if (buffer_) of_->put(*buffer_);
    }
    explicit operator bool() const { return buffer_ != nullptr; }
    char* data() const { return buffer_->data; }
    // Leaves the buffer to the stream's work so far. Until that work is done,
    // nobody else gets the buffer, even if the piece is destroyed.
    void give(cudaStream_t);
    // Waits for the work to which give() left the buffer.
    void wait();

   private:
    Staging* of_ = nullptr;
    Buffer* buffer_ = nullptr;
  };

  int64_t bytes() const { return bytes_; }
  // If all buffers are in use, take() waits, and try_take() returns an empty
  // Piece. A thread that holds a piece must call try_take(), because threads
  // that wait for each other's pieces would wait forever.
  Piece take();
  Piece try_take();

 private:
  Buffer* free_one();  // null if there is none; needs the mutex
  void put(Buffer&);

  const int64_t bytes_;
  const size_t most_;
  std::atomic<int64_t>& waits_;
  std::mutex mutex_;
  std::condition_variable put_;
  std::vector<std::unique_ptr<Buffer>> all_;
  // The buffers that no piece holds: first those that are not `given`, then the
  // others in the order in which their pieces were destroyed.
  std::deque<Buffer*> free_;
};

}  // namespace dtensor::cuda
