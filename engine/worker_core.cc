#include "engine/worker_core.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

WorkerCore::WorkerCore(const WorkerCoreOptions& options, KvCacheManager* cache,
                       Scheduler* scheduler, ModelRunner* runner, KvTransport* transport,
                       const Tokenizer* tokenizer, const Clock* clock,
                       std::function<uint64_t()> random_bits, ChunkMover* mover)
    : options_(options),
      chunk_tier_(options.chunk_tier, cache, mover, clock),
      prompt_parts_(options.prompt_parts, cache, scheduler, clock, &chunk_tier_),
      parts_{.cache = cache,
             .scheduler = scheduler,
             .transport = transport,
             .tokenizer = tokenizer,
             .clock = clock,
             .prompt_parts = &prompt_parts_,
             .part_receives = &part_receives_,
             .part_sends = &part_sends_,
             .metrics = EngineMetrics(options.metrics)},
      limits_{.vocabulary = options.vocabulary, .context_length = options.context_length},
      random_bits_(std::move(random_bits)),
      pulls_({.longest_ms = options.transfer_timeout_ms}, cache, transport, clock,
             [this] { return NewTransferId(); }),
      receives_({.vocabulary = options.vocabulary, .timeout_ms = options.transfer_timeout_ms},
                cache, transport, [this] { return NewTransferId(); }),
      sends_({.timeout_ms = options.transfer_timeout_ms, .layer_pieces = options.layer_pieces},
             cache, transport),
      part_receives_({.timeout_ms = options.transfer_timeout_ms}, cache, transport, &prompt_parts_,
                     [this] { return NewTransferId(); }),
      part_sends_({.timeout_ms = options.transfer_timeout_ms}, cache, transport, &prompt_parts_,
                  clock),
      chunk_pulls_({.longest_ms = options.transfer_timeout_ms}, cache, transport, &prompt_parts_,
                   clock, [this] { return NewTransferId(); }),
      admission_(cache, scheduler, &pulls_,
                 [this](RequestHandle handle, const absl::Status& why) { Fail(handle, why); }),
      sampler_(runner, *tokenizer),
      generations_(
          {.limits = limits_, .hash_logits = options.hash_logits}, parts_, &admission_, &receives_,
          &sampler_,
          [this](std::span<const BlockCopy> copies) { return pipeline_.CopyBlocks(copies); }),
      prefills_({.limits = limits_, .hash_logits = options.hash_logits}, parts_, &admission_,
                &sends_, &sampler_),
      pipeline_(options.steps_in_flight, cache, scheduler, runner, clock, this) {
  pipeline_.set_frame_limits({.shifted_queries = options.prompt_parts.max_shifted_queries,
                              .repair_runs = options.prompt_parts.max_repair_runs});
}

WorkerCore::~WorkerCore() { CHECK(idle()) << "destroyed with live requests or transfers"; }

uint64_t WorkerCore::NewTransferId() const {
  uint64_t id = 0;
  while (id == 0 || receives_.IsReceiving(id) || part_receives_.IsReceiving(id) ||
         pulls_.IsReceiving(id) || chunk_pulls_.IsReceiving(id)) {
    id = random_bits_();
  }
  return id;
}

// ---- requests -----------------------------------------------------------------------------------

void WorkerCore::AddGenerate(RequestHandle handle, GenerateRequest request,
                             std::shared_ptr<RequestSink> sink) {
  ++counters_.requests;
  generations_.Add(handle, std::move(request), std::move(sink));
}

void WorkerCore::AddPrefill(RequestHandle handle, PrefillRequest request,
                            std::shared_ptr<PrefillSink> sink) {
  ++counters_.requests;
  prefills_.Add(handle, std::move(request), std::move(sink));
}

void WorkerCore::Fail(RequestHandle handle, const absl::Status& status) {
  generations_.Fail(handle, status);
  prefills_.Fail(handle, status);
}

void WorkerCore::Cancel(RequestHandle handle) {
  pulls_.Cancel(handle);
  chunk_pulls_.Cancel(handle);
  generations_.Cancel(handle);
  prefills_.Fail(handle, absl::CancelledError("the request was cancelled"));
  pipeline_.RemovePendingCancellation(handle);
}

absl::Status WorkerCore::PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch) {
  absl::Status status = receives_.GiveUp(transfer_id, receiver_epoch);
  const bool here = parts_.transport != nullptr && receiver_epoch == parts_.transport->epoch();
  // The question may have arrived already.
  if (here && part_receives_.GiveUp(transfer_id)) return absl::OkStatus();
  return status;
}

