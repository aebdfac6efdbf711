// One launch in progress: its resident blocks, their warps and threads. Internal to the emulator.
//
// A thread is in one of these states, each a bit mask of its warp:
// - runnable;
// - arrived: in a warp operation, until all live lanes of its mask are there;
// - polling: it looked for a change and found none; it runs again when no thread is runnable;
// - none of these: at a barrier, or ended.
//
// Thread safety: belongs to the host thread that runs the launch. Everything but Start() runs on
// the fibers of its CUDA threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_launch.h"
#include "tests/gpu_emulator/async_copy.h"
#include "tests/gpu_emulator/bulk_copy.h"
#include "tests/gpu_emulator/early_kernels.h"
#include "tests/gpu_emulator/execution_rules.h"
#include "tests/gpu_emulator/fiber.h"
#include "tests/gpu_emulator/fiber_pool.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/shared_buffer.h"
#include "tests/gpu_emulator/source_place.h"
#include "tests/gpu_emulator/warp_operations.h"
#include "tests/gpu_emulator/warpgroup_products.h"

namespace baton::gpu_emulator {

inline constexpr size_t kMostPlaces = 256;  // of one primitive in a kernel

inline constexpr int kWarpLanes = 32;
inline constexpr int kBarriers = 16;  // of a block
inline constexpr uint32_t kAllLanes = 0xffffffff;

inline uint32_t LaneBit(int lane) { return uint32_t{1} << lane; }

struct Block;
struct Warp;

// A warp operation moves values between lanes. Each lane gives the address of its operands.
struct WarpOperation {
  const char* name;  // as kernels call it
  // Called once all lanes are there. operands[lane] is null for lanes that take no part. Null: the
  // lanes only meet.
  void (*perform)(void* const* operands, uint32_t lanes);
};

// Ends the call of a kernel in one CUDA thread, because the launch has failed.
struct LaunchFault {};

struct Thread {
  Thread(std::byte* stack_low, std::byte* stack_high);

  Warp* warp = nullptr;
  int lane = 0;
  bool in_kernel = false;
  uint32_t x = 0, y = 0, z = 0;  // threadIdx
  const char* waits_for = "";
  SourcePlace waits_at;
  PendingCopies copies;  // cp.async
  PendingCopies stores;  // cp.async.bulk to device memory
  PendingProducts products;
  bool waited = false;                    // for earlier kernels
  FenceScope fenced = FenceScope::kNone;  // of fences since the last atomic operation
  const void* last_atomic = nullptr;      // address of that operation
  uint32_t atomics = 0;
  Fiber fiber;
};

struct Warp {
  Block* block = nullptr;
  int number = 0;          // in its block
  size_t position = 0;     // in the order of all resident warps
  bool lanes_rise = true;  // order in which its lanes run
  uint32_t live = 0, runnable = 0, arrived = 0, polling = 0;
  std::array<Thread*, kWarpLanes> lanes = {};
  struct Arrival {
    const WarpOperation* operation = nullptr;
    uint32_t mask = 0;
    SourcePlace place;
  };
  std::array<Arrival, kWarpLanes> arrivals;
  std::array<void*, kWarpLanes> operands = {};
  std::array<uint8_t, kWarpLanes> turns = {};  // of __syncwarp, by first lane of its mask
};

struct Barrier {
  uint32_t arrived = 0;
  uint32_t expected = 0;                          // threads; 0: all that live
  SourcePlace first;                              // where the first thread waits
  std::array<uint32_t, kWarpLanes> waiting = {};  // lanes of each warp
  uint8_t turn = 0;
};

// Addresses that stand for orders of memory accesses, see sanitizers.h. Each block has fresh ones,
// so that nothing orders two blocks. Two orders of a barrier take turns. With one, a thread that
// leaves late would acquire what others released at the next barrier.
class BlockOrders {
 public:
  void Start();
  void* OfBarrier(int barrier, int turn) { return &orders_[2 * barrier + turn]; }
  void* OfWarp(int warp, int lane, int turn) {
    return &orders_[2 * (kBarriers + warp * kWarpLanes + lane) + turn];
  }
  // Of the block's threads through an atomic object.
  void* OfAtomic(const void* address);

 private:
  std::unique_ptr<char[]> orders_;
  std::map<const void*, char> of_atomics_;
};

struct Block {
  uint32_t x = 0, y = 0, z = 0;  // blockIdx
  uint32_t live = 0;             // threads that have not ended
  std::vector<Warp> warps;
  std::array<Barrier, kBarriers> barriers;
  bool running = false;
  BlockOrders orders;
  SharedBuffer shared;
  std::vector<WarpgroupProducts> products;         // by warpgroup
  std::vector<const uint64_t*> barriers_in_use;    // those in shared memory
  std::vector<const uint64_t*> unfenced_barriers;  // that copies do not see yet
  // Sets of threads, by index in the block. The blocks that run here one after the other take
  // turns. Only with ThreadSanitizer there is more than one set: a fiber that runs in two blocks
  // orders all accesses of the first before those that follow a barrier of the second.
  std::vector<std::vector<Thread*>> thread_sets;
  size_t set = 0;
  const std::vector<Thread*>& threads() const { return thread_sets[set]; }
};

class Execution {
 public:
  Execution(const ExecutionRules& rules, const Kernel& kernel, const LaunchShape& shape,
            const void* params, size_t bytes, FiberPool& fibers, const EarlyStart* early);

