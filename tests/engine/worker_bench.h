// WorkerCore with fake parts. The test runs its steps, and time advances only with them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "common/clock.h"
#include "engine/engine_loop.h"
#include "engine/transfer_rows.h"
#include "engine/worker_core.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "kvtransfer/pool/host_pool.h"
#include "scheduler/scheduler.h"
#include "tests/engine/fake_transport.h"
#include "tests/engine/fake_worker_parts.h"
#include "tests/engine/packing_chunk_mover.h"
#include "tests/engine/recording_sinks.h"
#include "tests/model/deferred_runner.h"

namespace baton {

struct BenchOptions {
  int32_t num_blocks = 64;
  int32_t max_blocks = 0;  // 0: num_blocks
  int32_t block_size = 4;
  int32_t context_length = 128;
  int32_t token_budget = 64;
  int32_t max_chunk_tokens = 64;
  int32_t max_running = 8;
  int32_t max_waiting = 64;
  bool prefix_cache = true;
  bool paged = true;
  bool hash_logits = true;
  int32_t layer_pieces = 1;
  // Steps end only when the bench says so (deferred_runner.h).
  bool asynchronous = false;
  int32_t steps_in_flight = 1;
  EvictionPolicy eviction_policy = EvictionPolicy::kLru;
  std::vector<FakeWindow> windows = {};  // of KV groups 1, 2, ...
  PromptPartsOptions prompt_parts = {.cache = {.share = 0.5}, .piece_tokens = 256};
  // Prompt chunks that sleep, and the mover that copies them (packing_chunk_mover.h).
  int64_t chunk_host_bytes = 0;
  bool chunk_compress = false;
  uint64_t mover_seed = 1;
  uint32_t damage_every = 0;
};

class WorkerBench {
 public:
  // `network` connects the worker with others on it. Without a network it has a FakeTransport.
  explicit WorkerBench(const BenchOptions& options = {},
                       std::shared_ptr<LoopbackNetwork> network = nullptr,
                       const std::string& name = "worker")
      : pool(std::max(options.num_blocks, options.max_blocks) + 1, options.block_size,
             options.windows),
        runner(&pool),
        deferred(&runner),
        asynchronous(options.asynchronous),
        fake(&pool),
        mover(pool.base(), pool.layout(), options.chunk_compress, options.mover_seed,
              options.damage_every),
        cache({.num_blocks = options.num_blocks,
               .max_blocks = options.max_blocks,
               .block_size = options.block_size,
               .kind = options.prefix_cache ? CacheKind::kRadix : CacheKind::kNaive,
               .paged = options.paged,
               .eviction_policy = options.eviction_policy,
               .windows = WindowPools(options.windows),
               .max_step_tokens = options.steps_in_flight * options.max_chunk_tokens},
              &clock),
        scheduler({.token_budget = options.token_budget,
                   .max_chunk_tokens = options.max_chunk_tokens,
                   .max_running = options.max_running,
                   .max_waiting = options.max_waiting,
                   .insert_chunks = options.prefix_cache},
                  &cache),
        tokenizer(MakeByteTokenizer()) {
    if (network != nullptr) {
      KvFingerprint fingerprint;
      fingerprint.layout = std::string(KvLayoutKindName(pool.layout().kind()));
      fingerprint.block_size = options.block_size;
      DescribeGroups(pool.spec(), fingerprint);
      lender.emplace(pool.base(), pool.layout());
      TransportOptions transport{.fingerprint = std::move(fingerprint),
                                 .epoch = Epoch(name.size()),
                                 .pool = &*lender,
                                 .waker = [] {}};
      loopback = *CreateLoopbackTransport(std::move(network), name, std::move(transport));
    }
    core = std::make_unique<WorkerCore>(
        WorkerCoreOptions{.vocabulary = kFakeVocabulary,
                          .context_length = options.context_length,
                          .block_size = options.block_size,
                          .hash_logits = options.hash_logits,
                          .steps_in_flight = options.steps_in_flight,
                          .layer_pieces = {.layers = kFakeLayers,
                                           .bytes_per_token = 1,
                                           .pieces = options.layer_pieces},
                          .prompt_parts = options.prompt_parts,
                          .chunk_tier = {.host_bytes = options.chunk_host_bytes,
                                         .bytes_per_block = pool.layout().bytes_per_block(),
                                         .max_falling_blocks = options.num_blocks / 8},
                          .metrics = &metrics},
        &cache, &scheduler, asynchronous ? static_cast<ModelRunner*>(&deferred) : &runner,
        loopback != nullptr ? loopback.get() : &fake, tokenizer.get(), &clock,
        [this] { return next_transfer_id(); }, &mover);
    core->set_pending_cancellations(&cancels);
    loop = std::make_unique<EngineLoop>(EngineLoop::Parts{.core = core.get(),
                                                          .cache = &cache,
                                                          .inbox = &inbox,
                                                          .kv_events = &feed,
                                                          .integrity_check = &integrity_check,
                                                          .watchdog = &watchdog,
                                                          .clock = &clock,
                                                          .publish = [] {}});
  }

