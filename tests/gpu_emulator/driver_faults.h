// Faults of host code that a test plants into the emulated driver. A faulty call of the driver does
// nothing, as if the program had left it out, or does its work too late. The driver counts its
// calls, so that a test can plant a fault at each of them.
//
// Thread safety: safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tests/gpu_emulator/kernel_registry.h"

namespace baton::gpu_emulator {

enum class DriverCall : uint8_t {
  kStreamSynchronize,
  kEventSynchronize,
  kStreamQuery,
  kEventQuery,
  kEventRecord,
  kCopy,        // cuMemcpyAsync
  kLaunch,      // cuLaunchKernel and cuLaunchKernelEx
  kListedCopy,  // one of the copies that a launch of baton_copy_small_runs does
  kExternal,    // an operation of NCCL's stand-in (baton_emulator_enqueue)
  kFindKernel,  // cuModuleGetFunction; only counted
};
inline constexpr int kDriverCalls = 10;

enum class CallFault : uint8_t {
  kNone,
  // A wait returns at once, a query says "done", an event keeps its earlier record. A copy, a
  // kernel or an operation of NCCL does nothing.
  kLeftOut,
  // A copy, a kernel or an operation of NCCL runs behind the work that is enqueued before the next
  // record or wait.
  kLate,
};

struct DriverFault {
  CallFault fault = CallFault::kNone;
  DriverCall call = DriverCall::kCopy;
  int64_t index = -1;  // of the call, counted from the planting; -1: every one
};

class DriverFaults {
 public:
  static DriverFaults& Get();

  // Starts to count anew.
  void Plant(const DriverFault& fault);
  int64_t calls(DriverCall call);
  // Counts a call, and returns its fault.
  CallFault FaultOf(DriverCall call);

 private:
  std::mutex mutex_;
  // Guarded by mutex_:
  DriverFault planted_;
  std::array<int64_t, kDriverCalls> calls_ = {};
};

// Returns the parameters of a launch of `blocks` blocks. Of baton_copy_small_runs, whose parameters
// list copies, this counts the copies and leaves out those with a planted fault.
std::vector<std::byte> WithListedFaults(const Kernel& kernel, const std::byte* params,
                                        uint32_t blocks);

// For dlsym.
inline constexpr char kPlantSymbol[] = "baton_emulator_plant";
using PlantFunction = void (*)(const DriverFault*);
inline constexpr char kCallsSymbol[] = "baton_emulator_calls";
using CallsFunction = int64_t (*)(DriverCall);

}  // namespace baton::gpu_emulator
