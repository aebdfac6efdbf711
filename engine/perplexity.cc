#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "model/llama_runner.h"

namespace baton {
namespace {

constexpr int32_t kMaxChunk = 128;  // logits of that many rows at once

double NegativeLogLikelihood(std::span<const float> logits, TokenId target) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - maximum);
  return maximum + std::log(sum) - logits[target];
}

// Sum over one window that fits the context.
absl::StatusOr<double> WindowNll(ModelRunner& runner, std::span<const TokenId> window,
                                 std::span<const BlockId> table, int32_t max_chunk,
                                 const std::function<void(int64_t)>& done) {
  double total = 0;
  const int32_t inputs = static_cast<int32_t>(window.size()) - 1;
  for (int32_t begin = 0; begin < inputs; begin += max_chunk) {
    const int32_t count = std::min(max_chunk, inputs - begin);
    StepInput step;
    step.chunks.push_back({.tokens = window.subspan(begin, count),
                           .begin_slot = begin,
                           .begin_position = begin,
                           .block_table = table,
                           .logit_rows = count,
                           .keeps_logits = true});
    ASSIGN_OR_RETURN(const StepId ran, RunStep(runner, step));
    for (int32_t i = 0; i < count; ++i) {
      total += NegativeLogLikelihood(runner.Logits(ran, i), window[begin + i + 1]);
    }
    done(count);
  }
  return total;
}

}  // namespace

absl::StatusOr<PerplexityResult> MeasurePerplexity(const LoadedModel& model,
                                                   const EngineOptions& options,
                                                   std::span<const TokenId> tokens,
                                                   const std::function<void(double)>& progress) {
  const LlamaConfig& config = model.info.config;
  if (tokens.size() < 2) {
    return absl::InvalidArgumentError(
        StrCat("perplexity needs at least 2 tokens, there are ", tokens.size()));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= config.vocabulary) {
      return absl::InvalidArgumentError(
          StrCat("token ", token, " is outside the vocabulary of ", config.vocabulary));
    }
  }
  const int32_t context =
      options.context_length > 0 ? options.context_length : config.context_length;
  if (context < 2) {
    return absl::InvalidArgumentError(
        StrCat("perplexity needs a context of at least 2 tokens, it is ", context));
  }
  const int32_t longest = static_cast<int32_t>(std::min<int64_t>(context, tokens.size()));
  const KvGroupSpec group{.layers = config.layers,
                          .kv_heads = config.kv_heads,
                          .head_dim = config.head_dim,
                          .type = options.kv_type};
  // First the block size is checked, then how many blocks of it are needed.
  RETURN_IF_ERROR(KvLayout::Create(group, options.layout, options.block_size, 1).status());
  const int32_t blocks = (longest + options.block_size - 1) / options.block_size;
  ASSIGN_OR_RETURN(const KvLayout layout,
                   KvLayout::Create(group, options.layout, options.block_size, blocks + 1));
  ASSIGN_OR_RETURN(const auto pool, model.device->Allocate(layout.pool_bytes(), "KV pool"));
  LlamaRunnerOptions runner_options;
  const int32_t max_chunk = std::min({kMaxChunk, options.max_chunk_tokens, options.token_budget});
  runner_options.limits = {.max_tokens = max_chunk,
                           .max_sequences = 1,
                           .max_logit_rows = max_chunk,
                           .max_context = longest};
  runner_options.graph = options.graph;
  ASSIGN_OR_RETURN(const auto runner,
                   LlamaRunner::Create(config, *model.weights, layout, pool->data(), *model.device,
                                       runner_options));
  std::vector<BlockId> table;
  for (int32_t i = 0; i < blocks; ++i) table.push_back(BlockId(i));

  PerplexityResult result;
  double total = 0;
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += longest) {
    const auto window = tokens.subspan(begin, std::min<size_t>(longest, tokens.size() - begin));
    if (window.size() < 2) break;
    ASSIGN_OR_RETURN(
        const double nll, WindowNll(*runner, window, table, max_chunk, [&](int64_t n) {
          result.tokens += n;
          if (progress) {
            progress(static_cast<double>(result.tokens) / static_cast<double>(tokens.size()));
          }
        }));
    total += nll;
  }
  result.nll = total / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.nll);
  return result;
}

}  // namespace baton
