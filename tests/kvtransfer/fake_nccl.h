// A library that exports the functions of NCCL and of the CUDA runtime that Baton uses, over host
// memory and Unix sockets, and misbehaves as a test asks it to. The transport loads it the way it
// loads the real ones (kvtransfer/nccl/nccl_api.h); bytes really move, within a process or between
// two.
//
// Rank 0 of a communicator sends, rank 1 receives, and what a test sets for a side counts for all
// communicators of that rank in this process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace baton {

struct FakeNcclSide {
  // ---- what it does ----
  std::atomic<int> create_result = 0;           // of ncclCommInitRankConfig, at once
  std::atomic<int> create_async_result = 0;     // what creating comes to, seen by polling
  std::atomic<bool> create_hangs = false;       // stays ncclInProgress while this stands
  std::atomic<bool> create_call_hangs = false;  // the call does not return while this stands
  std::atomic<int> issue_polls = 0;   // ncclCommGetAsyncErrors after which an operation is issued
  std::atomic<int> issue_result = 0;  // of ncclSend or ncclRecv
  std::atomic<int64_t> hangs_at_operation = -1;   // from that one on none ends while this stands
  std::atomic<int64_t> fails_at_operation = -1;   // with ncclRemoteError, when it begins
  std::atomic<int64_t> dies_at_operation = -1;    // half way: the other side sees the end
  std::atomic<int64_t> spoils_at_operation = -1;  // one byte of it
  std::atomic<int> async_error = 0;               // of every communicator that stands
  // ---- what it did ----
  std::atomic<int64_t> operations = 0;  // begun
  std::atomic<int64_t> bytes = 0;       // of operations that ended
  std::atomic<int32_t> create_calls = 0;
  std::atomic<int32_t> created = 0;
  std::atomic<int32_t> aborted = 0;
};

// Memory that the device's copies reach under `address`, and this process under `readable` alone.
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
  std::atomic<int> copy_result = 0;                 // of cudaMemcpyAsync
  std::atomic<int64_t> allocated = 0;               // bytes of staging memory
  std::atomic<int64_t> calls_from_two_threads = 0;  // on one communicator
  std::atomic<int64_t> copies_of_device_memory = 0;
  std::mutex device_mutex;
  std::vector<FakeDeviceMemory> device_memory;  // guarded by device_mutex
};

// Exported by the library: its script, for dlsym.
inline constexpr char kFakeNcclSymbol[] = "FakeNcclOfThisLibrary";
using FakeNcclFunction = FakeNccl* (*)();

}  // namespace baton
