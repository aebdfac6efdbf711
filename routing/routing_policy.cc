#include "routing/routing_policy.h"

#include "common/check.h"
#include "routing/affinity_policies.h"
#include "routing/kv_aware_policy.h"
#include "routing/load_policies.h"
#include "routing/worker_match.h"

namespace baton {

const std::vector<std::pair<std::string, RoutingPolicyKind>>& RoutingPolicyNames() {
  static const auto& names = *new std::vector<std::pair<std::string, RoutingPolicyKind>>{
      {"kv-aware", RoutingPolicyKind::kKvAware},
      {"round-robin", RoutingPolicyKind::kRoundRobin},
      {"random", RoutingPolicyKind::kRandom},
      {"least-loaded", RoutingPolicyKind::kLeastLoaded},
      {"power-of-two", RoutingPolicyKind::kPowerOfTwo},
      {"consistent-hash", RoutingPolicyKind::kConsistentHash},
      {"session-affinity", RoutingPolicyKind::kSessionAffinity}};
  return names;
}

const std::string& RoutingPolicyName(RoutingPolicyKind kind) {
  for (const auto& [name, named] : RoutingPolicyNames()) {
    if (named == kind) return name;
  }
  CHECK(false) << "no such policy";
}

std::unique_ptr<RoutingPolicy> MakeRoutingPolicy(const RoutingOptions& options) {
  switch (options.policy) {
    case RoutingPolicyKind::kKvAware:
      return std::make_unique<KvAwarePolicy>(options);
    case RoutingPolicyKind::kRoundRobin:
      return std::make_unique<RoundRobinPolicy>(options);
    case RoutingPolicyKind::kRandom:
      return std::make_unique<RandomPolicy>(options);
    case RoutingPolicyKind::kLeastLoaded:
      return std::make_unique<LeastLoadedPolicy>(options);
    case RoutingPolicyKind::kPowerOfTwo:
      return std::make_unique<PowerOfTwoPolicy>(options);
    case RoutingPolicyKind::kConsistentHash:
      return std::make_unique<ConsistentHashPolicy>(options);
    case RoutingPolicyKind::kSessionAffinity:
      return std::make_unique<SessionAffinityPolicy>(options);
  }
  CHECK(false) << "no such policy";
}

bool MayDecode(const RoutingInput& input, const WorkerRecord& worker) {
  return worker.Usable() && worker.CanDecode() && !input.excluded.contains(worker.number) &&
         (input.fingerprint.empty() ||
          SameAnswers(input.fingerprint, input.backend, worker.report));
}

bool MayPrefillFor(const WorkerRecord& decode, const WorkerRecord& worker) {
  return worker.Usable() && worker.CanPrefill() && worker.number != decode.number &&
         MayHandOver(worker.report, decode.report);
}

absl::Status NoWorkerError(Placement placement) {
  return absl::UnavailableError(placement == Placement::kRemote
                                    ? "no prefill worker and decode worker are ready that have "
                                      "equal fingerprints, backends that "
                                      "a test has confirmed, and a protocol version in common"
                                    : "no decode worker is ready");
}

}  // namespace baton
