#include "engine/new_choices.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/chunk_repair.h"

namespace baton {
namespace {

// Longer timeouts are shortened to this, so that they do not overflow in microseconds.
constexpr int64_t kLongestTimeoutMs = int64_t{365} * 24 * 3600 * 1000;

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
  return absl::InvalidArgumentError(
      StrCat("all ", generate.n, " choices are finished: none is left to continue"));
}

std::shared_ptr<const ChoicesRequest> MakeRequest(RequestHandle first,
                                                  const GenerateRequest& generate,
                                                  std::shared_ptr<RequestSink> sink,
                                                  int64_t now_us) {
  auto request = std::make_shared<ChoicesRequest>();
  request->first = first;
  request->n = generate.n;
  request->name = generate.request_id;
  request->sink = std::move(sink);
  request->arrival_us = now_us;
  if (generate.timeout_ms > 0) {
    request->deadline_us = now_us + std::min(generate.timeout_ms, kLongestTimeoutMs) * 1000;
  }
  return request;
}

}  // namespace

absl::StatusOr<NewChoices> MakeChoices(const ChoiceOptions& options, RequestHandle first,
                                       const GenerateRequest& generate,
                                       std::shared_ptr<RequestSink> sink,
                                       const Tokenizer& tokenizer, int64_t now_us) {
  if (generate.chunked.has_value()) {
    RETURN_IF_ERROR(options.limits.CheckChunkedRequest(*generate.chunked, generate.n,
                                                       generate.generated, generate.sampling));
  } else {
    RETURN_IF_ERROR(options.limits.CheckRequest(generate.prompt, generate.n, generate.generated,
                                                generate.sampling));
  }
  RETURN_IF_ERROR(CheckGeneratedParts(generate));
  const std::shared_ptr<const ChoicesRequest> request =
      MakeRequest(first, generate, std::move(sink), now_us);
  NewChoices choices;
  for (int32_t i = 0; i < generate.n; ++i) {
    const GeneratedPart part = generate.generated.empty() ? GeneratedPart() : generate.generated[i];
    if (part.finished) continue;
    auto choice = std::make_unique<Choice>();
    choice->request = request;
    choice->index = i;
    choice->unforked = generate.n > 1;
    choice->tail = part.tokens;
    choice->resumed_tokens = static_cast<int32_t>(part.tokens.size());
    choice->generation = std::make_unique<Generation>(
        generate, options.limits.LengthLimit(generate), tokenizer, options.hash_logits, now_us, i);
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

int32_t LongestSequence(const ChoiceOptions& options, const GenerateRequest& generate) {
  const int32_t longest = options.limits.LengthLimit(generate);
  if (!generate.chunked.has_value()) return longest;
  const ChunkedPrompt& prompt = *generate.chunked;
  return longest -
         static_cast<int32_t>(TokensOf(prompt) - static_cast<int64_t>(prompt.question.size()));
}

SequenceSpec DescribeSequence(const ChoiceOptions& options, const KvCacheManager& cache,
                              NewChoices& choices, GenerateRequest& generate,
                              const ChunkLayout* layout) {
  Choice& computes = *choices.live.front();
  SequenceSpec spec{.id = computes.id(),
                    .tokens = {},
                    .cache_namespace = generate.cache_namespace,
                    .cache_owner = generate.cache_owner,
                    .max_tokens = LongestSequence(options, generate),
                    .priority = generate.priority};
  int32_t part_tokens = 0;
  if (layout != nullptr) {
    spec.tokens = generate.chunked->question;
    spec.cache_namespace = layout->derived_namespace;
    const int32_t block_size = cache.options().block_size;
    spec.part_blocks = layout->BlocksOfParts(block_size) + BlocksOfRepair(*layout, block_size);
    part_tokens = static_cast<int32_t>(generate.prompt.size() - spec.tokens.size());
    computes.counts_parts = true;
  } else {
    spec.tokens = std::move(generate.prompt);
  }
  if (!computes.unforked) {
    spec.tokens.insert(spec.tokens.end(), computes.tail.begin(), computes.tail.end());
    computes.tail.clear();
  }
  const auto prompt_tokens = static_cast<int32_t>(spec.tokens.size());
  spec.forks = static_cast<int32_t>(choices.live.size()) - 1;
  for (const auto& choice : choices.live) {
    choice->prompt_tokens = prompt_tokens;
    choice->part_tokens = part_tokens;
    choice->first_position = layout != nullptr ? layout->question_position : 0;
    if (choice->tail.empty()) continue;
    const int32_t length = prompt_tokens + choice->resumed_tokens;
    spec.fork_blocks += cache.BlocksFor(length) - prompt_tokens / cache.options().block_size;
  }
  return spec;
}

}  // namespace baton
