// Admits requests by their tenants' limits (tenant_table.h), and lets tenants share the fleet
// fairly.
//
// A request makes one visit:
//  1. Enter checks requests_per_minute and concurrent_requests, lowers the priority to
//     max_priority, and notes the kv_share, which workers obey.
//  2. Reserve takes the tokens of its prompt and its longest answer from tokens_per_minute. If they
//     are refused, the request does not count for requests_per_minute either.
//  3. AwaitTurn lets it start at once, or when it is its turn. At most `window` requests that have
//     started wait for their first token. The others wait here, in the order of FairQueue. So the
//     workers' queues, which know no tenants, stay short.
//  4. FirstToken gives its place to the next request.
//  5. Used and the end of the visit settle the tokens: what was reserved and not used goes back.
//
// Each of N routers grants 1/N of each limit, rounded up, and has 1/N of the window. Routers share
// no state, so this holds when the load is spread evenly over them.
//
// Names of tenants may come from clients. The gate remembers at most kMaxTenants of them that are
// not listed in the table; further ones share the limits of one tenant.
//
// Thread safety: every function, from any thread. A `start` function runs in a function of any
// visit or of the gate, without the gate's lock. It must not call the gate or wait for another
// request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cache/cache_owners.h"
#include "common/clock.h"
#include "router/fair_queue.h"
#include "router/minute_bucket.h"
#include "router/tenant_table.h"

namespace baton {

// Figures of one tenant at this router, for people.
struct TenantUse {
  std::string tenant = {};
  TenantLimits limits = {};  // of the whole fleet
  int32_t running = 0;       // requests in the gate or behind it
  int32_t waiting = 0;       // of these: requests that wait for their turn
  int64_t requests = 0;      // since the router started, like the next two
  int64_t refused = 0;       // by a limit of this tenant
  int64_t tokens = 0;        // of prompts and answers
};

class TenantVisit;

class TenantGate {
 public:
  static constexpr size_t kMaxTenants = 4096;
  // Name under which further tenants appear.
  static constexpr char kFurtherTenants[] = "(further tenants)";

  // `clock` must outlive this. REQUIRES: routers >= 1.
  TenantGate(const Clock* clock, int32_t routers) : clock_(clock), routers_(routers) {}
  // REQUIRES: no visit is left.
  ~TenantGate() = default;

  // Running requests keep what they have; the new limits count from the next request on.
  void SetTable(TenantTable table);
  // `requests`: window of the whole fleet. Until the first call there is no bound.
  void SetWindow(size_t requests);
  // Forgets tenants without requests. Call it several times a minute.
  void Tick();

  // ResourceExhausted, marked as a tenant's limit, names the limit and says when to return
  // (common/error_details.h).
  absl::StatusOr<std::unique_ptr<TenantVisit>> Enter(std::string_view tenant, int32_t priority);
  // Enters so many requests, or none. InvalidArgument: they are more than the tenant may ever run
  // at once. REQUIRES: requests >= 1.
  absl::StatusOr<std::vector<std::unique_ptr<TenantVisit>>> EnterAll(std::string_view tenant,
                                                                     int32_t priority,
                                                                     int32_t requests);

  // At most `most` tenants, those with the most tokens first.
  std::vector<TenantUse> Uses(size_t most) const;

 private:
  friend class TenantVisit;

  struct Tenant {
    std::string name;
    TenantUse use;
    size_t entered = 0;  // of the running requests: those that do not wait for a turn yet
    MinuteBucket requests;
    MinuteBucket tokens;
    double mean_request_us = 0;  // time from Enter to the end, over recent requests
    int64_t last_seen_us = 0;
  };
  using Starts = std::vector<std::function<void()>>;

  // All below: REQUIRES mutex_.
  Tenant& FindTenant(std::string_view name);
  double Part(int64_t limit) const;  // of this router
  absl::Status Refuse(Tenant& tenant, std::string_view limit, int64_t value, int64_t wait_us) const;
  std::unique_ptr<TenantVisit> NewVisit(Tenant& tenant, int32_t priority, int64_t now_us);
  // Takes requests out of the queue while there is room in the window.
  Starts TakeStarts();

  const Clock* const clock_;
  const int32_t routers_;
  mutable std::mutex mutex_;
  TenantTable table_;
  size_t window_ = std::numeric_limits<size_t>::max();
  size_t started_ = 0;  // requests that have started and wait for their first token
  std::map<std::string, std::unique_ptr<Tenant>, std::less<>> tenants_;
  FairQueue queue_;
  absl::flat_hash_map<uint64_t, TenantVisit*> waiting_;
  uint64_t next_id_ = 0;
};

// One request's visit. Its destructor ends the visit.
//
// Thread safety: the caller's lock, apart from the `start` function.
class TenantVisit {
 public:
  // REQUIRES: the gate still exists.
  ~TenantVisit();
  TenantVisit(const TenantVisit&) = delete;
  TenantVisit& operator=(const TenantVisit&) = delete;

  int32_t priority() const { return priority_; }
  // The owner of what the request caches, with the tenant's kv_share; nothing: it has no share.
  const std::optional<CacheOwner>& cache_owner() const { return cache_owner_; }

  // Requests that probably get their first token before this one: those that have started, and
  // those that have an earlier turn. REQUIRES: AwaitTurn was not called.
  size_t Ahead() const;
  // Errors as Enter. REQUIRES: called at most once.
  absl::Status Reserve(int64_t tokens);
  // Returns true if the request may start now. Otherwise `start` runs when it is its turn. It does
  // not run after GiveUp. REQUIRES: called at most once.
  bool AwaitTurn(std::function<void()> start);
  // The request has its first token. Later calls have no effect.
  void FirstToken();
  // The request has ended and used so many tokens. It does not start any more. Later calls have no
  // effect.
  void End(int64_t used_tokens);

 private:
  friend class TenantGate;
  enum class Stage : uint8_t { kEntered, kWaits, kStarted, kHasToken, kEnded };

  TenantVisit(TenantGate* gate, TenantGate::Tenant* tenant, uint64_t id, int32_t priority,
              int64_t entered_us)
      : gate_(gate), tenant_(tenant), id_(id), priority_(priority), entered_us_(entered_us) {}

  TenantGate* const gate_;
  TenantGate::Tenant* const tenant_;
  const uint64_t id_;
  const int32_t priority_;
  std::optional<CacheOwner> cache_owner_;  // set by Enter
  const int64_t entered_us_;
  // The gate's lock guards these.
  Stage stage_ = Stage::kEntered;
  int64_t reserved_ = 0;
  double weight_ = 1;            // when it was queued
  std::function<void()> start_;  // while it waits
};

// Requests ahead of a new one at most. No visit: any number, because requests take no turns.
inline size_t MostAhead(const TenantVisit* visit) {
  return visit == nullptr ? std::numeric_limits<size_t>::max() : visit->Ahead();
}

}  // namespace baton
