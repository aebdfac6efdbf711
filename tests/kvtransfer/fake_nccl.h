// Fake NCCL and CUDA driver for tests: a library that exports the functions that Baton uses, over
// host memory and Unix sockets. It misbehaves on request. The transport loads it like the real
// libraries (kvtransfer/nccl/nccl_api.h). Bytes really move, within a process or between two.
//
// Rank 0 of a communicator sends, rank 1 receives. Settings for a side apply to all communicators
// of that rank in this process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace baton {

struct FakeNcclSide {
  // ---- settings ----
  std::atomic<int> create_result = 0;           // of ncclCommInitRankConfig, at once
  std::atomic<int> create_async_result = 0;     // of creating, seen by polling
  std::atomic<bool> create_hangs = false;       // stays ncclInProgress while set
  std::atomic<bool> create_call_hangs = false;  // the call does not return while set
  std::atomic<int> issue_polls = 0;   // ncclCommGetAsyncError calls before an operation is issued
  std::atomic<int> issue_result = 0;  // of ncclSend or ncclRecv
  std::atomic<int64_t> hangs_at_operation = -1;   // from that one on, none ends while set
  std::atomic<int64_t> fails_at_operation = -1;   // with ncclRemoteError, when it begins
  std::atomic<int64_t> dies_at_operation = -1;    // halfway; the other side sees the end
  std::atomic<int64_t> spoils_at_operation = -1;  // changes one byte of it
  std::atomic<int> async_error = 0;               // of every existing communicator
  // ---- counters ----
  std::atomic<int64_t> operations = 0;  // that have begun
  std::atomic<int64_t> bytes = 0;       // of operations that have ended
  std::atomic<int32_t> create_calls = 0;
  std::atomic<int32_t> created = 0;
  std::atomic<int32_t> aborted = 0;
};

// Memory that device copies reach under `address`. This process can access it only under
// `readable`.
struct FakeDeviceMemory {
  std::byte* address = nullptr;
  size_t bytes = 0;
  std::byte* readable = nullptr;
};

struct FakeNccl {
  FakeNcclSide sides[2];  // by rank
  std::atomic<int> version = 22809;
  std::atomic<int> devices = 1;
  std::atomic<int> unique_id_result = 0;
  std::atomic<int> copy_result = 0;                 // of cuMemcpyAsync
  std::atomic<int64_t> allocated = 0;               // bytes of staging memory
  std::atomic<int64_t> calls_from_two_threads = 0;  // number of such calls on one communicator
  std::atomic<int64_t> copies_of_device_memory = 0;
  std::mutex device_mutex;
  std::vector<FakeDeviceMemory> device_memory;  // guarded by device_mutex
};

// Exported by the library: returns its FakeNccl. For dlsym.
inline constexpr char kFakeNcclSymbol[] = "FakeNcclOfThisLibrary";
using FakeNcclFunction = FakeNccl* (*)();

}  // namespace baton