  static GenerateRequest Request(std::vector<TokenId> prompt, std::optional<int32_t> max_tokens) {
    GenerateRequest request;
    request.request_id = "name";
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    return request;
  }

  // Adds a request. Its last handle is then last_handle.
  std::shared_ptr<SinkRecord> Generate(GenerateRequest request) {
    auto record = std::make_shared<SinkRecord>();
    ++last_handle;
    const int32_t n = request.n;
    core->AddGenerate(last_handle, std::move(request), std::make_shared<RecordingSink>(record));
    last_handle += static_cast<RequestHandle>(std::clamp(n, 1, kMaxChoices)) - 1;
    return record;
  }
  std::shared_ptr<SinkRecord> Generate(std::vector<TokenId> prompt,
                                       std::optional<int32_t> max_tokens) {
    return Generate(Request(std::move(prompt), max_tokens));
  }
  std::shared_ptr<SinkRecord> GenerateRemote(std::vector<TokenId> prompt,
                                             std::optional<int32_t> max_tokens) {
    GenerateRequest request = Request(std::move(prompt), max_tokens);
    request.remote_prefill = true;
    return Generate(std::move(request));
  }
  std::shared_ptr<PrefillRecord> Prefill(std::vector<TokenId> prompt, const TransferTicket& ticket,
                                         const SamplingParams& sampling = Greedy(),
                                         GeneratedPart generated = {}, int32_t n = 1) {
    auto record = std::make_shared<PrefillRecord>();
    PrefillRequest request;
    request.request_id = "prefill";
    request.prompt = std::move(prompt);
    request.n = n;
    request.generated = std::move(generated);
    request.sampling = sampling;
    request.ticket = ticket;
    core->AddPrefill(++last_handle, std::move(request),
                     std::make_shared<RecordingPrefillSink>(record));
    return record;
  }
  std::shared_ptr<PullRecord> Pull(std::vector<TokenId> tokens, int64_t timeout_ms = 1000,
                                   int32_t priority = 0) {
    auto record = std::make_shared<PullRecord>();
    core->PullPrefix(++last_handle,
                     {.tokens = std::move(tokens),
                      .cache_namespace = CacheNamespace(0),
                      .timeout_ms = timeout_ms,
                      .priority = priority},
                     std::make_shared<RecordingPullSink>(record));
    return record;
  }
  // Sends the cached part of `tokens` to the receiver that the ticket names.
  absl::StatusOr<int32_t> SendPrefix(std::vector<TokenId> tokens, const TransferTicket& ticket,
                                     int32_t priority = 0) {
    return core->SendPrefix(++last_handle, {.tokens = std::move(tokens),
                                            .cache_namespace = CacheNamespace(0),
                                            .ticket = ticket,
                                            .priority = priority});
  }
  // Generates an answer, so that prompt and answer are cached.
  void Cache(const std::vector<TokenId>& prompt, int32_t answer = 1) {
    const auto record = Generate(prompt, answer);
    Run();
    ASSERT_TRUE(record->finish.has_value());
  }
  int32_t CachedTokens(std::vector<TokenId> tokens) const {
    tokens.push_back(0);  // a match stops before the last token
    return cache.PeekMatch(CacheNamespace(0), UnitsFromTokens(tokens));
  }
  static SamplingParams Greedy() {
    SamplingParams params;
    params.temperature = 0;
    return params;
  }
  // Ticket of a receiver that lacks the blocks from `first_block` on.
  TransferTicket Ticket(size_t prompt_tokens, int32_t first_block = 0) const {
    const auto tokens = static_cast<int32_t>(prompt_tokens);
    return {.transfer_id = 5,
            .receiver_epoch = Epoch(9),
            .address = "fake:there",
            .first_block = first_block,
            .block_count = cache.BlocksFor(tokens) - first_block,
            .window_first_blocks = WindowFirstBlocks(cache, first_block, tokens),
            .timeout_ms = 1000};
  }
  std::string Manifest(const std::vector<TokenId>& prompt) const {
    HandoffManifest manifest;
    DrawnToken& drawn = manifest.drawn.emplace_back();
    drawn.token = runner.Continuation(prompt, 1)[0];
    drawn.logits_hash = 99;
    manifest.prefill.cached_tokens = 1;
    manifest.prefill.computed_tokens = 2;
    manifest.prefill.chunks = 3;
    manifest.prefill.queue_us = 4;
    manifest.prefill.prefill_us = 5;
    return EncodeManifest(manifest);
  }

