// Memory of the host that a device copies to and from without its help: pinned,
// so that copies run beside the host's. A ring of buffers of one size.
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

// May be used by several threads, whose device is the buffers'.
class Staging {
 public:
  // At most so many buffers. What the host waits for one is added to `waits`.
  Staging(int64_t bytes, size_t most, std::atomic<int64_t>& waits)
      : bytes_(bytes), most_(most), waits_(waits) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  struct Buffer {
    char* data = nullptr;
    cudaEvent_t done = nullptr;  // what the stream does with it
    bool given = false;          // to a stream, until `done`
  };

  // A buffer in the host's hands, or none.
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
    // Behind what the stream was given so far, it is free again: nobody touches
    // it before, though the piece dies.
    void give(cudaStream_t);
    // Until that is so.
    void wait();

   private:
    Staging* of_ = nullptr;
    Buffer* buffer_ = nullptr;
  };

  int64_t bytes() const { return bytes_; }
  // Waits when all are in use. A thread that has a piece asks with try_take()
  // instead: others may wait for that one.
  Piece take();
  Piece try_take();

 private:
  Buffer* free_one();  // the caller holds the mutex; null when there is none
  void put(Buffer&);

  const int64_t bytes_;
  const size_t most_;
  std::atomic<int64_t>& waits_;
  std::mutex mutex_;
  std::condition_variable put_;
  std::vector<std::unique_ptr<Buffer>> all_;
  std::deque<Buffer*> free_;  // in nobody's hands; the one given first is first
};

}  // namespace dtensor::cuda
