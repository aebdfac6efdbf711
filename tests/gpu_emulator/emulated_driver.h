// How tests control libbaton_gpu_emulator.so, the library with the driver's functions
// (kernels/cuda/cuda_driver.h) and the kernels compiled for the host.
//
// The library exports the functions declared here. A program that loads it looks them up by name.
// Environment variables give the settings at the start:
// - BATON_GPU_EMULATOR_SEED: 0 runs blocks, warps and lanes in order; other values seed their order
//   and the landing of copies;
// - BATON_GPU_EMULATOR_MIB: memory of each device;
// - BATON_GPU_EMULATOR_FAIL_AFTER: number of kernels that run before one fails;
// - BATON_GPU_EMULATOR_HANG_AFTER: number of kernels that run before one never ends;
// - BATON_GPU_EMULATOR_FAULTY_DEVICE: the device with these faults; 0 by default;
// - BATON_GPU_EMULATOR_DEVICES: number of devices; 1 by default, at most 8;
// - BATON_GPU_EMULATOR_PEERS: 0 if devices cannot use the memory of each other;
// - BATON_GPU_EMULATOR_CAPABILITY: compute capability, 90 for 9.0 (SettingsOfCapability);
// - BATON_GPU_EMULATOR_SHARED_BYTES: shared memory of a thread block, instead of its default.
//
// Other libraries, such as the stand-in for NCCL, enqueue work by baton_emulator_enqueue.
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/cuda_driver.h"
#include "tests/gpu_emulator/execution_rules.h"
#include "tests/gpu_emulator/executor.h"

namespace baton::gpu_emulator {

struct EmulatorSettings {
  ExecutionRules rules = {};
  uint64_t seed = 1;  // of the answers to queries
  size_t memory_bytes = size_t{512} << 20;
  uint64_t queue_depth = 1024;  // operations of a stream; one more waits for the first, as on GPUs
  int64_t fail_after = -1;      // as baton_emulator_fail_after; negative: no kernel fails
  int64_t hang_after = -1;      // as baton_emulator_hang_after; negative: no kernel hangs
  int32_t faulty_device = 0;    // fail_after and hang_after are of this device
  uint32_t shared_bytes = kMostSharedBytes;  // of a thread block; at most kMostSharedBytes
  int compute_capability = 90;  // as the driver reports it; `rules` has the tensor cores
};

// A GPU of this compute capability: its tensor cores, instructions and shared memory. For 8.6 and
// 8.9 the tensor cores are a guess.
inline EmulatorSettings SettingsOfCapability(int compute_capability) {
  EmulatorSettings settings;
  settings.compute_capability = compute_capability;
  if (compute_capability >= 90) return settings;
  settings.rules.tensor_core = TensorCore::kAmpere;
  settings.shared_bytes =
      compute_capability == 80 ? MostSharedBytes(TensorCore::kAmpere) : 99u << 10;
  return settings;
}

struct EmulatorCounters {
  int64_t launches = 0;         // kernels that ran, those in graphs included
  int64_t early_launches = 0;   // those of them that were allowed to begin early
  int64_t copies = 0;           // copies that ran
  int64_t graph_launches = 0;   // graphs that ran
  int64_t most_shared = 0;      // calls that prefer the most shared memory for a kernel
  int64_t captures = 0;         // graphs that were captured
  int64_t captured_copies = 0;  // copies in them
  int64_t allocations = 0;      // successful calls that take device memory
  int64_t access_changes = 0;   // successful calls of cuMemSetAccess
  int64_t full_queues = 0;      // calls that waited because their stream's queue was full
};

// Faults of driver calls. A test may change them at any time and must undo its changes.
struct EmulatedCallFaults {
  std::atomic<int> devices = 1;                   // as cuDeviceGetCount reports
  std::atomic<bool> peers = true;                 // devices can use the memory of each other
  std::atomic<int> copy_result = kCuSuccess;      // of cuMemcpyAsync; an error refuses the copy
  std::atomic<int> register_result = kCuSuccess;  // of cuMemHostRegister; an error refuses it
};

// Work of another library on a stream. While it is not done, later work of its stream waits, and
// other streams continue.
struct ExternalWork {
  CuDevicePointer memory = 0;  // device memory that it uses
  size_t bytes = 0;
  // Called on the GPU's thread, with device memory open, until it returns something other than
  // kCuNotReady. Must not block. `begins`: the first call of a run. Captured work runs once for
  // each launch of its graph.
  std::function<CuResult(bool begins)> poll;
};

extern "C" {
// Takes effect for all devices when their next primary context is created. REQUIRES: none exists.
void baton_emulator_configure(const EmulatorSettings* settings);
// Those of device 0, since its context was created.
void baton_emulator_counters(EmulatorCounters* counters);
// The next two functions act on the device EmulatorSettings::faulty_device.
// The kernel that runs after `launches` others fails with kCuIllegalAddress, and all later calls.
void baton_emulator_fail_after(int64_t launches);
// The kernel that runs after `launches` others does not end before this function is called again.
void baton_emulator_hang_after(int64_t launches);
// Calls of cuMemMap wait while `hold` is true. The second function returns how many do.
void baton_emulator_hold_maps(bool hold);
int64_t baton_emulator_maps_waiting();
// The next `count` calls of cuMemUnmap fail with kCuUnmapFailed.
void baton_emulator_fail_unmaps(int64_t count);
EmulatedCallFaults* baton_emulator_call_faults();
// Uses the device whose context is current. InvalidValue: the range is not memory of this device.
CuResult baton_emulator_enqueue(CuStream stream, const ExternalWork& work);
// Makes the work of a stream of any device run that is enqueued now, as a waiting call does. Never
// waits. A GPU's streams run on their own; here, external work that needs another stream asks.
// `news`: external work of that stream may be done now, so it is polled at once.
void baton_emulator_want(CuStream stream, bool news);
// Makes memory of the caller device memory until it is disowned. REQUIRES: a context exists; whole
// pages of one mapping without access rights; no work uses it when it is disowned.
CuResult baton_emulator_adopt(void* memory, size_t bytes);
CuResult baton_emulator_disown(void* memory);
}

}  // namespace baton::gpu_emulator
