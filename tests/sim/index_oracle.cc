#include "tests/sim/index_oracle.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache/index/global_index.h"
#include "cache/index/kv_event.h"
#include "cache/index/kv_event_follower.h"
#include "common/check.h"
#include "router/chunked_request.h"

namespace baton {
namespace {

// Returns the number that the router uses for this worker's current incarnation.
std::optional<WorkerNumber> NumberOf(const SimRouter& router, const SimWorker& worker) {
  for (const WorkerRecord& record : router.workers()) {
    if (record.report.epoch == worker.epoch()) return record.number;
  }
  return std::nullopt;
}

std::optional<FollowedWorker> Followed(const FleetIndexStatus& status,
                                       std::optional<WorkerNumber> number) {
  for (const FollowedWorker& followed : status.workers) {
    if (followed.worker == number) return followed;
  }
  return std::nullopt;
}

const KvEventFeed* FeedOf(const SimWorker& worker) {
  return worker.engine() == nullptr ? nullptr : worker.engine()->loop().kv_events();
}

bool IsCurrent(const std::optional<FollowedWorker>& followed, const KvEventFeed& feed) {
  return followed && followed->followed && followed->sequence == feed.last();
}

// Puts the contents of the worker's tree into an index that has seen nothing else.
void TellLiterally(const SimWorker& worker, IndexedWorker number, GlobalIndex& index) {
  for (const std::string& part : worker.engine()->cache().SnapshotKvEvents()) {
    const absl::StatusOr<std::vector<KvEvent>> events = DecodeKvEvents(part);
    CHECK(events.ok()) << events.status();
    for (const KvEvent& event : *events) ApplyKvEvent(number, event, index);
  }
}

// Says what differs between a worker's chunk cache and its published units, for the chunks of one
// request.
std::optional<std::string> DiffersFromCache(const SimWorker& worker, IndexedWorker number,
                                            const ChunkedRequest& request,
                                            CacheNamespace cache_namespace,
                                            const GlobalIndex& literal) {
  const std::vector<ChunkCache::EntryInfo> entries = worker.engine()->core().chunk_entries();
  for (const ChunkedRequest::Part& part : request.parts()) {
    const bool cached = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return entry.key == ChunkKey{cache_namespace, part.key};
    });
    const std::vector<Hash128> unit = {part.key};
    const auto holders = literal.MatchWorkers(unit);
    const bool published = std::any_of(holders.begin(), holders.end(),
                                       [&](const auto& holder) { return holder.worker == number; });
    if (cached != published) {
      return absl::StrCat(worker.id(), cached ? " caches" : " does not cache", " a part of ",
                          part.tokens, " tokens, but its events say otherwise");
    }
  }
  return std::nullopt;
}

// The same as CheckIndex, for the parts of one chunked prompt.
std::optional<Violation> CheckChunks(const SimRouter& router, std::span<SimWorker* const> workers,
                                     const SimGenerateRequest& asked, const GlobalIndex& literal) {
  const auto says = [&](std::string what) {
    return Violation{"index", std::move(what), asked.number, kRouterNode};
  };
  for (const SimWorker* worker : workers) {
    if (FeedOf(*worker) == nullptr) continue;
    const ChunkedRequest request(*asked.chunked, asked.cache_namespace,
                                 worker->options().engine.prompt_chunk_tokens);
    if (auto differs = DiffersFromCache(*worker, *NumberOf(router, *worker), request,
                                        asked.cache_namespace, literal)) {
      return says(*std::move(differs));
    }
    for (const ChunkedRequest::Part& part : request.parts()) {
      const std::vector<Hash128> unit = {part.key};
      if (router.index().Match(unit) != literal.MatchWorkers(unit)) {
        return says("the index does not know which workers hold a part of the prompt");
      }
    }
    const std::vector<Hash128> question =
        ChainedHashes(request.derived_namespace(), UnitsFromTokens(asked.chunked->question));
    if (router.index().Match(question) != literal.MatchWorkers(question)) {
      return says("the index does not know which workers hold the question's prefix");
    }
  }
  return std::nullopt;
}

}  // namespace

bool IsIndexCurrent(const SimRouter& router, std::span<SimWorker* const> workers) {
  const FleetIndexStatus status = router.index().Status();
  return std::all_of(workers.begin(), workers.end(), [&](const SimWorker* worker) {
    const KvEventFeed* const feed = FeedOf(*worker);
    return feed == nullptr || IsCurrent(Followed(status, NumberOf(router, *worker)), *feed);
  });
}

std::optional<Violation> CheckIndex(const SimRouter& router, std::span<SimWorker* const> workers,
                                    std::span<const ScenarioRequest> requests) {
  const FleetIndexStatus status = router.index().Status();
  GlobalIndex literal({.max_blocks = status.max_units, .expected_blocks = 0, .key_seeds = {}});
  for (const SimWorker* worker : workers) {
    const KvEventFeed* const feed = FeedOf(*worker);
    if (feed == nullptr) continue;
    const std::optional<WorkerNumber> number = NumberOf(router, *worker);
    const std::optional<FollowedWorker> followed = Followed(status, number);
    if (!IsCurrent(followed, *feed)) {
      return Violation{
          "liveness",
          absl::StrCat("the index is not current: ", worker->id(), " published ", feed->last(),
                       " batches, ", followed ? followed->sequence : 0, " were applied, ",
                       followed ? followed->trouble : "and the router does not follow it"),
          0, kRouterNode};
    }
    TellLiterally(*worker, *number, literal);
    if (followed->units != literal.units(*number)) {
      return Violation{"index",
                       absl::StrCat("the index has ", followed->units, " units of ", worker->id(),
                                    ", which holds ", literal.units(*number)),
                       0, kRouterNode};
    }
  }
  for (const ScenarioRequest& request : requests) {
    if (request.request.chunked) {
      if (auto broken = CheckChunks(router, workers, request.request, literal)) return broken;
      continue;
    }
    const std::vector<Hash128> hashes =
        ChainedHashes(request.request.cache_namespace, UnitsFromTokens(request.request.prompt));
    if (router.index().Match(hashes) != literal.MatchWorkers(hashes)) {
      return Violation{"index", "the index does not know which workers hold the prompt's prefix",
                       request.request.number, kRouterNode};
    }
  }
  return std::nullopt;
}

int64_t SnapshotsTaken(const SimRouter& router) {
  int64_t taken = 0;
  for (const FollowedWorker& worker : router.index().Status().workers) taken += worker.snapshots;
  return taken;
}

}  // namespace baton
