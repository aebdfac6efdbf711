#include "engine/peer_prefills.h"

#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

PeerPrefills::PeerPrefills(const PeerPrefillOptions& options, const WorkerParts& parts,
                           Admission* admission, HandoffSends* sends, RowSampler* sampler)
    : options_(options), parts_(parts), admission_(admission), sends_(sends), sampler_(sampler) {}

absl::Status PeerPrefills::Check(const PrefillRequest& prefill) const {
  RETURN_IF_ERROR(options_.limits.CheckRequest(prefill.prompt, prefill.n,
                                               std::span(&prefill.generated, 1), prefill.sampling));
  if (prefill.n > 1 && !prefill.generated.tokens.empty()) {
    return absl::InvalidArgumentError(
        StrCat("n is ", prefill.n, "; it must be 1 if there are generated tokens"));
  }
  const size_t tokens = prefill.prompt.size() + prefill.generated.tokens.size();
  return sends_->Check(prefill.ticket, static_cast<int32_t>(tokens));
}

void PeerPrefills::Add(RequestHandle handle, PrefillRequest prefill,
                       std::shared_ptr<PrefillSink> sink) {
  if (absl::Status status = Check(prefill); !status.ok()) return Refuse(*sink, status);
  auto made = std::make_unique<Prefill>();
  made->name = prefill.request_id;
  made->sink = std::move(sink);
  for (int32_t i = 0; i < prefill.n; ++i) {
    made->first_tokens
        .emplace_back(prefill.sampling, prefill.prompt, parts_.tokenizer->end_of_generation(),
                      options_.hash_logits, i)
        .Resume(prefill.generated);
  }
  prefill.prompt.insert(prefill.prompt.end(), prefill.generated.tokens.begin(),
                        prefill.generated.tokens.end());
  made->tokens = static_cast<int32_t>(prefill.prompt.size());
  made->arrival_us = parts_.clock->NowUs();
  const absl::Status queued = admission_->Queue({.id = SequenceOf(handle),
                                                 .tokens = std::move(prefill.prompt),
                                                 .cache_namespace = prefill.cache_namespace,
                                                 .max_tokens = made->tokens,
                                                 .priority = prefill.priority});
  if (!queued.ok()) return Refuse(*made->sink, queued);
  const int32_t tokens = made->tokens;
  prefills_.emplace(handle, std::move(made));
  const absl::Status started = sends_->Start(handle, prefill.ticket, tokens, prefill.priority);
  if (!started.ok()) Fail(handle, started);
}

// ---- requests end -------------------------------------------------------------------------------

void PeerPrefills::Refuse(PrefillSink& sink, const absl::Status& status) {
  ++failures_;
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
  Fail(handle, admission_->Exhausted(SequenceOf(handle), found->second->tokens));
}

void PeerPrefills::End(RequestHandle handle) {
  const SequenceId id = SequenceOf(handle);
  if (parts_.scheduler->Contains(id)) parts_.scheduler->Finish(id, /*keep_cached=*/true);
  sends_->Cancel(handle);
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
  prefill.sink->OnDone(prefill.result);
  End(handle);
}

// ---- steps --------------------------------------------------------------------------------------

void PeerPrefills::OnAdmitted(SequenceId id) {
  Prefill& prefill = *prefills_.at(HandleOf(id));
  if (prefill.begin_us != 0) return;
  prefill.begin_us = parts_.clock->NowUs();
  prefill.result.queue_us = prefill.begin_us - prefill.arrival_us;
  prefill.result.cached_tokens = parts_.cache->matched(id);
  sends_->AnnounceComputed(HandleOf(id));  // sends the cached prefix at once
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
  for (const TokenSource& source : prefill.first_tokens) {
    draws.push_back(source.NextDraw(chunk.begin + chunk.count, /*pending=*/0));
  }
  return use;
}

void PeerPrefills::OnComputed(const ScheduledChunk& chunk, const SampledRow& row) {
  const RequestHandle handle = HandleOf(chunk.id);
  Prefill& prefill = *prefills_.at(handle);
  prefill.result.chunks += 1;
  prefill.result.computed_tokens += chunk.count;
  prefill.result.prefill_us = parts_.clock->NowUs() - prefill.begin_us;
  sends_->AnnounceComputed(handle);
  if (!chunk.samples) return;
  if (absl::Status drawn = DrawFirst(handle, prefill, row); !drawn.ok()) Fail(handle, drawn);
}

absl::Status PeerPrefills::DrawFirst(RequestHandle handle, Prefill& prefill,
                                     const SampledRow& row) {
  HandoffManifest manifest;
  for (size_t i = 0; i < prefill.first_tokens.size(); ++i) {
    ASSIGN_OR_RETURN(manifest.drawn.emplace_back(),
                     sampler_->Take(prefill.first_tokens[i], row, i));
  }
  manifest.prefill = prefill.result;
  sends_->Deliver(handle, manifest);
  parts_.scheduler->Finish(SequenceOf(handle), /*keep_cached=*/true);
  return absl::OkStatus();
}

void PeerPrefills::AppendHandles(std::vector<RequestHandle>& handles) const {
  for (const auto& [handle, prefill] : prefills_) handles.push_back(handle);
}

}  // namespace baton
