// The transfer half of WorkerCore: announcing computed blocks to a receiver, and taking over what a
// sender delivered.
#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/worker_core.h"

namespace baton {
namespace {

SequenceId IdOf(RequestHandle handle) { return SequenceId(handle); }
RequestHandle HandleOf(SequenceId id) { return id.value(); }

}  // namespace

// ---- sending ------------------------------------------------------------------------------------

// Full committed blocks behind the receiver's prefix that were not announced yet.
void WorkerCore::AnnounceComputed(Request& request) {
  const int32_t full = cache_->committed(IdOf(request.handle)) / options_.block_size;
  const int32_t begin = request.to_send.first + request.announced_blocks;
  const auto hold = sends_.find(request.handle);
  if (full <= begin || hold == sends_.end() || hold->second.cancelled || !request.rest.empty()) {
    return;  // with the last chunk, Deliver announces
  }
  const std::span<const BlockId> blocks =
      cache_->BlockTable(IdOf(request.handle)).subspan(begin, full - begin);
  HoldForSend(request, blocks);
  transport_->Announce(request.handle, blocks, /*final=*/false, {});
  request.announced_blocks += full - begin;
}

// What is computed in the step that ends a prompt: all blocks behind those that were announced, a
// part-full last one included.
std::span<const BlockId> WorkerCore::RestToAnnounce(const Request& request) const {
  const int32_t begin = request.to_send.first + request.announced_blocks;
  const int32_t end = cache_->BlocksFor(request.prompt_tokens);
  return cache_->BlockTable(IdOf(request.handle)).subspan(begin, end - begin);
}

// Lets the layers of prompts' last chunks travel while the step computes the layers behind them.
// Null: none does. A request may end before its layers are written.
std::function<void(int32_t layers, int32_t chunks)> WorkerCore::LayerListener(
    const SchedulerOutput& plan) {
  struct LastChunk {
    RequestHandle request;
    int32_t index;       // of the step's chunks
    int32_t pieces = 0;  // 0: not known before the first layer
  };
  std::vector<LastChunk> last_chunks;
  for (int32_t i = 0; i < static_cast<int32_t>(plan.chunks.size()); ++i) {
    const ScheduledChunk& chunk = plan.chunks[i];
    if (!layer_pieces_.on() || !chunk.samples) continue;
    const Request* const request = Find(HandleOf(chunk.id));
    if (request == nullptr || !request->prefills()) continue;
    const auto hold = sends_.find(request->handle);
    if (hold == sends_.end() || hold->second.cancelled) continue;
    if (!RestToAnnounce(*request).empty()) last_chunks.push_back({request->handle, i});
  }
  if (last_chunks.empty()) return nullptr;
  return [this, last_chunks](int32_t layers, int32_t chunks) mutable {
    for (LastChunk& last : last_chunks) {
      if (last.index >= chunks) return;  // not written any more
      Request* const request = Find(last.request);
      if (request == nullptr) continue;
      if (last.pieces == 0) {
        const auto blocks = static_cast<int64_t>(RestToAnnounce(*request).size());
        last.pieces = layer_pieces_.PiecesFor(blocks * options_.block_size);
      }
      if (layer_pieces_.EndsPiece(layers, last.pieces)) AnnounceLayers(*request, layers);
    }
  };
}

void WorkerCore::AnnounceLayers(Request& request, int32_t layers) {
  if (request.rest.empty()) {
    const std::span<const BlockId> rest = RestToAnnounce(request);
    request.rest.assign(rest.begin(), rest.end());
    HoldForSend(request, rest);
  }
  transport_->AnnounceLayers(request.handle, request.rest, layers);
}

void WorkerCore::HoldForSend(const Request& request, std::span<const BlockId> blocks) {
  cache_->HoldForTransfer(blocks);
  std::vector<BlockId>& held = sends_.at(request.handle).blocks;
  held.insert(held.end(), blocks.begin(), blocks.end());
}

// The prompt is computed: announces the rest with the manifest. The sequence ends here; the blocks
// stay held. Those whose layers were announced are still meant, also where the sequence has others
// by now, because somebody else had cached the same tokens first.
void WorkerCore::Deliver(Request& request, const HandoffManifest& manifest) {
  const SequenceId id = IdOf(request.handle);
  CHECK(sends_.contains(request.handle))
      << "request " << request.handle << " outlived its transfer";
  if (request.rest.empty()) HoldForSend(request, RestToAnnounce(request));
  const std::span<const BlockId> rest =
      request.rest.empty() ? RestToAnnounce(request) : std::span<const BlockId>(request.rest);
  transport_->Announce(request.handle, rest, /*final=*/true, EncodeManifest(manifest));
  request.announced_blocks += static_cast<int32_t>(rest.size());
  scheduler_->Finish(id, /*keep_cached=*/true);
}

void WorkerCore::OnSendEvent(const TransferEvent& event) {
  const auto hold = sends_.find(event.id);
  if (hold == sends_.end()) return;
  Request* request = Find(hold->second.request);
  Release(sends_, event.id);
  if (request == nullptr) return;
  if (event.kind == TransferEvent::Kind::kSendFailed) {
    // Unavailable is the receiver here; to who asked for the prefill it would mean this worker.
    const bool receiver_gone = absl::IsUnavailable(event.status);
    Fail(request->handle,
         receiver_gone ? absl::AbortedError(StrCat("the hand-off failed: ", event.status.message()))
                       : event.status);
    return;
  }
  layer_pieces_.OnSent(event.bytes, event.busy_us);
  request->prefill_result.kv_bytes = event.bytes;
  request->prefill_result.kv_transfer_us = event.busy_us;
  request->prefill_result.kv_exposed_us = event.exposed_us;
  request->prefill_sink->OnDone(request->prefill_result);
  End(request->handle, /*keep_cached=*/true);
}

// ---- receiving ----------------------------------------------------------------------------------

// The blocks that landed are verified and stay. The rest is computed here; at least the last token,
// for its logits.
void WorkerCore::ComputeLocally(Request& request, int32_t landed_blocks) {
  const SequenceId id = IdOf(request.handle);
  const int32_t matched = cache_->matched(id);
  const int32_t landed = (matched / options_.block_size + landed_blocks) * options_.block_size;
  request.prefill_begin_us = clock_->NowUs();
  scheduler_->KvArrived(id, std::max(matched, std::min(landed, request.prompt_tokens - 1)));
}

absl::Status WorkerCore::PrefillLocally(uint64_t transfer_id, Epoch receiver_epoch) {
  if (transport_ == nullptr || receiver_epoch != transport_->epoch()) {
    return absl::NotFoundError(StrCat("no transfer ", transfer_id, " in epoch ",
                                      receiver_epoch.value(),
                                      ": this incarnation's epoch differs"));
  }
  const auto hold = receives_.find(transfer_id);
  if (hold == receives_.end() || hold->second.cancelled) {
    return absl::NotFoundError(StrCat("transfer ", transfer_id, " is not waiting for KV"));
  }
  // The transport may still be writing into the blocks: the request goes on when the terminal event
  // says that it is not.
  hold->second.cancelled = true;
  transport_->CancelReceive(transfer_id);
  return absl::OkStatus();
}

void WorkerCore::OnKvReceived(Request& request, const TransferEvent& event) {
  const absl::StatusOr<HandoffManifest> manifest =
      DecodeManifest(event.manifest, options_.vocabulary);
  if (!manifest.ok() || manifest->drawn.size() != static_cast<size_t>(request.n)) {
    ComputeLocally(request, 0);  // a sender that cannot say what it did is not believed
    return;
  }
  RequestLedger& ledger = request.generation->ledger();
  ledger.queue_us = manifest->prefill.queue_us;
  ledger.prefill_us = manifest->prefill.prefill_us;
  ledger.prefill_chunks = manifest->prefill.chunks;
  ledger.computed_tokens = manifest->prefill.computed_tokens;
  ledger.prefill_cached_tokens = manifest->prefill.cached_tokens;
  ledger.prefilled_elsewhere = true;
  ledger.kv_bytes = event.bytes;
  ledger.kv_transfer_us = event.busy_us;
  const int64_t landed_us = clock_->NowUs();
  request.prefill_begin_us = landed_us;  // not queued any more, also after a preemption
  scheduler_->KvArrived(IdOf(request.handle), request.prompt_tokens);
  ledger.admit_us = clock_->NowUs() - landed_us;
  if (request.unforked) {
    Fork(request, manifest->drawn);
  } else {
    TakeToken(request, manifest->drawn.front());
  }
}

void WorkerCore::OnReceiveEvent(TransferEvent& event) {
  if (event.kind == TransferEvent::Kind::kReceiving) return;
  const auto hold = receives_.find(event.id);
  if (hold == receives_.end()) return;
  Request* request = Find(hold->second.request);
  Release(receives_, event.id);
  if (request == nullptr) return;
  request->transfer_id = 0;
  if (event.kind == TransferEvent::Kind::kReceived) {
    OnKvReceived(*request, event);
  } else {
    // Lost peer, damaged bytes, timeout, or asked to: fail closed and compute.
    if (event.blocks_done > 0) {
      request->generation->ledger().kv_bytes = event.bytes;
      request->generation->ledger().kv_transfer_us = event.busy_us;
    }
    ComputeLocally(*request, event.blocks_done);
  }
}

// ---- prefixes -----------------------------------------------------------------------------------

absl::Status WorkerCore::CheckPrefix(std::span<const TokenId> tokens) const {
  if (static_cast<int64_t>(tokens.size()) <= options_.context_length) {
    return CheckTokens("token_ids", tokens);
  }
  return absl::InvalidArgumentError(StrCat(
      "a prefix of ", tokens.size(), " tokens exceeds the context of ", options_.context_length));
}

void WorkerCore::PullPrefix(RequestHandle handle, PullRequest request,
                            std::shared_ptr<PullSink> sink) {
  if (absl::Status status = CheckPrefix(request.tokens); !status.ok()) {
    sink->OnDone(std::move(status));
    return;
  }
  // A block for each sequence that is here, so that it can grow.
  const int32_t spare_blocks = scheduler_->waiting_count() + scheduler_->running_count() +
                               scheduler_->waiting_for_kv_count();
  pulls_.Pull(handle, std::move(request), std::move(sink), spare_blocks);
}

absl::StatusOr<int32_t> WorkerCore::SendPrefix(RequestHandle handle,
                                               const SendPrefixRequest& request) {
  RETURN_IF_ERROR(CheckPrefix(request.tokens));
  return pulls_.Send(handle, request);
}

// Sequences that find no room come before prefixes that somebody may ask for.
void WorkerCore::YieldLeases(const SchedulerOutput& plan) {
  if (!pulls_.has_leases()) return;
  const bool stuck = scheduler_->waiting_count() > 0 && plan.admitted.empty();
  const bool nothing_runs = plan.chunks.empty() && pipeline_.in_flight() == 0;
  if (stuck || nothing_runs || !plan.preempted.empty()) pulls_.DropLeases();
}

void WorkerCore::Release(absl::flat_hash_map<uint64_t, TransferHold>& holds, uint64_t id) {
  const auto hold = holds.find(id);
  cache_->ReleaseTransferHold(hold->second.blocks);
  holds.erase(hold);
}

absl::Status WorkerCore::CheckConservation() const {
  RETURN_IF_ERROR(cache_->CheckConservation());
  std::vector<BlockId> held = pulls_.HeldBlocks();
  for (const auto* holds : {&receives_, &sends_}) {
    for (const auto& [id, hold] : *holds) {
      held.insert(held.end(), hold.blocks.begin(), hold.blocks.end());
    }
  }
  RETURN_IF_ERROR(cache_->CheckTransferHolds(held));
  RETURN_IF_ERROR(cache_->CheckStepHolds(scheduler_->step_holds().Held()));
  const BlockAllocator::Accounting blocks = cache_->Stats().blocks;
  if (!idle() || (blocks.owned == 0 && blocks.step == 0)) return absl::OkStatus();
  return absl::InternalError(
      StrCat("idle, yet sequences own ", blocks.owned, " blocks and steps hold ", blocks.step));
}

void WorkerCore::PollTransfers() {
  if (transport_ == nullptr) return;
  for (TransferEvent& event : transport_->Poll()) {
    if (pulls_.OnEvent(event)) continue;
    switch (event.kind) {
      case TransferEvent::Kind::kReceiving:
      case TransferEvent::Kind::kReceived:
      case TransferEvent::Kind::kReceiveFailed:
        OnReceiveEvent(event);
        break;
      case TransferEvent::Kind::kSent:
      case TransferEvent::Kind::kSendFailed:
        OnSendEvent(event);
        break;
    }
  }
}

}  // namespace baton
