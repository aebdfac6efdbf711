#include "engine/engine_machines.h"

#include <utility>

#include "common/status_macros.h"

namespace baton {
namespace {

EngineMachinesOptions Settled(EngineMachinesOptions options) {
  options.cache.max_step_tokens = MaxStepTokens(options.scheduler, options.steps_in_flight);
  options.scheduler.insert_chunks = RulesOf(options.cache.kind).shares;
  return options;
}

std::shared_ptr<const PromptChunkSupport> SupportOf(const WorkerCore& core,
                                                    const EngineEnvironment& environment) {
  PromptChunkSupport support = core.chunk_support();
  support.hands_over = environment.transport != nullptr;
  return std::make_shared<const PromptChunkSupport>(std::move(support));
}

WorkerCoreOptions CoreOptions(const EngineMachinesOptions& options, const KvPoolLayout& layout,
                              MetricSet* metrics) {
  return {.vocabulary = options.vocabulary,
          .context_length = options.context_length,
          .block_size = options.cache.block_size,
          .hash_logits = options.hash_logits,
          .steps_in_flight = options.steps_in_flight,
          .transfer_timeout_ms = options.transfer_timeout_ms,
          .layer_pieces = {.layers = layout.layers(),
                           .bytes_per_token = layout.bytes_per_block() / layout.block_size(),
                           .pieces = options.layer_pieces},
          .prompt_parts = options.prompt_parts,
          .chunk_tier = {.host_bytes = options.chunk_host_bytes,
                         .bytes_per_block = layout.group(0).bytes_per_block(),
                         .max_falling_blocks = static_cast<int32_t>(
                             options.prompt_parts.cache.share * options.cache.num_blocks / 2)},
          .metrics = metrics};
}

}  // namespace

EngineMachinesOptions MachinesOptionsOf(const EngineOptions& options, int32_t vocabulary,
                                        int32_t max_blocks,
                                        std::vector<WindowPoolOptions> windows) {
  return {
      .cache = {.num_blocks = options.kv_blocks,
                .max_blocks = max_blocks,
                .block_size = options.block_size,
                .kind = options.cache_kind,
                .paged = options.paged,
                .min_prefix_tokens = options.min_prefix_tokens,
                .eviction_policy = options.eviction_policy,
                .high_water = options.high_water,
                .low_water = options.low_water,
                .kv_events = options.kv_events,
                .windows = std::move(windows)},
      .scheduler = {.token_budget = options.token_budget,
                    .max_chunk_tokens = options.max_chunk_tokens,
                    .mixed_prompt_tokens = options.mixed_prompt_tokens,
                    .max_running = options.max_running,
                    .max_waiting = options.max_waiting},
      .vocabulary = vocabulary,
      .context_length = options.context_length,
      .hash_logits = options.hash_logits,
      .steps_in_flight = options.steps_in_flight,
      .transfer_timeout_ms = options.transfer_timeout_ms,
      .layer_pieces = options.layer_pieces,
      .prompt_parts = {.cache = {.share = options.chunk_cache_share,
                                 .sleep_after_us = int64_t{options.chunk_sleep_after_s} * 1'000'000,
                                 .sleep_uses = options.chunk_sleep_uses},
                       .piece_tokens = options.prompt_chunk_tokens},
      .chunk_host_bytes = options.chunk_host_mib << 20,
      .kv_type = std::string(KvTypeName(options.kv_type))};
}

EngineMachines::EngineMachines(const EngineMachinesOptions& options, EngineEnvironment environment)
    : options_(Settled(options)),
      environment_(std::move(environment)),
      cache_(options_.cache, environment_.clock),
      resizer_(environment_.pool, &cache_),
      scheduler_(options_.scheduler, &cache_),
      kv_events_(options_.kept_event_bytes),
      integrity_check_([this] { return CheckIntegrity(); }, environment_.clock),
      inbox_(&integrity_check_, environment_.wake),
      core_(CoreOptions(options_, environment_.layout, environment_.metrics), &cache_, &scheduler_,
            environment_.runner, environment_.transport, environment_.tokenizer, environment_.clock,
            environment_.random_bits, environment_.chunk_mover),
      loop_({.core = &core_,
             .cache = &cache_,
             .inbox = &inbox_,
             .kv_events = &kv_events_,
             .integrity_check = &integrity_check_,
             .watchdog = environment_.watchdog,
             .clock = environment_.clock,
             .publish = [this] { Publish(); }},
            options_.idle_turn_us),
      chunk_support_(SupportOf(core_, environment_)) {
  core_.set_pending_cancellations(environment_.cancellations);
  core_.set_watchdog(environment_.watchdog);
}

absl::Status EngineMachines::CheckIntegrity() const {
  RETURN_IF_ERROR(core_.CheckConservation());
  return environment_.also_check();
}

void EngineMachines::Publish() {
  resizer_.GiveBackRetired();
  environment_.publish();
}

// Counting takes time for each sequence, so it does not happen at every step.
EngineMachines::Backlog EngineMachines::CountBacklog() const {
  if (scheduler_.waiting_count() + scheduler_.running_count() == 0) return {};
  const int64_t now_us = environment_.clock->NowUs();
  if (now_us - backlog_counted_us_ < kBacklogUs) return backlog_;
  backlog_counted_us_ = now_us;
  backlog_ = {.tokens = scheduler_.UncomputedTokens(),
              .prompt_tokens = scheduler_.PromptTokensLeft()};
  return backlog_;
}

EngineStatus EngineMachines::Status() const {
  const KvCacheOptions& cache = cache_.options();
  const KvPoolLayout& layout = environment_.layout;
  const WorkerCounters counters = core_.counters();
  EngineStatus status;
  status.cache = cache_.Stats();
  status.chunk_cache = core_.chunk_stats();
  // Chunks that no request uses make room for others, as cached prefixes do.
  status.cache.evictable += status.chunk_cache.used_blocks - status.chunk_cache.referenced_blocks;
  status.sleeping_chunks = core_.sleeping_stats();
  status.prompt_chunks = chunk_support_;
  status.block_size = cache.block_size;
  status.context_length = options_.context_length;
  status.max_running = options_.scheduler.max_running;
  status.bytes_per_block = layout.group(0).bytes_per_block();
  status.layout = std::string(KvLayoutKindName(layout.kind()));
  status.kv_type = options_.kv_type;
  status.paged = cache.paged;
  status.prefix_cache = RulesOf(cache.kind).shares;
  status.min_prefix_tokens = cache.min_prefix_tokens;
  status.pool = resizer_.Size();
  status.groups = KvGroupStatuses(layout, cache_, status.cache);
  status.waiting = scheduler_.waiting_count();
  status.running = scheduler_.running_count();
  status.waiting_for_kv = scheduler_.waiting_for_kv_count();
  status.active_transfers = core_.active_transfers();
  status.steps = counters.steps;
  status.prefill_tokens = counters.prefill_tokens;
  status.decode_tokens = counters.decode_tokens;
  status.preemptions = scheduler_.preemption_count();
  status.requests = counters.requests;
  status.failures = counters.failures;
  const Backlog backlog = CountBacklog();
  status.backlog_tokens = backlog.tokens;
  status.prompt_tokens_left = backlog.prompt_tokens;
  status.backlog_us = core_.PrefillUs(status.backlog_tokens);
  if (environment_.transport != nullptr) status.moved_kv = environment_.transport->moved_bytes();
  status.conservation_error = std::string(integrity_check_.error().message());
  return status;
}

}  // namespace baton
