// The memory of the workers that `baton up` starts on one machine. A worker takes a part of the
// memory that is available at its start. Several workers that start at once would take too much
// together.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"

namespace baton {

// The memory that one worker needs.
struct WorkerMemory {
  int64_t weight_bytes = 0;
  bool chooses = true;  // the size of its KV pool, by itself
  int64_t kv_mib = 0;   // else; 0 for --kv-blocks, whose size the model decides
};
// `settings`: of a worker (cli/program_settings.h). `weight_bytes`: of its model.
WorkerMemory MemoryOf(std::string_view settings, int64_t weight_bytes);

// The MiB of KV to give each worker that chooses by itself; nullopt leaves it the choice.
// ResourceExhausted if the weights and pools of all workers exceed the available memory.
// `available_bytes` < 0: not known, and nothing is checked.
absl::StatusOr<std::optional<int64_t>> ShareMemory(std::span<const WorkerMemory> workers,
                                                   int64_t available_bytes);

}  // namespace baton
