#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/index_oracle.h"

namespace baton {
namespace {

constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kWorkerKeepaliveUs = 1'300'000;   // as in worker_rpc/worker_program
constexpr int64_t kLongestRunUs = 300 * kSecondUs;  // far beyond any deadline and any fault
constexpr int64_t kSettleUs = 1'200'000;            // a tick, and a heartbeat of every worker
constexpr int64_t kRegisterUs =
    10 * kSecondUs;  // limit for heartbeats, and for taking over an address
constexpr int64_t kReclaimUs = 2 * kSecondUs;  // from the end of transfers until blocks are free
constexpr int64_t kCheckLossesUs = 50'000;
constexpr int64_t kQuietUs = 500'000;        // nothing may happen for this long
constexpr int64_t kDrainUs = 8 * kSecondUs;  // by then a terminated worker has exited
constexpr int64_t kLastPathUs = 30'000;      // after the restart of an isolated process
constexpr int64_t kAwaitStepUs = 10'000;
constexpr size_t kStoryLines = 150;
constexpr uint64_t kFirstFreshNumber = 100;
constexpr size_t kFreshRequests = 6;

}  // namespace

SimCluster::SimCluster(const Scenario& scenario, uint64_t seed, Mutant mutant)
    : scenario_(scenario),
      mutant_(mutant),
      network_(queue_, seed),
      streams_(network_, seed),
      excuses_(scenario),
      no_excuses_(scenario) {
  const auto add_node = [this](std::string name) {
    const auto id = static_cast<int32_t>(nodes_.size());
    nodes_.push_back(std::make_unique<SimNode>(queue_, history_, id, std::move(name)));
    network_.Add(nodes_.back().get());
  };
  add_node("clients");
  add_node("router");
  for (const SimWorker::Options& worker : scenario.workers) {
    add_node(worker.id);
    nodes_.back()->set_keepalive_us(kWorkerKeepaliveUs);
  }
  faults_ = std::make_unique<FaultPlan>(
      scenario.faults, queue_, [this](const Fault& fault) { CarryOut(fault); },
      [this](const Fault& fault, MessageKind message, int32_t from, int32_t to) {
        nodes_.at(static_cast<size_t>(from))
            ->Note(0, "fault of a message to node %d, for %d us", to, fault.duration_us,
                   FaultName(fault.kind));
        if (message == MessageKind::kStream && fault.kind == FaultKind::kDelay) {
          loss_oracle_->OnLateStream(queue_.now_us() + fault.duration_us);
        }
        excuses_.OnMessageFault(fault, message, from, to, queue_.now_us());
      });
  network_.set_judge(faults_.get());
  router_ = std::make_unique<SimRouter>(
      scenario.router,
      SimRouter::Environment{
          .network = &network_,
          .node = nodes_[kRouterNode].get(),
          .pulls = scenario.pulls,
          .mutant = mutant,
          .worker_at = [this](const std::string& address) { return WorkerAt(address); },
          .refused = [this](const std::string& id,
                            const absl::Status& why) { OnRefusedEvents(id, why); },
          .violation =
              [this](const std::string& what) {
                Violate({"route", what, 0, kRouterNode});
              }});
  MakeWorkers(seed, mutant);
  loss_oracle_ = std::make_unique<LossOracle>(network_, *router_, workers_);
}

SimCluster::~SimCluster() {
  if (!violation_) return;
  for (auto& worker : workers_) worker->LeaveBehind();
}

void SimCluster::MakeWorkers(uint64_t seed, Mutant mutant) {
  for (size_t i = 0; i < scenario_.workers.size(); ++i) {
    SimNode* const node = nodes_[kFirstWorkerNode + i].get();
    workers_.push_back(std::make_unique<SimWorker>(
        scenario_.workers[i], SimWorker::Environment{
                                  .network = &network_,
                                  .streams = &streams_,
                                  .node = node,
                                  .router_node = kRouterNode,
                                  .registry = &router_->registry(),
                                  .mutant = mutant,
                                  .seed = MixBits(seed) + i,
                                  .check =
                                      [this](SimWorker& worker) {
                                        if (auto broken = CheckConservation(worker, mutant_))
                                          Violate(*broken);
                                      },
                                  .violation =
                                      [this, node](const std::string& what) {
                                        Violate({"process", what, 0, node->id()});
                                      },
                              }));
  }
}

SimWorker* SimCluster::WorkerAt(const std::string& address) {
  for (const auto& worker : workers_) {
    if (worker->address() == address) return worker.get();
  }
  return nullptr;
}

SimWorker* SimCluster::WorkerOf(int32_t node) {
  return node < kFirstWorkerNode ? nullptr
                                 : workers_.at(static_cast<size_t>(node - kFirstWorkerNode)).get();
}

// A worker numbers its batches without a gap, and a stream loses no batch. A refusal is therefore a
// violation.
void SimCluster::OnRefusedEvents(const std::string& worker_id, const absl::Status& why) {
  Violate({"index",
           absl::StrCat("it refuses a batch of KV events of ", worker_id, ": ", why.ToString()), 0,
           kRouterNode});
}

void SimCluster::Violate(const Violation& violation) {
  if (!violation_) violation_ = violation;
}

// ---- faults -------------------------------------------------------------------------------------

void SimCluster::KillNode(int32_t node) {
  if (node == kRouterNode) router_->Kill();
  if (SimWorker* worker = WorkerOf(node)) worker->Kill();
}

void SimCluster::StartNode(int32_t node) {
  if (node == kRouterNode) router_->Start();
  if (SimWorker* worker = WorkerOf(node)) worker->Start();
}

void SimCluster::Restart(const Fault& fault) {
  KillNode(fault.node);
  queue_.In(fault.duration_us, [this, node = fault.node] { StartNode(node); });
}

void SimCluster::Partition(const Fault& fault, bool both_ways) {
  network_.Block(fault.node, fault.other);
  if (both_ways) network_.Block(fault.other, fault.node);
  queue_.In(fault.duration_us, [this, fault, both_ways] {
    network_.Unblock(fault.node, fault.other);
    if (both_ways) network_.Unblock(fault.other, fault.node);
  });
}

// Each direction of each path recovers at its own random time.
void SimCluster::Isolate(const Fault& fault) {
  SimRandom times(fault.random, "isolation");
  for (const auto& other : nodes_) {
    for (const bool outwards : {true, false}) {
      const int32_t from = outwards ? fault.node : other->id();
      const int32_t to = outwards ? other->id() : fault.node;
      if (from == to) continue;
      const int64_t until_us = fault.duration_us + times.Between(0, kLastPathUs);
      Partition({.node = from, .other = to, .duration_us = until_us}, /*both_ways=*/false);
    }
  }
}

void SimCluster::Pause(const Fault& fault) {
  SimNode& node = *nodes_.at(static_cast<size_t>(fault.node));
  node.Pause();
  // A server's keepalive detects a paused client. A client's keepalive, equal for all clients,
  // detects a paused server.
  const auto cut = [this, &node](const SimNode& other, int32_t server, int64_t after_us) {
    queue_.In(after_us, [this, &node, &other, server, incarnation = node.incarnation()] {
      if (node.incarnation() != incarnation || !node.paused()) return;
      network_.ResetLinks(node.id(), other.id(),
                          [server](const SimLink& link) { return link.server() == server; });
    });
  };
  for (const auto& other : nodes_) {
    cut(*other, other->id(), other->keepalive_us());
    cut(*other, node.id(), SimNode::kKeepaliveUs);
  }
  queue_.In(fault.duration_us, [&node, incarnation = node.incarnation()] {
    if (node.incarnation() == incarnation) node.Resume();
  });
}

void SimCluster::CarryOut(const Fault& fault) {
  if (healing_ || fault.node == kClientNode) return;
  nodes_.at(static_cast<size_t>(fault.node))
      ->Note(0, "fault towards node %d, for %d us", fault.other, fault.duration_us,
             FaultName(fault.kind));
  excuses_.OnFault(fault, queue_.now_us());
  switch (fault.kind) {
    case FaultKind::kKill:
      return Restart(fault);
    case FaultKind::kUnnoticedRestart:
      Isolate(fault);
      return Restart(fault);
    case FaultKind::kTerminate:
      if (SimWorker* worker = WorkerOf(fault.node)) worker->Terminate();
      queue_.In(kDrainUs + fault.duration_us, [this, node = fault.node] { StartNode(node); });
      return;
    case FaultKind::kPause:
      return Pause(fault);
    case FaultKind::kClockJump:
      return nodes_.at(static_cast<size_t>(fault.node))->JumpClock(fault.duration_us);
    case FaultKind::kPartition:
      return Partition(fault, /*both_ways=*/true);
    case FaultKind::kOneWayPartition:
      return Partition(fault, /*both_ways=*/false);
    default:
      return;  // message faults are not handled here
  }
}

// ---- the run ------------------------------------------------------------------------------------

template <typename Condition>
bool SimCluster::RunUntil(int64_t until_us, Condition condition) {
  while (!violation_) {
    if (condition()) return true;
    if (!queue_.RunNext(until_us)) return false;
  }
  return false;
}

void SimCluster::Heal() {
  healing_ = true;
  faults_->Stop();
  network_.UnblockAll();
  for (const auto& node : nodes_) node->Resume();
  router_->Start();
}

template <typename Condition>
bool SimCluster::Await(int64_t for_us, Condition condition) {
  const int64_t until_us = queue_.now_us() + for_us;
  while (!violation_) {
    if (condition()) return true;
    if (queue_.now_us() >= until_us) return false;
    RunUntil(queue_.now_us() + kAwaitStepUs, [] { return false; });
  }
  return false;
}

// Starts every worker that is down, unless it still drains. Returns true once the router can use
// all workers.
bool SimCluster::AllRegistered() {
  int32_t decode = 0;
  int32_t prefill = 0;
  for (const auto& worker : workers_) {
    worker->Start();
    decode += worker->role() != WorkerRole::kPrefill ? 1 : 0;
    prefill += worker->role() != WorkerRole::kDecode ? 1 : 0;
  }
  return router_->usable_workers(/*decode=*/true) == decode &&
         router_->usable_workers(/*decode=*/false) == prefill;
}

bool SimCluster::AllIdle() const {
  return router_->active_requests() == 0 &&
         std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
           return worker->engine() != nullptr && worker->engine()->idle();
         });
}

