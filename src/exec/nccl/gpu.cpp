#include "exec/nccl/gpu.hpp"

#include <algorithm>
#include <cstdlib>

namespace autopar {

namespace {

// cudaMemcpy2D takes no larger pitch (cudaDeviceProp::memPitch).
constexpr std::size_t kLargestPitch = (std::size_t{1} << 31) - 1;
constexpr int kSharedGpus = 23003;  // NCCL that lets ranks share a GPU

bool ranks_share_gpus(int nccl_version) {
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return nccl_version >= kSharedGpus && enabled != nullptr && std::string(enabled) == "1";
}

}  // namespace

Result<Gpu> Gpu::open(const GpuLibraries& libraries, int local_rank) {
  int count = 0;
  const cudaError_t error = libraries.cuda.device_count(&count);
  if (error != cudaSuccess || count == 0) {
    return input_error(std::string("there is no GPU for this rank: ") +
                       (error == cudaSuccess ? "the CUDA runtime finds none"
                                             : libraries.cuda.error_string(error)) +
                       "; NCCL needs one per rank. Run the ranks as threads or under MPI");
  }
  if (local_rank < count) return Gpu(libraries.cuda, local_rank);
  // A launcher may show every rank only its own GPU. Where it is in truth the same one, NCCL says
  // so.
  if (count == 1 || ranks_share_gpus(libraries.nccl_version)) {
    return Gpu(libraries.cuda, local_rank % count);
  }
  return input_error("there is no GPU for local rank " + std::to_string(local_rank) +
                     ": the CUDA runtime finds " + std::to_string(count) +
                     "; start at most as many ranks per host (or, from NCCL 2.30.3, let them share "
                     "GPUs by NCCL_MULTI_RANK_GPU_ENABLE=1)");
}

Status Gpu::check(cudaError_t error, const char* doing) const {
  if (error == cudaSuccess) return Ok{};
  return runtime_error("CUDA cannot " + std::string(doing) + " on GPU " + std::to_string(index_) +
                       ": " + cuda_.error_string(error));
}

Status Gpu::make_current() const { return check(cuda_.set_device(index_), "be used"); }

Result<cudaStream_t> Gpu::make_stream() const {
  cudaStream_t stream = nullptr;
  AUTOPAR_RETURN_IF_ERROR(
      check(cuda_.create_stream(&stream, cudaStreamNonBlocking), "make a stream"));
  return stream;
}

Result<void*> Gpu::allocate(std::size_t bytes) const {
  void* memory = nullptr;
  const std::string doing = "allocate " + std::to_string(bytes) + " bytes";
  AUTOPAR_RETURN_IF_ERROR(check(cuda_.allocate(&memory, bytes), doing.c_str()));
  return memory;
}

Result<Bytes> Gpu::memory() const {
  std::size_t free = 0, total = 0;
  AUTOPAR_RETURN_IF_ERROR(make_current());
  AUTOPAR_RETURN_IF_ERROR(check(cuda_.memory(&free, &total), "say its memory"));
  return static_cast<Bytes>(total);
}

Status Gpu::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) const {
  if (bytes == 0 || to == from) return Ok{};
  return check(cuda_.copy(to, from, bytes, kind, stream), "copy");
}

Status Gpu::copy_rows(void* to, const void* from, const Rows& rows, cudaStream_t stream) const {
  if (rows.rows * rows.width == 0) return Ok{};
  if (std::max(rows.to_pitch, rows.from_pitch) <= kLargestPitch) {
    return check(cuda_.copy_rows(to, rows.to_pitch, from, rows.from_pitch, rows.width, rows.rows,
                                 cudaMemcpyDeviceToDevice, stream),
                 "copy rows");
  }
  for (std::size_t r = 0; r < rows.rows; ++r) {
    AUTOPAR_RETURN_IF_ERROR(copy(static_cast<char*>(to) + r * rows.to_pitch,
                                 static_cast<const char*>(from) + r * rows.from_pitch, rows.width,
                                 cudaMemcpyDeviceToDevice, stream));
  }
  return Ok{};
}

Status Gpu::fill_with_zeros(void* to, std::size_t bytes, cudaStream_t stream) const {
  if (bytes == 0) return Ok{};
  return check(cuda_.fill(to, 0, bytes, stream), "fill memory");
}

GpuMark::~GpuMark() {
  if (event_ != nullptr) gpu_.cuda().destroy_event(event_);
}

Status GpuMark::record(cudaStream_t stream) {
  if (event_ == nullptr) {
    AUTOPAR_RETURN_IF_ERROR(
        gpu_.check(gpu_.cuda().create_event(&event_, cudaEventDisableTiming), "make an event"));
  }
  return gpu_.check(gpu_.cuda().record_event(event_, stream), "record an event");
}

Result<bool> GpuMark::passed() const {
  const cudaError_t state = gpu_.cuda().query_event(event_);
  if (state == cudaErrorNotReady) return false;
  AUTOPAR_RETURN_IF_ERROR(gpu_.check(state, "finish what is on a stream"));
  return true;
}

GpuScratch::~GpuScratch() {
  for (void* memory : memory_) gpu_.cuda().free(memory);
}

Result<void*> GpuScratch::reserve(std::size_t bytes) {
  if (bytes > size_) {
    AUTOPAR_TRY(memory, gpu_.allocate(bytes));
    memory_.push_back(memory);
    size_ = bytes;
  }
  return memory_.empty() ? nullptr : memory_.back();
}

}  // namespace autopar
