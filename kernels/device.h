// Interfaces of a compute device: Device owns memory, Stream runs ops in order.
//
// A worker has one Device. It enqueues ops (kernels/ops.h) on a Stream. A Stream can capture the
// enqueued ops into an OpGraph and replay it with the same pointers: as a CUDA Graph on CUDA, as a
// recorded list on the CPU. Nothing in a graph depends on a host value of the step. Everything that
// changes lives in device buffers.
//
// There are two kinds of device:
// - An inline device (`asynchronous()` is false) runs each op inside the call that enqueues it. Its
//   events are always done, and its streams never have anything to wait for. The default
//   implementations below are those of an inline device.
// - An asynchronous device runs ops later, on its own thread or processor. The caller must keep
//   unchanged everything that an op or a copy reads until it has run. Events report that.
//
// Thread safety: Device and Event are safe from any thread. A Stream and its graphs belong to one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/numerics.h"

namespace baton {

class Ops;
class Stream;

// Owned device memory. A page is not touched before its first write, so a pool costs only the
// memory that it uses.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;  // bytes, as requested
  // File descriptor whose file holds this buffer from offset 0, so that other processes can map it
  // read-only. -1: none.
  virtual int shared_fd() const { return -1; }
  // These three functions act only on buffers made by Device::Reserve. They are safe from any
  // thread, but no op or copy may use a range during its Discard.
  //
  // Populate prepares a range for use, and requests large pages where the kernel gives them on
  // request only. A GPU backs the range with zeroed memory. Populated bytes keep their contents.
  // ResourceExhausted: the GPU has too little memory. Then a part of the range is populated, and
  // Discard returns it.
  virtual absl::Status Populate(size_t /*offset*/, size_t /*bytes*/) { return absl::OkStatus(); }
  // Drops the contents of a range and returns its whole pages. The range must be populated before
  // its next use.
  virtual void Discard(size_t /*offset*/, size_t /*bytes*/) {}
  // Bytes of memory that Populate of a range would take, in whole granules.
  virtual size_t MissingMemory(size_t /*offset*/, size_t /*bytes*/) const { return 0; }
  // Bytes of the granules in which Populate takes memory: a granule has memory while one of its
  // bytes is populated. 1: memory is counted in bytes.
  virtual size_t granularity() const { return 1; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }
};

// A recorded sequence of ops. It is valid as long as the buffers that its ops use.
class OpGraph {
 public:
  virtual ~OpGraph() = default;
  virtual size_t op_count() const = 0;
};

// Marks a point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  // Returns true when everything enqueued before the last Record has run, and before the first
  // Record. The results of that work are then visible, unless the device has failed
  // (Device::Health). Never blocks.
  virtual bool Done() const { return true; }
  // Blocks until Done() is true.
  virtual void Wait() const {}
};

// Tells an op how many rows it still has to compute. The backend asks as late as possible: a CPU
// asks on the thread that runs the op, when it runs; a GPU asks when the op is enqueued.
class RowLimit {
 public:
  virtual ~RowLimit() = default;
  // Number of rows to compute, counted from the first row. 0: none. Never increases.
  virtual int64_t Rows() = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Starts recording: ops and copies are recorded instead of run, until EndCapture. REQUIRES: not
  // capturing.
  virtual void BeginCapture() = 0;
  virtual std::unique_ptr<OpGraph> EndCapture() = 0;
  virtual bool capturing() const = 0;
  // Runs every op of `graph` in order.
  virtual void Launch(const OpGraph& graph) = 0;
  // Like Launch, but calls `stop` before each op. Once `stop` returns true, that op and all later
  // ones are skipped. A backend that runs a graph as one unit may ignore `stop`. REQUIRES: not
  // capturing.
  virtual void LaunchUntil(const OpGraph& graph, const std::function<bool()>& /*stop*/) {
    Launch(graph);
  }
  // Copies bytes in stream order, between host and device memory in any combination. Host memory
  // should be staging memory (Device::AllocateStaging). It must stay valid and unchanged until the
  // copy has run.
  virtual void Copy(void* destination, const void* source, size_t bytes) = 0;
  // Blocks until everything enqueued has run, or the device has failed.
  virtual void Synchronize() = 0;

