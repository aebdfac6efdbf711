// NCCL's stand-in for tests: a library that exports the functions of NCCL that Baton uses. It
// misbehaves on request. The transport loads it like the real library (kernels/cuda/nccl_api.h).
//
// Operations run on the streams of the emulated driver (tests/gpu_emulator/emulated_driver.h). So
// their memory is device memory, and an operation begins only when something waits for its stream.
// Bytes really move, within a process or between two (fake_nccl_link.h).
//
// A communicator named kFakeNcclGroupName belongs to a tensor-parallel group (fake_nccl_group.h).
// Each other one has two ranks: 0 sends, 1 receives. Settings for a side apply to all communicators
// of that rank in this process; ranks above 0 of a group are of side 1. Programs take settings from
// the environment:
// - BATON_FAKE_NCCL: settings by name, such as "0.hangs_at_operation=3,1.polls_per_operation=2";
// - BATON_FAKE_NCCL_REPORT: a file. When the program ends, it appends a line with the bytes that
//   each rank has moved, and the operations of groups that each side has begun, such as
//   "0 0 1 81920 collectives 120 240".
#pragma once

#include <atomic>
#include <cstdint>

namespace baton {

struct FakeNcclSide {
  // ---- settings ----
  std::atomic<int> create_result = 0;           // of ncclCommInitRankConfig, at once
  std::atomic<int> create_async_result = 0;     // of creating, seen by polling
  std::atomic<bool> create_hangs = false;       // stays ncclInProgress while set
  std::atomic<bool> create_call_hangs = false;  // the call does not return while set
  std::atomic<int> issue_polls = 0;   // ncclCommGetAsyncError calls before an operation is issued
  std::atomic<int> issue_result = 0;  // of ncclSend or ncclRecv
  std::atomic<int64_t> polls_per_operation = 0;   // times that an operation is late when it runs
  std::atomic<int64_t> hangs_at_operation = -1;   // from that one on, none ends while set
  std::atomic<int64_t> fails_at_operation = -1;   // with ncclRemoteError, when it begins
  std::atomic<int64_t> dies_at_operation = -1;    // halfway; the other side sees the end
  std::atomic<int64_t> spoils_at_operation = -1;  // changes one byte of it
  std::atomic<int> async_error = 0;               // of every existing communicator
  // ---- counters ----
  std::atomic<int64_t> operations = 0;   // that have begun
  std::atomic<int64_t> bytes = 0;        // of operations that have ended
  std::atomic<int64_t> collectives = 0;  // operations of groups that have begun
  std::atomic<int32_t> create_calls = 0;
  std::atomic<int32_t> created = 0;
  std::atomic<int32_t> aborted = 0;
};

struct FakeNccl {
  FakeNcclSide sides[2];  // by rank
  std::atomic<int> version = 22809;
  std::atomic<int> unique_id_result = 0;
  std::atomic<int64_t> calls_from_two_threads = 0;  // number of such calls on one communicator
};

inline constexpr char kFakeNcclGroupName[] = "baton-tensor-parallel";

// Exported by the library: returns its FakeNccl. For dlsym.
inline constexpr char kFakeNcclSymbol[] = "FakeNcclOfThisLibrary";
using FakeNcclFunction = FakeNccl* (*)();

}  // namespace baton
