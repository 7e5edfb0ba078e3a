// The stand-in for the CUDA runtime. Device memory is host memory at addresses that nobody may
// touch: the pointer that cudaMalloc gives is a reserved range without access, and what is "on the
// device" lies elsewhere. A stream is a thread with a queue.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device.h"

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLargestPitch = (std::size_t{1} << 31) - 1;
// What would wait for ever on a GPU ends after so long.
constexpr auto kPatience = std::chrono::seconds(30);

thread_local int current_device = 0;
thread_local std::string thread_hold;
thread_local std::string thread_misuse;

std::mutex misuse_mutex;
std::string all_misuse;

cudaError_t misuse(cudaError_t error, const std::string& text) {
  stand_in_note_misuse(text.c_str());
  return error;
}

int device_count() {
  const char* text = std::getenv("AUTOPAR_STAND_IN_GPUS");
  return text != nullptr ? std::atoi(text) : 8;
}

struct Allocation {
  std::size_t bytes = 0;
  int device = 0;
  std::vector<char> memory;
};

struct Memory {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> allocations;  // by address
};
Memory& memory() {
  static auto* all = new Memory;  // streams may outlive static objects
  return *all;
}

// The allocation that the pointer is in, or null. Precondition: the mutex is held.
std::pair<const std::uintptr_t, Allocation>* find_allocation(const void* pointer) {
  auto& allocations = memory().allocations;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return nullptr;
  --next;
  return address < next->first + next->second.bytes ? &*next : nullptr;
}

bool is_device_pointer(const void* pointer) {
  const std::lock_guard lock(memory().mutex);
  return find_allocation(pointer) != nullptr;
}

}  // namespace

struct CUstream_st {
  int device = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool busy = false;
  bool ending = false;
  std::string hold;
  std::thread thread;

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ending || !tasks.empty(); });
      if (tasks.empty()) return;
      auto task = std::move(tasks.front());
      tasks.pop_front();
      busy = true;
      lock.unlock();
      task();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  void add(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
  bool wait_until_idle() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kPatience, [&] { return tasks.empty() && !busy; });
  }
};

struct CUevent_st {
  int device = 0;
  std::shared_ptr<std::atomic<bool>> passed;
};