bool SimCluster::NoTransfers() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
    return worker->engine() == nullptr || worker->engine()->core().active_transfers() == 0;
  });
}

std::vector<SimWorker*> SimCluster::Workers() const {
  std::vector<SimWorker*> workers;
  for (const auto& worker : workers_) workers.push_back(worker.get());
  return workers;
}

void SimCluster::CheckLosses() {
  if (auto broken = loss_oracle_->Check()) Violate(*broken);
  queue_.In(kCheckLossesUs, [this] { CheckLosses(); });
}

// Checks that all transfers end soon after the last fault, and that soon after that, no worker
// holds a block. Workers that are down hold none.
void SimCluster::ExpectReclaimed() {
  if (!Await(LossOracle::kPeerLossUs, [this] { return NoTransfers(); })) {
    Violate({"liveness", "transfers are still open a second after the last fault", 0, -1});
  }
  std::optional<Violation> held;
  const auto reclaimed = [&] {
    held = std::nullopt;
    for (const auto& worker : workers_) {
      if (!held && worker->engine() != nullptr) held = CheckAtRest(*worker);
    }
    return !held;
  };
  if (Await(kReclaimUs, reclaimed) || violation_) return;
  held->what = absl::StrCat("two seconds after the last transfer: ", held->what);
  Violate(*held);
}

