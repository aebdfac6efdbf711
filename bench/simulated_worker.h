// Worker in simulated time: continuous batching with chunked prefill, and an LRU cache of prompt
// blocks. A step computes up to `chunk_tokens` of the waiting prompts, oldest first, and one token
// of every decoding sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <queue>
#include <utility>
#include <vector>

#include "bench/timed_trace.h"

namespace baton {

// Cost model of a step. The defaults approximate an accelerator with 3 TB/s and 400 dense TFLOP/s
// and a model of 8 billion parameters: 40 us per prompt token, plus 1.3 ns for each token before
// it; 6 ms to read the weights; 25 us per decoding sequence, plus 0.044 us per token of its
// context.
struct ServiceModel {
  double prompt_token_us = 40;
  double position_us = 0.0013;
  double weights_us = 6000;
  double sequence_us = 25;
  double context_us = 0.044;
  int32_t chunk_tokens = 2048;
  int64_t kv_bytes_per_token = 131'072;
  double bytes_per_us = 10'000;  // bandwidth between two workers
  int64_t call_us = 1000;        // fixed cost of a hand-off or pull

  // Time of a whole prompt alone on a worker.
  double PrefillUs(int64_t cached, int64_t total) const {
    const auto tokens = static_cast<double>(total - cached);
    return std::max(weights_us, prompt_token_us * tokens) +
           position_us * tokens * (static_cast<double>(cached) + tokens / 2);
  }
};

class SimulatedWorker {
 public:
  struct Prompt {
    uint32_t request = 0;
    int32_t tokens = 0;
    int32_t cached = 0;
    int32_t computed = 0;  // tokens computed so far, including the cached ones
    int64_t queued_us = 0;
    int64_t started_us = -1;  // -1: not started
  };
  struct Answer {
    uint32_t request = 0;
    int64_t context = 0;  // tokens of the sequence at its end
  };
  struct StepResult {
    std::vector<Prompt> prefilled;
    std::vector<Answer> answered;
  };

  SimulatedWorker(const ServiceModel* model, size_t capacity) : model_(model), cache_(capacity) {}

  void Prefill(uint32_t request, int32_t tokens, int64_t now_us) {
    waiting_.push_back({.request = request, .tokens = tokens, .queued_us = now_us});
  }
  // Starts decoding: the first token exists, `more` tokens follow.
  void Decode(uint32_t request, int32_t context, int32_t more) {
    const uint64_t first_step = steps_ + (stepping_ ? 1 : 0);
    context_ += context;
    ending_.push({first_step + static_cast<uint64_t>(more), {request, int64_t{context} + more}});
  }

  bool stepping() const { return stepping_; }
  // Starts a step if there is work. Returns the time when it ends; 0 if there is no work.
  // `cached(request)` returns how many tokens of its prompt the cache holds.
  template <typename Cached>
  int64_t BeginStep(int64_t now_us, const Cached& cached) {
    if (waiting_.empty() && ending_.empty()) return 0;
    int32_t budget = model_->chunk_tokens;
    double tokens_us = 0;
    double attention_us = 0;
    chunks_.clear();
    for (size_t i = 0; i < waiting_.size() && budget > 0; ++i) {
      Prompt& prompt = waiting_[i];
      if (prompt.started_us < 0) {
        prompt.started_us = now_us;
        prompt.cached = prompt.computed = cached(prompt.request);
      }
      const int32_t tokens = std::min(budget, prompt.tokens - prompt.computed);
      tokens_us += model_->prompt_token_us * tokens;
      attention_us += model_->position_us * tokens * (prompt.computed + tokens / 2.0);
      chunks_.push_back(tokens);
      budget -= tokens;
    }
    decoding_ = static_cast<int64_t>(ending_.size());
    const double own_us = attention_us + model_->sequence_us * static_cast<double>(decoding_) +
                          model_->context_us * static_cast<double>(context_);
    stepping_ = true;
    step_work_us_ = own_us + tokens_us;
    work_us_ += step_work_us_;
    return now_us + static_cast<int64_t>(own_us + std::max(model_->weights_us, tokens_us));
  }
  StepResult EndStep() {
    StepResult result;
    stepping_ = false;
    ++steps_;
    context_ += decoding_;
    for (size_t i = 0; i < chunks_.size(); ++i) waiting_[i].computed += chunks_[i];
    while (!waiting_.empty() && waiting_.front().computed == waiting_.front().tokens) {
      result.prefilled.push_back(waiting_.front());
      waiting_.pop_front();
    }
    while (!ending_.empty() && ending_.top().first <= steps_) {
      result.answered.push_back(ending_.top().second);
      context_ -= ending_.top().second.context;
      ending_.pop();
    }
    return result;
  }

  LruCache& cache() { return cache_; }
  // Time of the step's tokens, without reading the weights. Every step reads the weights, however
  // few tokens it has.
  double step_work_us() const { return step_work_us_; }
  double work_us() const { return work_us_; }

 private:
  using Ending = std::pair<uint64_t, Answer>;
  struct Later {
    bool operator()(const Ending& a, const Ending& b) const { return a.first > b.first; }
  };

  const ServiceModel* const model_;
  LruCache cache_;
  std::deque<Prompt> waiting_;
  std::vector<int32_t> chunks_;  // of the running step
  std::priority_queue<Ending, std::vector<Ending>, Later> ending_;
  uint64_t steps_ = 0;
  int64_t decoding_ = 0;  // decoding sequences in the running step
  int64_t context_ = 0;   // context tokens of all decoding sequences
  bool stepping_ = false;
  double step_work_us_ = 0;
  double work_us_ = 0;
};

}  // namespace baton
