#include "tests/sim/scenario.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int32_t kPromptLengths[] = {1, 4, 9, 16, 17, 20, 20, 24, 32, 33};

// Draws a prompt. Many prompts share a prefix, and many have the same length. Such prompts reveal
// mixed-up blocks, tickets and manifests.
std::vector<TokenId> DrawPrompt(SimRandom& random, int32_t length) {
  const uint64_t family = random.Below(2);
  const auto shared = static_cast<int32_t>(random.Below(5)) * 4;
  const uint64_t variant = random.Below(3);
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i) {
    const uint64_t source = i < shared ? family : 10 + family * 3 + variant;
    prompt.push_back(
        static_cast<TokenId>(MixBits(source * 1000 + static_cast<uint64_t>(i)) % kSimEndToken));
  }
  return prompt;
}

}  // namespace

int32_t LeastBlocks(const SimEngineOptions& engine) {
  return (kLongestPrompt + kLongestAnswer) / engine.block_size + 2;
}

namespace {

SimEngineOptions DrawEngine(SimRandom& random, bool roomy) {
  SimEngineOptions engine;
  engine.context_length = 64;
  engine.block_size = random.OneIn(3) ? 2 : 4;
  engine.layout = random.OneIn(3) ? KvLayoutKind::kLayerMajor : KvLayoutKind::kBlockMajor;
  engine.cache_kind = random.OneIn(8)   ? CacheKind::kNaive
                      : random.OneIn(8) ? CacheKind::kChunkOnly
                                        : CacheKind::kRadix;
  engine.paged = !random.OneIn(12);
  if (!engine.paged) engine.cache_kind = CacheKind::kNaive;
  if (random.OneIn(8)) engine.min_prefix_tokens = 8;
  if (random.OneIn(3))
    engine.eviction_policy = static_cast<EvictionPolicy>(random.Below(kEvictionPolicies));
  if (random.OneIn(6)) {
    engine.high_water = 0.75;
    engine.low_water = 0.5;
  }
  if (random.OneIn(12)) engine.max_waiting = 1;
  const int32_t least = LeastBlocks(engine);
  engine.kv_blocks = roomy ? 16 * least : least + static_cast<int32_t>(random.Below(8));
  engine.max_chunk_tokens = random.OneIn(3) ? 5 : 16;
  engine.token_budget = random.OneIn(4) ? 8 : 32;
  engine.max_running = random.OneIn(4) ? 2 : 8;
  engine.step_us = random.Between(50, random.OneIn(4) ? 3000 : 400);
  return engine;
}

bool HasWindow(uint64_t seed) { return SimRandom(seed, "model").OneIn(3); }

// Draws different block sizes. With several KV groups, a worker refuses KV from smaller blocks.
// Many scenarios have such pairs.
void DrawBlockSizes(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "block sizes");
  if (!HasWindow(seed) || random.OneIn(2)) return;
  for (SimWorker::Options& worker : scenario.workers) {
    SimEngineOptions& engine = worker.engine;
    const int32_t tokens = engine.kv_blocks * engine.block_size;
    engine.block_size = 2 << random.Below(3);
    engine.kv_blocks = std::max(LeastBlocks(engine), tokens / engine.block_size);
  }
}

