#include "loadtest/workload.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "loadtest/mooncake_trace.h"
#include "loadtest/prompt_tokens.h"
#include "loadtest/seeded_random.h"

namespace baton {
namespace {

// Lengths, tokens and random choices, which all workloads share.
class SeededWorkload : public Workload {
 protected:
  explicit SeededWorkload(const WorkloadOptions& options)
      : options_(options),
        tokens_(options.seed, options.vocabulary),
        random_(MixBits(options.seed) ^ static_cast<uint64_t>(options.kind)) {}

  int32_t DrawLength(int32_t mean) {
    if (options_.length_spread == 0) return mean;
    const double share = 1 + options_.length_spread * (2 * random_.Uniform() - 1);
    return std::max(1, static_cast<int32_t>(std::lround(mean * share)));
  }

  LoadRequest NewRequest() {
    LoadRequest request;
    request.number = next_++;
    return request;
  }

  const WorkloadOptions options_;
  const PromptTokens tokens_;
  SeededRandom random_;
  int64_t next_ = 0;
};

// synthetic and shared-prefix.
class PrefixWorkload final : public SeededWorkload {
 public:
  explicit PrefixWorkload(const WorkloadOptions& options) : SeededWorkload(options) {}

  std::optional<LoadRequest> Next() override {
    LoadRequest request = NewRequest();
    const bool shares = options_.kind == WorkloadKind::kSharedPrefix;
    const int32_t prefix = shares ? options_.prefix_tokens : 0;
    const uint64_t which = shares ? random_.Below(static_cast<uint64_t>(options_.prefixes)) : 0;
    request.prompt_tokens = prefix + DrawLength(options_.prompt_tokens);
    request.output_tokens = DrawLength(options_.output_tokens);
    Clip(options_.context_length, request);
    PromptPiece piece;
    const int32_t shared = std::min(prefix, request.prompt_tokens);
    tokens_.Append(TokenKey::kPrefix, which, 0, shared, piece.tokens);
    tokens_.Append(TokenKey::kRequest, static_cast<uint64_t>(request.number), 0,
                   request.prompt_tokens - shared, piece.tokens);
    request.pieces.push_back(std::move(piece));
    return request;
  }
};

int32_t ShortLength(int32_t tokens, double ratio) {
  return std::max(1, static_cast<int32_t>(std::lround(tokens / ratio)));
}

class SwingWorkload final : public SeededWorkload {
 public:
  explicit SwingWorkload(const WorkloadOptions& options) : SeededWorkload(options) {}

  std::optional<LoadRequest> Next() override {
    LoadRequest request = NewRequest();
    const bool answers_are_long = at_us_ / options_.swing_half_us() % 2 == 1;
    const int32_t tokens =
        DrawLength(answers_are_long ? options_.output_tokens : options_.prompt_tokens);
    request.prompt_tokens = request.output_tokens = tokens;
    (answers_are_long ? request.prompt_tokens : request.output_tokens) =
        ShortLength(tokens, options_.swing_ratio);
    Clip(options_.context_length, request);
    request.pieces.push_back(
        {.role = PieceRole::kPrompt,
         .tokens = tokens_.Of(TokenKey::kRequest, static_cast<uint64_t>(request.number),
                              request.prompt_tokens),
         .answer = {}});
    return request;
  }
};

class ChunkWorkload final : public SeededWorkload {
 public:
  explicit ChunkWorkload(const WorkloadOptions& options) : SeededWorkload(options) {}

  std::optional<LoadRequest> Next() override {
    LoadRequest request = NewRequest();
    request.pieces.push_back({.role = PieceRole::kSystem,
                              .tokens = tokens_.Of(TokenKey::kSystem, 0, options_.system_tokens),
                              .answer = {}});
    for (const uint64_t chunk : DrawChunks()) {
      request.pieces.push_back(
          {.role = PieceRole::kChunk,
           .tokens = tokens_.Of(TokenKey::kChunk, chunk, options_.chunk_tokens),
           .answer = {}});
    }
    const int32_t question = DrawLength(options_.prompt_tokens);
    request.pieces.push_back(
        {.role = PieceRole::kQuestion,
         .tokens = tokens_.Of(TokenKey::kRequest, static_cast<uint64_t>(request.number), question),
         .answer = {}});
    request.prompt_tokens =
        options_.system_tokens + options_.chunks * options_.chunk_tokens + question;
    request.output_tokens = DrawLength(options_.output_tokens);
    return request;
  }

 private:
  // Different chunks of the pool, in random order.
  std::vector<uint64_t> DrawChunks() {
    std::vector<uint64_t> pool(static_cast<size_t>(options_.chunk_pool));
    for (size_t i = 0; i < pool.size(); ++i) pool[i] = i;
    for (size_t i = 0; i < static_cast<size_t>(options_.chunks); ++i) {
      std::swap(pool[i], pool[i + random_.Below(pool.size() - i)]);
    }
    pool.resize(static_cast<size_t>(options_.chunks));
    return pool;
  }
};

class ChatWorkload final : public SeededWorkload {
 public:
  explicit ChatWorkload(const WorkloadOptions& options) : SeededWorkload(options) {}

