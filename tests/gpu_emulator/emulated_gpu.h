// An emulated GPU behind the driver's functions: its streams, events, graphs and the thread that
// runs their work. A process has up to kMostDevices of them, which share pinned memory. A GPU has
// access to the memory of another one only after cuCtxEnablePeerAccess, and only its kernels have.
//
// Work runs as late as CUDA allows: only when a call waits for it (a synchronisation, the release
// of device memory). Now and then a query also starts work, but it never waits. So tests notice a
// result that is used too early, because it is missing. They notice a buffer that is changed too
// early, because late work reads the change. A test may choose other times (stream_order.h).
//
// Streams with work to run take turns after each kernel, copy or other node. If the external work
// of a stream is not done, that stream waits, and the others continue.
//
// Invariant: device memory is closed (emulated_memory.h) whenever a waiting call returns.
//
// Thread safety: safe from any thread. One thread of the GPU runs all work. It exists as long as
// the context, so a process may fork when it has no context.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/cuda_launch.h"
#include "tests/gpu_emulator/emulated_driver.h"
#include "tests/gpu_emulator/emulated_memory.h"
#include "tests/gpu_emulator/executor.h"
#include "tests/gpu_emulator/kernel_registry.h"
#include "tests/gpu_emulator/stream_order.h"

namespace baton::gpu_emulator {

// One enqueued operation. Parameters are copied when it is enqueued, so also when it is captured.
struct Work {
  enum class Kind : uint8_t { kKernel, kCopy, kSet, kExternal, kGraph };
  Kind kind = Kind::kKernel;
  const Kernel* kernel = nullptr;
  LaunchShape shape = {};
  std::vector<std::byte> params = {};
  CuDevicePointer to = 0;
  CuDevicePointer from = 0;
  size_t bytes = 0;
  std::vector<std::byte> source = {};  // contents of a pageable source, read when it was enqueued
  unsigned char value = 0;
  std::function<CuResult(bool begins)> external = nullptr;
  std::shared_ptr<const std::vector<Work>> graph = nullptr;
  bool early = false;  // a kernel that may begin early
  bool late = false;   // a planted fault: runs behind the work before the next record or wait
  // How far a run has come whose external work is not done:
  size_t next_node = 0;  // of the graph
  bool begun = false;    // the external work
};

struct EmulatedStream {
  int number = 0;  // in the order of creation
  std::deque<Work> work;
  std::optional<Work> held;  // late work
  uint64_t enqueued = 0;
  uint64_t done = 0;
  uint64_t wanted = 0;                                 // the GPU's thread runs work up to here
  std::chrono::steady_clock::time_point poll_at = {};  // external work is not done before
  bool capturing = false;
  bool invalidated = false;  // the capture did something that is not allowed
  std::vector<Work> captured;
};

struct EmulatedEvent {
  std::shared_ptr<EmulatedStream> stream;  // null: not recorded yet
  uint64_t position = 0;
};

struct EmulatedFunction {
  const Kernel* kernel = nullptr;
  uint32_t max_shared_bytes = 48 << 10;
};

inline constexpr int kMostDevices = 8;

class EmulatedGpu {
 public:
  // REQUIRES: 0 <= device < kMostDevices.
  static EmulatedGpu& Of(int device);
  // Returns the GPU of the context that is current on the calling thread; without one, device 0.
  static EmulatedGpu& Current();
  static CuResult SetCurrent(CuContext context);
  // As EmulatedMemory::Locate of this GPU. Also finds pinned memory of the others. Device memory of
  // another GPU is an error.
  CuResult Locate(CuDevicePointer address, size_t bytes, Residence* residence);
  // Runs the work of a stream that is enqueued now, as if a call waited for it. Never waits.
  // `news`: its external work is polled at once.
  static void Want(CuStream stream, bool news);

  void Configure(const EmulatorSettings& settings);
  EmulatorCounters counters();
  void Count(int64_t EmulatorCounters::*counter);
  void FailAfter(int64_t launches);
  void HangAfter(int64_t launches);
  EmulatorSettings settings();
  void CountAllocation();
  void CountAccessChange();
  void OrderStreams(const StreamTimes& times);

  int compute_capability();
  CuContext Retain();
  // The last one ends the GPU's thread. Work that nothing has waited for is lost.
  CuResult Release();
  // Lets kernels of this GPU use the memory of `peer`, until this GPU's context ends.
  CuResult EnablePeer(CuContext peer);

  // Returns kCuSuccess if the calling thread has the context and the device has not failed.
  CuResult Usable();
  // Like Usable, and an error for calls that a capturing thread must not make.
  CuResult UsableOutsideCapture();
  EmulatedMemory& memory() { return *memory_; }
  EmulatedCallFaults& call_faults() { return call_faults_; }

