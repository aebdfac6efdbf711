#include "kernels/cuda/launch_sample.h"

#include "common/check.h"
#include "kernels/cuda/kernel_shapes.h"
#include "kernels/cuda/sample_params.h"

namespace baton {

void LaunchSample(KernelLauncher& launcher, const SampleArgs& args) {
  if (args.count == 0) return;
  const int64_t chunks = (args.vocabulary + kSampleChunk - 1) / kSampleChunk;
  CHECK_LE(chunks, kMostSampleChunks) << "vocabulary of " << args.vocabulary;
  std::byte* const workspace =
      launcher.Workspace("sample chunks", static_cast<size_t>(args.count * chunks) *
                                              (sizeof(uint64_t) + sizeof(float)));
  if (workspace == nullptr) return;
  SampleParams params{};
  params.logits = args.logits;
  params.vocabulary = args.vocabulary;
  params.draws = args.draws;
  params.additions = args.additions;
  params.first_addition = args.first_addition;
  params.tokens = args.tokens;
  params.first_token = args.first_token;
  params.chunks = static_cast<int32_t>(chunks);
  params.weights = reinterpret_cast<uint64_t*>(workspace);
  params.maxima = reinterpret_cast<float*>(params.weights + args.count * chunks);

  // Draws are the first dimension: CUDA allows 65535 blocks in the others.
  const LaunchShape by_chunk{.grid = {args.count, chunks, 1},
                             .block = {kSampleThreads, 1, 1},
                             .shared_bytes = kSelectionBytes};
  LaunchShape by_draw = by_chunk;
  by_draw.grid[1] = 1;
  launcher.Launch("baton_sample_maxima", by_chunk, &params, sizeof(params));
  launcher.Launch("baton_sample_weights", by_chunk, &params, sizeof(params));
  launcher.Launch("baton_sample_draw", by_draw, &params, sizeof(params));
}

void LaunchFeedDrawnTokens(KernelLauncher& launcher, const FeedDrawnTokensArgs& args) {
  if (args.tokens == 0) return;
  const FeedDrawnTokensParams params{args.drawn, args.source, args.token_ids, args.tokens};
  launcher.Launch(
      "baton_feed_drawn_tokens",
      {.grid = {BlocksFor(args.tokens, kSampleThreads), 1, 1}, .block = {kSampleThreads, 1, 1}},
      &params, sizeof(params));
}

}  // namespace baton