void DrawWorkers(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "workers");
  SimRandom memory(seed, "pool memory");
  const bool roomy = random.OneIn(2);
  const SimEngineOptions shared = DrawEngine(random, roomy);
  const auto prefills = static_cast<int32_t>(1 + random.Below(2));
  const auto decodes = static_cast<int32_t>(1 + random.Below(2));
  for (int32_t i = 0; i < prefills + decodes; ++i) {
    SimWorker::Options worker;
    worker.role = i < prefills ? WorkerRole::kPrefill : WorkerRole::kDecode;
    if (i >= prefills && random.OneIn(10)) worker.role = WorkerRole::kBoth;
    worker.id = absl::StrCat(i < prefills ? "prefill" : "decode", i);
    worker.engine = shared;
    if (random.OneIn(12)) worker.engine = DrawEngine(random, roomy);  // another layout
    if (random.OneIn(20)) worker.max_active_requests = 2;
    worker.engine.unreadable_pool = memory.OneIn(3);
    worker.engine.step_us = shared.step_us * random.Between(1, 3);
    scenario.workers.push_back(std::move(worker));
  }
  SimRandom layers(seed, "layer pieces");
  if (!layers.OneIn(3)) {
    for (SimWorker::Options& worker : scenario.workers) worker.engine.layer_pieces = kSimLayers;
  }
  SimRandom steps(seed, "steps in flight");
  for (SimWorker::Options& worker : scenario.workers) {
    worker.engine.asynchronous = steps.OneIn(2);
    if (worker.engine.asynchronous && !steps.OneIn(4)) worker.engine.steps_in_flight = 2;
  }
  SimRandom mixed(seed, "mixed steps");
  if (mixed.OneIn(2)) {
    const auto tokens = static_cast<int32_t>(mixed.Between(1, 6));
    for (SimWorker::Options& worker : scenario.workers) worker.engine.mixed_prompt_tokens = tokens;
  }
  if (SimRandom(seed, "idle turns").OneIn(8)) {
    for (SimWorker::Options& worker : scenario.workers) {
      worker.engine.idle_turn_us = EngineLoop::kIdleTurnUs;
    }
  }
  scenario.router.index_units = 256;
  scenario.router.mixed_fingerprints = true;  // blocks and layouts of many kinds
  scenario.router.routing.local_prefill_tokens = random.OneIn(3) ? 16 : 2;
  scenario.router.routing.local_continuation_tokens = random.OneIn(3) ? 512 : 6;
}

int32_t DrawLength(SimRandom& random) {
  return kPromptLengths[random.Below(std::size(kPromptLengths))];
}

}  // namespace

ScenarioRequest DrawRequest(SimRandom& random, uint64_t number, int32_t length, int64_t span_us) {
  ScenarioRequest request;
  request.request.number = number;
  request.request.prompt = DrawPrompt(random, length);
  request.request.sampling.temperature = random.OneIn(2) ? 0.0f : 1.0f;
  request.request.sampling.seed = random.Below(4);
  request.request.sampling.max_tokens = static_cast<int32_t>(random.Between(1, kLongestAnswer));
  request.request.sampling.ignore_eos = false;
  request.request.cache_namespace = CacheNamespace(random.OneIn(6) ? 2 : 1);
  if (random.OneIn(3)) request.request.priority = static_cast<int32_t>(random.Between(-1, 1));
  request.request.placement = random.OneIn(8)    ? Placement::kRemote
                              : random.OneIn(10) ? Placement::kLocal
                                                 : Placement::kAutomatic;
  request.start_us = kFirstRequestUs + random.Between(0, span_us);
  request.deadline_us = random.OneIn(10) ? random.Between(1, 60) * kMs : 20'000 * kMs;
  if (random.OneIn(8)) request.cancel_after_us = random.Between(100, 30 * kMs);
  if (random.OneIn(12)) request.cancel_after_messages = static_cast<int32_t>(random.Between(1, 6));
  if (random.OneIn(10)) {
    request.read_us = random.Between(100, 50 * kMs);
    if (random.OneIn(2)) request.max_unread = 4;
  }
  return request;
}

namespace {

void DrawChoices(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "choices");
  if (!random.OneIn(3)) return;
  for (ScenarioRequest& request : scenario.requests) {
    request.request.n = static_cast<int32_t>(random.Between(1, 4));
  }
}

void DrawRequests(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "requests");
  const uint64_t count = 2 + random.Below(7);
  const int64_t span_us = random.OneIn(3) ? 1000 : random.OneIn(6) ? 3000 * kMs : 40 * kMs;
  const int32_t one_length = random.OneIn(3) ? DrawLength(random) : 0;  // 0: any
  for (uint64_t i = 1; i <= count; ++i) {
    const int32_t length = one_length > 0 ? one_length : DrawLength(random);
    scenario.requests.push_back(DrawRequest(random, i, length, span_us));
  }
  DrawChoices(seed, scenario);
  if (random.OneIn(12)) {  // abort storm: all clients cancel at once
    for (ScenarioRequest& request : scenario.requests) {
      request.cancel_after_us =
          std::max<int64_t>(1, kFirstRequestUs + span_us + 3 * kMs - request.start_us);
    }
  }
}

