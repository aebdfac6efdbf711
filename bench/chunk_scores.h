// Scores of one question in one mode: which choice the model prefers, and how far its distribution
// is from that of full attention.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/chunk_prompts.h"
#include "bench/chunk_questions.h"
#include "bench/chunk_score_file.h"
#include "bench/logit_tap.h"
#include "bench/timed_requests.h"
#include "common/status_macros.h"
#include "engine/engine.h"
#include "text/prompt_encoder.h"

namespace baton {

// A row of logits, and what turns it into log-probabilities.
class LogitRow {
 public:
  explicit LogitRow(std::vector<float> logits) : logits_(std::move(logits)) {
    const double largest = *std::max_element(logits_.begin(), logits_.end());
    double sum = 0;
    for (const float logit : logits_) sum += std::exp(logit - largest);
    log_sum_ = largest + std::log(sum);
  }
  double LogProbability(TokenId token) const {
    return logits_[static_cast<size_t>(token)] - log_sum_;
  }
  // Returns the token with the largest logit; among equals the lowest, as greedy decoding does.
  TokenId MostProbable() const {
    return static_cast<TokenId>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
  }
  // Kullback-Leibler divergence of `other` from this distribution, in nats.
  double DivergenceOf(const LogitRow& other) const {
    double sum = 0;
    for (size_t i = 0; i < logits_.size(); ++i) {
      const double own = logits_[i] - log_sum_;
      sum += std::exp(own) * (own - (other.logits_[i] - other.log_sum_));
    }
    return sum;
  }

 private:
  std::vector<float> logits_;
  double log_sum_ = 0;
};

// A question as tokens.
struct EncodedQuestion {
  ChunkedPrompt parts;
  std::vector<int32_t> right_chunks;
  std::vector<std::vector<TokenId>> choices;  // the answer is the first

  const std::vector<TokenId>& answer() const { return choices.front(); }
};

inline absl::StatusOr<EncodedQuestion> EncodeQuestion(const ChunkQuestion& question,
                                                      const PromptEncoder& encoder,
                                                      const Tokenizer& tokenizer) {
  ChunkedText text;
  text.system = question.system;
  for (const std::string& chunk : question.chunks) text.chunks.emplace_back(chunk);
  text.question = question.question;
  const absl::StatusOr<EncodedPrompt> prompt = encoder.EncodeParts(text, {});
  if (!prompt.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(question.id, ": ", std::string(prompt.status().message())));
  }
  EncodedQuestion encoded;
  encoded.parts = prompt->chunked.value_or(ChunkedPrompt());
  encoded.right_chunks = question.right_chunks;
  std::vector<std::string> choices = {question.answer};
  choices.insert(choices.end(), question.distractors.begin(), question.distractors.end());
  for (const std::string& choice : choices) {
    encoded.choices.push_back(tokenizer.Encode(choice, {.add_bos = false, .add_eos = false}));
    const auto tokens = static_cast<int32_t>(encoded.choices.back().size());
    if (tokens > 0 && tokens <= LogitTap::kMostRows) continue;
    return absl::InvalidArgumentError(absl::StrCat(question.id, ": a choice has ", tokens,
                                                   " tokens; 1 to ", LogitTap::kMostRows,
                                                   " are allowed"));
  }
  return encoded;
}

struct QuestionScore {
  ModeScore summary;
  std::vector<LogitRow> answer_rows;
};

class QuestionScorer {
 public:
  // The engine has the tap. Both must outlive this.
  QuestionScorer(Engine* engine, LogitTap* tap) : engine_(engine), tap_(tap) {}

  // `full`: rows of the same answer with full attention; null: this is full attention. The error is
  // that of a request.
  absl::StatusOr<QuestionScore> Score(const ChunkedPrompt& prompt, bool in_chunks,
                                      const EncodedQuestion& question,
                                      const std::vector<LogitRow>* full) {
    QuestionScore score;
    double best_other = -INFINITY;
    double answer = 0;
    for (size_t i = 0; i < question.choices.size(); ++i) {
      const std::vector<TokenId>& choice = question.choices[i];
      ASSIGN_OR_RETURN(std::vector<LogitRow> rows,
                       RowsOf(prompt, in_chunks, choice, i == 0, score.summary));
      double sum = 0;
      for (size_t at = 0; at < choice.size(); ++at) sum += rows[at].LogProbability(choice[at]);
      if (i > 0) {
        best_other = std::max(best_other, sum);
        continue;
      }
      answer = sum;
      score.summary.nll = -sum / static_cast<double>(choice.size());
      for (size_t at = 0; full != nullptr && at < rows.size(); ++at) {
        score.summary.divergence +=
            (*full)[at].DivergenceOf(rows[at]) / static_cast<double>(rows.size());
      }
      score.answer_rows = std::move(rows);
    }
    score.summary.right = answer > best_other;
    return score;
  }

 private:
  // Returns the row of each token of `choice`. With `is_answer`, also fills score.greedy: every
  // row's most probable token is the answer's, so greedy decoding would say the answer.
  absl::StatusOr<std::vector<LogitRow>> RowsOf(const ChunkedPrompt& prompt, bool in_chunks,
                                               const std::vector<TokenId>& choice, bool is_answer,
                                               ModeScore& score) {
    const auto count = static_cast<int32_t>(choice.size());
    const std::span<const TokenId> fed = std::span(choice).first(choice.size() - 1);
    std::vector<LogitRow> rows;
    if (is_answer) {
      RETURN_IF_ERROR(AskFor(prompt, in_chunks, fed, /*first=*/-1, count));
      first_row_ = tap_->rows().begin()->second;
    } else {
      rows.emplace_back(first_row_);
      if (count == 1) return rows;
      RETURN_IF_ERROR(AskFor(prompt, in_chunks, fed, /*first=*/0, count - 1));
    }
    for (const auto& [position, row] : tap_->rows()) rows.emplace_back(row);
    if (is_answer) {
      score.greedy = true;
      for (size_t at = 0; at < rows.size(); ++at) {
        score.greedy = score.greedy && rows[at].MostProbable() == choice[at];
      }
    }
    return rows;
  }

  // Asks with `fed` behind the question, and taps the rows of `count` tokens from the one that
  // stands `first` behind the question's end. Tokens that the cache has get no row. Then the
  // question is asked again in a namespace of its own.
  absl::Status AskFor(ChunkedPrompt prompt, bool in_chunks, std::span<const TokenId> fed,
                      int32_t first, int32_t count) {
    const auto end =
        static_cast<int32_t>(in_chunks ? PositionsOf(prompt).answer : TokensOf(prompt));
    prompt.question.insert(prompt.question.end(), fed.begin(), fed.end());
    for (int attempt = 0; attempt < 2; ++attempt) {
      const CacheNamespace where(attempt == 0 ? 1 : ++last_namespace_);
      tap_->Want(end + first, end + first + count);
      RETURN_IF_ERROR(AskTimed(*engine_, in_chunks ? GreedyRequest(prompt, 1, where)
                                                   : GreedyRequest(FlatTokens(prompt), 1, where))
                          .status());
      if (static_cast<int32_t>(tap_->rows().size()) == count) return absl::OkStatus();
    }
    return absl::InternalError(
        absl::StrCat("the engine gave ", tap_->rows().size(), " of ", count, " rows of logits"));
  }

  Engine* const engine_;
  LogitTap* const tap_;
  std::vector<float> first_row_;  // behind the question, of the last answer
  uint64_t last_namespace_ = 1000;
};

}  // namespace baton
