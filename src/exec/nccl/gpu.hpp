// The GPU of one rank: its memory, copies and streams, with errors as values.
#pragma once

#include <string>
#include <vector>

#include "exec/nccl/library.hpp"
#include "exec/nccl/waiting.hpp"

namespace autopar {

class Gpu {
 public:
  // Chooses the GPU by the rank's number on its host. Errors (kInput): no GPU, or too few.
  static Result<Gpu> open(const GpuLibraries& libraries, int local_rank);

  int index() const { return index_; }
  Result<Bytes> memory() const;  // all that it has
  // Of the calling thread. Everything below needs it.
  Status make_current() const;
  Status check(cudaError_t error, const char* doing) const;

  Result<cudaStream_t> make_stream() const;
  Result<void*> allocate(std::size_t bytes) const;
  Status copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
              cudaStream_t stream) const;
  // `rows` rows of `width` bytes that begin every `..._pitch` bytes; within the device.
  struct Rows {
    std::size_t rows = 0;
    std::size_t width = 0;
    std::size_t to_pitch = 0;
    std::size_t from_pitch = 0;
  };
  Status copy_rows(void* to, const void* from, const Rows& rows, cudaStream_t stream) const;
  Status fill_with_zeros(void* to, std::size_t bytes, cudaStream_t stream) const;
  const CudaEntries& cuda() const { return cuda_; }

 private:
  Gpu(const CudaEntries& cuda, int index) : cuda_(cuda), index_(index) {}

  CudaEntries cuda_;
  int index_;
};

// Marks what is on a stream so far.
class GpuMark {
 public:
  explicit GpuMark(const Gpu& gpu) : gpu_(gpu) {}
  ~GpuMark();
  GpuMark(const GpuMark&) = delete;
  GpuMark& operator=(const GpuMark&) = delete;
  Status record(cudaStream_t stream);
  Result<bool> passed() const;

 private:
  const Gpu& gpu_;
  cudaEvent_t event_ = nullptr;
};

// Gpu memory that only grows. What was outgrown is freed at the end: cudaFree waits for
// everything on the device, also for a Send whose receiver waits for this rank.
class GpuScratch {
 public:
  explicit GpuScratch(const Gpu& gpu) : gpu_(gpu) {}
  ~GpuScratch();
  GpuScratch(const GpuScratch&) = delete;
  GpuScratch& operator=(const GpuScratch&) = delete;
  Result<void*> reserve(std::size_t bytes);

 private:
  const Gpu& gpu_;
  std::vector<void*> memory_;  // the last one is in use
  std::size_t size_ = 0;
};

}  // namespace autopar
