// What a transport is told of NCCL: where the libraries are, and the limits of its use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace baton {

// Payload over NCCL beside a TCP connection, which carries everything else and stands by for what
// NCCL cannot or does not move in time. Both libraries are looked for at run time.
struct NcclOptions {
  std::vector<std::string> nccl_libraries = {"libnccl.so.2"};  // the first that is found
  std::vector<std::string> cuda_libraries = {"libcudart.so.13", "libcudart.so.12"};
  int device = 0;
  int32_t window = 2;             // batches under way in a communicator, each in a staging buffer
  int64_t batch_bytes = 4 << 20;  // of such a buffer; a block's size if that is more
  int32_t max_communicators = 32;
  int64_t patience_ms = 1000;  // blocks wait for a connection's first communicator, then go by TCP
  int64_t create_timeout_ms = 10'000;  // then it is given up
  int64_t batch_timeout_ms = 2000;     // then what it has not moved goes by TCP
  int64_t retry_ms = 30'000;           // after a communicator failed, until another is made
  // Told why payload goes by TCP, once for each status code; from the I/O thread. Null: logged.
  std::function<void(const absl::Status&)> on_fallback;
};

}  // namespace baton
