#include "engine/worker_core.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/request_check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kvtransfer/protocol/send_session.h"

namespace baton {
namespace {

SequenceId IdOf(RequestHandle handle) { return SequenceId(handle); }

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
      pulls_({.longest_ms = options.transfer_timeout_ms}, cache, transport, clock,
             [this] { return NewTransferId(); }),
      layer_pieces_(options.layer_pieces),
      sampler_({tokenizer->end_of_generation().begin(), tokenizer->end_of_generation().end()}),
      pipeline_(options.steps_in_flight, cache, scheduler, runner, clock, this) {}

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
      request->first_tokens
          .emplace_back(prefill.sampling, prefill.prompt, tokenizer_->end_of_generation(),
                        options_.hash_logits, i)
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
  pipeline_.TakeOffBoard(handle);
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

}  // namespace baton
