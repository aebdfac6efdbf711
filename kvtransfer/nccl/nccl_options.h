// Options of NCCL: library names and limits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton {

// Options for payload over NCCL beside a TCP connection. TCP carries all other frames. It also
// carries payload that NCCL cannot move, or does not move in time. The libraries of NCCL and the
// CUDA driver are looked up at run time.
struct NcclOptions {
  std::vector<std::string> nccl_libraries = {"libnccl.so.2"};  // the first one found is used
  std::vector<std::string> cuda_libraries = {"libcuda.so.1"};
  int device = 0;
  int32_t window = 2;             // batches in flight per communicator, each in its staging buffer
  int64_t batch_bytes = 4 << 20;  // size of such a buffer; at least one block
  int32_t max_communicators = 32;
  // Blocks wait this long for a connection's first communicator, then go over TCP.
  int64_t patience_ms = 1000;
  int64_t create_timeout_ms = 10'000;  // then the communicator is aborted
  int64_t batch_timeout_ms = 2000;     // then the rest of the batch goes over TCP
  int64_t retry_ms = 30'000;           // from a failed communicator to the next attempt
  // Receives the reason why payload goes over TCP, once for each status code. Called from the I/O
  // thread. Null: the reason is logged.
  std::function<void(const absl::Status&)> on_fallback;
};

}  // namespace baton