void SimCluster::ExpectRest(const char* when) {
  Await(kReclaimUs, [this] { return AllIdle() && IsIndexCurrent(*router_, Workers()); });
  if (violation_) return;
  for (const auto& worker : workers_) {
    if (worker->engine() == nullptr) {
      return Violate(
          {"liveness", absl::StrCat(when, ": a worker is down"), 0, worker->node().id()});
    }
    if (auto broken = CheckAtRest(*worker)) {
      broken->what = absl::StrCat(when, ": ", broken->what);
      return Violate(*broken);
    }
  }
  if (router_->active_requests() != 0 || router_->active_on_workers() != 0) {
    Violate({"liveness",
             absl::StrCat(when, ": the router counts ", router_->active_requests(), " requests, ",
                          router_->active_on_workers(), " on workers"),
             0, kRouterNode});
  }
  if (auto broken = CheckIndex(*router_, Workers(), scenario_.requests)) {
    broken->what = absl::StrCat(when, ": ", broken->what);
    Violate(*broken);
  }
}

// Checks that workers publish nothing while their caches do not change.
void SimCluster::ExpectQuiet() {
  const int64_t snapshots = SnapshotsTaken(*router_);
  RunUntil(queue_.now_us() + kQuietUs, [] { return false; });
  if (violation_ || SnapshotsTaken(*router_) == snapshots) return;
  Violate({"liveness",
           absl::StrCat("caches do not change, yet workers send snapshots: ", snapshots,
                        " so far, 0.5 s later ", SnapshotsTaken(*router_)),
           0, kRouterNode});
}