  std::optional<LoadRequest> Next() override {
    LoadRequest request = NewRequest();
    request.conversation = request.number;
    if (options_.system_tokens > 0) {
      request.pieces.push_back({.role = PieceRole::kSystem,
                                .tokens = tokens_.Of(TokenKey::kSystem, 0, options_.system_tokens),
                                .answer = {}});
    }
    // The lengths of a conversation depend on its number and turn, not on when answers end.
    AddTurn(request, options_.system_tokens);
    if (!Fits(request)) {
      Clip(options_.context_length, request);
      CutPieces(request);
    }
    return request;
  }

  std::optional<FollowUp> After(const LoadRequest& request, const AnswerContent& answer) override {
    if (!answer.whole || request.turn + 1 >= options_.turns) return std::nullopt;
    FollowUp next;
    next.request = request;
    next.request.turn = request.turn + 1;
    next.request.clipped_prompt_tokens = next.request.clipped_output_tokens = 0;
    next.request.pieces.push_back(
        {.role = PieceRole::kAssistant, .tokens = answer.tokens, .answer = answer.text});
    const int32_t before = std::max(request.prompt_tokens, answer.prompt_tokens);
    AddTurn(next.request, before + answer.output_tokens);
    if (!Fits(next.request)) {
      ++clipped_conversations_;
      return std::nullopt;
    }
    SeededRandom random = TurnRandom(next.request);
    next.pause_us = static_cast<int64_t>(random.Exponential(options_.think_s * 1e6));
    return next;
  }

 private:
  SeededRandom TurnRandom(const LoadRequest& request) const {
    return SeededRandom(MixBits(options_.seed ^ 0xC4A7) ^ TurnKey(request));
  }
  static uint64_t TurnKey(const LoadRequest& request) {
    return (static_cast<uint64_t>(request.conversation) << 16) |
           static_cast<uint64_t>(request.turn);
  }

  // Adds the user's next message behind `before` tokens.
  void AddTurn(LoadRequest& request, int32_t before) {
    SeededRandom random = TurnRandom(request);
    const auto draw = [&](int32_t mean) {
      const double share = 1 + options_.length_spread * (2 * random.Uniform() - 1);
      return std::max(1, static_cast<int32_t>(std::lround(mean * share)));
    };
    const int32_t length = draw(options_.prompt_tokens);
    request.pieces.push_back({.role = PieceRole::kUser,
                              .tokens = tokens_.Of(TokenKey::kTurn, TurnKey(request), length),
                              .answer = {}});
    request.prompt_tokens = before + length;
    request.output_tokens = draw(options_.output_tokens);
  }

  bool Fits(const LoadRequest& request) const {
    return options_.context_length == 0 ||
           int64_t{request.prompt_tokens} + request.output_tokens <= options_.context_length;
  }

  // Shortens the pieces from the end until they have the request's prompt_tokens.
  static void CutPieces(LoadRequest& request) {
    size_t total = AllTokens(request).size();
    while (total > static_cast<size_t>(request.prompt_tokens)) {
      std::vector<TokenId>& last = request.pieces.back().tokens;
      const size_t cut = std::min(last.size(), total - static_cast<size_t>(request.prompt_tokens));
      last.resize(last.size() - cut);
      total -= cut;
      if (last.empty()) request.pieces.pop_back();
    }
  }
};

// mooncake and azure.
class TraceWorkload final : public SeededWorkload {
 public:
  TraceWorkload(const WorkloadOptions& options, std::vector<TracedRequest> trace)
      : SeededWorkload(options), trace_(std::move(trace)) {
    std::stable_sort(
        trace_.begin(), trace_.end(),
        [](const TracedRequest& a, const TracedRequest& b) { return a.at_us < b.at_us; });
  }

  std::optional<LoadRequest> Next() override {
    if (next_ == static_cast<int64_t>(trace_.size())) return std::nullopt;
    LoadRequest request = NewRequest();
    const TracedRequest& traced = trace_[static_cast<size_t>(request.number)];
    request.trace_at_us = traced.at_us - trace_.front().at_us;
    request.prompt_tokens = Scaled(traced.prompt_tokens);
    request.output_tokens = traced.output_tokens;
    Clip(options_.context_length, request);
    PromptPiece piece;
    piece.tokens.reserve(static_cast<size_t>(request.prompt_tokens));
    for (const uint64_t id : traced.hash_ids) {
      const int64_t room = request.prompt_tokens - static_cast<int64_t>(piece.tokens.size());
      tokens_.Append(TokenKey::kTraceBlock, id, 0,
                     std::min<int64_t>(room, options_.trace_block_tokens), piece.tokens);
    }
    // The rest of a prompt that has fewer ids than tokens is its own.
    tokens_.Append(TokenKey::kRequest, static_cast<uint64_t>(request.number), 0,
                   request.prompt_tokens - static_cast<int64_t>(piece.tokens.size()), piece.tokens);
    request.pieces.push_back(std::move(piece));
    return request;
  }