void WorkerCore::PullPrefix(RequestHandle handle, PullRequest request,
                            const std::shared_ptr<PullSink>& asked) {
  const auto sink = std::make_shared<CountedPull>(parts_.metrics, asked);
  if (request.chunked.has_value()) {
    if (absl::Status status = limits_.CheckChunksToPull(*request.chunked); !status.ok()) {
      sink->OnDone(std::move(status));
      return;
    }
    return chunk_pulls_.Pull(handle, request, sink, admission_.SpareBlocks());
  }
  if (absl::Status status = limits_.CheckPrefix(request.tokens); !status.ok()) {
    sink->OnDone(std::move(status));
    return;
  }
  pulls_.Pull(handle, std::move(request), sink, admission_.SpareBlocks());
}

absl::StatusOr<int32_t> WorkerCore::SendPrefix(RequestHandle handle,
                                               const SendPrefixRequest& request) {
  if (request.chunked.has_value()) {
    RETURN_IF_ERROR(limits_.CheckChunksToPull(*request.chunked));
    return chunk_pulls_.Send(request);
  }
  RETURN_IF_ERROR(limits_.CheckPrefix(request.tokens));
  return pulls_.Send(handle, request);
}

absl::Status WorkerCore::Resize(int32_t blocks) {
  RETURN_IF_ERROR(parts_.cache->Resize(blocks));
  prompt_parts_.PoolResized();
  for (const SequenceId id : parts_.scheduler->PoolResized()) EndExhausted(HandleOf(id));
  return absl::OkStatus();
}

int32_t WorkerCore::ClearCache(std::optional<CacheNamespace> only) {
  int32_t freed = prompt_parts_.Clear(only) + parts_.cache->ClearCache(only);
  if (!only.has_value()) return freed;
  for (const CacheNamespace derived : prompt_parts_.DerivedFrom(*only)) {
    freed += parts_.cache->ClearCache(derived);
  }
  return freed;
}

void WorkerCore::EndExhausted(RequestHandle handle) {
  generations_.EndExhausted(handle);
  prefills_.EndExhausted(handle);
}

std::optional<int64_t> WorkerCore::CheckDeadlines() {
  const std::optional<int64_t> lease_us = pulls_.EndLeases();
  const std::optional<int64_t> deadline_us = generations_.CheckDeadlines();
  if (!lease_us.has_value() || !deadline_us.has_value()) return lease_us ? lease_us : deadline_us;
  return std::min(*lease_us, *deadline_us);
}

void WorkerCore::Shutdown(const absl::Status& status) {
  for (const RequestHandle handle : Handles()) Fail(handle, status);
  pulls_.Shutdown(status);
  chunk_pulls_.Shutdown(status);
  chunk_tier_.Shutdown();
}

WorkerCore::Liveness WorkerCore::Describe(RequestHandle handle) const {
  const Choice* const choice = generations_.choices().Find(handle);
  const bool unforked = choice != nullptr && choice->unforked;
  return {.name = choice != nullptr ? choice->request->name : prefills_.Name(handle),
          .delivers = !unforked && !parts_.scheduler->Contains(SequenceOf(handle))};
}

std::vector<RequestHandle> WorkerCore::Handles() const {
  std::vector<RequestHandle> handles = generations_.choices().Handles();
  prefills_.AppendHandles(handles);
  std::sort(handles.begin(), handles.end());
  return handles;
}

WorkerCounters WorkerCore::counters() const {
  WorkerCounters counters = counters_;
  counters.failures = generations_.failures() + prefills_.failures();
  return counters;
}

// ---- a step is planned --------------------------------------------------------------------------

void WorkerCore::OnPlanned(const SchedulerOutput& plan) {
  admission_.YieldLeases(plan, pipeline_.in_flight());
  for (const SequenceId id : plan.admitted) {
    if (prefills_.Contains(HandleOf(id))) {
      prefills_.OnAdmitted(id);
    } else {
      generations_.OnAdmitted(id);
    }
  }
  for (const SequenceId id : plan.awaiting_kv) generations_.OnRoomForKv(id);
  for (const SequenceId id : plan.preempted) {
    generations_.OnPreempted(id);
    prefills_.OnPreempted(id);
  }
  for (const SequenceId id : plan.exhausted) EndExhausted(HandleOf(id));
  if (plan.prompts_blocked) TakeOverHandoff();
}

