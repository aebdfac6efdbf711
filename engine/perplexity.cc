#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "common/status_macros.h"
#include "common/str_cat.h"
#include "model/architecture.h"
#include "model/kv_heads.h"

namespace baton {
namespace {

constexpr int32_t kMaxChunk = 128;  // rows of logits per step

double NegativeLogLikelihood(std::span<const float> logits, TokenId target) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - maximum);
  return maximum + std::log(sum) - logits[target];
}

// Returns the sum over one window. REQUIRES: the window fits the context.
absl::StatusOr<double> WindowNll(ModelRunner& runner, std::span<const TokenId> window,
                                 const StepChunk& tables, int32_t max_chunk,
                                 const std::function<void(int64_t)>& done) {
  double total = 0;
  const int32_t inputs = static_cast<int32_t>(window.size()) - 1;
  for (int32_t begin = 0; begin < inputs; begin += max_chunk) {
    const int32_t count = std::min(max_chunk, inputs - begin);
    StepInput step;
    StepChunk& chunk = step.chunks.emplace_back(tables);
    chunk.tokens = window.subspan(begin, count);
    chunk.begin_slot = chunk.begin_position = begin;
    chunk.logit_rows = count;
    chunk.keeps_logits = true;
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
  const ModelSpec& spec = model.info.spec;
  if (tokens.size() < 2) {
    return absl::InvalidArgumentError(
        StrCat("perplexity needs at least 2 tokens; the text has ", tokens.size()));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= spec.vocabulary) {
      return absl::InvalidArgumentError(
          StrCat("token ", token, " is outside the vocabulary of ", spec.vocabulary));
    }
  }
  const int32_t context = options.context_length > 0 ? options.context_length : spec.context_length;
  if (context < 2) {
    return absl::InvalidArgumentError(
        StrCat("perplexity needs a context of at least 2 tokens; it is ", context));
  }
  const int32_t longest = static_cast<int32_t>(std::min<int64_t>(context, tokens.size()));
  const auto pools = static_cast<int32_t>(model.pool_devices.size());
  const KvCacheSpec kv = OfOneRank(spec.KvOfType(options.kv_type), pools);
  EngineOptions settled = options;
  SettleForDevice(settled, *model.device);
  const auto layout_of = [&](int64_t blocks) {
    const std::vector<int64_t> each(kv.groups.size(), blocks);
    return KvPoolLayout::Create(kv, options.layout, settled.block_size, each);
  };
  // Checks the block size before the number of blocks is computed from it.
  RETURN_IF_ERROR(layout_of(1).status());
  const int32_t blocks = (longest + settled.block_size - 1) / settled.block_size;
  ASSIGN_OR_RETURN(const KvPoolLayout layout, layout_of(int64_t{blocks} + 1));
  std::vector<std::unique_ptr<DeviceBuffer>> memory;
  std::vector<std::byte*> addresses;
  for (Device* const device : model.pool_devices) {
    ASSIGN_OR_RETURN(memory.emplace_back(), device->Allocate(layout.pool_bytes(), "KV pool"));
    addresses.push_back(memory.back()->data());
  }
  ModelRunnerOptions runner_options;
  const int32_t max_chunk = std::min({kMaxChunk, options.max_chunk_tokens, options.token_budget});
  runner_options.limits = {.max_tokens = max_chunk,
                           .max_sequences = 1,
                           .max_logit_rows = max_chunk,
                           .max_context = longest};
  runner_options.graph = options.graph;
  ASSIGN_OR_RETURN(const auto runner,
                   model.weights->CreateRunner(layout, PoolAddresses(addresses), runner_options));
  std::vector<BlockId> table;
  for (int32_t i = 0; i < blocks; ++i) table.push_back(BlockId(i));
  StepChunk tables{.tokens = {}, .block_table = table};  // every group has all blocks
  tables.window_tables.fill(table);

  PerplexityResult result;
  double total = 0;
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += longest) {
    const auto window = tokens.subspan(begin, std::min<size_t>(longest, tokens.size() - begin));
    if (window.size() < 2) break;
    ASSIGN_OR_RETURN(
        const double nll, WindowNll(*runner, window, tables, max_chunk, [&](int64_t n) {
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
