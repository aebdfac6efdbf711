#include "cli/fleet_memory.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/numbers.h"
#include "cli/program_settings.h"
#include "common/str_cat.h"
#include "engine/engine_options.h"

namespace baton {
namespace {

constexpr int64_t kMiB = 1 << 20;
// Divisor: together, the workers that choose their size get 1/kSharedPart of the memory that
// remains.
constexpr int64_t kSharedPart = 2;

int64_t Integer(std::string_view settings, std::string_view name) {
  int64_t value = 0;
  return absl::SimpleAtoi(SettingValue(settings, name), &value) ? value : 0;
}

}  // namespace

WorkerMemory MemoryOf(std::string_view settings, int64_t weight_bytes) {
  const bool names_blocks = Integer(settings, "kv-blocks") > 0;
  const int64_t mib = names_blocks ? 0 : std::max<int64_t>(0, Integer(settings, "kv-cache-mib"));
  return {.weight_bytes = weight_bytes, .chooses = !names_blocks && mib == 0, .kv_mib = mib};
}

absl::StatusOr<std::optional<int64_t>> ShareMemory(std::span<const WorkerMemory> workers,
                                                   int64_t available_bytes) {
  if (available_bytes < 0 || workers.empty()) return std::optional<int64_t>();
  const int64_t available = available_bytes / kMiB;
  int64_t weights = 0;
  int64_t asked = 0;
  int64_t choosing = 0;
  for (const WorkerMemory& worker : workers) {
    weights += (worker.weight_bytes + kMiB - 1) / kMiB;
    asked += std::min(worker.kv_mib, int64_t{1} << 40);
    choosing += worker.chooses ? 1 : 0;
  }
  const int64_t left = available - asked - weights;
  const int64_t alone = DefaultKvCacheMiB(available_bytes);
  const int64_t least = DefaultKvCacheMiB(0);
  if (left < choosing * least) {
    return absl::ResourceExhaustedError(
        StrCat(workers.size(), " workers need ", weights, " MiB for weights and ",
               asked + choosing * least, " MiB or more for KV; ", available,
               " MiB are available. Start fewer workers, or lower --kv-cache-mib"));
  }
  if (choosing == 0) return std::optional<int64_t>();
  const int64_t share = std::max(least, left / kSharedPart / choosing);
  return share < alone ? std::optional(share) : std::nullopt;
}

}  // namespace baton
