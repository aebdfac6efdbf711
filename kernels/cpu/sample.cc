#include "kernels/cpu/sample.h"

#include <algorithm>
#include <span>

#include "kernels/softmax_weight.h"

namespace baton {
namespace {

constexpr int64_t kUnitChunks = 4;      // chunks in one unit: a few microseconds of work
constexpr int64_t kDrawsPerThread = 2;  // from here on, a thread takes whole draws

std::span<const LogitAddition> AdditionsOf(const SampleArgs& args, int64_t draw) {
  if (args.first_addition == nullptr) return {};
  return {args.additions + args.first_addition[draw],
          args.additions + args.first_addition[draw + 1]};
}

std::span<const float> RowOf(const SampleArgs& args, int64_t draw) {
  return {args.logits + args.draws[draw].row * args.vocabulary,
          static_cast<size_t>(args.vocabulary)};
}

// Returns the row with the draw's additions applied, or the row itself if the draw has none.
std::span<const float> Adjust(const SampleArgs& args, int64_t draw, std::vector<float>& adjusted) {
  const std::span<const float> row = RowOf(args, draw);
  const std::span<const LogitAddition> additions = AdditionsOf(args, draw);
  if (additions.empty()) return row;
  adjusted.assign(row.begin(), row.end());
  for (const LogitAddition& addition : additions) adjusted[addition.token] += addition.value;
  return adjusted;
}

void RunWholeDraws(ThreadPool& pool, SampleScratch& scratch, const SampleArgs& args) {
  std::vector<SampleScratch::Thread>& threads = scratch.ForThreads(pool.threads());
  pool.ParallelFor(args.count, [&](int64_t i, int worker) {
    const RowDraw& draw = args.draws[i];
    SampleScratch::Thread& thread = threads[worker];
    args.tokens[i] =
        draw.row < 0 ? kDrawSkipped
                     : thread.drawer.Draw(Adjust(args, i, thread.adjusted), draw.rule, draw.key);
  });
}

// Calls fn(draw, first chunk, end) for all chunks of every draw for which takes_part(draw) is true.
template <typename TakesPart, typename Function>
void ForChunks(ThreadPool& pool, const SampleArgs& args, int64_t chunks,
               const TakesPart& takes_part, const Function& fn) {
  const int64_t units = (chunks + kUnitChunks - 1) / kUnitChunks;
  pool.ParallelFor(args.count * units, [&](int64_t unit, int) {
    const int64_t draw = unit / units;
    if (!takes_part(draw)) return;
    const int64_t begin = unit % units * kUnitChunks;
    fn(draw, begin, std::min(begin + kUnitChunks, chunks));
  });
}

std::span<const float> Chunk(std::span<const float> logits, int64_t chunk) {
  const size_t begin = static_cast<size_t>(chunk) * kDrawChunk;
  return logits.subspan(begin, std::min(kDrawChunk, logits.size() - begin));
}

bool SumsWeights(const SampleArgs& args, int64_t draw, const SampleScratch::SharedDraw& shared) {
  const DrawRule& rule = args.draws[draw].rule;
  return args.draws[draw].row >= 0 && shared.best.token >= 0 && rule.temperature != 0 &&
         ReadsChunkWeights(rule, static_cast<size_t>(args.vocabulary));
}

void RunSharedDraws(ThreadPool& pool, SampleScratch& scratch, const SampleArgs& args) {
  const int64_t chunks = (args.vocabulary + kDrawChunk - 1) / kDrawChunk;
  std::vector<SampleScratch::SharedDraw>& draws = scratch.ForDraws(args.count);
  for (int64_t i = 0; i < args.count; ++i) {
    if (args.draws[i].row < 0) continue;
    draws[i].logits = Adjust(args, i, draws[i].adjusted);
    draws[i].maxima.resize(chunks);
    draws[i].weights.resize(chunks);
  }
  ForChunks(
      pool, args, chunks, [&](int64_t i) { return args.draws[i].row >= 0; },
      [&](int64_t i, int64_t begin, int64_t end) {
        for (int64_t chunk = begin; chunk < end; ++chunk) {
          draws[i].maxima[chunk] = MaximumOf(Chunk(draws[i].logits, chunk));
        }
      });
  for (int64_t i = 0; i < args.count; ++i) {
    if (args.draws[i].row >= 0) draws[i].best = BestOf(draws[i].logits, draws[i].maxima);
  }
  ForChunks(
      pool, args, chunks, [&](int64_t i) { return SumsWeights(args, i, draws[i]); },
      [&](int64_t i, int64_t begin, int64_t end) {
        const double scale = ScaleOf(args.draws[i].rule.temperature);
        for (int64_t chunk = begin; chunk < end; ++chunk) {
          draws[i].weights[chunk] =
              SumSoftmaxWeights(Chunk(draws[i].logits, chunk), draws[i].best.logit, scale);
        }
      });
  std::vector<SampleScratch::Thread>& threads = scratch.ForThreads(pool.threads());
  pool.ParallelFor(args.count, [&](int64_t i, int worker) {
    const RowDraw& draw = args.draws[i];
    TokenDrawer& drawer = threads[worker].drawer;
    const SampleScratch::SharedDraw& shared = draws[i];
    if (draw.row < 0) {
      args.tokens[i] = kDrawSkipped;
    } else if (SumsWeights(args, i, shared)) {
      args.tokens[i] =
          drawer.DrawWithWeights(shared.logits, draw.rule, draw.key, shared.best, shared.weights);
    } else {
      args.tokens[i] = drawer.Draw(shared.logits, draw.rule, draw.key, shared.best);
    }
  });
}

}  // namespace

std::vector<SampleScratch::Thread>& SampleScratch::ForThreads(int threads) {
  if (threads_.size() < threads) threads_.resize(threads);
  return threads_;
}

std::vector<SampleScratch::SharedDraw>& SampleScratch::ForDraws(int64_t draws) {
  if (draws_.size() < draws) draws_.resize(draws);
  return draws_;
}

void RunSample(ThreadPool& pool, SampleScratch& scratch, SampleArgs args) {
  if (args.first_token != nullptr) args.tokens += *args.first_token;
  const int64_t draws = std::count_if(args.draws, args.draws + args.count,
                                      [](const RowDraw& draw) { return draw.row >= 0; });
  if (draws == 0) {
    std::fill_n(args.tokens, args.count, kDrawSkipped);
  } else if (pool.threads() == 1 || draws >= kDrawsPerThread * pool.threads()) {
    RunWholeDraws(pool, scratch, args);
  } else {
    RunSharedDraws(pool, scratch, args);
  }
}

}  // namespace baton
