#include "routing/routing_policy.h"

#include "common/check.h"
#include "routing/affinity_policies.h"
#include "routing/kv_aware_policy.h"
#include "routing/load_policies.h"
#include "routing/worker_match.h"

namespace baton {

namespace {

using MakePolicy = std::unique_ptr<RoutingPolicy> (*)(const RoutingOptions&);

template <typename Policy>
std::unique_ptr<RoutingPolicy> Make(const RoutingOptions& options) {
  return std::make_unique<Policy>(options);
}

struct NamedPolicy {
  const char* name;
  MakePolicy make;
};

// To add a policy, write a class and add a row here.
constexpr NamedPolicy kPolicies[] = {
    {"kv-aware", Make<KvAwarePolicy>},                  // least estimated time
    {"round-robin", Make<RoundRobinPolicy>},            // in turn
    {"random", Make<RandomPolicy>},                     // any worker
    {"least-loaded", Make<LeastLoadedPolicy>},          // fewest requests
    {"power-of-two", Make<PowerOfTwoPolicy>},           // the less loaded of two random ones
    {"consistent-hash", Make<ConsistentHashPolicy>},    // by the request's affinity key
    {"session-affinity", Make<SessionAffinityPolicy>},  // the key's earlier worker
};

}  // namespace

const std::vector<std::string>& RoutingPolicyNames() {
  static const auto& names = *[] {
    auto* const all = new std::vector<std::string>;
    for (const NamedPolicy& policy : kPolicies) all->push_back(policy.name);
    return all;
  }();
  return names;
}

std::unique_ptr<RoutingPolicy> MakeRoutingPolicy(const RoutingOptions& options) {
  for (const NamedPolicy& policy : kPolicies) {
    if (policy.name == options.policy) return policy.make(options);
  }
  CHECK(false) << "unknown routing policy " << options.policy;
}

bool TakesPrompt(const RoutingInput& input, const WorkerRecord& worker) {
  if (!input.chunk_repair) return true;
  const PromptChunkSupport* const chunks = worker.report.chunks.get();
  return chunks != nullptr && chunks->Takes(*input.chunk_repair);
}

bool MayDecode(const RoutingInput& input, const WorkerRecord& worker) {
  return worker.Usable() && worker.CanDecode() && !input.excluded.contains(worker.number) &&
         (input.room.least == 0 || input.room.RoomOn(worker.report) >= input.room.least) &&
         (input.fingerprint.empty() ||
          SameAnswers(input.fingerprint, input.backend, worker.report)) &&
         TakesPrompt(input, worker);
}

bool MovesChunks(const RoutingInput& input, const WorkerRecord& worker) {
  return input.chunk_repair && TakesPrompt(input, worker) && worker.report.chunks->hands_over;
}

bool HandsOver(const RoutingInput& input, const WorkerRecord& worker) {
  return !input.chunk_repair ||
         (input.chunk_repair->RepairsNothing() && MovesChunks(input, worker));
}

bool MayPrefill(const RoutingInput& input, const WorkerRecord& worker) {
  return worker.Usable() && worker.CanPrefill() && HandsOver(input, worker);
}

bool MayPrefillFor(const RoutingInput& input, const WorkerRecord& decode,
                   const WorkerRecord& worker) {
  return MayPrefill(input, worker) && HandsOver(input, decode) && worker.number != decode.number &&
         MayHandOver(worker.report, decode.report);
}

absl::Status NoWorkerError(Placement placement) {
  return absl::UnavailableError(
      placement == Placement::kRemote
          ? "no prefill worker and decode worker are ready that can work together. They need equal "
            "fingerprints, backends whose bits were confirmed to be equal, and a common protocol "
            "version. With several KV groups, the prefill worker's blocks must not be smaller"
          : "no decode worker is ready");
}

}  // namespace baton
