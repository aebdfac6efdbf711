// Divides the memory of one machine among the workers that `baton up` starts. A worker takes a part
// of the memory that is available at its start. Without this division, workers that start together
// would take too much.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// Memory that one worker needs.
struct WorkerMemory {
  int64_t weight_bytes = 0;
  bool chooses = true;  // chooses the size of its KV pool itself
  int64_t kv_mib = 0;   // if it does not; 0 with --kv-blocks (size unknown here)
};
// Returns the needs of a worker with these `settings` (cli/program_settings.h). `weight_bytes`:
// size of its model's weights.
WorkerMemory MemoryOf(std::string_view settings, int64_t weight_bytes);

// Returns the MiB of KV for each worker that chooses its size itself; nullopt leaves the choice to
// it. ResourceExhausted if the weights and pools of all workers exceed the available memory. A
// negative `available_bytes` means unknown: nothing is checked.
absl::StatusOr<std::optional<int64_t>> ShareMemory(std::span<const WorkerMemory> workers,
                                                   int64_t available_bytes);

}  // namespace baton