// Serves the scenario's prompts again. If a cache holds a wrong block, these requests read it.
void SimCluster::ServeFreshRequests() {
  fresh_clients_ = MakeClients();
  const size_t all = scenario_.requests.size();
  const size_t count = std::min(kFreshRequests, all);
  for (size_t i = 0; i < count && !violation_; ++i) {
    // Chunked prompts are the last ones. Some of both kinds come again.
    const size_t again = scenario_.has_chunks && i % 2 == 1 ? all - 1 - i / 2 : i;
    auto fresh = std::make_unique<ScenarioRequest>(scenario_.requests[again]);
    if (!Takes(scenario_, *fresh)) {  // until the router waits for no more workers that take it
      RunUntil(queue_.now_us() + RouterCore::kRegistrationUs, [] { return false; });
      if (violation_) return;
    }
    const uint64_t number = kFirstFreshNumber + i;
    fresh->request.number = number;
    fresh->request.placement = i % 3 == 2 ? Placement::kLocal : Placement::kAutomatic;
    fresh->start_us = queue_.now_us();
    fresh->deadline_us = 10 * kSecondUs;
    fresh->cancel_after_us = 0;
    fresh->cancel_after_messages = 0;
    fresh->read_us = 0;
    fresh->max_unread = 1000;
    fresh_clients_->Schedule(*fresh, no_excuses_);
    fresh_.push_back(std::move(fresh));
    RunUntil(queue_.now_us() + 20 * kSecondUs, [this] { return fresh_clients_->all_ended(); });
    if (!violation_ && Takes(scenario_, *fresh_.back()) && !fresh_clients_->Succeeded(number)) {
      Violate({"liveness", "a request after the faults was not served", number, -1});
    }
  }
}

std::unique_ptr<SimClients> SimCluster::MakeClients() {
  return std::make_unique<SimClients>(
      SimClients::Environment{.network = &network_,
                              .node = nodes_[kClientNode].get(),
                              .router = router_.get(),
                              .model = scenario_.workers.front().engine.model,
                              .context_length = scenario_.workers.front().engine.context_length,
                              .chunks = &chunk_oracle_,
                              .violation = [this](const Violation& broken) { Violate(broken); }});
}

std::optional<Violation> SimCluster::Run() {
  nodes_[kClientNode]->Start();
  router_->Start();
  for (const auto& worker : workers_) worker->Start();
  CheckLosses();
  clients_ = MakeClients();
  for (const ScenarioRequest& request : scenario_.requests) clients_->Schedule(request, excuses_);
  for (const ScenarioResize& resize : scenario_.resizes) {
    queue_.At(resize.at_us, [this, resize] { WorkerOf(resize.node)->Resize(resize.blocks); });
  }
  for (const ScenarioFlip& flip : scenario_.flips) {
    queue_.At(flip.at_us, [this, flip] { WorkerOf(flip.node)->SetRole(flip.role); });
  }
  for (const ScenarioClear& clear : scenario_.clears) {
    queue_.At(clear.at_us,
              [this, clear] { WorkerOf(clear.node)->ClearCache(clear.prefixes, clear.only); });
  }
  if (!RunUntil(kLongestRunUs, [this] { return clients_->all_ended(); })) {
    Violate({"liveness", "some requests have not ended", 0, -1});
  }
  scenario_messages_ = faults_->messages();
  succeeded_ = clients_->succeeded();
  if (violation_) return violation_;

  Heal();
  // A delay lasts until its message arrives.
  RunUntil(network_.delayed_until_us(), [] { return false; });
  ExpectReclaimed();
  RunUntil(queue_.now_us() + kSettleUs, [] { return false; });
  if (!Await(kDrainUs + kRegisterUs, [this] { return AllRegistered(); })) {
    Violate({"liveness", "the router cannot use all workers again", 0, -1});
  }
  ExpectRest("after the scenario");
  if (!violation_) ServeFreshRequests();
  if (!violation_) ExpectRest("after the last requests");
  if (!violation_) ExpectQuiet();
  return violation_;
}

ChunkCoverage SimCluster::chunk_coverage() const {
  ChunkCoverage coverage = chunk_oracle_.coverage();
  for (const auto& worker : workers_) {
    coverage.Add({.pulled_tokens = worker->pulled_chunk_tokens()});
    if (worker->engine() == nullptr) continue;
    const ChunkCacheStats stats = worker->engine()->core().chunk_stats();
    const SleepingChunkStats sleeping = worker->engine()->core().sleeping_stats();
    coverage.Add({.bypasses = stats.bypasses,
                  .evictions = stats.evictions,
                  .wakes = sleeping.wakes,
                  .damaged = sleeping.damaged});
  }
  return coverage;
}

std::string SimCluster::Story(const Violation& violation) const {
  return Describe(scenario_) + history_.Tail(kStoryLines, violation.request);
}

}  // namespace baton