// Gives up one hand-off, whose prompt is then computed here, if peers wait for prompts that this
// worker cannot compute now. REQUIRES: this worker computes no prompt.
void WorkerCore::TakeOverHandoff() {
  if (receives_.active() == 0 || !prefills_.NoneDelivers()) return;
  const std::optional<uint64_t> transfer = receives_.ToTakeOver(
      [this](SequenceId id) { return parts_.scheduler->priority(id); },
      // If blocks land, the peer computes the prompt. But it may still wait for a part.
      [this](uint64_t id, bool begun) { return !begun || part_receives_.Waits(id); });
  if (!transfer.has_value()) return;
  const absl::Status given_up = PrefillLocally(*transfer, parts_.transport->epoch());
  CHECK(given_up.ok()) << given_up;
}

// A part is always wanted: a part in a later step in flight may see its KV.
StepDemand::Chunk WorkerCore::DemandOf(SequenceId id) const {
  if (PromptParts::IsPart(id)) return {};
  if (prefills_.Contains(HandleOf(id))) return {.request = HandleOf(id)};
  return generations_.DemandOf(id);
}

StepPipeline::RowUse WorkerCore::DescribeRow(const ScheduledChunk& chunk,
                                             std::vector<TokenDraw>& draws) {
  if (prefills_.Contains(HandleOf(chunk.id))) return prefills_.DescribeRow(chunk, draws);
  return generations_.DescribeRow(chunk, draws);
}

std::function<void(int32_t layers, int32_t chunks)> WorkerCore::LayerListener(
    const SchedulerOutput& plan) {
  return sends_.LayerListener(plan);
}

// ---- a step is collected ------------------------------------------------------------------------

void WorkerCore::OnCollected(const SchedulerOutput& plan) {
  ++counters_.steps;
  if (parts_.transport == nullptr) return;
  for (int32_t group = 0; group < parts_.cache->groups(); ++group) ReportWritten(plan, group);
}

// Reports written blocks. The transport may cache its data about blocks that are full, because they
// no longer change.
void WorkerCore::ReportWritten(const SchedulerOutput& plan, int32_t group) {
  std::vector<BlockId> full;
  std::vector<BlockId> part;
  for (const ScheduledChunk& chunk : plan.chunks) {
    // No transfer reads what the step wrote for an ended sequence.
    if (!parts_.cache->Contains(chunk.id)) continue;
    const std::span<const BlockId> table = parts_.cache->BlockTable(chunk.id, group);
    if (PromptParts::IsPart(chunk.id) && prompt_parts_.IsRepair(chunk.id)) {
      // Its rows may lie in any of its blocks, or it only compares.
      part.insert(part.end(), table.begin(), table.end());
      continue;
    }
    const int32_t end = chunk.begin + chunk.count;
    for (int32_t block = chunk.begin / options_.block_size; block * options_.block_size < end;
         ++block) {
      const bool whole = (block + 1) * options_.block_size <= end;
      if (table[block] != kNoBlock) (whole ? full : part).push_back(table[block]);
    }
  }
  parts_.transport->Written(full, part, group);
}

void WorkerCore::OnFailed(SequenceId id, const absl::Status& why) {
  if (!PromptParts::IsPart(id)) return Fail(HandleOf(id), why);
  for (const SequenceId main : prompt_parts_.WaitersOf(id)) Fail(HandleOf(main), why);
}

void WorkerCore::OnComputed(const ScheduledChunk& chunk, const SampledRow& row) {
  if (PromptParts::IsPart(chunk.id)) {
    counters_.prefill_tokens += chunk.count;
    prompt_parts_.OnComputed(chunk, row.changes);
    return TellAboutParts();
  }
  if (prefills_.Contains(HandleOf(chunk.id))) {
    counters_.prefill_tokens += chunk.count;
    return prefills_.OnComputed(chunk, row);
  }
  const Choice* const choice = generations_.choices().Find(HandleOf(chunk.id));
  if (choice == nullptr) return;  // ended while the step ran
  const bool prompt_part = chunk.begin < choice->prompt_tokens;
  (prompt_part ? counters_.prefill_tokens : counters_.decode_tokens) += chunk.count;
  generations_.OnComputed(chunk, row);
}

void WorkerCore::OnStepEnded(int64_t us) {
  const int64_t prompt_tokens = counters_.prefill_tokens - last_step_.prefill_tokens;
  const int64_t decode_tokens = counters_.decode_tokens - last_step_.decode_tokens;
  last_step_ = counters_;
  pace_.Learn(us, prompt_tokens, decode_tokens);
  parts_.metrics.StepEnded(us, prompt_tokens, decode_tokens);
}