int64_t DrawDuration(FaultKind kind, SimRandom& random) {
  switch (kind) {
    case FaultKind::kDelay:
      return random.OneIn(4) ? random.Between(1, 3000) * kMs : random.Between(1, 20) * kMs;
    case FaultKind::kKill:
    case FaultKind::kUnnoticedRestart:
      return random.OneIn(3) ? random.Between(1, 5000) * kMs : random.Between(1, 30) * kMs;
    case FaultKind::kClockJump:
      return random.OneIn(3) ? random.Between(1, 200'000) * kMs : random.Between(1, 3000) * kMs;
    default:
      return random.OneIn(4) ? random.Between(1, 20'000) * kMs : random.Between(1, 2500) * kMs;
  }
}

// Draws the size of the event buffer. With a small one, late readers find their batch gone; with a
// large one, they never do.
void DrawKvEvents(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "KV events");
  const bool most_tell = random.OneIn(2);
  for (SimWorker::Options& worker : scenario.workers) {
    if (most_tell == random.OneIn(12)) continue;
    worker.engine.kept_event_bytes = random.OneIn(2) ? 1 : random.OneIn(2) ? 300 : 1 << 20;
  }
}

void DrawResizes(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "resizes");
  if (!random.OneIn(3)) return;
  for (size_t i = 0; i < scenario.workers.size(); ++i) {
    SimEngineOptions& engine = scenario.workers[i].engine;
    engine.max_blocks = engine.kv_blocks * static_cast<int32_t>(random.Between(1, 2));
    for (uint64_t count = random.Below(5); count > 0; --count) {
      // Often the smallest size, so that many blocks must retire.
      const bool smallest = random.OneIn(2);
      const int32_t least = LeastBlocks(engine);
      scenario.resizes.push_back(
          {.at_us = kFirstRequestUs + random.Between(0, random.OneIn(2) ? 60 * kMs : 10 * kMs),
           .node = kFirstWorkerNode + static_cast<int32_t>(i),
           .blocks =
               smallest ? least : static_cast<int32_t>(random.Between(least, engine.max_blocks))});
    }
  }
}

// Returns the blocks for a window and a step of one sequence, at any offset, plus one for a fork's
// copy.
int32_t LeastWindowBlocks(const SimEngineOptions& engine) {
  const int32_t slots = engine.model.window - 1 + MaxStepTokens(engine);
  return std::min(LeastBlocks(engine), (slots + engine.block_size - 2) / engine.block_size + 2);
}

void DrawModel(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "model");
  if (!random.OneIn(3)) return;
  const SimModel model{.window = static_cast<int32_t>(random.Between(2, 14)),
                       .window_layer = static_cast<int32_t>(random.Below(2))};
  const bool tight = random.OneIn(2);
  for (SimWorker::Options& worker : scenario.workers) {
    SimEngineOptions& engine = worker.engine;
    engine.model = model;
    engine.least_window_blocks = LeastWindowBlocks(engine);
    engine.window_blocks = tight
                               ? engine.least_window_blocks + static_cast<int32_t>(random.Below(6))
                               : std::max(engine.kv_blocks, engine.least_window_blocks);
  }
}

void DrawFaults(uint64_t seed, Scenario& scenario) {
  SimRandom random(seed, "faults");
  const uint64_t count = random.Below(4);
  const auto nodes = static_cast<int32_t>(scenario.workers.size()) + kFirstWorkerNode;
  // Some runs have only faults of message streams. There, nothing excuses a failure.
  const bool streams_only = random.OneIn(4);
  for (uint64_t i = 0; i < count; ++i) {
    Fault fault;
    fault.kind = static_cast<FaultKind>(random.Below(kFaultKinds));
    if (streams_only) fault.kind = random.OneIn(2) ? FaultKind::kFlip : FaultKind::kTruncate;
    fault.duration_us = DrawDuration(fault.kind, random);
    fault.random = random.Bits();
    fault.node = static_cast<int32_t>(
        random.OneIn(10) ? kRouterNode : random.Between(kFirstWorkerNode, nodes - 1));
    fault.other = static_cast<int32_t>(random.Between(kClientNode, nodes - 1));
    if (fault.other == fault.node) fault.other = kRouterNode == fault.node ? 0 : kRouterNode;
    if (random.OneIn(4)) {
      fault.at_ticket = random.Between(0, 3);
      fault.wait_us = random.Between(0, 1500);
      if (random.OneIn(2)) fault.node = Fault::kSender;
    } else if (random.OneIn(2)) {
      fault.at_message = random.Between(10, 250);
    } else {
      fault.at_us = kFirstRequestUs + random.Between(0, 60 * kMs);
    }
    scenario.faults.push_back(fault);
  }
}

