// The choices of a request in WorkerCore: made from it, forked once the prompt is computed, and
// their first tokens.
#include <algorithm>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/worker_core.h"

namespace baton {
namespace {

// Longer is as good as never, and must not overflow in microseconds.
constexpr int64_t kLongestTimeoutMs = int64_t{365} * 24 * 3600 * 1000;

SequenceId IdOf(RequestHandle handle) { return SequenceId(handle); }

absl::Status CheckGeneratedParts(const GenerateRequest& generate) {
  const std::vector<GeneratedPart>& parts = generate.generated;
  if (parts.empty()) return absl::OkStatus();
  if (parts.size() != static_cast<size_t>(generate.n)) {
    return absl::InvalidArgumentError(
        StrCat("generated has ", parts.size(), " parts for ", generate.n, " choices"));
  }
  const bool none_goes_on = std::all_of(parts.begin(), parts.end(),
                                        [](const GeneratedPart& part) { return part.finished; });
  if (!none_goes_on) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("each of the ", generate.n, " choices is finished"));
}

}  // namespace

// ---- choices come in ----------------------------------------------------------------------------

int32_t WorkerCore::LengthLimit(const GenerateRequest& generate) const {
  const int64_t wanted = static_cast<int64_t>(generate.prompt.size()) +
                         generate.sampling.max_tokens.value_or(options_.context_length);
  return static_cast<int32_t>(std::min<int64_t>(wanted, options_.context_length));
}

absl::StatusOr<WorkerCore::NewChoices> WorkerCore::MakeChoices(RequestHandle handle,
                                                               const GenerateRequest& generate,
                                                               std::shared_ptr<RequestSink> sink) {
  RETURN_IF_ERROR(Validate(generate.prompt, generate.n, generate.generated, generate.sampling));
  RETURN_IF_ERROR(CheckGeneratedParts(generate));
  const int64_t now_us = clock_->NowUs();
  NewChoices choices;
  for (int32_t i = 0; i < generate.n; ++i) {
    const GeneratedPart part = generate.generated.empty() ? GeneratedPart() : generate.generated[i];
    if (part.finished) continue;
    auto choice = std::make_unique<Request>();
    choice->handle = handle + i;
    choice->first = handle;
    choice->n = generate.n;
    choice->choice = i;
    choice->unforked = generate.n > 1;
    choice->name = generate.request_id;
    choice->sink = sink;
    choice->tail = part.tokens;
    choice->resumed_tokens = static_cast<int32_t>(part.tokens.size());
    choice->arrival_us = now_us;
    if (generate.timeout_ms > 0) {
      choice->deadline_us = now_us + std::min(generate.timeout_ms, kLongestTimeoutMs) * 1000;
    }
    choice->generation = std::make_unique<Generation>(generate, LengthLimit(generate), *tokenizer_,
                                                      options_.hash_logits, now_us, i);
    ASSIGN_OR_RETURN(const std::optional<FinishReason> finished,
                     choice->generation->Resume(part, now_us));
    if (finished.has_value()) {
      choices.finished.push_back(choice->generation->Finish(*finished, now_us));
    } else {
      choices.live.push_back(std::move(choice));
    }
  }
  for (FinishInfo& info : choices.finished) info.last = false;
  if (choices.live.empty()) choices.finished.back().last = true;
  return choices;
}

// The sequence that computes the prompt. A single answer goes on behind what was generated of it;
// several ones part at the prompt's end.
SequenceSpec WorkerCore::DescribeSequence(NewChoices& choices, GenerateRequest& generate) const {
  Request& computes = *choices.live.front();
  SequenceSpec spec{.id = IdOf(computes.handle),
                    .tokens = {},
                    .cache_namespace = generate.cache_namespace,
                    .max_tokens = LengthLimit(generate),
                    .priority = generate.priority};
  spec.tokens = std::move(generate.prompt);
  if (!computes.unforked) {
    spec.tokens.insert(spec.tokens.end(), computes.tail.begin(), computes.tail.end());
    computes.tail.clear();
  }
  const auto prompt_tokens = static_cast<int32_t>(spec.tokens.size());
  spec.forks = static_cast<int32_t>(choices.live.size()) - 1;
  for (const auto& choice : choices.live) {
    choice->prompt_tokens = prompt_tokens;
    if (choice->tail.empty()) continue;
    const int32_t length = prompt_tokens + choice->resumed_tokens;
    spec.fork_blocks += cache_->BlocksFor(length) - prompt_tokens / options_.block_size;
  }
  return spec;
}

std::vector<WorkerCore::Request*> WorkerCore::ChoicesOf(RequestHandle first) {
  std::vector<Request*> choices;
  for (int32_t i = 0; i < kMaxChoices; ++i) {
    Request* const request = Find(first + i);
    if (request != nullptr && request->first == first) choices.push_back(request);
  }
  return choices;
}

// ---- choices part -------------------------------------------------------------------------------

// All first tokens come from the same row of logits.
absl::Status WorkerCore::DrawChoices(Request& request, const SampledRow& row) {
  std::vector<DrawnToken> drawn(request.n);
  size_t index = 0;
  for (Request* choice : ChoicesOf(request.first)) {
    if (!choice->tail.empty()) continue;
    ASSIGN_OR_RETURN(drawn[choice->choice], TakeDrawn(choice->generation->source(), row, index++));
  }
  Fork(request, drawn);
  return absl::OkStatus();
}

absl::Status WorkerCore::DrawForPeer(Request& request, const SampledRow& row) {
  HandoffManifest manifest;
  for (size_t i = 0; i < request.first_tokens.size(); ++i) {
    ASSIGN_OR_RETURN(manifest.drawn.emplace_back(), TakeDrawn(request.first_tokens[i], row, i));
  }
  manifest.prefill = request.prefill_result;
  Deliver(request, manifest);
  return absl::OkStatus();
}

// The prompt is there: `request` and its other choices become sequences that share its blocks. Each
// goes on behind what was generated of it elsewhere, or with its first token.
void WorkerCore::Fork(Request& request, std::span<const DrawnToken> first_tokens) {
  const RequestHandle first = request.first;
  const std::vector<Request*> choices = ChoicesOf(first);
  for (Request* choice : choices) {
    choice->unforked = false;
    if (choice == &request) continue;
    scheduler_->Fork(IdOf(request.handle), IdOf(choice->handle));
    choice->generation->ledger() = request.generation->ledger();
    choice->prefill_begin_us = request.prefill_begin_us;
  }
  for (Request* choice : choices) {
    if (choice->tail.empty()) {
      TakeToken(*choice, first_tokens[choice->choice]);
      continue;
    }
    choice->prompt_tokens += choice->resumed_tokens;
    scheduler_->AppendTokens(IdOf(choice->handle), std::exchange(choice->tail, {}));
  }
  // Now: a transfer may be posted into a block that these are to be copied from before the next
  // step.
  const absl::Status copied = pipeline_.CopyBlocks(cache_->TakeCopies());
  if (copied.ok()) return;
  const std::vector<Request*> left = ChoicesOf(first);
  if (!left.empty()) Fail(left.front()->handle, copied);
}

}  // namespace baton
