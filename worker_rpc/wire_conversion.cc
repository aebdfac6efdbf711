#include "worker_rpc/wire_conversion.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/chunked_prompt_wire.h"
#include "rpc/sampling_wire.h"

namespace baton {
namespace {

constexpr int64_t kMiB = 1 << 20;

const char* AllocationKindName(AllocationEvent::Kind kind) {
  switch (kind) {
    case AllocationEvent::Kind::kMatch:
      return "match";
    case AllocationEvent::Kind::kReserve:
      return "reserve";
    case AllocationEvent::Kind::kInsert:
      return "insert";
    case AllocationEvent::Kind::kEvict:
      return "evict";
    case AllocationEvent::Kind::kRelease:
      return "release";
  }
  return "unknown";
}

v1::KvGroupStatus GroupToWire(const KvGroupStatus& group) {
  v1::KvGroupStatus out;
  out.set_kind(std::string(KvGroupKindName(group.kind)));
  out.set_window(group.window);
  out.set_layers(group.layers);
  out.set_bytes_per_block(group.bytes_per_block);
  out.set_limit_blocks(group.size.limit);
  out.set_reserved_blocks(group.size.reserved);
  out.set_retiring_blocks(group.size.retiring);
  out.set_total_blocks(group.blocks.total);
  out.set_free_blocks(group.blocks.free);
  out.set_cached_blocks(group.blocks.cached);
  out.set_owned_blocks(group.blocks.owned);
  out.set_in_flight_blocks(group.blocks.in_transfer);
  out.set_step_blocks(group.blocks.step);
  out.set_evictable_blocks(group.evictable);
  out.set_never_used_blocks(group.blocks.never_used);
  out.set_evicted_blocks(group.evicted_blocks);
  return out;
}

void AddChunkLedger(const ChunkLedger& ledger, v1::Ledger& out) {
  out.set_chunks(ledger.chunks);
  out.set_chunk_hits(ledger.hits);
  out.set_chunk_repaired_tokens(ledger.repaired_tokens);
  out.set_chunk_pulled_bytes(ledger.pulled_bytes);
  out.set_chunk_lookup_us(ledger.lookup_us);
  out.set_chunk_compute_us(ledger.compute_us);
  out.set_chunk_place_us(ledger.place_us);
  out.set_chunk_repair_us(ledger.repair_us);
  out.set_chunk_wake_us(ledger.wake_us);
}

}  // namespace

v1::KvFingerprint FingerprintToWire(const KvFingerprint& fingerprint) {
  v1::KvFingerprint out;
  out.set_protocol_version(fingerprint.protocol.newest);
  out.set_oldest_protocol_version(fingerprint.protocol.oldest);
  out.set_model(fingerprint.model);
  out.set_backend(fingerprint.backend);
  out.set_numerics(fingerprint.numerics);
  out.set_numerics_revision(NumericsRevision(fingerprint.numerics));
  out.set_kv_type(fingerprint.kv_type);
  out.set_layout(fingerprint.layout);
  out.set_block_size(fingerprint.block_size);
  out.set_layers(fingerprint.layers);
  out.set_kv_heads(fingerprint.kv_heads);
  out.set_head_dim(fingerprint.head_dim);
  out.set_rope(fingerprint.rope);
  return out;
}

v1::Tokens TokensToWire(TokenOutput output) {
  v1::Tokens out;
  out.set_choice(output.choice);
  out.mutable_token_ids()->Add(output.token_ids.begin(), output.token_ids.end());
  out.set_text(std::move(output.text));
  for (const TokenDetail& detail : output.logprobs) {
    v1::TokenDetail* wire = out.add_logprobs();
    wire->set_logprob(detail.logprob);
    for (const TokenLogprob& alternative : detail.top) {
      v1::TokenLogprob* top = wire->add_top();
      top->set_token_id(alternative.token);
      top->set_logprob(alternative.logprob);
    }
  }
  return out;
}

v1::Finished FinishedToWire(FinishInfo info) {
  v1::Finished out;
  out.set_reason(info.reason == FinishReason::kStop ? v1::FINISH_REASON_STOP
                                                    : v1::FINISH_REASON_LENGTH);
  out.set_text(std::move(info.text));
  v1::Usage* usage = out.mutable_usage();
  usage->set_prompt_tokens(info.prompt_tokens);
  usage->set_completion_tokens(info.completion_tokens);
  usage->set_cached_tokens(info.ledger.CachedWherePrefilled());
  out.set_logits_hash(info.logits_hash);
  out.set_choice(info.choice);
  const RequestLedger& ledger = info.ledger;
  v1::Ledger* wire = out.mutable_ledger();
  wire->set_queue_us(ledger.queue_us);
  wire->set_prefill_us(ledger.prefill_us);
  wire->set_prefill_chunks(ledger.prefill_chunks);
  wire->set_kv_bytes(ledger.kv_bytes);
  wire->set_kv_transfer_us(ledger.kv_transfer_us);
  wire->set_admit_us(ledger.admit_us);
  wire->set_first_token_us(ledger.first_token_us);
  wire->set_inter_token_us(ledger.inter_token_us);
  wire->set_total_us(ledger.total_us);
  wire->set_decode_cached_tokens(ledger.cached_tokens);
  wire->set_prefill_cached_tokens(ledger.prefill_cached_tokens);
  wire->set_computed_tokens(ledger.computed_tokens);
  wire->set_preemptions(ledger.preemptions);
  AddChunkLedger(ledger.chunk, *wire);
  return out;
}

v1::PrefillResponse PrefillResultToWire(const PrefillResult& result) {
  v1::PrefillResponse out;
  out.set_cached_tokens(result.cached_tokens);
  out.set_computed_tokens(result.computed_tokens);
  out.set_chunks(result.chunks);
  out.set_queue_us(result.queue_us);
  out.set_prefill_us(result.prefill_us);
  out.set_kv_bytes(result.kv_bytes);
  out.set_kv_transfer_us(result.kv_transfer_us);
  out.set_kv_exposed_us(result.kv_exposed_us);
  return out;
}

v1::PoolStatus PoolToWire(const EngineStatus& status) {
  const KvCacheStats& cache = status.cache;
  v1::PoolStatus out;
  out.set_block_size(status.block_size);
  out.set_total_blocks(cache.blocks.total);
  out.set_free_blocks(cache.blocks.free);
  out.set_cached_blocks(cache.blocks.cached);
  out.set_owned_blocks(cache.blocks.owned);
  out.set_in_flight_blocks(cache.blocks.in_transfer);
  out.set_step_blocks(cache.blocks.step);
  out.set_bytes_per_block(status.bytes_per_block);
  out.set_layout(status.layout);
  out.set_kv_type(status.kv_type);
  out.set_paged(status.paged);
  out.set_prefix_cache(status.prefix_cache);
  out.set_lookups(cache.lookups);
  out.set_hits(cache.hits);
  out.set_lookup_tokens(cache.lookup_tokens);
  out.set_hit_tokens(cache.hit_tokens);
  const ChunkCacheStats& chunks = status.chunk_cache;
  v1::ChunkCacheStatus& chunk_cache = *out.mutable_chunk_cache();
  chunk_cache.set_budget_blocks(chunks.budget_blocks);
  chunk_cache.set_used_blocks(chunks.used_blocks);
  chunk_cache.set_entries(chunks.entries);
  chunk_cache.set_lookups(chunks.lookups);
  chunk_cache.set_hits(chunks.hits);
  chunk_cache.set_misses(chunks.misses());
  chunk_cache.set_bypasses(chunks.bypasses);
  chunk_cache.set_evictions(chunks.evictions);
  const SleepingChunkStats& sleeping = status.sleeping_chunks;
  chunk_cache.set_sleeping_entries(sleeping.entries);
  chunk_cache.set_sleeping_bytes(sleeping.bytes);
  chunk_cache.set_sleeping_limit_bytes(sleeping.limit_bytes);
  chunk_cache.set_sleeps(sleeping.sleeps);
  chunk_cache.set_wakes(sleeping.wakes);
  chunk_cache.set_damaged(sleeping.damaged);
  chunk_cache.set_sleepers_dropped(sleeping.dropped);
  out.set_evicted_blocks(cache.evicted_blocks);
  out.set_evicted_tokens(cache.evicted_tokens);
  out.set_evictable_blocks(cache.evictable);
  out.set_never_used_blocks(cache.blocks.never_used);
  out.set_radix_nodes(cache.radix_nodes);
  out.set_limit_blocks(status.pool.limit);
  out.set_reserved_blocks(status.pool.reserved);
  out.set_retiring_blocks(status.pool.retiring);
  out.set_min_prefix_tokens(status.min_prefix_tokens);
  for (const KvGroupStatus& group : status.groups) *out.add_groups() = GroupToWire(group);
  return out;
}

absl::StatusOr<int32_t> BlocksFromWire(const v1::ResizePoolRequest& wire,
                                       absl::FunctionRef<int64_t(int64_t bytes)> blocks_in) {
  if (wire.blocks() < 0 || wire.kv_cache_mib() < 0 ||
      (wire.blocks() > 0) == (wire.kv_cache_mib() > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("blocks is ", wire.blocks(),
                                                   " and kv_cache_mib ", wire.kv_cache_mib(),
                                                   "; exactly one of the two must be above 0"));
  }
  if (wire.blocks() > 0) return wire.blocks();
  if (wire.kv_cache_mib() > std::numeric_limits<int64_t>::max() / kMiB) {
    return absl::InvalidArgumentError(absl::StrCat("kv_cache_mib is ", wire.kv_cache_mib(),
                                                   ", which is too large to count in bytes"));
  }
  const int64_t blocks = blocks_in(wire.kv_cache_mib() * kMiB);
  if (blocks < 1 || blocks > kMaxKvBlocks) {
    return absl::InvalidArgumentError(absl::StrCat("kv_cache_mib ", wire.kv_cache_mib(), " is ",
                                                   blocks, " blocks; it must be 1 to ",
                                                   kMaxKvBlocks));
  }
  return static_cast<int32_t>(blocks);
}

v1::ResizePoolResponse PoolSizeToWire(const PoolSize& size) {
  v1::ResizePoolResponse out;
  out.set_before(size.before);
  out.set_limit(size.limit);
  out.set_reserved(size.reserved);
  out.set_retiring(size.retiring);
  return out;
}

std::optional<CacheNamespace> NamespaceFromWire(const v1::ClearCacheRequest& wire,
                                                const ModelInfo& model) {
  if (!wire.has_only()) return std::nullopt;
  return MakeNamespace({.tenant = wire.only().tenant(),
                        .cache_salt = wire.only().cache_salt(),
                        .lora = "",
                        .model_revision = model.fingerprint});
}

v1::InspectResponse InspectionToWire(const EngineInspection& inspection) {
  v1::InspectResponse out;
  out.set_op_path(inspection.op_path);
  *out.mutable_pool() = PoolToWire(inspection.status);
  out.set_reserved_slots(inspection.status.cache.reserved_slots);
  out.set_committed_slots(inspection.status.cache.committed_slots);
  out.set_resident_pool_bytes(inspection.resident_pool_bytes);
  out.set_cache_depth(inspection.cache_depth);
  for (const SequenceInspection& sequence : inspection.sequences) {
    v1::SequenceTable* wire = out.add_sequences();
    wire->set_sequence_id(sequence.sequence_id);
    wire->set_request_id(sequence.request_id);
    wire->set_phase(sequence.phase);
    wire->set_tokens(sequence.tokens);
    wire->set_committed(sequence.committed);
    wire->set_matched(sequence.matched);
    wire->set_priority(sequence.priority);
    wire->mutable_blocks()->Add(sequence.blocks.begin(), sequence.blocks.end());
    for (const std::vector<int32_t>& window : sequence.window_blocks) {
      wire->add_windows()->mutable_blocks()->Add(window.begin(), window.end());
    }
  }
  for (const AllocationEvent& event : inspection.trace) {
    v1::AllocationEvent* wire = out.add_trace();
    wire->set_kind(AllocationKindName(event.kind));
    wire->set_sequence_id(event.sequence.value());
    wire->set_tokens(event.tokens);
    wire->set_blocks(event.blocks);
    wire->set_free_after(event.free_after);
    wire->set_group(event.group);
  }
  return out;
}

v1::TokenizerDescription TokenizerToWire(const ModelInfo& model) {
  const TokenizerSpec& spec = model.tokenizer;
  v1::TokenizerDescription out;
  out.set_model_name(model.spec.name);
  out.set_model_fingerprint(model.fingerprint);
  out.set_architecture(model.spec.architecture);
  out.set_context_length(model.spec.context_length);
  out.set_layers(model.spec.layers);
  out.set_tokenizer_model(spec.model);
  out.set_pre_tokenizer(spec.pre);
  for (const std::string& token : spec.tokens) out.add_tokens(token);
  out.mutable_token_types()->Add(spec.token_types.begin(), spec.token_types.end());
  for (const std::string& merge : spec.merges) out.add_merges(merge);
  if (spec.bos) out.set_bos_id(*spec.bos);
  if (spec.eos) out.set_eos_id(*spec.eos);
  if (spec.eot) out.set_eot_id(*spec.eot);
  out.set_add_bos(spec.add_bos);
  out.set_add_eos(spec.add_eos);
  out.set_chat_template(model.chat_template);
  *out.mutable_recommended_sampling() = SamplingDefaultsToWire(model.sampling);
  return out;
}

v1::WorkerStatus WorkerStatusToWire(const WorkerIdentity& identity, Epoch epoch,
                                    const EngineStatus& status, bool draining) {
  v1::WorkerStatus out;
  out.set_worker_id(identity.worker_id);
  out.set_address(identity.address);
  out.set_role(identity.role);
  out.set_epoch(epoch.value());
  *out.mutable_pool() = PoolToWire(status);
  out.set_context_length(status.context_length);
  out.set_max_running(status.max_running);
  out.set_waiting(status.waiting);
  out.set_running(status.running);
  out.set_waiting_for_kv(status.waiting_for_kv);
  out.set_prompt_tokens_left(status.prompt_tokens_left);
  out.set_active_transfers(status.active_transfers);
  out.set_steps(status.steps);
  out.set_prefill_tokens(status.prefill_tokens);
  out.set_decode_tokens(status.decode_tokens);
  out.set_preemptions(status.preemptions);
  out.set_requests(status.requests);
  out.set_failures(status.failures);
  out.set_kv_bytes_through_host(status.kv_bytes_through_host);
  out.set_draining(draining || status.MustDrain());
  out.set_conservation_error(status.conservation_error);
  if (status.prompt_chunks != nullptr) {
    *out.mutable_prompt_chunks() = ChunkSupportToWire(*status.prompt_chunks);
  }
  return out;
}

}  // namespace baton
