#include "cli/fleet_memory.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/numbers.h"
#include "common/str_cat.h"
#include "engine/engine_options.h"

namespace baton {
namespace {

constexpr int64_t kMiB = 1 << 20;
// Workers that choose by themselves get this part of what the others leave, all together.
constexpr int64_t kSharedPart = 2;

// The value of the last `--name=VALUE` or `--name VALUE`.
std::optional<int64_t> LastValue(std::span<const std::string> arguments, std::string_view name) {
  std::optional<int64_t> last;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view argument = arguments[i];
    if (!argument.starts_with(name)) continue;
    argument.remove_prefix(name.size());
    const bool next = argument.empty() && i + 1 < arguments.size();
    if (!next && !argument.starts_with('=')) continue;
    int64_t value = 0;
    if (absl::SimpleAtoi(next ? arguments[i + 1] : std::string(argument.substr(1)), &value)) {
      last = value;
    }
  }
  return last;
}

}  // namespace

KvCacheAsked KvCacheOf(std::span<const std::string> arguments) {
  if (LastValue(arguments, "--kv-blocks").value_or(0) > 0) return {.chooses = false, .mib = 0};
  const int64_t mib = LastValue(arguments, "--kv-cache-mib").value_or(0);
  return {.chooses = mib <= 0, .mib = std::max<int64_t>(0, mib)};
}

absl::StatusOr<std::optional<int64_t>> ShareMemory(std::span<const KvCacheAsked> workers,
                                                   int64_t weight_bytes, int64_t available_bytes) {
  if (available_bytes < 0 || workers.empty()) return std::optional<int64_t>();
  const auto count = static_cast<int64_t>(workers.size());
  const int64_t available = available_bytes / kMiB;
  const int64_t weights = (weight_bytes + kMiB - 1) / kMiB;
  int64_t asked = 0;
  int64_t choosing = 0;
  for (const KvCacheAsked& worker : workers) {
    asked += std::min(worker.mib, int64_t{1} << 40);
    choosing += worker.chooses ? 1 : 0;
  }
  const int64_t left = available - asked - count * weights;
  const int64_t alone = DefaultKvCacheMiB(available_bytes);
  const int64_t least = DefaultKvCacheMiB(0);
  if (left < choosing * least) {
    return absl::ResourceExhaustedError(
        StrCat(count, " workers need ", count * weights, " MiB for weights and ",
               asked + choosing * least, " MiB or more for KV; ", available,
               " MiB are available. Start fewer workers, or lower --kv-cache-mib"));
  }
  if (choosing == 0) return std::optional<int64_t>();
  const int64_t share = std::max(least, left / kSharedPart / choosing);
  return share < alone ? std::optional(share) : std::nullopt;
}

}  // namespace baton
