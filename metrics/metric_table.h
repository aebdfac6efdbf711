// The table of all metrics of Baton's programs. A metric is declared here once: its name, type,
// unit, labels, buckets and meaning. `/metrics`, `baton inspect metrics` and docs/METRICS.md come
// from this table.
//
// Values are counted as integers, in cells. A metric in seconds has cells of a microsecond, a ratio
// has cells of a millionth. All others have cells of one.
//
// To add a metric, add a value to Metric and a row at the same place of common_metrics.h,
// router_metrics.h or worker_metrics.h. Then run `baton inspect metrics --markdown >
// docs/METRICS.md`.
//
// Thread safety: constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "metrics/metric_labels.h"

namespace baton {

enum class Metric : uint16_t {
  // Every program.
  kBuildInfo,
  kReady,
  kProcessCpu,
  kProcessStart,
  kProcessResident,
  kProcessVirtual,
  kProcessOpenFds,
  kProcessMaxFds,
  kProcessThreads,
  kTraceSpans,
  kTraceSpansDropped,
  // Routers.
  kRequests,
  kRefused,
  kRequestsInFlight,
  kRequestsWaiting,
  kTimeToFirstToken,
  kInterToken,
  kRequestSeconds,
  kTokenizeSeconds,
  kPromptTokens,
  kAvoidablePromptTokens,
  kOutputTokens,
  kRouteSeconds,
  kRouteEstimateRatio,
  kRoutes,
  kRoutePulls,
  kRequestWorkerLosses,
  kClientStalls,
  kIgnoredFields,
  kWorkers,
  kFleetChanges,
  kHeartbeats,
  kIndexUnits,
  kIndexCapacity,
  kIndexMemberships,
  kIndexPredicted,
  kIndexBytes,
  kIndexRefused,
  kIndexGaps,
  kIndexSnapshots,
  kIndexUnfollowed,
  kLogLinesDropped,
  // Workers: requests.
  kWorkerRequests,
  kWorkerRequestsWaiting,
  kWorkerRequestsRunning,
  kWorkerRequestsWaitingForKv,
  kWorkerBacklogSeconds,
  kWorkerBacklogTokens,
  kWorkerQueueSeconds,
  kWorkerCancelSeconds,
  kWorkerFailures,
  kWorkerPreemptions,
  // Workers: steps and tokens.
  kWorkerSteps,
  kWorkerStepSeconds,
  kWorkerPromptTokens,
  kWorkerDecodeTokens,
  kWorkerOutputTokens,
  // Workers: KV pool and caches.
  kCacheConfigInfo,
  kKvUsedRatio,
  kKvBlocks,
  kKvEvictableBlocks,
  kKvEvictedBlocks,
  kKvEvictedTokens,
  kPrefixLookups,
  kPrefixHits,
  kPrefixLookupTokens,
  kPrefixHitTokens,
  kPrefixNodes,
  kChunkLookups,
  kChunkHits,
  kChunkMisses,
  kChunkBypasses,
  kChunkEvictions,
  kChunkEntries,
  kChunkUsedBlocks,
  kChunkBudgetBlocks,
  kSleepingChunks,
  kSleepingChunkBytes,
  kSleepingChunkLimitBytes,
  kChunkSleeps,
  kChunkWakes,
  kChunkWakeSeconds,
  kSleepingChunksDamaged,
  kSleepingChunksDropped,
  // Workers: transfers.
  kKvTransferBytes,
  kKvTransferSentBytes,
  kKvTransfers,
  kKvTransferFailures,
  kKvTransfersActive,
  kKvTransferSeconds,
  kKvExposedSeconds,
  kKvPulls,
  kKvBytesThroughHost,
  // Workers: state.
  kWorkerHeartbeats,
  kWorkerRouters,
  kWorkerRoutersRegistered,
  kWorkerDraining,
  kWorkerIntegrityError,
  kWorkerEngineHung,
  kCount,
};

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };
std::string_view MetricTypeName(MetricType type);  // "counter", "gauge", "histogram"

// Programs that have a metric.
enum class MetricPrograms : uint8_t { kAll, kRouters, kWorkers };

struct MetricLabel {
  std::string_view name = {};  // empty: there is no such label
  // Empty: the label has one value, which the program sets (MetricSet::SetInfo).
  std::span<const std::string_view> values = {};
};

// Names of the same figure in other servers; empty: there is none.
struct MetricElsewhere {
  std::string_view vllm = {};
  std::string_view sglang = {};
  std::string_view gateway = {};  // Gateway API inference extension
};

struct MetricDeclaration {
  static constexpr size_t kMostLabels = 2;

  Metric id = {};
  std::string_view name = {};
  MetricType type = {};
  std::string_view unit = {};  // "seconds", "bytes", "ratio", "tokens", …
  std::string_view help = {};  // sentences
  std::array<MetricLabel, kMostLabels> labels = {};
  std::span<const int64_t> buckets = {};  // upper bounds in cells, rising; of a histogram
  MetricElsewhere elsewhere = {};

  // Cells in one unit.
  constexpr int64_t scale() const { return unit == "seconds" || unit == "ratio" ? 1'000'000 : 1; }
  // It always has the value 1, and labels that the program sets.
  constexpr bool is_info() const { return !labels[0].name.empty() && labels[0].values.empty(); }
};

inline constexpr size_t kMetrics = static_cast<size_t>(Metric::kCount);

// All declarations; the place of each is its id.
std::span<const MetricDeclaration> MetricTable();
MetricPrograms ProgramsOf(Metric metric);
inline const MetricDeclaration& DeclarationOf(Metric metric) {
  return MetricTable()[static_cast<size_t>(metric)];
}

}  // namespace baton