  // Runs the launch to its end, on the host thread's stack.
  absl::Status Start();

  // ---- called by the running CUDA thread ----
  Thread& current() { return *current_; }
  Block& block() { return *current_->warp->block; }
  // Waits until every live lane of `mask` is in the same operation. The last one performs it.
  void Meet(uint32_t mask, const WarpOperation& operation, void* operands, SourcePlace place);
  // Arrives at a barrier, and with `waits` waits for it. expected: see Barrier. REQUIRES: 0 <=
  // number < kBarriers.
  void ArriveAtBarrier(int number, uint32_t expected, bool waits, SourcePlace place);
  // Lets other threads run, because this one looked for a change and found none.
  void Poll(const char* waits_for, SourcePlace place);
  // Called with every atomic operation: now and then lets other threads run.
  void CountAtomic(const char* name, SourcePlace place);
  // Ends the launch with an error: throws LaunchFault.
  [[noreturn]] void Fail(const std::string& what, SourcePlace place);
  // Fails if the GPU lacks `instruction`, which needs compute capability 9.0.
  void RequireHopper(const char* instruction, SourcePlace place) {
    if (rules().tensor_core == TensorCore::kHopper) return;
    Fail(std::string(instruction) + " needs compute capability 9.0", place);
  }
  // WaitForEarlierKernels. The first call that returns opens device memory: when no other thread
  // can run.
  void WaitForEarlier(SourcePlace place);
  // Fails if the launch may begin early and the thread has not waited for earlier kernels.
  void RequireWait(const char* name, SourcePlace place) {
    if (early_ == nullptr || current_->waited) return;
    Fail(std::string(name) + " before WaitForEarlierKernels", place);
  }
  bool memory_closed() const { return memory_closed_; }
  // Notes that something happened that a polling thread may wait for.
  void Progressed() { idle_rounds_ = 0; }
  void NoteReadOnly(const void* address, size_t bytes, void* caller);
  // Lands a load later, when no thread can run.
  void Delay(const TileLoad& load);
  // Fails unless the bytes are in the block's shared memory and aligned to 16.
  void CheckShared(const void* address, size_t bytes, const char* name, SourcePlace place);
  // Fails if the address is in the block's shared memory, on the thread's stack or in the kernel's
  // parameters.
  void CheckGlobal(const void* address, const char* name, SourcePlace place);
  // Notes the place, and returns true if a planted fault skips the primitive there.
  bool Skipped(Primitive primitive, SourcePlace place);
  bool LandsEarly();  // draws, for a copy that is being issued
  uint64_t Draw();

  const ExecutionRules& rules() const { return rules_; }
  const LaunchShape& shape() const { return shape_; }
  const std::vector<std::vector<SourcePlace>>& places() const { return places_; }

 private:
  void StartBlock(Block& block);
  void EndBlock(Block& block);
  void OrderWarps();
  void EndThread();
  void Enter(Thread& next);
  void Suspend();
  void SwitchTo(Thread& next);
  void CheckFaultless() const;  // throws LaunchFault if the launch has failed
  void EndStoppedThreads();
  void LeaveFaulty();
  Thread* NextRunnable(const Warp& after, int lane);
  Thread& FirstOf(const Warp& warp) const;
  bool Unblock();
  void LandOneLoad();
  void CompleteMeeting(Warp& warp, uint32_t lanes, const WarpOperation& operation);
  void CompleteBarrier(Block& block, Barrier& barrier);
  void CheckEndedLanes(Warp& warp);
  std::string WaitingThreads() const;

  friend void RunThread(void* thread);

  const ExecutionRules rules_;
  const Kernel& kernel_;
  const LaunchShape shape_;
  const uint32_t threads_of_block_;
  FiberPool& fibers_;
  const EarlyStart* const early_;                                // null: earlier kernels have ended
  bool memory_closed_;                                           // device memory
  alignas(128) std::array<std::byte, kMostParamsBytes> params_;  // as a TensorMap
  std::deque<Block> blocks_;                                     // resident
  std::vector<Warp*> warp_order_;                                // of resident blocks
  std::vector<uint64_t> block_order_;
  size_t next_block_ = 0;
  Fiber main_;
  Thread* current_ = nullptr;  // null: main_ runs
  bool failed_ = false;
  std::string failure_;
  std::vector<TileLoad> delayed_;
  uint64_t random_;
  uint32_t idle_rounds_ = 0;
  std::vector<std::vector<SourcePlace>> places_;  // by primitive
  std::array<bool, kMostPlaces> skips_ = {};      // by place of the primitive that is skipped
  char launch_order_ = 0, end_order_ = 0;         // addresses that stand for orders
  bool reads_only_ = false;                       // NoteReadOnly was called
};

// The launch that runs on this host thread.
Execution& ThisExecution();
// Whether a CUDA thread runs on this host thread, with device memory closed.
bool MemoryIsClosed();

}  // namespace baton::gpu_emulator