// Draws a case that otherwise needs too many coincidences: a worker restarts right after its
// ticket. Requests of the same shape arrive before and after the restart.
void NarrowToRebirth(SimRandom& random, Scenario& scenario) {
  int64_t start_us = kFirstRequestUs;
  for (ScenarioRequest& request : scenario.requests) {
    request.request.prompt = DrawPrompt(random, 20);
    if (random.OneIn(3)) request.request.priority = static_cast<int32_t>(random.Between(-1, 1));
    request.request.placement = Placement::kRemote;
    request.start_us = start_us;
    request.cancel_after_us = 0;
    start_us += random.Between(200, 2000);
  }
  scenario.faults = {{.kind = FaultKind::kUnnoticedRestart,
                      .at_ticket = 0,
                      .wait_us = random.Between(50, 600),
                      .node = Fault::kSender,
                      .duration_us = random.Between(300, 3000),
                      .random = random.Bits()}};
}

std::string TimeOf(const Fault& fault) {
  std::string time = fault.at_message >= 0  ? absl::StrCat("at message ", fault.at_message)
                     : fault.at_ticket >= 0 ? absl::StrCat("at ticket ", fault.at_ticket)
                                            : absl::StrCat("at ", fault.at_us, " us");
  if (fault.wait_us > 0) absl::StrAppend(&time, " plus ", fault.wait_us, " us");
  return time;
}

std::string NodeName(int32_t node) {
  if (node == Fault::kSender) return "its sender";
  return node == Fault::kReceiver ? "its receiver" : absl::StrCat("node ", node);
}

}  // namespace

Scenario DrawScenario(uint64_t seed, Traffic traffic, Fleets fleets) {
  Scenario scenario;
  DrawWorkers(seed, scenario);
  DrawBlockSizes(seed, scenario);
  const bool both = fleets == Fleets::kBoth || seed % 10 == 0;
  if (both) GiveBothRoles(seed, scenario);
  DrawKvEvents(seed, scenario);
  DrawResizes(seed, scenario);
  DrawModel(seed, scenario);
  DrawRequests(seed, scenario);
  if (both) AddRequestsForBoth(seed, scenario);
  DrawFaults(seed, scenario);
  SimRandom random(seed, "family");
  const bool chunked = traffic == Traffic::kChunked || SimRandom(seed, "traffic").OneIn(4);
  if (random.OneIn(12)) {
    NarrowToRebirth(random, scenario);
  } else if (chunked) {
    DrawChunks(seed, scenario);
  }
  SimRandom pulls(seed, "pulls");
  if (pulls.OneIn(2)) scenario.pulls = pulls.Bits() | 1;
  scenario.router.pull_least_ms = pulls.OneIn(3) ? 250 : pulls.Between(1, 20);
  if (pulls.OneIn(6)) scenario.router.pull_least_ms = 2000;  // silence is detected before that
  if (both) DrawFlips(seed, scenario);
  return scenario;
}