  // One turn of the engine's loop. Returns false if there was no work. An asynchronous device ends
  // one step at the end of a turn, after the next one was submitted.
  bool Turn() {
    loop->Rest();
    loop->Turn();
    if (!loop->has_step() && !deferred.unfinished()) return false;
    if (loop->has_step()) loop->Step();
    if (deferred.unfinished()) deferred.FinishOne();
    clock.AdvanceUs(100);
    return true;
  }
  // Runs turns until nothing can continue without an event.
  void Run(int most = 10'000) {
    int turns = 0;
    while (Turn()) ASSERT_LT(++turns, most) << "the loop never becomes idle";
  }

  // Resizes the pool as the engine does, including the discard of retired blocks.
  void Resize(int32_t blocks) {
    const absl::Status resized = core->Resize(blocks);
    EXPECT_TRUE(resized.ok()) << resized;
    DiscardRetired();
  }
  void DiscardRetired() {
    for (const BlockRange& retired : cache.RetiredBlocks()) {
      for (int32_t block = retired.begin; block < retired.end; ++block) {
        for (int32_t i = 0; i < pool.layout().block_size(); ++i) pool.Set(BlockId(block), i, 0);
      }
    }
  }

  void ExpectAllBlocksHome() {
    EXPECT_TRUE(core->idle());
    EXPECT_TRUE(cache.CheckConservation().ok()) << cache.CheckConservation();
    const KvCacheStats stats = cache.Stats();
    EXPECT_EQ(stats.blocks.in_transfer, 0);
    EXPECT_EQ(stats.blocks.owned, 0);
    EXPECT_EQ(stats.blocks.step, 0);
    EXPECT_EQ(stats.blocks.free + stats.blocks.cached, stats.blocks.total);
    EXPECT_EQ(stats.evictable + stats.chunk_blocks, stats.blocks.cached);
    for (const WindowStats& window : stats.windows) {
      EXPECT_EQ(window.blocks.free + window.blocks.cached, window.blocks.total);
      EXPECT_EQ(window.charged, 0);
    }
    EXPECT_TRUE(core->CheckConservation().ok()) << core->CheckConservation();
    EXPECT_TRUE(integrity_check.error().ok()) << integrity_check.error();
    EXPECT_EQ(scheduler.waiting_count() + scheduler.running_count(), 0);
    EXPECT_EQ(scheduler.waiting_for_kv_count(), 0);
  }

  static std::vector<WindowPoolOptions> WindowPools(const std::vector<FakeWindow>& windows) {
    std::vector<WindowPoolOptions> pools;
    for (const FakeWindow& window : windows) {
      pools.push_back({.window = window.window, .num_blocks = window.num_blocks});
    }
    return pools;
  }

  ManualClock clock;
  MetricSet metrics{MetricPrograms::kWorkers};
  ChainPool pool;
  FakeRunner runner;
  DeferredRunner deferred;
  const bool asynchronous;
  FakeTransport fake;
  PackingChunkMover mover;
  KvCacheManager cache;
  Scheduler scheduler;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::optional<HostPool> lender;
  std::unique_ptr<KvTransport> loopback;
  PendingCancellations cancels;
  std::unique_ptr<WorkerCore> core;
  LoopWatchdog watchdog{&clock, /*longest_us=*/60'000'000};
  IdleIntegrityCheck integrity_check{[this] { return core->CheckConservation(); }, &clock};
  EngineInbox inbox{&integrity_check, [] {}};
  KvEventFeed feed;
  std::unique_ptr<EngineLoop> loop;
  RequestHandle last_handle = 0;
  // Id of the next transfer; by default the request's handle.
  std::function<uint64_t()> next_transfer_id = [this] { return last_handle; };
};

// Runs the engine loops of both workers until both are idle.
inline void RunBoth(WorkerBench& one, WorkerBench& other) {
  for (int i = 0; i < 100'000 && !(one.core->idle() && other.core->idle()); ++i) {
    const bool worked = one.Turn();
    if (!other.Turn() && !worked) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace baton
