#include "engine/worker_core.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/request_check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kvtransfer/send_session.h"

namespace baton {
namespace {

SequenceId IdOf(RequestHandle handle) { return SequenceId(handle); }
RequestHandle HandleOf(SequenceId id) { return id.value(); }

}  // namespace

WorkerCore::WorkerCore(const WorkerCoreOptions& options, KvCacheManager* cache,
                       Scheduler* scheduler, ModelRunner* runner, KvTransport* transport,
                       const Tokenizer* tokenizer, const Clock* clock,
                       std::function<uint64_t()> random_bits)
    : options_(options),
      cache_(cache),
      scheduler_(scheduler),
      runner_(runner),
      transport_(transport),
      tokenizer_(tokenizer),
      clock_(clock),
      random_bits_(std::move(random_bits)),
      pulls_({.lease_ms = options.pull_lease_ms, .longest_ms = options.transfer_timeout_ms}, cache,
             transport, clock, [this] { return NewTransferId(); }),
      layer_pieces_(options.layer_pieces),
      sampler_({tokenizer->end_of_generation().begin(), tokenizer->end_of_generation().end()}) {}

WorkerCore::~WorkerCore() { CHECK(idle()) << "a worker core dies with live requests or transfers"; }

WorkerCore::Request* WorkerCore::Find(RequestHandle handle) {
  const auto found = requests_.find(handle);
  return found == requests_.end() ? nullptr : found->second.get();
}

WorkerCore::Liveness WorkerCore::Describe(RequestHandle handle) const {
  const Request& request = *requests_.at(handle);
  return {.name = request.name,
          .delivers = !request.unforked && !scheduler_->Contains(IdOf(handle))};
}

std::vector<RequestHandle> WorkerCore::Handles() const {
  std::vector<RequestHandle> handles;
  for (const auto& [handle, request] : requests_) handles.push_back(handle);
  std::sort(handles.begin(), handles.end());
  return handles;
}

// ---- requests come in ---------------------------------------------------------------------------

absl::Status WorkerCore::CheckTokens(const char* field, std::span<const TokenId> tokens) const {
  return CheckTokenIds(field, tokens, options_.vocabulary);
}

absl::Status WorkerCore::Validate(std::span<const TokenId> prompt, int32_t n,
                                  std::span<const GeneratedPart> generated,
                                  const SamplingParams& sampling) const {
  RETURN_IF_ERROR(CheckChoices(n));
  RETURN_IF_ERROR(CheckPromptTokens(static_cast<int64_t>(prompt.size()), options_.context_length));
  RETURN_IF_ERROR(CheckTokens("prompt_token_ids", prompt));
  for (const GeneratedPart& part : generated) {
    if (prompt.size() + part.tokens.size() > static_cast<size_t>(options_.context_length)) {
      return absl::InvalidArgumentError(
          StrCat("a prompt of ", prompt.size(), " tokens and ", part.tokens.size(),
                 " generated ones exceed the context of ", options_.context_length));
    }
    RETURN_IF_ERROR(CheckTokens("generated_token_ids", part.tokens));
  }
  return CheckSampling(sampling, options_.vocabulary);
}

void WorkerCore::AddGenerate(RequestHandle handle, GenerateRequest generate,
                             std::shared_ptr<RequestSink> sink) {
  ++counters_.requests;
  absl::StatusOr<NewChoices> choices = MakeChoices(handle, generate, sink);
  if (!choices.ok()) return Reject(*sink, choices.status());
  if (!choices->live.empty()) {
    const absl::Status admitted =
        Admit(DescribeSequence(*choices, generate), generate.remote_prefill);
    if (!admitted.ok()) return Reject(*sink, admitted);
    Request& computes = *choices->live.front();
    for (auto& choice : choices->live) requests_.emplace(choice->handle, std::move(choice));
    if (generate.remote_prefill) {
      if (absl::Status status = ExpectKv(computes); !status.ok()) {
        return Fail(computes.handle, status);
      }
    }
  }
  for (FinishInfo& info : choices->finished) sink->OnFinish(std::move(info));
}

uint64_t WorkerCore::NewTransferId() {
  uint64_t id = 0;
  while (id == 0 || receives_.contains(id) || pulls_.IsReceiving(id)) id = random_bits_();
  return id;
}

// Blocks are reserved: says which are missing, and lets the transport have them.
absl::Status WorkerCore::ExpectKv(Request& request) {
  const SequenceId id = IdOf(request.handle);
  const int32_t matched = cache_->matched(id);
  request.generation->ledger().cached_tokens = matched;
  const std::span<const BlockId> table = cache_->BlockTable(id);
  const int32_t first_block = matched / options_.block_size;
  const int32_t needed = cache_->BlocksFor(request.prompt_tokens);
  ReceiveSpec spec;
  spec.transfer_id = NewTransferId();
  spec.first_block = first_block;
  spec.blocks.assign(table.begin() + first_block, table.begin() + needed);
  spec.tokens = request.prompt_tokens;
  spec.timeout_ms = options_.transfer_timeout_ms;
  TransferHold hold{.request = request.handle,
                    .blocks = spec.blocks,
                    .prompt_tokens = request.prompt_tokens,
                    .cancelled = false};
  const uint64_t transfer_id = spec.transfer_id;
  RETURN_IF_ERROR(transport_->Expect(std::move(spec)));
  cache_->HoldForTransfer(hold.blocks);
  const TransferTicket ticket{.transfer_id = transfer_id,
                              .receiver_epoch = transport_->epoch(),
                              .address = transport_->address(),
                              .first_block = first_block,
                              .block_count = needed - first_block,
                              .block_size = options_.block_size,
                              .timeout_ms = options_.transfer_timeout_ms};
  receives_.emplace(transfer_id, std::move(hold));
  request.transfer_id = transfer_id;
  request.sink->OnTicket(ticket);
  return absl::OkStatus();
}

void WorkerCore::AddPrefill(RequestHandle handle, PrefillRequest prefill,
                            std::shared_ptr<PrefillSink> sink) {
  ++counters_.requests;
  auto request = std::make_unique<Request>();
  request->handle = request->first = handle;
  request->name = prefill.request_id;
  request->prefill_sink = std::move(sink);
  request->resumed_tokens = static_cast<int32_t>(prefill.generated.tokens.size());
  request->prompt_tokens = static_cast<int32_t>(prefill.prompt.size()) + request->resumed_tokens;
  request->ticket = prefill.ticket;
  request->arrival_us = clock_->NowUs();
  absl::Status status =
      Validate(prefill.prompt, prefill.n, std::span(&prefill.generated, 1), prefill.sampling);
  if (status.ok() && prefill.n > 1 && request->resumed_tokens > 0) {
    status = absl::InvalidArgumentError(
        StrCat("n is ", prefill.n, "; with generated tokens 1 is allowed"));
  }
  if (status.ok() && transport_ == nullptr) {
    status = absl::FailedPreconditionError("this worker has no KV transport to send a prefill");
  }
  if (status.ok()) {
    status = CheckTicket(request->ticket, request->prompt_tokens, options_.block_size);
  }
  if (status.ok()) {
    request->to_send = SenderBlocks(request->ticket, request->prompt_tokens, options_.block_size);
    for (int32_t i = 0; i < prefill.n; ++i) {
      request->first_tokens.emplace_back(prefill.sampling, prefill.prompt, options_.hash_logits, i)
          .Resume(prefill.generated);
    }
    prefill.prompt.insert(prefill.prompt.end(), prefill.generated.tokens.begin(),
                          prefill.generated.tokens.end());
    status = Queue({.id = IdOf(handle),
                    .tokens = std::move(prefill.prompt),
                    .cache_namespace = prefill.cache_namespace,
                    .max_tokens = request->prompt_tokens,
                    .priority = prefill.priority});
  }
  if (!status.ok()) {
    Reject(*request, status);
    return;
  }
  Request& live = *requests_.emplace(handle, std::move(request)).first->second;
  status = transport_->StartSend({.sender_transfer = handle,
                                  .ticket = live.ticket,
                                  .tokens = live.prompt_tokens,
                                  .timeout_ms = options_.transfer_timeout_ms,
                                  .priority = prefill.priority});
  if (!status.ok()) {
    Fail(handle, status);
    return;
  }
  sends_.emplace(handle, TransferHold{.request = handle,
                                      .blocks = {},
                                      .prompt_tokens = live.prompt_tokens,
                                      .cancelled = false});
}

// ---- requests end -------------------------------------------------------------------------------

void WorkerCore::Reject(RequestSink& sink, const absl::Status& status) {
  ++counters_.failures;
  sink.OnError(status);
}

void WorkerCore::Reject(Request& request, const absl::Status& status) {
  if (!request.prefills()) return Reject(*request.sink, status);
  ++counters_.failures;
  request.prefill_sink->OnDone(status);
}

// With one choice all of them.
void WorkerCore::Fail(RequestHandle handle, const absl::Status& status) {
  Request* request = Find(handle);
  if (request == nullptr) return;
  Reject(*request, status);
  for (const Request* choice : ChoicesOf(request->first)) {
    End(choice->handle, /*keep_cached=*/true);
  }
}

void WorkerCore::Complete(Request& request, FinishReason reason) {
  FinishInfo info = request.generation->Finish(reason, clock_->NowUs());
  info.last = ChoicesOf(request.first).size() == 1;
  request.sink->OnFinish(std::move(info));
  End(request.handle, /*keep_cached=*/true);
}

// The one exit: finish, stop, cancel, deadline, failure and peer death.
void WorkerCore::End(RequestHandle handle, bool keep_cached) {
  if (scheduler_->Contains(IdOf(handle))) scheduler_->Finish(IdOf(handle), keep_cached);
  const uint64_t transfer_id = requests_.at(handle)->transfer_id;
  if (const auto hold = receives_.find(transfer_id);
      hold != receives_.end() && !hold->second.cancelled) {
    hold->second.cancelled = true;
    transport_->CancelReceive(transfer_id);
  }
  if (const auto hold = sends_.find(handle); hold != sends_.end()) {
    hold->second.cancelled = true;
    transport_->CancelSend(handle);
  }
  requests_.erase(handle);
}

void WorkerCore::Cancel(RequestHandle handle) {
  pulls_.Cancel(handle);
  const std::vector<Request*> choices = ChoicesOf(handle);
  if (choices.empty()) return;
  Fail(choices.front()->handle, absl::CancelledError("the request was cancelled"));
}

std::optional<int64_t> WorkerCore::CheckDeadlines() {
  const int64_t now_us = clock_->NowUs();
  std::vector<RequestHandle> late;
  std::optional<int64_t> next = pulls_.EndLeases();
  for (const auto& [handle, request] : requests_) {
    if (request->deadline_us == 0) continue;
    if (request->deadline_us <= now_us) {
      late.push_back(handle);
    } else if (!next.has_value() || request->deadline_us < *next) {
      next = request->deadline_us;
    }
  }
  std::sort(late.begin(), late.end());  // the same order in every process
  for (const RequestHandle handle : late) {
    Fail(handle, absl::DeadlineExceededError("the request's deadline has passed"));
  }
  return next;
}

void WorkerCore::Shutdown(const absl::Status& status) {
  for (const RequestHandle handle : Handles()) Fail(handle, status);
  pulls_.Shutdown(status);
}

// ---- steps --------------------------------------------------------------------------------------

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
    // computed: whoever needs the blocks and this would wait for each other. The receiver computes.
    Fail(request->handle,
         absl::ResourceExhaustedError(StrCat("the prefill gave way to an answer: the KV pool of ",
                                             cache_->num_blocks(), " blocks ran dry")));
  }
}