namespace {

struct Handles {
  std::mutex mutex;
  std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams;
  std::set<cudaEvent_t> events;
};
Handles& handles() {
  static auto* all = new Handles;
  return *all;
}

std::shared_ptr<CUstream_st> find_stream(cudaStream_t stream) {
  const std::lock_guard lock(handles().mutex);
  const auto found = handles().streams.find(stream);
  return found == handles().streams.end() ? nullptr : found->second;
}

// The stream, or null after the misuse has been noted.
std::shared_ptr<CUstream_st> usable_stream(cudaStream_t stream, const char* call) {
  auto found = find_stream(stream);
  std::string why = thread_hold;
  if (found) {
    const std::lock_guard lock(found->mutex);
    if (why.empty()) why = found->hold;
  } else {
    why = "the stream does not exist (any more)";
  }
  if (why.empty()) return found;
  stand_in_note_misuse((std::string(call) + ": " + why).c_str());
  return nullptr;
}

enum class Side { kHost, kDevice };

// What is wrong with a buffer, or nothing.
std::string wrong_buffer(const void* pointer, std::size_t bytes, Side side, const char* name) {
  const bool on_device = is_device_pointer(pointer);
  if (side == Side::kHost) {
    return on_device ? std::string(name) + " is a device pointer where a host pointer is expected"
                     : "";
  }
  if (!on_device) {
    return std::string(name) + " is no device pointer (or one that was freed)";
  }
  if (stand_in_memory(pointer, bytes, nullptr) == nullptr) {
    return std::string(name) + ": " + std::to_string(bytes) +
           " bytes reach beyond the end of its allocation";
  }
  return "";
}

struct Rows {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
  std::size_t width = 0;
  std::size_t height = 1;
  std::size_t to_bytes() const { return (height - 1) * to_pitch + width; }
  std::size_t from_bytes() const { return (height - 1) * from_pitch + width; }
};

void copy_rows(const Rows& rows, Side from_side, Side to_side) {
  const void* from = rows.from;
  void* to = rows.to;
  if (from_side == Side::kDevice) from = stand_in_memory(from, rows.from_bytes(), nullptr);
  if (to_side == Side::kDevice) to = stand_in_memory(to, rows.to_bytes(), nullptr);
  if (from == nullptr || to == nullptr) {
    return stand_in_note_misuse("a buffer was freed before the copy on the stream came to it");
  }
  for (std::size_t r = 0; r < rows.height; ++r) {
    std::memcpy(static_cast<char*>(to) + r * rows.to_pitch,
                static_cast<const char*>(from) + r * rows.from_pitch, rows.width);
  }
}

cudaError_t copy(const char* call, const Rows& rows, cudaMemcpyKind kind, cudaStream_t on) {
  const auto stream = usable_stream(on, call);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (rows.width * rows.height == 0) return cudaSuccess;
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToHost &&
      kind != cudaMemcpyDeviceToDevice) {
    return misuse(cudaErrorInvalidMemcpyDirection, std::string(call) + ": not a direction in use");
  }
  const Side from = kind == cudaMemcpyHostToDevice ? Side::kHost : Side::kDevice;
  const Side to = kind == cudaMemcpyDeviceToHost ? Side::kHost : Side::kDevice;
  std::string wrong = wrong_buffer(rows.from, rows.from_bytes(), from, "the source");
  if (wrong.empty()) wrong = wrong_buffer(rows.to, rows.to_bytes(), to, "the target");
  const char* target = static_cast<const char*>(rows.to);
  const char* source = static_cast<const char*>(rows.from);
  if (wrong.empty() && target < source + rows.from_bytes() && source < target + rows.to_bytes()) {
    wrong = "source and target overlap";
  }
  if (!wrong.empty()) {
    return misuse(cudaErrorInvalidValue, std::string(call) + ": " + wrong);
  }
  stream->add([=] { copy_rows(rows, from, to); });
  // With pageable host memory the driver waits for the stream.
  if (kind == cudaMemcpyDeviceToDevice || stream->wait_until_idle()) return cudaSuccess;
  return misuse(cudaErrorLaunchFailure,
                std::string(call) + ": waits for ever for what is on the stream before it");
}

}  // namespace

