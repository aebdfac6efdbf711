#include "cli/answer_notes.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/counted_noun.h"
#include "common/printable_text.h"

namespace baton {
namespace {

constexpr size_t kMostPieceBytes = 24;  // limit of a token's text in the table
constexpr int kTokenColumns = 16;       // wide enough for most tokens

// Returns the name of a limit. A job of a file has it from its own field or from the option.
std::string LimitName(const Job& job, const std::string& option, const std::string& field) {
  return job.line == 0 ? absl::StrCat("--", option) : absl::StrCat(field, " or --", option);
}

bool MayBeAStopString(const Job& job, const JobResult& result) {
  return !job.sampling.stop.empty() && result.finish_reason == "stop";
}

// Returns the stop string that ends within the last token. Empty if none does.
std::string_view StopStringAtTheEnd(const Job& job, const JobResult& result,
                                    const TokenPieces& pieces) {
  std::string text;
  size_t last = 0;  // bytes of the last token
  for (const TokenId token : result.token_ids) {
    const auto piece = pieces.find(token);
    last = piece == pieces.end() ? 0 : piece->second.size();
    if (last > 0) text += piece->second;
  }
  for (const std::string& stop : job.sampling.stop) {
    const size_t before_last = text.size() - last;
    const size_t first = before_last - std::min(before_last, stop.size() - 1);
    if (text.find(stop, first) != std::string::npos) return stop;
  }
  return "";
}

std::string Quoted(std::string_view text, size_t most_bytes) {
  return absl::StrCat("\"", Printable(text, most_bytes), "\"");
}

std::string ShownToken(TokenId token, const TokenPieces& pieces) {
  const auto piece = pieces.find(token);
  return piece == pieces.end() ? absl::StrCat("#", token) : Quoted(piece->second, kMostPieceBytes);
}

// Returns the number of UTF-8 characters: counts the bytes that do not continue a character.
int Characters(std::string_view text) {
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

void AppendPadded(std::string& out, const std::string& text, int columns) {
  absl::StrAppend(&out, text, std::string(std::max(0, columns - Characters(text)), ' '));
}

}  // namespace

std::vector<TokenId> TokensOfLogprobs(const std::vector<JobResult>& results) {
  absl::btree_set<TokenId> tokens;
  for (const JobResult& result : results) {
    if (result.logprobs.empty()) continue;
    tokens.insert(result.token_ids.begin(), result.token_ids.end());
    for (const TokenDetail& detail : result.logprobs) {
      for (const TokenLogprob& top : detail.top) tokens.insert(top.token);
    }
  }
  return {tokens.begin(), tokens.end()};
}

std::vector<TokenId> TokensToShow(const Job& job, const std::vector<JobResult>& results) {
  const std::vector<TokenId> of_logprobs = TokensOfLogprobs(results);
  absl::btree_set<TokenId> tokens(of_logprobs.begin(), of_logprobs.end());
  for (const JobResult& result : results) {
    if (MayBeAStopString(job, result)) {
      tokens.insert(result.token_ids.begin(), result.token_ids.end());
    }
  }
  return {tokens.begin(), tokens.end()};
}

std::string StopNote(const Job& job, const JobResult& result, const TokenPieces& pieces) {
  const SamplingParams& sampling = job.sampling;
  if (result.finish_reason == "length") {
    if (sampling.max_tokens && result.completion_tokens >= *sampling.max_tokens) {
      return absl::StrCat("(stopped: ", CountedNoun(result.completion_tokens, "token"), ", ",
                          LimitName(job, "max-tokens", "max_tokens"), ")");
    }
    return absl::StrCat("(stopped: no room for more, prompt and answer have ",
                        result.prompt_tokens + result.completion_tokens, " tokens)");
  }
  if (result.finish_reason != "stop" || result.token_ids.empty()) return "";
  const TokenId last = result.token_ids.back();
  if (std::count(sampling.stop_token_ids.begin(), sampling.stop_token_ids.end(), last) > 0) {
    return absl::StrCat("(stopped: token ", last, ", ",
                        LimitName(job, "stop-token-id", "stop_token_ids"), ")");
  }
  if (!MayBeAStopString(job, result)) return "";
  const std::string_view stop = StopStringAtTheEnd(job, result, pieces);
  if (stop.empty()) return "";
  return absl::StrCat("(stopped: ", Quoted(stop, kMaxStopStringBytes), ", ",
                      LimitName(job, "stop", "stop"), ")");
}

std::string StopNote(const absl::Status& error) {
  if (absl::IsDeadlineExceeded(error)) return "(stopped: the deadline passed, --timeout-ms)";
  if (absl::IsCancelled(error)) return "(stopped: cancelled)";
  return "";
}

std::string LogprobsTable(const JobResult& result, const TokenPieces& pieces) {
  if (result.logprobs.empty()) return "";
  std::string out;
  AppendPadded(out, "  token", kTokenColumns + 2);
  absl::StrAppend(&out, "  logprob");
  const bool has_alternatives =
      std::any_of(result.logprobs.begin(), result.logprobs.end(),
                  [](const TokenDetail& detail) { return !detail.top.empty(); });
  absl::StrAppend(&out, has_alternatives ? "   most likely\n" : "\n");
  for (size_t i = 0; i < result.logprobs.size() && i < result.token_ids.size(); ++i) {
    const TokenDetail& detail = result.logprobs[i];
    std::string row = "  ";
    AppendPadded(row, ShownToken(result.token_ids[i], pieces), kTokenColumns);
    absl::StrAppendFormat(&row, " %8.3f", detail.logprob);
    for (size_t k = 0; k < detail.top.size(); ++k) {
      absl::StrAppend(&row, k == 0 ? "   " : "  ");
      AppendPadded(row, ShownToken(detail.top[k].token, pieces), kTokenColumns);
      absl::StrAppendFormat(&row, " %8.3f", detail.top[k].logprob);
    }
    absl::StrAppend(&out, row, "\n");
  }
  return out;
}

JobResult WithOneLedger(const std::vector<JobResult>& results) {
  const auto total_us = [](const JobResult& result) -> int64_t {
    for (const auto& [name, figure] : result.ledger) {
      if (name == "total_us") return figure;
    }
    return 0;
  };
  JobResult out = *std::max_element(
      results.begin(), results.end(),
      [&](const JobResult& a, const JobResult& b) { return total_us(a) < total_us(b); });
  out.completion_tokens = 0;
  for (const JobResult& result : results) out.completion_tokens += result.completion_tokens;
  return out;
}

}  // namespace baton