StepDemand WorkerCore::DemandFor(const SchedulerOutput& plan) {
  std::vector<StepDemand::Chunk> chunks;
  chunks.reserve(plan.chunks.size());
  for (const ScheduledChunk& chunk : plan.chunks) {
    const Request& request = *requests_.at(HandleOf(chunk.id));
    chunks.push_back({.request = request.first, .deadline_us = request.deadline_us});
  }
  return StepDemand(std::move(chunks), cancel_board_, clock_);
}

StepInput WorkerCore::MakeInput(const SchedulerOutput& plan, StepDemand& demand) {
  StepInput input;
  input.chunks.reserve(plan.chunks.size());
  for (const ScheduledChunk& chunk : plan.chunks) {
    input.chunks.push_back(
        {.tokens = scheduler_->tokens(chunk.id).subspan(chunk.begin, chunk.count),
         .begin_slot = chunk.begin,
         .begin_position = chunk.begin,
         .block_table = cache_->BlockTable(chunk.id),
         .logit_rows = chunk.samples ? 1 : 0});
  }
  input.wanted = [this, &demand] {
    if (pulse_ != nullptr) pulse_->Beat();
    return demand.Update();
  };
  input.kv_written = LayerAnnouncer(plan, demand);
  return input;
}

void WorkerCore::Step() {
  const SchedulerOutput plan = scheduler_->Schedule();
  YieldLeases(plan);
  NoteScheduled(plan);
  for (const SequenceId id : plan.exhausted) {
    if (Request* request = Find(HandleOf(id)); request != nullptr) EndExhausted(*request);
  }
  // Also when nothing runs: who asked was preempted then, and blocks change hands before the next
  // step.
  absl::Status ran = runner_->CopyBlocks(cache_->TakeCopies());
  if (plan.chunks.empty()) return;
  StepDemand demand = DemandFor(plan);
  if (ran.ok()) ran = runner_->Run(MakeInput(plan, demand));
  NoteWritten(plan);
  ++counters_.steps;
  // Chunks behind the last wanted one may have been computed in part: they are not committed.
  const auto chunks = static_cast<int32_t>(plan.chunks.size());
  for (int32_t i = ran.ok() ? demand.wanted() : 0; i < chunks; ++i) {
    const absl::Status unwanted = demand.WhyUnwanted(i);
    Fail(HandleOf(plan.chunks[i].id), unwanted.ok() ? ran : unwanted);
  }
  if (!ran.ok()) return;
  scheduler_->CommitStep(plan);
  int32_t logits_row = 0;
  for (const ScheduledChunk& chunk : plan.chunks) {
    CompleteChunk(chunk, logits_row);
    if (chunk.samples) ++logits_row;
  }
}

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

void WorkerCore::CompleteChunk(const ScheduledChunk& chunk, int32_t logits_row) {
  Request* request = Find(HandleOf(chunk.id));
  if (request == nullptr) return;
  const bool prompt_part = chunk.begin < request->prompt_tokens;
  (prompt_part ? counters_.prefill_tokens : counters_.decode_tokens) += chunk.count;
  NotePrefill(*request, chunk.count);
  if (request->prefills()) AnnounceComputed(*request);
  if (!chunk.samples) return;

  const std::span<const float> logits = runner_->Logits(logits_row);
  const int32_t position = chunk.begin + chunk.count;
  const absl::Status drawn = request->prefills() ? DrawForPeer(*request, logits, position)
                             : request->unforked ? DrawChoices(*request, logits, position)
                                                 : DrawNext(*request, logits, position);
  if (!drawn.ok()) Fail(HandleOf(chunk.id), drawn);
}

// `position`: the slot that the new token will take.
absl::Status WorkerCore::DrawNext(Request& request, std::span<const float> logits,
                                  int32_t position) {
  ASSIGN_OR_RETURN(const DrawnToken drawn,
                   request.generation->source().Draw(logits, position, sampler_));
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
