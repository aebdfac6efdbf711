#include "engine/peer_prefills.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/part_sends.h"
#include "engine/part_tickets.h"
#include "engine/prompt_parts.h"

namespace baton {

PeerPrefills::PeerPrefills(const PeerPrefillOptions& options, const WorkerParts& parts,
                           Admission* admission, HandoffSends* sends, RowSampler* sampler)
    : options_(options), parts_(parts), admission_(admission), sends_(sends), sampler_(sampler) {}

absl::StatusOr<PeerPrefills::Layout> PeerPrefills::Check(PrefillRequest& prefill) const {
  const auto generated = std::span<const GeneratedPart>(&prefill.generated, 1);
  if (prefill.chunked.has_value()) {
    RETURN_IF_ERROR(options_.limits.CheckChunkedRequest(*prefill.chunked, prefill.n, generated,
                                                        prefill.sampling));
  } else {
    RETURN_IF_ERROR(
        options_.limits.CheckRequest(prefill.prompt, prefill.n, generated, prefill.sampling));
  }
  if (prefill.n > 1 && !prefill.generated.tokens.empty()) {
    return absl::InvalidArgumentError(
        StrCat("n is ", prefill.n, "; it must be 1 if there are generated tokens"));
  }
  ASSIGN_OR_RETURN(Layout layout, PlanParts(prefill));
  const TransferTicket& ticket = prefill.ticket;
  const size_t tokens =
      (layout != nullptr ? prefill.chunked->question.size() : prefill.prompt.size()) +
      prefill.generated.tokens.size();
  RETURN_IF_ERROR(sends_->Check(ticket, static_cast<int32_t>(tokens)));
  if (layout != nullptr) {
    RETURN_IF_ERROR(CheckPartTickets(ticket, *layout, parts_.cache->options().block_size));
  } else if (!ticket.parts.empty()) {
    return absl::InvalidArgumentError(
        StrCat("the ticket has ", ticket.parts.size(), " parts, but the prompt has no chunks"));
  }
  return layout;
}

absl::StatusOr<PeerPrefills::Layout> PeerPrefills::PlanParts(PrefillRequest& prefill) const {
  if (!prefill.chunked.has_value()) return nullptr;
  const ChunkedPrompt& prompt = *prefill.chunked;
  if (parts_.prompt_parts == nullptr) {
    return absl::FailedPreconditionError("this worker does not support prompt chunks");
  }
  RETURN_IF_ERROR(parts_.prompt_parts->CheckSupported(prompt.options));
  RETURN_IF_ERROR(PromptParts::CheckHandOff(prompt.options));
  if (prompt.system.empty() && prompt.chunks.empty()) {
    prefill.chunked.reset();
    return nullptr;
  }
  const size_t own = prompt.question.size() + prefill.generated.tokens.size();
  return parts_.prompt_parts->Plan(prompt, prefill.cache_namespace, static_cast<int32_t>(own),
                                   prefill.ticket.piece_tokens);
}

void PeerPrefills::Add(RequestHandle handle, PrefillRequest prefill,
                       std::shared_ptr<PrefillSink> sink) {
  const int64_t arrival_us = parts_.clock->NowUs();
  if (prefill.chunked.has_value()) prefill.prompt = FlatTokens(*prefill.chunked);
  const absl::StatusOr<Layout> layout = Check(prefill);
  if (!layout.ok()) return Refuse(*sink, layout.status());
  auto made = std::make_unique<Prefill>();
  made->name = prefill.request_id;
  made->sink = std::move(sink);
  made->arrival_us = arrival_us;
  for (int32_t i = 0; i < prefill.n; ++i) {
    made->first_tokens
        .emplace_back(prefill.sampling, prefill.prompt, parts_.tokenizer->end_of_generation(),
                      options_.hash_logits, i)
        .Resume(prefill.generated);
  }
  if (*layout != nullptr) {
    made->chunked = true;
    made->part_tokens =
        static_cast<int32_t>(prefill.prompt.size() - prefill.chunked->question.size());
    made->first_position = (*layout)->question_position;
    prefill.prompt = std::move(prefill.chunked->question);
  }
  prefill.prompt.insert(prefill.prompt.end(), prefill.generated.tokens.begin(),
                        prefill.generated.tokens.end());
  made->tokens = static_cast<int32_t>(prefill.prompt.size());
  const absl::Status queued = Queue(handle, *made, prefill, *layout);
  if (!queued.ok()) return Refuse(*made->sink, queued);
  const Prefill& added = *prefills_.emplace(handle, std::move(made)).first->second;
  const absl::Status started = StartSends(handle, added, prefill, *layout);
  if (!started.ok()) Fail(handle, started);
}

// Moves the prompt out of `prefill`.
absl::Status PeerPrefills::Queue(RequestHandle handle, const Prefill& made, PrefillRequest& prefill,
                                 const Layout& layout) {
  SequenceSpec spec{.id = SequenceOf(handle),
                    .tokens = std::move(prefill.prompt),
                    .cache_namespace = prefill.cache_namespace,
                    .cache_owner = prefill.cache_owner,
                    .max_tokens = made.tokens,
                    .priority = prefill.priority};
  if (layout == nullptr) return admission_->Queue(std::move(spec));
  spec.cache_namespace = layout->derived_namespace;
  spec.part_blocks = layout->BlocksOfParts(parts_.cache->options().block_size);
  parts_.cache->SetOwner(layout->cache_namespace, spec.cache_owner);
  parts_.prompt_parts->Add(spec.id, layout, parts_.clock->NowUs() - made.arrival_us,
                           PromptParts::Use::kSent);
  absl::Status queued = admission_->Queue(std::move(spec));
  if (!queued.ok()) parts_.prompt_parts->End(SequenceOf(handle));
  return queued;
}

absl::Status PeerPrefills::StartSends(RequestHandle handle, const Prefill& made,
                                      const PrefillRequest& prefill, const Layout& layout) {
  TransferTicket question = prefill.ticket;
  question.parts.clear();
  RETURN_IF_ERROR(sends_->Start(handle, question, made.tokens, prefill.priority));
  if (layout != nullptr) {
    parts_.part_sends->Start(handle, prefill.ticket, *layout, prefill.priority);
  }
  return absl::OkStatus();
}

// ---- requests end -------------------------------------------------------------------------------

void PeerPrefills::Refuse(PrefillSink& sink, const absl::Status& status) {
  ++failures_;
  parts_.metrics.Ended(WorkKind::kPrefill, status);
  sink.OnDone(status);
}

void PeerPrefills::Fail(RequestHandle handle, const absl::Status& status) {
  const auto found = prefills_.find(handle);
  if (found == prefills_.end()) return;
  Refuse(*found->second->sink, status);
  End(handle);
}

void PeerPrefills::EndExhausted(RequestHandle handle) {
  const auto found = prefills_.find(handle);
  if (found == prefills_.end()) return;
  Fail(handle, admission_->Exhausted(SequenceOf(handle),
                                     found->second->part_tokens + found->second->tokens));
}

void PeerPrefills::End(RequestHandle handle) {
  const SequenceId id = SequenceOf(handle);
  if (parts_.scheduler->Contains(id)) parts_.scheduler->Finish(id, /*keep_cached=*/true);
  sends_->Cancel(handle);
  if (prefills_.at(handle)->chunked) {
    parts_.prompt_parts->End(id);
    parts_.part_sends->Cancel(handle);
  }
  prefills_.erase(handle);
}

void PeerPrefills::OnSendEvent(const TransferEvent& event) {
  if (!sends_->OnEvent(event)) return;
  const RequestHandle handle = event.id;
  if (event.kind == TransferEvent::Kind::kSendFailed) {
    // The receiver is unavailable. Report it as ABORTED: to the router, UNAVAILABLE would mean that
    // this worker is gone.
    const bool receiver_gone = absl::IsUnavailable(event.status);
    return Fail(handle, receiver_gone ? absl::AbortedError(
                                            StrCat("the hand-off failed: ", event.status.message()))
                                      : event.status);
  }
  Prefill& prefill = *prefills_.at(handle);
  prefill.result.kv_bytes = event.bytes;
  prefill.result.kv_transfer_us = event.busy_us;
  prefill.result.kv_exposed_us = event.exposed_us;
  prefill.delivered_us = parts_.clock->NowUs();
  EndIfSent(handle, prefill);
}

// The request ends when the question and all parts were sent.
void PeerPrefills::EndIfSent(RequestHandle handle, Prefill& prefill) {
  if (prefill.delivered_us == 0) return;
  if (prefill.chunked) {
    const PartSends::Progress parts = parts_.part_sends->ProgressOf(handle);
    if (parts.left > 0) return;
    prefill.result.kv_bytes += parts.moved.bytes();
    prefill.result.kv_transfer_us += parts.moved.busy_us();
    prefill.result.kv_exposed_us += parts_.clock->NowUs() - prefill.delivered_us;
  }
  parts_.metrics.Ended(WorkKind::kPrefill, absl::OkStatus());
  prefill.sink->OnDone(prefill.result);
  End(handle);
}

void PeerPrefills::OnPartsDone(RequestHandle handle) {
  if (!Contains(handle)) return;
  parts_.part_sends->SendDone(handle);
  OnPartsSent(handle);
}

void PeerPrefills::OnPartsSent(RequestHandle handle) {
  const auto found = prefills_.find(handle);
  if (found == prefills_.end()) return;
  const absl::Status started = parts_.part_sends->ProgressOf(handle).started;
  if (!started.ok()) return Fail(handle, started);
  EndIfSent(handle, *found->second);
}

bool PeerPrefills::NoneDelivers() const {
  return !empty() && std::all_of(prefills_.begin(), prefills_.end(), [&](const auto& entry) {
    return parts_.scheduler->Contains(SequenceOf(entry.first));
  });
}

// ---- steps --------------------------------------------------------------------------------------

void PeerPrefills::OnAdmitted(SequenceId id) {
  Prefill& prefill = *prefills_.at(HandleOf(id));
  if (prefill.begin_us != 0) return;
  prefill.begin_us = parts_.clock->NowUs();
  prefill.result.queue_us = prefill.begin_us - prefill.arrival_us;
  parts_.metrics.Queued(WorkKind::kPrefill, prefill.result.queue_us);
  prefill.result.cached_tokens = parts_.cache->matched(id);
  sends_->AnnounceComputed(HandleOf(id));  // sends the cached prefix at once
  if (prefill.chunked) parts_.part_sends->SendDone(HandleOf(id));  // those that are cached
}

void PeerPrefills::OnPreempted(SequenceId id) {
  Fail(HandleOf(id),
       absl::ResourceExhaustedError(StrCat("the prefill was preempted: the KV pool of ",
                                           parts_.cache->num_blocks(), " blocks is exhausted")));
}

StepPipeline::RowUse PeerPrefills::DescribeRow(const ScheduledChunk& chunk,
                                               std::vector<TokenDraw>& draws) const {
  const Prefill& prefill = *prefills_.at(HandleOf(chunk.id));
  // The choices of a request have the same sampling parameters.
  const TokenSource& any = prefill.first_tokens.front();
  StepPipeline::RowUse use{.keeps_logits = any.needs_logits()};
  if (any.draws_on_host()) return use;
  const int32_t position = prefill.first_position + chunk.begin + chunk.count;
  for (const TokenSource& source : prefill.first_tokens) {
    draws.push_back(source.NextDraw(position, /*pending=*/0));
  }
  return use;
}

void PeerPrefills::OnComputed(const ScheduledChunk& chunk, const SampledRow& row) {
  const RequestHandle handle = HandleOf(chunk.id);
  Prefill& prefill = *prefills_.at(handle);
  prefill.result.chunks += 1;
  prefill.result.computed_tokens += chunk.count;
  prefill.result.prefill_us = parts_.clock->NowUs() - prefill.begin_us;
  if (prefill.chunked) NoteParts(handle, prefill);
  sends_->AnnounceComputed(handle);
  if (!chunk.samples) return;
  SampledRow at = row;
  at.position += prefill.first_position;
  if (absl::Status drawn = DrawFirst(handle, prefill, at); !drawn.ok()) Fail(handle, drawn);
}

void PeerPrefills::NoteParts(RequestHandle handle, Prefill& prefill) {
  const PromptParts::Costs costs = parts_.prompt_parts->TakeCosts(SequenceOf(handle));
  prefill.result.cached_tokens += costs.cached_tokens;
  prefill.result.computed_tokens += costs.computed_tokens;
  prefill.result.chunks += costs.slices;
  prefill.result.chunk = costs.ledger;
}

absl::Status PeerPrefills::DrawFirst(RequestHandle handle, Prefill& prefill,
                                     const SampledRow& row) {
  HandoffManifest manifest;
  for (size_t i = 0; i < prefill.first_tokens.size(); ++i) {
    ASSIGN_OR_RETURN(manifest.drawn.emplace_back(),
                     sampler_->Take(prefill.first_tokens[i], row, i));
  }
  manifest.prefill = prefill.result;
  manifest.chunked = prefill.chunked;
  sends_->Deliver(handle, manifest);
  parts_.scheduler->Finish(SequenceOf(handle), /*keep_cached=*/true);
  return absl::OkStatus();
}

void PeerPrefills::AppendHandles(std::vector<RequestHandle>& handles) const {
  for (const auto& [handle, prefill] : prefills_) handles.push_back(handle);
}

}  // namespace baton