 private:
  int32_t Scaled(int32_t tokens) const {
    if (options_.kind != WorkloadKind::kMooncake) return tokens;
    const int64_t scaled =
        (int64_t{tokens} * options_.trace_block_tokens + kMooncakeBlockTokens - 1) /
        kMooncakeBlockTokens;
    return static_cast<int32_t>(scaled);
  }

  std::vector<TracedRequest> trace_;
};

absl::Status CheckWorkload(const WorkloadOptions& options, size_t traced) {
  if (HasTrace(options.kind) && traced == 0) {
    return absl::InvalidArgumentError("the trace has no requests");
  }
  if (options.context_length == 1) {
    return absl::InvalidArgumentError("the context length is 1; must be at least 2");
  }
  if (options.kind == WorkloadKind::kSwing) {
    if (!(options.swing_ratio >= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--swing-ratio is ", options.swing_ratio, "; must be at least 1"));
    }
    if (options.swing_half_us() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--swing-period-s is ", options.swing_period_s, "; must be positive"));
    }
  }
  if (options.kind != WorkloadKind::kChunks) return absl::OkStatus();
  if (options.chunks > options.chunk_pool) {
    return absl::InvalidArgumentError(absl::StrCat("--chunks is ", options.chunks,
                                                   "; must be at most --chunk-pool, which is ",
                                                   options.chunk_pool));
  }
  // Chunks overlap in position, but every part must fit, so the sum is a safe bound.
  const double longest =
      options.system_tokens + 1.0 * options.chunks * options.chunk_tokens +
      (1 + options.length_spread) * (options.prompt_tokens + options.output_tokens);
  if (options.context_length > 0 && longest > options.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("system part, chunks, question and answer have up to ", longest,
                     " tokens, and the target's context holds ", options.context_length));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& WorkloadNames() {
  static const std::vector<std::string> kNames = {"synthetic", "shared-prefix", "chat", "chunks",
                                                  "mooncake",  "azure",         "swing"};
  return kNames;
}

absl::StatusOr<WorkloadKind> ParseWorkloadKind(const std::string& name) {
  const auto& names = WorkloadNames();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("is \"", name, "\"; must be one of ", absl::StrJoin(names, ", ")));
  }
  return static_cast<WorkloadKind>(at - names.begin());
}

SwingLengths SwingLengthsOf(const WorkloadOptions& options, int32_t half) {
  if (half == 1) {
    return {ShortLength(options.output_tokens, options.swing_ratio), options.output_tokens};
  }
  return {options.prompt_tokens, ShortLength(options.prompt_tokens, options.swing_ratio)};
}

std::optional<FollowUp> Workload::After(const LoadRequest& /*request*/,
                                        const AnswerContent& /*answer*/) {
  return std::nullopt;
}

void Workload::Clip(int32_t context_length, LoadRequest& request) {
  if (context_length == 0) return;
  if (int64_t{request.prompt_tokens} + request.output_tokens <= context_length) return;
  const int32_t room = context_length - std::min(request.output_tokens, context_length);
  const int32_t prompt = std::min(request.prompt_tokens, std::max(1, room));
  const int32_t output = std::min(request.output_tokens, context_length - prompt);
  request.clipped_prompt_tokens = request.prompt_tokens - prompt;
  request.clipped_output_tokens = request.output_tokens - output;
  request.prompt_tokens = prompt;
  request.output_tokens = output;
}

absl::StatusOr<std::unique_ptr<Workload>> MakeWorkload(const WorkloadOptions& options,
                                                       std::vector<TracedRequest> trace) {
  const absl::Status checked = CheckWorkload(options, trace.size());
  if (!checked.ok()) return checked;
  switch (options.kind) {
    case WorkloadKind::kSynthetic:
    case WorkloadKind::kSharedPrefix:
      return std::make_unique<PrefixWorkload>(options);
    case WorkloadKind::kChat:
      return std::make_unique<ChatWorkload>(options);
    case WorkloadKind::kChunks:
      return std::make_unique<ChunkWorkload>(options);
    case WorkloadKind::kSwing:
      return std::make_unique<SwingWorkload>(options);
    case WorkloadKind::kMooncake:
    case WorkloadKind::kAzure:
      break;
  }
  return std::make_unique<TraceWorkload>(options, std::move(trace));
}

}  // namespace baton