  CuResult CreateStream(CuStream* stream);
  CuResult DestroyStream(CuStream stream);
  CuResult Enqueue(CuStream stream, Work work);
  CuResult Synchronize(CuStream stream);
  CuResult Query(CuStream stream);
  CuResult SynchronizeAll();
  CuResult BeginCapture(CuStream stream);
  CuResult EndCapture(CuStream stream, CuGraph* graph);

  CuResult CreateEvent(CuEvent* event);
  CuResult DestroyEvent(CuEvent event);
  CuResult Record(CuEvent event, CuStream stream);
  CuResult Query(CuEvent event);
  CuResult Synchronize(CuEvent event);

  CuResult Instantiate(CuGraphExec* exec, CuGraph graph);
  // Takes the graph's device memory, unless it has it. The first launch does the same.
  CuResult UploadGraph(CuGraphExec exec);
  CuResult LaunchGraph(CuGraphExec exec, CuStream stream);
  CuResult DestroyGraph(CuGraph graph);
  CuResult DestroyExec(CuGraphExec exec);

  CuResult FindFunction(CuFunction* function, const std::string& name);
  // Returns nullptr if it does not exist.
  EmulatedFunction* FunctionOf(CuFunction function);

 private:
  using Nodes = std::shared_ptr<const std::vector<Work>>;
  class KernelRunner;
  struct Exec {
    Nodes nodes;
    CuDevicePointer memory = 0;  // 0: not uploaded
  };

  explicit EmulatedGpu(int device);
  std::shared_ptr<EmulatedStream> Find(CuStream stream);
  CuResult WaitFor(const std::shared_ptr<EmulatedStream>& stream, uint64_t position,
                   std::unique_lock<std::mutex>& lock);
  CuResult AskFor(const std::shared_ptr<EmulatedStream>& stream, uint64_t position);
  CuResult Invalidate(EmulatedStream& stream);
  CuResult RunAtOnce(const std::shared_ptr<EmulatedStream>& stream,
                     std::unique_lock<std::mutex>& lock);
  void AppendHeld(EmulatedStream& stream);
  bool IsEarly(const EmulatedStream& stream) const;
  void Want(EmulatedStream& stream, uint64_t position);
  // Returns how long the GPU's thread must leave wanted work alone.
  std::optional<std::chrono::steady_clock::duration> PauseForTheHost() const;
  void RunWork();
  // Returns null if no stream, or none but `besides`, has work that can run now.
  std::shared_ptr<EmulatedStream> NextStream(const EmulatedStream* besides = nullptr);
  void RunStream(EmulatedStream& stream, Executor& executor, std::unique_lock<std::mutex>& lock);
  // Runs one node. `ended`: it was the last one. kCuNotReady: external work is not done.
  CuResult RunNext(Work& work, KernelRunner& runner, bool& ended);
  CuResult RunNode(const Work& node, bool& begun, KernelRunner& runner);
  CuResult RunKernel(const Work& work, KernelRunner& runner);
  // The memory that kernels may use.
  std::vector<std::shared_ptr<EmulatedMemory>> MemoryOfKernels();

  const int device_;
  EmulatedCallFaults call_faults_;
  std::mutex context_mutex_;  // held by Retain and Release; taken before mutex_
  std::thread thread_;        // guarded by context_mutex_
  std::mutex mutex_;
  std::condition_variable wanted_;  // for the GPU's thread
  std::condition_variable done_;
  EmulatorSettings settings_;
  std::shared_ptr<EmulatedMemory> memory_;  // kernels of peers keep it
  std::set<EmulatedGpu*> peers_;            // whose memory the kernels may use
  std::mt19937_64 random_;
  int retained_ = 0;
  bool ending_ = false;      // the GPU's thread ends
  CuStream last_ = nullptr;  // whose turn was last
  StreamTimes times_;
  int streams_created_ = 0;
  std::chrono::steady_clock::time_point last_call_ = {};  // of the driver; kept for kHostFirst only
  std::chrono::steady_clock::time_point wanted_since_ = {};
  CuResult fault_ = kCuSuccess;
  EmulatorCounters counters_;
  std::map<const Kernel*, uint64_t> early_runs_;  // of each kernel; of the GPU's thread
  int64_t launches_left_ = -1;                    // until the planted fault; negative: none
  int64_t hang_in_ = -1;      // launches until the one that hangs; negative: none
  uint64_t hang_orders_ = 0;  // calls of HangAfter
  std::map<CuStream, std::shared_ptr<EmulatedStream>> streams_;
  std::map<CuEvent, std::unique_ptr<EmulatedEvent>> events_;
  std::map<CuGraph, std::unique_ptr<Nodes>> graphs_;
  std::map<CuGraphExec, std::unique_ptr<Exec>> execs_;
  std::map<std::string, std::unique_ptr<EmulatedFunction>> functions_;
};

}  // namespace baton::gpu_emulator