  // Makes `event` done when everything enqueued so far has run. Replaces an earlier record of the
  // event. REQUIRES: `event` is of this device; not capturing.
  virtual void Record(Event& /*event*/) {}
  // Calls `function` in stream order, on a thread of the stream. Later ops may run at the same time
  // on a GPU. The function must not block and must not use the stream. It is called even if the
  // device has failed. REQUIRES: not capturing.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): other streams keep the function
  virtual void Call(std::function<void()> function) { function(); }
  // Calls `function` on the thread that asks for row limits, after the ops enqueued before have
  // asked and before later ops ask. A CPU calls it in stream order, a GPU at once. So `function`
  // may use row limits, and learns which rows those ops computed at least. REQUIRES: not capturing.
  virtual void CallBetweenLimits(std::function<void()> function) { Call(std::move(function)); }

  // Gets ready for the ops that `enqueue` enqueues: loads their kernels and allocates their scratch
  // memory. Nothing runs, and nothing is recorded: a capture inside `enqueue` gives an empty graph.
  // Afterwards the same ops need no more memory. A device that prepares nothing returns OK and does
  // not call `enqueue`. InvalidArgument: an op needs more of a resource than the device has.
  // ResourceExhausted: not enough memory. Both name the value and the limit, and the stream stays
  // usable. REQUIRES: not capturing; `enqueue` enqueues ops and copies only.
  virtual absl::Status Prepare(const std::function<void()>& /*enqueue*/) {
    return absl::OkStatus();
  }

  // Sets a row limit for ops enqueued from now on: they compute at most `limit->Rows()` of the
  // tokens, rows or draws in their arguments. Null: no limit. `limit` must stay valid until those
  // ops have run. Copies, graphs and captured ops have no limit.
  void LimitRows(RowLimit* limit) { row_limit_ = limit; }
  RowLimit* row_limit() const { return row_limit_; }

 private:
  RowLimit* row_limit_ = nullptr;
};

struct DeviceMemory {
  int64_t total = -1;      // bytes; -1: unknown
  int64_t available = -1;  // bytes that allocations can still get; -1: unknown
};

class Device {
 public:
  virtual ~Device() = default;
  // One line for people: kind, instruction set, threads, granted page size.
  virtual std::string Description() const = 0;
  // Name of the implementation of the ops: devices of the same backend give equal bits
  // (common/backend_pairs.h).
  virtual std::string_view backend() const { return "cpu"; }
  // Allocates zero-filled memory, aligned to 2 MiB where the kernel grants huge pages and to 64
  // bytes otherwise. ResourceExhausted names `purpose` and the size.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes,
                                                                 std::string_view purpose) = 0;
  // Like Allocate, but the buffer has a shared_fd. The call may touch the pages at once.
  // Unimplemented: the device has no such memory.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(
      size_t bytes, std::string_view purpose) = 0;
  // Reserves an address range for a buffer that grows and shrinks within it. The range may be
  // larger than the available memory. With `shared`, the buffer has a shared_fd. Unimplemented: the
  // device has no such memory.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Reserve(size_t /*bytes*/,
                                                                std::string_view /*purpose*/,
                                                                bool /*shared*/) {
    return absl::UnimplementedError("this device does not support memory that grows and shrinks");
  }
  // Allocates host memory as source or destination of copies. It is pinned where the device copies
  // by DMA.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateStaging(size_t bytes,
                                                                        std::string_view purpose) {
    return Allocate(bytes, purpose);
  }
  // Total bytes of all buffers that still exist.
  virtual size_t allocated_bytes() const = 0;
  // Memory of the device, and how much of it this process may still get.
  virtual DeviceMemory Memory() const { return {}; }
  // OK, or Internal with the first error after which the device's results are undefined. It never
  // becomes OK again. Ops, copies and events have no other way to report an error. So ask after
  // waiting for them and before using a result.
  virtual absl::Status Health() const { return absl::OkStatus(); }
  // Returns true when ops run outside the calls that enqueue them.
  virtual bool asynchronous() const { return false; }
  // Returns true when the host may read and write buffers directly. Otherwise only ops and copies
  // may; staging memory is always the host's.
  virtual bool host_accessible() const { return true; }
  virtual std::unique_ptr<Stream> CreateStream() = 0;
  virtual std::unique_ptr<Event> CreateEvent() { return std::make_unique<Event>(); }
  virtual const Ops& ops() const = 0;
  // Rules that define the bits of the ops' results.
  virtual Numerics numerics() const { return Numerics::kR1; }
  // Like AllocateStaging, but the buffer has a shared_fd. Unimplemented: the device cannot copy to
  // or from such memory.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateSharedStaging(
      size_t bytes, std::string_view purpose) {
    return AllocateShared(bytes, purpose);
  }
};

}  // namespace baton
