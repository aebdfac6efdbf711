#include "engine/generations.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/part_receives.h"
#include "engine/prompt_parts.h"

namespace baton {

Generations::Generations(const ChoiceOptions& options, const WorkerParts& parts,
                         Admission* admission, HandoffReceives* receives, RowSampler* sampler,
                         CopyBlocks copy_blocks)
    : options_(options),
      parts_(parts),
      admission_(admission),
      receives_(receives),
      sampler_(sampler),
      copy_blocks_(std::move(copy_blocks)) {}

// ---- requests come in ---------------------------------------------------------------------------

void Generations::Add(RequestHandle first, GenerateRequest generate,
                      std::shared_ptr<RequestSink> sink) {
  const int64_t now_us = parts_.clock->NowUs();
  if (generate.chunked.has_value()) generate.prompt = FlatTokens(*generate.chunked);
  absl::StatusOr<NewChoices> choices =
      MakeChoices(options_, first, generate, sink, *parts_.tokenizer, now_us);
  if (!choices.ok()) return Refuse(*sink, choices.status());
  if (!choices->live.empty()) {
    const auto layout = PlanParts(generate);
    if (!layout.ok()) return Refuse(*sink, layout.status());
    SequenceSpec spec =
        DescribeSequence(options_, *parts_.cache, *choices, generate, layout->get());
    const absl::Status admitted =
        Admit(std::move(spec), *choices, *layout, generate, parts_.clock->NowUs() - now_us);
    if (!admitted.ok()) return Refuse(*sink, admitted);
    Choice& computes = *choices->live.front();
    for (auto& choice : choices->live) choices_.Add(std::move(choice));
    if (parts_.scheduler->phase(computes.id()) == SequencePhase::kWaitingForKv) {
      if (absl::Status status = ExpectKv(computes); !status.ok()) {
        return Fail(computes.handle(), status);
      }
    }
  }
  if (choices->live.empty()) parts_.metrics.Ended(WorkKind::kGenerate, absl::OkStatus());
  for (FinishInfo& info : choices->finished) sink->OnFinish(std::move(info));
}

absl::StatusOr<std::shared_ptr<const ChunkLayout>> Generations::PlanParts(
    GenerateRequest& generate) const {
  if (!generate.chunked.has_value()) return nullptr;
  const ChunkedPrompt& prompt = *generate.chunked;
  if (parts_.prompt_parts == nullptr) {
    return absl::FailedPreconditionError("this worker does not support prompt chunks");
  }
  RETURN_IF_ERROR(parts_.prompt_parts->CheckSupported(prompt.options));
  if (generate.remote_prefill) RETURN_IF_ERROR(PromptParts::CheckHandOff(prompt.options));
  if (prompt.system.empty() && prompt.chunks.empty()) {
    generate.chunked.reset();
    return nullptr;
  }
  return parts_.prompt_parts->Plan(prompt, generate.cache_namespace,
                                   LongestSequence(options_, generate));
}

absl::Status Generations::Admit(SequenceSpec spec, NewChoices& choices,
                                const std::shared_ptr<const ChunkLayout>& layout,
                                const GenerateRequest& generate, int64_t plan_us) {
  using Use = PromptParts::Use;
  const bool remote_prefill = generate.remote_prefill;
  if (remote_prefill) RETURN_IF_ERROR(receives_->CheckTransport());
  if (layout != nullptr) {
    // The system part is cached under this namespace, the rest under that of the sequence.
    parts_.cache->SetOwner(layout->cache_namespace, spec.cache_owner);
    for (const auto& choice : choices.live) {
      // The other choices are forked later.
      const bool computes = choice->id() == spec.id;
      parts_.prompt_parts->Add(choice->id(), layout, computes ? plan_us : 0,
                               computes && remote_prefill ? Use::kReceived : Use::kLocal);
    }
  }
  // A chunked prompt is not queued, because its parts are planned for the moment.
  const bool queues = generate.queues_for_kv && layout == nullptr;
  absl::Status admitted = remote_prefill ? admission_->AdmitForKv(std::move(spec), queues)
                                         : admission_->Queue(std::move(spec));
  if (admitted.ok() || layout == nullptr) return admitted;
  for (const auto& choice : choices.live) parts_.prompt_parts->End(choice->id());
  return admitted;
}

// Called when the prompt's blocks are reserved. Gives the sink a ticket for the blocks that are
// missing.
absl::Status Generations::ExpectKv(Choice& choice) {
  choice.generation->ledger().cached_tokens = parts_.cache->matched(choice.id());
  ASSIGN_OR_RETURN(TransferTicket ticket,
                   receives_->Expect(choice.handle(), choice.prompt_tokens, choice.request->n));
  choice.transfer_id = ticket.transfer_id;
  if (choice.counts_parts) parts_.part_receives->Expect(choice.id(), ticket);
  choice.sink().OnTicket(ticket);
  return absl::OkStatus();
}

// ---- requests end -------------------------------------------------------------------------------

void Generations::Refuse(RequestSink& sink, const absl::Status& status) {
  ++failures_;
  parts_.metrics.Ended(WorkKind::kGenerate, status);
  sink.OnError(status);
}

void Generations::Fail(RequestHandle handle, const absl::Status& status) {
  const Choice* const failed = choices_.Find(handle);
  if (failed == nullptr) return;
  Refuse(failed->sink(), status);
  for (Choice* choice : choices_.Of(failed->request->first)) End(*choice);
}

void Generations::Cancel(RequestHandle first) {
  const std::vector<Choice*> choices = choices_.Of(first);
  if (choices.empty()) return;
  Fail(choices.front()->handle(), absl::CancelledError("the request was cancelled"));
}

std::optional<int64_t> Generations::CheckDeadlines() {
  const LiveChoices::Deadlines deadlines = choices_.CheckDeadlines(parts_.clock->NowUs());
  for (const RequestHandle handle : deadlines.late) {
    Fail(handle, absl::DeadlineExceededError("the request's deadline has passed"));
  }
  return deadlines.next_us;
}

void Generations::EndExhausted(RequestHandle handle) {
  Choice* const exhausted = choices_.Find(handle);
  if (exhausted == nullptr) return;
  const auto begun = [](const Choice* choice) {
    return choice->generation->completion_tokens() > 0;
  };
  if (exhausted->unforked) {
    const std::vector<Choice*> choices = choices_.Of(exhausted->request->first);
    if (std::any_of(choices.begin(), choices.end(), begun)) {
      for (Choice* choice : choices) Complete(*choice, FinishReason::kLength);
      return;
    }
  } else if (begun(exhausted)) {
    return Complete(*exhausted, FinishReason::kLength);
  }
  Fail(handle,
       admission_->Exhausted(exhausted->id(), exhausted->part_tokens + exhausted->prompt_tokens));
}

void Generations::Complete(Choice& choice, FinishReason reason) {
  FinishInfo info = choice.generation->Finish(reason, parts_.clock->NowUs());
  info.last = choices_.Of(choice.request->first).size() == 1;
  if (info.last) parts_.metrics.Ended(WorkKind::kGenerate, absl::OkStatus());
  choice.sink().OnFinish(std::move(info));
  End(choice);
}

void Generations::End(Choice& choice) {
  if (parts_.scheduler->Contains(choice.id())) {
    parts_.scheduler->Finish(choice.id(), /*keep_cached=*/true);
  }
  if (parts_.prompt_parts != nullptr) parts_.prompt_parts->End(choice.id());
  if (parts_.part_receives != nullptr) parts_.part_receives->Cancel(choice.id());
  receives_->Cancel(choice.transfer_id);
  choices_.Remove(choice.handle());
}

// ---- a step is planned --------------------------------------------------------------------------

void Generations::OnAdmitted(SequenceId id) {
  Choice& choice = choices_.At(HandleOf(id));
  if (choice.prefill_begin_us != 0) return;  // resumed after a preemption
  choice.prefill_begin_us = parts_.clock->NowUs();
  RequestLedger& ledger = choice.generation->ledger();
  ledger.queue_us = choice.prefill_begin_us - choice.request->arrival_us;
  parts_.metrics.Queued(WorkKind::kGenerate, ledger.queue_us);
  ledger.cached_tokens = parts_.cache->matched(id);
}

void Generations::OnRoomForKv(SequenceId id) {
  Choice& choice = choices_.At(HandleOf(id));
  RequestLedger& ledger = choice.generation->ledger();
  ledger.queue_us = parts_.clock->NowUs() - choice.request->arrival_us;
  parts_.metrics.Queued(WorkKind::kGenerate, ledger.queue_us);
  if (absl::Status status = ExpectKv(choice); !status.ok()) Fail(choice.handle(), status);
}

void Generations::OnPreempted(SequenceId id) {
  if (Choice* choice = choices_.Find(HandleOf(id)); choice != nullptr) {
    ++choice->generation->ledger().preemptions;
  }
}

StepDemand::Chunk Generations::DemandOf(SequenceId id) const {
  const ChoicesRequest& request = *choices_.At(HandleOf(id)).request;
  return {.request = request.first, .deadline_us = request.deadline_us};
}

StepPipeline::RowUse Generations::DescribeRow(const ScheduledChunk& chunk,
                                              std::vector<TokenDraw>& draws) const {
  const Choice& choice = choices_.At(HandleOf(chunk.id));
  // The choices of a request have the same sampling parameters.
  const TokenSource& source = choice.generation->source();
  StepPipeline::RowUse use{.keeps_logits = source.needs_logits()};
  if (source.draws_on_host()) return use;
  const int32_t position = choice.first_position + chunk.begin + chunk.count;
  if (!choice.unforked) {
    draws.push_back(source.NextDraw(position, chunk.pending ? 1 : 0));
    use.draws_next = true;
    return use;
  }
  for (const Choice* one : choices_.Of(choice.request->first)) {
    if (!one->tail.empty()) continue;
    draws.push_back(one->generation->source().NextDraw(position, /*pending=*/0));
  }
  return use;
}

// ---- a step is collected ------------------------------------------------------------------------

// Adds a chunk to the prefill part of the ledger. That part ends with the first token: chunks that
// are recomputed after a preemption do not count.
void Generations::NotePrefill(Choice& choice, int32_t computed) {
  if (choice.generation->completion_tokens() != choice.resumed_tokens) return;
  RequestLedger& ledger = choice.generation->ledger();
  ledger.prefill_chunks += 1;
  ledger.computed_tokens += computed;
  ledger.prefill_us = parts_.clock->NowUs() - choice.prefill_begin_us;
  if (!choice.counts_parts) return;
  const PromptParts::Costs costs = parts_.prompt_parts->TakeCosts(choice.id());
  ledger.chunk = costs.ledger;
  ledger.cached_tokens += costs.cached_tokens;
  ledger.computed_tokens += costs.computed_tokens;
  ledger.prefill_chunks += costs.slices;
}

void Generations::OnComputed(const ScheduledChunk& chunk, const SampledRow& row) {
  Choice* const choice = choices_.Find(HandleOf(chunk.id));
  if (choice == nullptr) return;
  NotePrefill(*choice, chunk.count);
  if (!chunk.samples) return;
  SampledRow at = row;
  at.position += choice->first_position;
  const absl::Status drawn = choice->unforked ? DrawFirst(*choice, at) : DrawNext(*choice, at);
  if (!drawn.ok()) Fail(HandleOf(chunk.id), drawn);
}

absl::Status Generations::DrawNext(Choice& choice, const SampledRow& row) {
  ASSIGN_OR_RETURN(const DrawnToken drawn, sampler_->Take(choice.generation->source(), row, 0));
  TakeToken(choice, drawn);
  return absl::OkStatus();
}

// Draws the first tokens of all choices from the same row of logits.
absl::Status Generations::DrawFirst(Choice& computed, const SampledRow& row) {
  std::vector<DrawnToken> drawn(computed.request->n);
  size_t index = 0;
  for (Choice* choice : choices_.Of(computed.request->first)) {
    if (!choice->tail.empty()) continue;
    ASSIGN_OR_RETURN(drawn[choice->index],
                     sampler_->Take(choice->generation->source(), row, index++));
  }
  Fork(computed, drawn);
  return absl::OkStatus();
}

// Called when the prompt is computed or received. The other choices become sequences that share the
// blocks of `computed`. Each continues after the tokens that another worker generated for it, or
// else with its first token.
void Generations::Fork(Choice& computed, std::span<const DrawnToken> first_tokens) {
  const RequestHandle first = computed.request->first;
  const std::vector<Choice*> choices = choices_.Of(first);
  for (Choice* choice : choices) {
    choice->unforked = false;
    if (choice == &computed) continue;
    parts_.scheduler->Fork(computed.id(), choice->id());
    choice->generation->ledger() = computed.generation->ledger();
    choice->prefill_begin_us = computed.prefill_begin_us;
  }
  for (Choice* choice : choices) {
    if (choice->tail.empty()) {
      TakeToken(*choice, first_tokens[choice->index]);
      continue;
    }
    choice->prompt_tokens += choice->resumed_tokens;
    parts_.scheduler->AppendTokens(choice->id(), std::exchange(choice->tail, {}));
  }
  // Copy now. Before the next step, a transfer may be posted into a block that these copies read.
  const absl::Status copied = copy_blocks_(parts_.cache->TakeCopies());
  if (copied.ok()) return;
  const std::vector<Choice*> left = choices_.Of(first);
  if (!left.empty()) Fail(left.front()->handle(), copied);
}

void Generations::TakeToken(Choice& choice, const DrawnToken& drawn) {
  Generation::Emission emission = choice.generation->Accept(drawn, parts_.clock->NowUs());
  parts_.metrics.Generated(1);
  choice.sink().OnTokens(std::move(emission.output));
  if (emission.finished.has_value()) {
    Complete(choice, *emission.finished);
  } else {
    parts_.scheduler->AppendToken(choice.id(), drawn.token);
  }
}

// ---- KV comes from a peer -----------------------------------------------------------------------

void Generations::OnReceived(const ReceivedHandoff& received) {
  Choice* const choice = choices_.Find(received.request);
  if (choice == nullptr) return;
  choice->transfer_id = 0;
  if (choice->counts_parts && !parts_.prompt_parts->Ready(choice->id())) {
    choice->received = received;
    return;
  }
  TakeReceived(*choice, received);
}

void Generations::OnPartsDone(RequestHandle handle) {
  Choice* const choice = choices_.Find(handle);
  if (choice == nullptr || !choice->received.has_value()) return;
  const ReceivedHandoff received = *std::move(choice->received);
  choice->received.reset();
  TakeReceived(*choice, received);
}

void Generations::TakeReceived(Choice& choice, const ReceivedHandoff& received) {
  RequestLedger& ledger = choice.generation->ledger();
  if (received.manifest.has_value() || received.landed_blocks > 0) {
    ledger.kv_bytes = received.bytes;
    ledger.kv_transfer_us = received.busy_us;
  }
  const int64_t landed = int64_t{received.landed_blocks} * parts_.cache->options().block_size;
  parts_.metrics.Transferred(
      std::clamp<int64_t>(landed, 0, choice.prompt_tokens - parts_.cache->matched(choice.id())));
  if (received.manifest.has_value()) return TakeHandoff(choice, received);
  if (choice.counts_parts) NoteReceivedParts(choice, received);
  ComputeLocally(choice, received.landed_blocks);
}

// Adds the parts of a chunked prompt to the ledger. Some may have been computed here.
void Generations::NoteReceivedParts(Choice& choice, const ReceivedHandoff& received) {
  RequestLedger& ledger = choice.generation->ledger();
  const PromptParts::Costs costs = parts_.prompt_parts->TakeCosts(choice.id());
  ledger.chunk = costs.ledger;
  if (received.manifest.has_value()) {
    ledger.chunk = received.manifest->prefill.chunk;
    ledger.chunk.chunks = costs.ledger.chunks;
  }
  ledger.cached_tokens += costs.cached_tokens;
  ledger.computed_tokens += costs.computed_tokens;
  ledger.prefill_chunks += costs.slices;
  ledger.kv_bytes += costs.received.bytes();
  ledger.kv_transfer_us += costs.received.busy_us();
}

void Generations::TakeHandoff(Choice& choice, const ReceivedHandoff& received) {
  const HandoffManifest& manifest = *received.manifest;
  RequestLedger& ledger = choice.generation->ledger();
  ledger.queue_us += manifest.prefill.queue_us;
  ledger.prefill_us = manifest.prefill.prefill_us;
  ledger.prefill_chunks = manifest.prefill.chunks;
  ledger.computed_tokens = manifest.prefill.computed_tokens;
  ledger.prefill_cached_tokens = manifest.prefill.cached_tokens;
  ledger.prefilled_elsewhere = true;
  if (std::exchange(choice.counts_parts, false)) NoteReceivedParts(choice, received);
  const int64_t landed_us = parts_.clock->NowUs();
  choice.prefill_begin_us = landed_us;  // it has left the queue, also if preempted later
  parts_.scheduler->KvArrived(choice.id(), choice.prompt_tokens);
  ledger.admit_us = parts_.clock->NowUs() - landed_us;
  if (choice.unforked) {
    Fork(choice, manifest.drawn);
  } else {
    TakeToken(choice, manifest.drawn.front());
  }
}

// Continues without a manifest. The landed blocks are verified and stay. The rest of the prompt is
// computed here, at least its last token, because its logits are needed.
void Generations::ComputeLocally(Choice& choice, int32_t landed_blocks) {
  const int32_t matched = parts_.cache->matched(choice.id());
  const int32_t block_size = parts_.cache->options().block_size;
  const int32_t landed = (matched / block_size + landed_blocks) * block_size;
  choice.prefill_begin_us = parts_.clock->NowUs();
  parts_.scheduler->KvArrived(choice.id(),
                              std::max(matched, std::min(landed, choice.prompt_tokens - 1)));
}

}  // namespace baton