extern "C" {

void* stand_in_memory(const void* pointer, std::size_t bytes, int* device) {
  const std::lock_guard lock(memory().mutex);
  auto* found = find_allocation(pointer);
  if (found == nullptr) return nullptr;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(pointer) - found->first;
  if (bytes > found->second.bytes - offset) return nullptr;
  if (device != nullptr) *device = found->second.device;
  return found->second.memory.data() + offset;
}

int stand_in_current_device() { return current_device; }

int stand_in_device_of(cudaStream_t stream) {
  const auto found = find_stream(stream);
  return found ? found->device : -1;
}

int stand_in_enqueue(cudaStream_t stream, void (*task)(void*), void* argument) {
  const auto found = find_stream(stream);
  if (!found) return 0;
  found->add([=] { task(argument); });
  return 1;
}

void stand_in_hold_stream(cudaStream_t stream, const char* why) {
  const auto found = find_stream(stream);
  if (!found) return;
  const std::lock_guard lock(found->mutex);
  found->hold = why != nullptr ? why : "";
}

void stand_in_hold_thread(const char* why) { thread_hold = why != nullptr ? why : ""; }

void stand_in_note_misuse(const char* text) {
  thread_misuse = std::string("stand-in: ") + text;
  const std::lock_guard lock(misuse_mutex);
  all_misuse += thread_misuse + "\n";
  std::fprintf(stderr, "%s\n", thread_misuse.c_str());
}

const char* stand_in_misuse() {
  thread_local std::string copy;
  const std::lock_guard lock(misuse_mutex);
  copy = all_misuse;
  return copy.c_str();
}

void stand_in_forget_misuse() {
  thread_misuse.clear();
  const std::lock_guard lock(misuse_mutex);
  all_misuse.clear();
}

int stand_in_live() {
  std::size_t count = 0;
  {
    const std::lock_guard lock(memory().mutex);
    count += memory().allocations.size();
  }
  const std::lock_guard lock(handles().mutex);
  return static_cast<int>(count + handles().streams.size() + handles().events.size());
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorNoDevice) return "no CUDA-capable device is detected (stand-in)";
  if (error == cudaErrorInvalidDevice) return "invalid device ordinal (stand-in)";
  if (error == cudaErrorMemoryAllocation) return "out of memory (stand-in)";
  return thread_misuse.empty() ? "an error (stand-in)" : thread_misuse.c_str();
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const std::size_t reserved = (bytes / kPage + 2) * kPage;  // with a page between allocations
  void* address =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return cudaErrorMemoryAllocation;
  const std::lock_guard lock(memory().mutex);
  // Not zeros: nobody may count on them.
  memory().allocations[reinterpret_cast<std::uintptr_t>(address)] = {
      bytes, current_device, std::vector<char>(bytes, '\xa5')};
  *pointer = address;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{1} << 34;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  std::vector<std::shared_ptr<CUstream_st>> streams;
  {
    const std::lock_guard lock(handles().mutex);
    for (const auto& [handle, stream] : handles().streams) {
      if (stream->device == current_device) streams.push_back(stream);
    }
  }
  for (const auto& stream : streams) {
    if (!stream->wait_until_idle()) {
      return misuse(cudaErrorLaunchFailure, "cudaFree: waits for ever for what is on a stream");
    }
  }
  const std::lock_guard lock(memory().mutex);
  const auto found = memory().allocations.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == memory().allocations.end()) {
    return misuse(cudaErrorInvalidValue, "cudaFree: not what cudaMalloc gave (or freed already)");
  }
  munmap(pointer, (found->second.bytes / kPage + 2) * kPage);
  memory().allocations.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy("cudaMemcpyAsync", {to, from, bytes, bytes, bytes, 1}, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch || to_pitch > kLargestPitch ||
      from_pitch > kLargestPitch) {
    return misuse(cudaErrorInvalidValue, "cudaMemcpy2DAsync: a pitch is too small or too large");
  }
  return copy("cudaMemcpy2DAsync", {to, from, to_pitch, from_pitch, width, height}, kind, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t on) {
  const auto stream = usable_stream(on, "cudaMemsetAsync");
  if (!stream) return cudaErrorInvalidResourceHandle;
  const std::string wrong = wrong_buffer(to, bytes, Side::kDevice, "the target");
  if (!wrong.empty()) return misuse(cudaErrorInvalidValue, "cudaMemsetAsync: " + wrong);
  stream->add([=] {
    if (void* memory = stand_in_memory(to, bytes, nullptr)) std::memset(memory, value, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  auto made = std::make_shared<CUstream_st>();
  made->device = current_device;
  CUstream_st* self = made.get();
  made->thread = std::thread([self] { self->work(); });
  const std::lock_guard lock(handles().mutex);
  handles().streams[self] = made;
  *stream = self;
  return cudaSuccess;
}

// What is on the stream still runs; here, unlike there, the call waits for it.
cudaError_t cudaStreamDestroy(cudaStream_t on) {
  const auto stream = usable_stream(on, "cudaStreamDestroy");
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!stream->wait_until_idle()) {
    return misuse(cudaErrorLaunchFailure, "cudaStreamDestroy: what is on the stream never ends");
  }
  {
    const std::lock_guard lock(stream->mutex);
    stream->ending = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  const std::lock_guard lock(handles().mutex);
  handles().streams.erase(on);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = new CUevent_st{current_device, nullptr};
  const std::lock_guard lock(handles().mutex);
  handles().events.insert(*event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(handles().mutex);
  if (handles().events.erase(event) == 0) {
    return misuse(cudaErrorInvalidResourceHandle, "cudaEventDestroy: no such event (any more)");
  }
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t on) {
  const auto stream = usable_stream(on, "cudaEventRecord");
  if (!stream) return cudaErrorInvalidResourceHandle;
  const std::lock_guard lock(handles().mutex);
  if (handles().events.count(event) == 0 || event->device != stream->device) {
    return misuse(cudaErrorInvalidResourceHandle,
                  "cudaEventRecord: no event (any more), or one of another device");
  }
  auto passed = std::make_shared<std::atomic<bool>>(false);
  event->passed = passed;
  stream->add([passed] { *passed = true; });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(handles().mutex);
  if (handles().events.count(event) == 0) {
    return misuse(cudaErrorInvalidResourceHandle, "cudaEventQuery: no such event (any more)");
  }
  return event->passed == nullptr || *event->passed ? cudaSuccess : cudaErrorNotReady;
}

}  // extern "C"
