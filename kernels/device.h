// A device and its streams: where memory lives and where ops run, in order.
//
// One Device per worker. Ops (kernels/ops.h) are enqueued on a Stream; a Stream can capture what is
// enqueued into an OpGraph and replay it with the same pointers: a CUDA Graph on CUDA, a recorded
// list on the CPU. Nothing in a graph depends on a host value of the step: what changes lives in
// device buffers.
//
// A device runs ops in one of two ways. An inline device (`asynchronous()` is false) runs each
// inside the call that enqueues it: its events are always done, and its streams never have anything
// to wait for. The defaults below are those of an inline device. An asynchronous device runs them
// later, on a thread or a processor of its own: what an op or a copy reads must stay as it is until
// it has run, which events tell.
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

class Ops;
class Stream;

// Owned device memory. Pages are not touched before they are first written (a pool costs what is
// used of it).
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;  // bytes, as asked for
  // The file that holds it from offset 0 on, for other processes to map read-only; -1: none.
  virtual int shared_fd() const { return -1; }
  // Of a buffer that Device::Reserve made: a range that is about to be used, in large pages where
  // they must be asked for; and one whose bytes nobody needs any more and that reads as zeros from
  // now on, where memory goes back to the system in whole pages. Of others: nothing happens.
  virtual void Populate(size_t /*offset*/, size_t /*bytes*/) {}
  virtual void Discard(size_t /*offset*/, size_t /*bytes*/) {}
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }
};

// A recorded sequence of ops. Valid while the buffers it names are.
class OpGraph {
 public:
  virtual ~OpGraph() = default;
  virtual size_t op_count() const = 0;
};

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  // Whether everything that was enqueued before the last Record has run; true before the first one.
  // What the work wrote is visible then. Never blocks.
  virtual bool Done() const { return true; }
  // Returns when Done is true.
  virtual void Wait() const {}
};

// How many rows an op still has to compute, asked as late as the backend can: on a CPU when the op
// runs, on the thread that runs it; on a GPU when it is enqueued.
class RowLimit {
 public:
  virtual ~RowLimit() = default;
  // Rows from the first on; 0: none. Never rises.
  virtual int64_t Rows() = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // From here to EndCapture, ops and copies are recorded, not run. REQUIRES: not capturing.
  virtual void BeginCapture() = 0;
  virtual std::unique_ptr<OpGraph> EndCapture() = 0;
  virtual bool capturing() const = 0;
  // Runs every op of `graph` in its order.
  virtual void Launch(const OpGraph& graph) = 0;
  // The same, but `stop` is asked before each op, and where it is true that one and all behind it
  // are left out. A backend whose graphs run as one need not ask. REQUIRES: not capturing.
  virtual void LaunchUntil(const OpGraph& graph, const std::function<bool()>& /*stop*/) {
    Launch(graph);
  }
  // Copies bytes between host or device memory, in stream order. Host memory should be staging
  // memory (Device::AllocateStaging) and must stay valid and unchanged until the copy has run.
  virtual void Copy(void* destination, const void* source, size_t bytes) = 0;
  // Waits until everything enqueued has run.
  virtual void Synchronize() = 0;

  // `event` is of this device; it is done when everything enqueued before has run. An earlier
  // record of it counts no more. REQUIRES: not capturing.
  virtual void Record(Event& /*event*/) {}
  // Calls `function` in stream order, on the thread that runs the stream's ops. It must neither
  // wait nor touch the stream. REQUIRES: not capturing.
  virtual void Call(std::function<void()> function) { function(); }

  // Ops that are enqueued from now on compute no more rows than `limit` says (tokens, rows or draws
  // of their arguments). Null: all. It must stay valid until they have run. Copies, graphs and
  // ops that are captured have no limit.
  void LimitRows(RowLimit* limit) { row_limit_ = limit; }
  RowLimit* row_limit() const { return row_limit_; }

 private:
  RowLimit* row_limit_ = nullptr;
};

struct DeviceMemory {
  int64_t total = -1;      // bytes; -1: unknown
  int64_t available = -1;  // that allocations can still get
};

class Device {
 public:
  virtual ~Device() = default;
  // One line for people: kind, instruction set, threads, page size granted.
  virtual std::string Description() const = 0;
  // Zero-filled memory aligned to 2 MiB where the kernel grants huge pages (64 bytes otherwise).
  // ResourceExhausted names `purpose` and the size.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes,
                                                                 std::string_view purpose) = 0;
  // As Allocate, with a shared_fd. Its pages may be touched at once. Unimplemented where the device
  // has no such memory.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(
      size_t bytes, std::string_view purpose) = 0;
  // An address range for a buffer that will grow and shrink in it, with a shared_fd if `shared`;
  // it may be larger than what memory there is. Unimplemented where the device has none.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> Reserve(size_t /*bytes*/,
                                                                std::string_view /*purpose*/,
                                                                bool /*shared*/) {
    return absl::UnimplementedError("this device has no memory that grows and shrinks");
  }
  // Host memory for the ends of copies: pinned where the device copies with DMA.
  virtual absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateStaging(size_t bytes,
                                                                        std::string_view purpose) {
    return Allocate(bytes, purpose);
  }
  // Bytes of all living buffers.
  virtual size_t allocated_bytes() const = 0;
  // How much memory the device has, and may give to this process.
  virtual DeviceMemory Memory() const { return {}; }
  // Whether ops run outside the calls that enqueue them.
  virtual bool asynchronous() const { return false; }
  virtual std::unique_ptr<Stream> CreateStream() = 0;
  virtual std::unique_ptr<Event> CreateEvent() { return std::make_unique<Event>(); }
  virtual const Ops& ops() const = 0;
};

}  // namespace baton
