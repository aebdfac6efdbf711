// The memory of the workers that `baton up` starts on one machine. A worker alone takes a part of
// what is available when it starts; many that start at once would take it all many times over.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// How large a worker with these arguments makes its KV pool.
struct KvCacheAsked {
  bool chooses = true;  // by itself
  int64_t mib = 0;      // else; 0 for --kv-blocks, whose size the model decides
};
KvCacheAsked KvCacheOf(std::span<const std::string> arguments);

// The MiB of KV to give each worker that chooses by itself; nullopt leaves it the choice.
// ResourceExhausted when the weights and pools of all workers pass what is available.
// `available_bytes` < 0: not known, and nothing is checked.
absl::StatusOr<std::optional<int64_t>> ShareMemory(std::span<const KvCacheAsked> workers,
                                                   int64_t weight_bytes, int64_t available_bytes);

}  // namespace baton
