// The steps' half of WorkerCore: what they compute for the requests, and the tokens they draw.
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/worker_core.h"

namespace baton {
namespace {

RequestHandle HandleOf(SequenceId id) { return id.value(); }
SequenceId IdOf(RequestHandle handle) { return SequenceId(handle); }

}  // namespace

// ---- a step is planned --------------------------------------------------------------------------

void WorkerCore::NoteScheduled(const SchedulerOutput& plan) {
  const int64_t now_us = clock_->NowUs();
  for (const SequenceId id : plan.admitted) {
    Request* request = Find(HandleOf(id));
    CHECK(request != nullptr) << "scheduled sequence " << id << " has no request";
    if (request->prefill_begin_us != 0) continue;  // resumed after a preemption
    request->prefill_begin_us = now_us;
    const int64_t queue_us = now_us - request->arrival_us;
    const int32_t matched = cache_->matched(id);
    if (request->prefills()) {
      request->prefill_result.queue_us = queue_us;
      request->prefill_result.cached_tokens = matched;
      AnnounceComputed(*request);  // what this worker's prefix cache has can travel at once
    } else {
      request->generation->ledger().queue_us = queue_us;
      request->generation->ledger().cached_tokens = matched;
    }
  }
  for (const SequenceId id : plan.preempted) {
    Request* request = Find(HandleOf(id));
    if (request == nullptr) continue;
    if (!request->prefills()) {
      ++request->generation->ledger().preemptions;
      continue;
    }
    // Its announced blocks stay held until the hand-off ends, and the hand-off ends only when it is
    // computed. A sequence that needs the blocks and this prefill would wait for each other. The
    // receiver computes.
    Fail(request->handle,
         absl::ResourceExhaustedError(StrCat("the prefill gave way to an answer: the KV pool of ",
                                             cache_->num_blocks(), " blocks ran dry")));
  }
}

void WorkerCore::OnPlanned(const SchedulerOutput& plan) {
  YieldLeases(plan);
  NoteScheduled(plan);
  for (const SequenceId id : plan.exhausted) {
    if (Request* request = Find(HandleOf(id)); request != nullptr) EndExhausted(*request);
  }
}

StepDemand::Chunk WorkerCore::DemandOf(SequenceId id) const {
  const Request& request = *requests_.at(HandleOf(id));
  return {.request = request.first, .deadline_us = request.deadline_us};
}

StepPipeline::RowUse WorkerCore::DescribeRow(const ScheduledChunk& chunk,
                                             std::vector<TokenDraw>& draws) {
  const Request& request = *requests_.at(HandleOf(chunk.id));
  StepPipeline::RowUse use{.keeps_logits = request.any_source().needs_logits()};
  if (request.any_source().draws_on_host()) return use;
  const int32_t position = chunk.begin + chunk.count;
  if (request.prefills()) {
    for (const TokenSource& source : request.first_tokens) {
      draws.push_back(source.NextDraw(position, /*pending=*/0));
    }
  } else if (request.unforked) {
    for (const Request* choice : ChoicesOf(request.first)) {
      if (!choice->tail.empty()) continue;
      draws.push_back(choice->generation->source().NextDraw(position, /*pending=*/0));
    }
  } else {
    draws.push_back(request.generation->source().NextDraw(position, chunk.pending ? 1 : 0));
    use.draws_next = true;
  }
  return use;
}

// ---- a step is collected ------------------------------------------------------------------------

// The transport may keep what it knows of blocks that do not change any more.
void WorkerCore::OnCollected(const SchedulerOutput& plan) {
  ++counters_.steps;
  if (transport_ == nullptr) return;
  std::vector<BlockId> full;
  std::vector<BlockId> part;
  for (const ScheduledChunk& chunk : plan.chunks) {
    // What the step wrote for a sequence that has ended, no transfer reads.
    if (!cache_->Contains(chunk.id)) continue;
    const std::span<const BlockId> table = cache_->BlockTable(chunk.id);
    const int32_t end = chunk.begin + chunk.count;
    for (int32_t block = chunk.begin / options_.block_size; block * options_.block_size < end;
         ++block) {
      const bool whole = (block + 1) * options_.block_size <= end;
      (whole ? full : part).push_back(table[block]);
    }
  }
  transport_->Written(full, part);
}

void WorkerCore::OnFailed(SequenceId id, const absl::Status& why) { Fail(HandleOf(id), why); }

// The ledger's prefill ends with the first token: what a preemption makes it compute again later is
// not part of it.
void WorkerCore::NotePrefill(Request& request, int32_t computed) {
  const int64_t prefill_us = clock_->NowUs() - request.prefill_begin_us;
  if (request.prefills()) {
    request.prefill_result.chunks += 1;
    request.prefill_result.computed_tokens += computed;
    request.prefill_result.prefill_us = prefill_us;
  } else if (request.generation->completion_tokens() == request.resumed_tokens) {
    RequestLedger& ledger = request.generation->ledger();
    ledger.prefill_chunks += 1;
    ledger.computed_tokens += computed;
    ledger.prefill_us = prefill_us;
  }
}

void WorkerCore::OnComputed(const ScheduledChunk& chunk, const SampledRow& row) {
  Request* request = Find(HandleOf(chunk.id));
  if (request == nullptr) return;
  const bool prompt_part = chunk.begin < request->prompt_tokens;
  (prompt_part ? counters_.prefill_tokens : counters_.decode_tokens) += chunk.count;
  NotePrefill(*request, chunk.count);
  if (request->prefills()) AnnounceComputed(*request);
  if (!chunk.samples) return;
  const absl::Status drawn = request->prefills() ? DrawForPeer(*request, row)
                             : request->unforked ? DrawChoices(*request, row)
                                                 : DrawNext(*request, row);
  if (!drawn.ok()) Fail(HandleOf(chunk.id), drawn);
}

absl::StatusOr<DrawnToken> WorkerCore::TakeDrawn(const TokenSource& source, const SampledRow& row,
                                                 size_t index) {
  const std::span<const float> logits =
      source.needs_logits() ? runner_->Logits(row.step, row.row) : std::span<const float>();
  if (source.draws_on_host()) return source.Draw(logits, row.position, sampler_);
  ASSIGN_OR_RETURN(const TokenId token, row.drawn[index]);
  return source.Describe(token, logits, sampler_);
}

absl::Status WorkerCore::DrawNext(Request& request, const SampledRow& row) {
  ASSIGN_OR_RETURN(const DrawnToken drawn, TakeDrawn(request.generation->source(), row, 0));
  TakeToken(request, drawn);
  return absl::OkStatus();
}

void WorkerCore::TakeToken(Request& request, const DrawnToken& drawn) {
  Generation::Emission emission = request.generation->Accept(drawn, clock_->NowUs());
  request.sink->OnTokens(std::move(emission.output));
  if (emission.finished.has_value()) {
    Complete(request, *emission.finished);
  } else {
    scheduler_->AppendToken(IdOf(request.handle), drawn.token);
  }
}

}  // namespace baton
