#include "tests/sim/sim_router.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_generation.h"

namespace baton {
namespace {

constexpr int64_t kTickUs = 100'000;

}  // namespace

SimRouter::SimRouter(const RouterOptions& options, Environment environment)
    : options_(options), environment_(std::move(environment)) {
  registry_.heartbeat = [this](WorkerReport report) { return core_->Heartbeat(std::move(report)); };
  registry_.leave = [this](const std::string& id, Epoch epoch) { core_->Leave(id, epoch); };
}

SimRouter::~SimRouter() = default;

void SimRouter::Start() {
  if (node().up()) return;
  node().Start();
  node().Note(0, "started");
  core_ = std::make_unique<RouterCore>(options_, &node().clock());
  failure_detector_ = std::make_unique<FailureDetector>();
  const int64_t slower = environment_.mutant == Mutant::kSlowProbes ? 3 : 1;
  probe_rounds_ = std::make_unique<ProbeRounds>(core_.get(), failure_detector_.get(),
                                                options_.worker_silence_ms * slower);
  subscriber_ = std::make_unique<SimKvEventSubscriber>(
      SimKvEventSubscriber::Environment{.network = environment_.network,
                                        .node = environment_.node,
                                        .index = &core_->index(),
                                        .worker_at = environment_.worker_at,
                                        .refused = environment_.refused});
  Tick();
  ProbeRound();
}

void SimRouter::Kill() {
  if (!node().up()) return;
  node().Note(0, "killed");
  environment_.network->NodeDied(node().id());
  node().Die();
  subscriber_.reset();
  probe_rounds_.reset();
  missed_.clear();
  core_.reset();
  failure_detector_.reset();
}

void SimRouter::Tick() {
  core_->Tick();
  subscriber_->Tick(core_->Workers());
  node().Post(kTickUs, [this] { Tick(); });
}

void SimRouter::CheckBlockSizes(const Route& route) const {
  const auto check = [this](const char* what, const std::string& from, const std::string& to) {
    const SimWorker& sender = *environment_.worker_at(from);
    const SimWorker& receiver = *environment_.worker_at(to);
    const int32_t sent = sender.options().engine.block_size;
    const int32_t received = receiver.options().engine.block_size;
    if (sender.options().engine.model.window == 0 || sent >= received) return;
    environment_.violation(absl::StrCat("a route has ", what, " from ", sender.id(),
                                        " with blocks of ", sent, " to ", receiver.id(),
                                        " with blocks of ", received));
  };
  if (route.plan.prefill) check("a hand-off", route.prefill_address, route.decode_address);
  if (route.plan.pull) check("a pull", route.pull_source_address, route.prefiller_address());
}

void SimRouter::DrawPull(const SimGenerateRequest& request, int32_t tokens, Route& route) const {
  if (environment_.pulls == 0 || tokens < 1) return;
  SimRandom random(environment_.pulls, absl::StrCat("pull of ", request.number));
  if (random.OneIn(4)) return;
  std::vector<const WorkerRecord*> sources;
  const std::vector<WorkerRecord> workers = core_->Workers();
  for (const WorkerRecord& worker : workers) {
    const bool equal = worker.report.fingerprint == route.decode_fingerprint;
    if (request.chunked && worker.report.chunks == nullptr) continue;
    if (worker.number != route.plan.prefiller() && (equal || random.OneIn(8))) {
      sources.push_back(&worker);
    }
  }
  if (request.chunked && !random.OneIn(3)) PreferHolders(request.cache_namespace, sources);
  if (sources.empty()) return;
  const WorkerRecord& source = *sources[random.Below(sources.size())];
  if (random.OneIn(3)) tokens = static_cast<int32_t>(random.Between(1, tokens));
  if (request.chunked) {
    std::vector<int32_t> chunks;
    for (size_t i = 0; i < request.chunked->chunks.size(); ++i) {
      if (!random.OneIn(3)) chunks.push_back(static_cast<int32_t>(i));
    }
    if (chunks.empty()) return;
    route.pulled_chunks = std::move(chunks);
  }
  route.plan.pull = PrefixPull{.from = source.number, .tokens = tokens};
  route.pull_source_id = source.report.id;
  route.pull_source_address = source.report.address;
  route.pull_source_epoch = source.report.epoch;
}

void SimRouter::PreferHolders(CacheNamespace cache_namespace,
                              std::vector<const WorkerRecord*>& sources) const {
  const auto holds = [&](const WorkerRecord* source) {
    const SimEngine* const engine = environment_.worker_at(source->report.address)->engine();
    if (engine == nullptr) return false;
    const std::vector<ChunkCache::EntryInfo> entries = engine->core().chunk_entries();
    return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return entry.key.cache_namespace == cache_namespace;
    });
  };
  if (std::any_of(sources.begin(), sources.end(), holds)) {
    std::erase_if(sources, [&](const WorkerRecord* source) { return !holds(source); });
  }
}

void SimRouter::ProbeRound() {
  if (environment_.mutant == Mutant::kSilentForTooLong) CountMissedRounds();
  probe_rounds_->Run([this](const FailureDetector::Target& target) { Probe(target); });
  node().Post(probe_rounds_->interval_us(), [this] { ProbeRound(); });
}

// The judge does not see probes. One lost probe of many has no effect, and probes would dilute the
// other faults.
void SimRouter::Probe(const FailureDetector::Target& target) {
  SimWorker* const worker = environment_.worker_at(target.address);
  SimNetwork* const network = environment_.network;
  const auto heard = [this, incarnation = node().incarnation(),
                      number = target.number](const absl::Status& status) {
    if (node().incarnation() != incarnation) return;
    node().Post(0, [this, number, status] { OnProbeAnswered(number, status); });
  };
  const auto answer = [this, worker, network, heard, epoch = target.epoch] {
    SimNetwork::Lane back;
    network->Deliver(back, worker->node().id(), node().id(), 0,
                     [heard, status = worker->Ping(epoch)] { heard(status); });
  };
  SimNetwork::Lane there;
  network->Deliver(there, node().id(), worker->node().id(), 0,
                   [worker, answer] { worker->node().Post(0, answer); });
}

void SimRouter::OnProbeAnswered(WorkerNumber worker, const absl::Status& status) {
  if (environment_.mutant == Mutant::kSilentForTooLong) {
    Missed& missed = missed_[worker];
    missed.answered = true;
    if (missed.rounds > 0) return;
  }
  probe_rounds_->OnAnswer(worker, status);
}

void SimRouter::CountMissedRounds() {
  for (const WorkerRecord& worker : core_->Workers()) missed_.try_emplace(worker.number);
  for (auto& [number, missed] : missed_) {
    missed.rounds += missed.answered ? (missed.rounds > 0 ? -1 : 0) : 1;
    missed.answered = false;
  }
}

void SimRouter::Generate(const std::shared_ptr<SimCall>& call, const SimGenerateRequest& request,
                         const SimReader& reader) {
  std::make_shared<Generation>(this, call, request, reader)->Start();
}

int32_t SimRouter::active_on_workers() const {
  int32_t active = 0;
  for (const WorkerRecord& worker : core_->Workers()) active += worker.active;
  return active;
}

int32_t SimRouter::usable_workers(bool decode) const {
  if (core_ == nullptr) return 0;
  int32_t usable = 0;
  for (const WorkerRecord& worker : core_->Workers()) {
    usable += worker.Usable() && (decode ? worker.CanDecode() : worker.CanPrefill()) ? 1 : 0;
  }
  return usable;
}

}  // namespace baton