std::string Describe(const Scenario& scenario) {
  static constexpr const char* kRoles[] = {"prefill", "decode", "both"};
  static constexpr const char* kPlacements[] = {"automatic", "remote", "local"};
  std::string text;
  if (scenario.pulls != 0) {
    absl::StrAppend(&text, "  the router tries pulls, each for at least ",
                    scenario.router.pull_least_ms, " ms\n");
  }
  if (const SimModel& model = scenario.workers.front().engine.model; model.window > 0) {
    absl::StrAppend(&text, "  layer ", model.window_layer, " has a window of ", model.window,
                    " slots\n");
  }
  for (size_t i = 0; i < scenario.workers.size(); ++i) {
    const SimWorker::Options& worker = scenario.workers[i];
    absl::StrAppend(&text, "  node ", kFirstWorkerNode + i, " ", worker.id, ": ",
                    kRoles[static_cast<int>(worker.role)], ", ", worker.engine.kv_blocks, "+",
                    worker.engine.window_blocks, " blocks of ", worker.engine.block_size,
                    worker.engine.unreadable_pool ? " in unreadable memory" : "", ", at most ",
                    worker.engine.max_running, " sequences, steps of ", worker.engine.step_us,
                    " us, last chunks in ", worker.engine.layer_pieces, " pieces, keeps ",
                    worker.engine.kept_event_bytes, " bytes of KV events\n");
  }
  for (const ScenarioRequest& request : scenario.requests) {
    absl::StrAppend(&text, "  request ", request.request.number, ": at ", request.start_us,
                    " us, deadline ", request.deadline_us, " us later, placement ",
                    kPlacements[static_cast<int>(request.request.placement)], ", ",
                    request.request.n, request.request.n == 1 ? " choice" : " choices");
    if (request.cancel_after_us > 0) {
      absl::StrAppend(&text, ", cancels after ", request.cancel_after_us, " us");
    }
    if (request.cancel_after_messages > 0) {
      absl::StrAppend(&text, ", cancels after ", request.cancel_after_messages, " messages");
    }
    if (request.read_us > 0) {
      absl::StrAppend(&text, ", reads a message in ", request.read_us, " us");
    }
    absl::StrAppend(&text, "\n");
  }
  for (const ScenarioResize& resize : scenario.resizes) {
    absl::StrAppend(&text, "  node ", resize.node, " is resized to ", resize.blocks, " blocks at ",
                    resize.at_us, " us\n");
  }
  text += DescribeChunks(scenario);
  text += DescribeFlips(scenario);
  for (const Fault& fault : scenario.faults) {
    absl::StrAppend(&text, "  fault ", FaultName(fault.kind), ": ", TimeOf(fault), ", ",
                    NodeName(fault.node), ", towards ", NodeName(fault.other), ", for ",
                    fault.duration_us, " us\n");
  }
  return text;
}

Scenario SmallScenario(Traffic traffic) {
  Scenario scenario;
  SimEngineOptions engine;
  engine.context_length = 64;
  engine.kv_blocks = 200;
  engine.max_chunk_tokens = 8;
  engine.layer_pieces = kSimLayers;
  engine.kept_event_bytes = 1;
  scenario.workers = {{.id = "prefill0", .role = WorkerRole::kPrefill, .engine = engine},
                      {.id = "decode1", .role = WorkerRole::kDecode, .engine = engine},
                      {.id = "decode2", .role = WorkerRole::kDecode, .engine = engine}};
  scenario.router.index_units = 256;
  scenario.router.mixed_fingerprints = true;  // blocks and layouts of many kinds
  scenario.router.routing.local_prefill_tokens = 2;
  scenario.router.routing.local_continuation_tokens = 2;
  scenario.pulls = 1;
  for (uint64_t number : {1, 2}) {
    ScenarioRequest request;
    request.request.number = number;
    for (int32_t i = 0; i < 20; ++i) {
      const uint64_t source = i < 8 ? 0 : number;
      request.request.prompt.push_back(
          static_cast<TokenId>(MixBits(source * 1000 + static_cast<uint64_t>(i)) % kSimEndToken));
    }
    request.request.sampling.temperature = 0;
    request.request.sampling.max_tokens = 4;
    request.request.cache_namespace = CacheNamespace(1);
    request.start_us = kFirstRequestUs + static_cast<int64_t>(number) * 8 * kMs;
    request.deadline_us = 20'000 * kMs;
    scenario.requests.push_back(std::move(request));
  }
  if (traffic == Traffic::kChunked) DivideSmallPrompts(scenario);
  return scenario;
}

}  // namespace baton
