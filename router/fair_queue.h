// Queue of requests of several tenants. Higher priorities go first. Within one priority, tenants
// share the work by their weights, in tokens: if all of them wait, a tenant of weight 2 gets twice
// the tokens of a tenant of weight 1, whatever the number of its requests.
//
// The algorithm is start-time fair queueing (Goyal, Vin, Cheng, 1996). Each request gets a start
// tag when it arrives: the later of the virtual time and its tenant's finish tag. The finish tag is
// the start tag plus cost / weight. The request with the lowest start tag goes next, and the
// virtual time is its start tag. So a tenant that was silent saves no credit, and a tenant in debt
// waits.
//
// The cost is an estimate when a request arrives. Correct() changes the tenant's finish tag when
// the real cost is known.
//
// Thread safety: none. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"

namespace baton {

class FairQueue {
 public:
  // Adds a request. REQUIRES: `id` is not in the queue; weight > 0; cost >= 0.
  void Push(uint64_t id, std::string_view tenant, int32_t priority, double weight, double cost);
  // Takes the request that goes next; nullopt: the queue is empty.
  std::optional<uint64_t> Pop();
  // Takes a request out that does not want to wait any more, and gives its tenant the cost back.
  // Returns false if it is not in the queue.
  bool Remove(uint64_t id);
  // The real cost of a request that has left the queue differs by `difference`.
  void Correct(std::string_view tenant, int32_t priority, double weight, double difference);
  // Forgets tenants without debt and requests. Call it now and then: tenants' names come from
  // clients.
  void ForgetIdle();

  // Number of requests in the queue that would go before a new one of this tenant. O(this number).
  size_t Ahead(std::string_view tenant, int32_t priority) const;
  size_t size() const { return places_.size(); }

 private:
  using Key = std::tuple<double, uint64_t>;  // start tag, arrival
  struct Waiting {
    uint64_t id = 0;
    std::string tenant;
    double charge = 0;  // cost / weight
  };
  struct Level {
    double virtual_time = 0;
    absl::btree_map<Key, Waiting> waiting;
    std::map<std::string, double, std::less<>> finish_tags;
  };
  struct Place {
    int32_t priority = 0;
    Key key;
  };

  std::map<int32_t, Level, std::greater<>> levels_;  // by priority
  absl::flat_hash_map<uint64_t, Place> places_;
  uint64_t arrivals_ = 0;
};

}  // namespace baton
