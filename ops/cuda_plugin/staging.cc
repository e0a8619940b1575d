// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/cuda_plugin/staging.cuh"

#include "dtensor/ops/cuda_plugin/launch.cuh"

namespace dtensor::cuda {

void Staging::Piece::give(cudaStream_t stream) {
  check(cudaEventRecord(buffer_->done, stream), "copy");
  buffer_->given = true;
}

void Staging::Piece::wait() {
  check(cudaEventSynchronize(buffer_->done), "wait");
  buffer_->given = false;
}

// A buffer that is free now, or a new one if the limit allows.
Staging::Buffer* Staging::free_one() {
  if (!free_.empty()) {
    Buffer* first = free_.front();
    const cudaError_t state =
        first->given ? cudaEventQuery(first->done) : cudaSuccess;
    if (state != cudaErrorNotReady) {
      check(state, "copy");
      free_.pop_front();
      first->given = false;
      return first;
    }
    (void)cudaGetLastError();  // not an error
  }
  if (all_.size() == most_) return nullptr;
  auto made = std::make_unique<Buffer>();
  void* data = nullptr;
  check(cudaEventCreateWithFlags(&made->done, cudaEventDisableTiming),
        "creating an event");
  check(cudaMallocHost(&data, static_cast<size_t>(bytes_)),
        "allocation of pinned memory");
  made->data = static_cast<char*>(data);
  all_.push_back(std::move(made));
  return all_.back().get();
}

Staging::Piece Staging::try_take() {
  std::lock_guard lock(mutex_);
  Buffer* buffer = free_one();
  return buffer ? Piece(*this, *buffer) : Piece();
}

Staging::Piece Staging::take() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (Buffer* buffer = free_one()) return Piece(*this, *buffer);
    ++waits_;
    if (free_.empty()) {
      put_.wait(lock);  // until another thread puts one back
      continue;
    }
    Piece piece(*this, *free_.front());
    free_.pop_front();
    lock.unlock();
    piece.wait();
    return piece;
  }
}

void Staging::put(Buffer& buffer) {
  {
    std::lock_guard lock(mutex_);
    buffer.given ? free_.push_back(&buffer) : free_.push_front(&buffer);
  }
  put_.notify_one();
}

}  // namespace dtensor::cuda