// ---- transfers ----------------------------------------------------------------------------------

void WorkerCore::PollTier() {
  if (!chunk_tier_.on()) return;
  prompt_parts_.SleepCold();
  chunk_tier_.StartWakes();
  for (const ChunkTier::Woken& woken : chunk_tier_.Poll()) {
    if (woken.whole) parts_.metrics.Woke(woken.us);
    if (woken.whole && parts_.transport != nullptr) {
      // The last block may be part-full.
      const auto full = static_cast<size_t>(woken.tokens / options_.block_size);
      const std::span<const BlockId> blocks = woken.blocks;
      parts_.transport->Written(blocks.first(full), blocks.subspan(full), /*group=*/0);
    }
    prompt_parts_.OnWoken(woken);
    TellAboutParts();
  }
}

void WorkerCore::PollTransfers() {
  PollTier();
  if (parts_.transport == nullptr) return;
  for (const TransferEvent& event : parts_.transport->Poll()) {
    parts_.metrics.OnTransferEvent(event);
    OnTransferEvent(event);
    TellAboutParts();
  }
  for (const RequestHandle handle : part_sends_.TakeEnded()) prefills_.OnPartsSent(handle);
  if (!has_work() && pipeline_.in_flight() == 0) TakeOverHandoff();
}

void WorkerCore::OnTransferEvent(const TransferEvent& event) {
  if (pulls_.OnEvent(event) || chunk_pulls_.OnEvent(event) || part_receives_.OnEvent(event) ||
      part_sends_.OnEvent(event)) {
    return;
  }
  switch (event.kind) {
    case TransferEvent::Kind::kReceiving:
    case TransferEvent::Kind::kReceived:
    case TransferEvent::Kind::kReceiveFailed:
      if (const std::optional<ReceivedHandoff> received = receives_.OnEvent(event)) {
        generations_.OnReceived(*received);
      }
      break;
    case TransferEvent::Kind::kSent:
    case TransferEvent::Kind::kSendFailed:
      prefills_.OnSendEvent(event);
      break;
  }
}

// Tells requests which parts of their prompts are done, and begins the repairs that can begin.
void WorkerCore::TellAboutParts() {
  CopyForRepairs();
  for (const SequenceId main : prompt_parts_.TakeProgress()) {
    generations_.OnPartsDone(HandleOf(main));
    prefills_.OnPartsDone(HandleOf(main));
  }
}

void WorkerCore::CopyForRepairs() {
  const std::vector<SequenceId> begun = prompt_parts_.TakeBegunRepairs();
  if (begun.empty()) return;
  // Copy now. Before the next step, a transfer may be posted into a block that these copies read.
  const absl::Status copied = pipeline_.CopyBlocks(parts_.cache->TakeCopies());
  for (const SequenceId id : begun) {
    if (!copied.ok()) Fail(HandleOf(id), copied);
  }
}

absl::Status WorkerCore::CheckConservation() const {
  RETURN_IF_ERROR(parts_.cache->CheckConservation());
  RETURN_IF_ERROR(prompt_parts_.CheckInvariants());
  RETURN_IF_ERROR(chunk_tier_.CheckInvariants());
  for (int32_t group = 0; group < parts_.cache->groups(); ++group) {
    std::vector<BlockId> held;
    pulls_.AppendHeld(group, held);
    receives_.AppendHeld(group, held);
    sends_.AppendHeld(group, held);
    if (group == 0) {
      chunk_tier_.AppendHeld(held);
      chunk_pulls_.AppendHeld(held);
      part_receives_.AppendHeld(held);
      part_sends_.AppendHeld(held);
    }
    RETURN_IF_ERROR(parts_.cache->CheckTransferHolds(held, group));
    RETURN_IF_ERROR(
        parts_.cache->CheckStepHolds(parts_.scheduler->step_holds().Held(group), group));
  }
  if (!idle()) return absl::OkStatus();
  const KvCacheStats stats = parts_.cache->Stats();
  for (int32_t group = 0; group < parts_.cache->groups(); ++group) {
    const BlockAllocator::Accounting& blocks =
        group == 0 ? stats.blocks : stats.windows[group - 1].blocks;
    if (blocks.owned == 0 && blocks.step == 0) continue;
    return absl::InternalError(StrCat("KV group ", group, ": idle, yet sequences own ",
                                      blocks.owned, " blocks and steps hold ", blocks.step));
  }
  return absl::OkStatus();
}

}  // namespace baton
