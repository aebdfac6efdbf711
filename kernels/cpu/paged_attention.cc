#include "kernels/cpu/paged_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"
#include "kernels/cpu/attention_merge.h"

namespace baton {
namespace {

using Run = AttentionScratch::Run;
using Item = AttentionScratch::Item;

constexpr int64_t kQueryTileTokens = 16;
constexpr int64_t kQueryTileRows = 64;  // (token, head) pairs of one kv head
constexpr int64_t kSplitStates = 8192;  // of one round of split attention; 9 MiB
constexpr int64_t kInlineMerges = 128;  // fewer are not worth a thread

// One call: the arguments and what follows from them.
struct Call {
  const CpuKernels& kernels;
  ThreadPool& pool;
  AttentionScratch& scratch;
  const PagedAttentionArgs& args;
  int64_t heads_per_kv;
};

// Segments [first, second) that hold the visible slots of a token; empty for padding.
std::pair<int64_t, int64_t> VisibleSegments(const VisibleRange* visible) {
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  for (int i = 0; i < kMaxVisibleRanges; ++i) {
    if (visible[i].begin >= visible[i].end) continue;
    begin = std::min<int64_t>(begin, visible[i].begin);
    end = std::max<int64_t>(end, visible[i].end);
  }
  if (end == 0) return {0, 0};
  return {begin / kAttentionSegment, (end + kAttentionSegment - 1) / kAttentionSegment};
}

void FindRuns(const Call& call) {
  const int64_t tile = std::clamp<int64_t>(kQueryTileRows / call.heads_per_kv, 1, kQueryTileTokens);
  const PagedAttentionArgs& args = call.args;
  std::vector<Run>& runs = call.scratch.runs;
  runs.clear();
  for (int64_t token = 0; token < args.tokens; ++token) {
    const bool joins = !runs.empty() && runs.back().tokens() < tile &&
                       args.sequence_of_token[token] == args.sequence_of_token[token - 1];
    if (!joins) runs.push_back({.token_begin = token, .token_end = token});
    Run& run = runs.back();
    ++run.token_end;
    const auto [begin, end] = VisibleSegments(args.visible + token * kMaxVisibleRanges);
    if (begin == end) continue;
    run.segment_begin = run.segments() == 0 ? begin : std::min(run.segment_begin, begin);
    run.segment_end = std::max(run.segment_end, end);
  }
}

// True where whole runs would leave threads idle: the largest is more than half of a thread's
// share, and there is something to split.
bool ShouldSplit(const Call& call) {
  if (call.pool.threads() == 1) return false;
  int64_t total = 0;
  int64_t largest = 0;
  bool divisible = false;
  for (const Run& run : call.scratch.runs) {
    const int64_t work = run.tokens() * run.segments();
    total += work;
    largest = std::max(largest, work);
    divisible = divisible || run.segments() > 1;
  }
  return divisible && total * call.args.kv_heads < 2 * call.pool.threads() * largest;
}

void FinishRun(const Call& call, const Run& run, int64_t kv_head, const AttentionState* states) {
  const PagedAttentionArgs& args = call.args;
  for (int64_t token = run.token_begin; token < run.token_end; ++token) {
    const int64_t row = token * args.query_heads + kv_head * call.heads_per_kv;
    for (int64_t head = 0; head < call.heads_per_kv; ++head) {
      FinishAttention(*states++, args.head_dim, args.out + (row + head) * args.head_dim);
    }
  }
}

void ForgetStates(AttentionState* states, int64_t count) {
  for (int64_t i = 0; i < count; ++i) states[i].any_visible = false;
}

// Every unit is a whole run for one kv head. `running` and `next` hold its rows.
void WalkRun(const Call& call, const Run& run, int64_t kv_head, AttentionState* running,
             AttentionState* next) {
  const int64_t rows = run.tokens() * call.heads_per_kv;
  ForgetStates(running, rows);
  for (int64_t segment = run.segment_begin; segment < run.segment_end; ++segment) {
    AttentionState* states = segment == run.segment_begin ? running : next;
    call.kernels.attention_segment(call.args, run.token_begin, run.token_end, kv_head, segment,
                                   states);
    if (states == running) continue;
    for (int64_t i = 0; i < rows; ++i) {
      MergeAttentionState(running[i], next[i], call.args.head_dim);
    }
  }
  FinishRun(call, run, kv_head, running);
}

void RunWhole(const Call& call) {
  const std::vector<Run>& runs = call.scratch.runs;
  const int64_t rows = std::max(kQueryTileRows, call.heads_per_kv);
  AttentionState* states = call.scratch.States(2 * rows * call.pool.threads());
  const int64_t kv_heads = call.args.kv_heads;
  const int64_t units = static_cast<int64_t>(runs.size()) * kv_heads;
  call.pool.ParallelFor(units, [&](int64_t unit, int worker) {
    // Last runs first: they see the most slots, and what ends the loop should be short.
    const int64_t index = units - 1 - unit;
    AttentionState* mine = states + 2 * rows * worker;
    WalkRun(call, runs[index / kv_heads], index % kv_heads, mine, mine + rows);
  });
}

void ListItems(const Call& call) {
  std::vector<Item>& items = call.scratch.items;
  items.clear();
  for (int64_t r = 0; r < call.scratch.runs.size(); ++r) {
    Run& run = call.scratch.runs[r];
    run.first_item = static_cast<int64_t>(items.size());
    for (int64_t s = run.segment_begin; s < run.segment_end; ++s) {
      items.push_back({.run = r, .segment = s});
    }
  }
}

// Places items from `begin` on in `budget` states (at least one item); returns where it stopped.
int64_t PlaceItems(const Call& call, int64_t begin, int64_t budget) {
  std::vector<Item>& items = call.scratch.items;
  int64_t used = 0;
  int64_t end = begin;
  for (; end < items.size(); ++end) {
    const int64_t states = call.scratch.runs[items[end].run].tokens() * call.args.query_heads;
    if (end > begin && used + states > budget) break;
    items[end].first_state = used;
    used += states;
  }
  return end;
}

// Merges the items [begin, end) of all runs into `running` ([tokens, query heads], ordered by run,
// then kv head, then token).
void MergeItems(const Call& call, int64_t begin, int64_t end, const AttentionState* states,
                AttentionState* running) {
  const AttentionScratch& scratch = call.scratch;
  const int64_t kv_heads = call.args.kv_heads;
  const int64_t first_run = scratch.items[begin].run;
  const int64_t runs = scratch.items[end - 1].run + 1 - first_run;
  const auto merge = [&](int64_t unit, int) {
    const Run& run = scratch.runs[first_run + unit / kv_heads];
    const int64_t rows = run.tokens() * call.heads_per_kv;
    const int64_t skip = unit % kv_heads * rows;
    AttentionState* into = running + run.token_begin * call.args.query_heads + skip;
    const int64_t last = std::min(end, run.first_item + run.segments());
    for (int64_t item = std::max(begin, run.first_item); item < last; ++item) {
      const AttentionState* from = states + scratch.items[item].first_state + skip;
      for (int64_t i = 0; i < rows; ++i) {
        MergeAttentionState(into[i], from[i], call.args.head_dim);
      }
    }
  };
  const Item& last = scratch.items[end - 1];
  if (last.first_state < kInlineMerges) {
    for (int64_t unit = 0; unit < runs * kv_heads; ++unit) merge(unit, 0);
  } else {
    call.pool.ParallelFor(runs * kv_heads, merge);
  }
}

void RunSplit(const Call& call) {
  const PagedAttentionArgs& args = call.args;
  const AttentionScratch& scratch = call.scratch;
  ListItems(call);
  const int64_t rows = args.tokens * args.query_heads;
  const int64_t budget = std::max(kSplitStates, kQueryTileTokens * args.query_heads);
  AttentionState* running = call.scratch.States(rows + budget);
  AttentionState* states = running + rows;
  ForgetStates(running, rows);
  const auto item_count = static_cast<int64_t>(scratch.items.size());
  for (int64_t begin = 0, end = 0; begin < item_count; begin = end) {
    end = PlaceItems(call, begin, budget);
    call.pool.ParallelFor((end - begin) * args.kv_heads, [&](int64_t unit, int) {
      const Item& item = scratch.items[begin + unit / args.kv_heads];
      const Run& run = scratch.runs[item.run];
      const int64_t kv_head = unit % args.kv_heads;
      AttentionState* out = states + item.first_state + kv_head * run.tokens() * call.heads_per_kv;
      call.kernels.attention_segment(args, run.token_begin, run.token_end, kv_head, item.segment,
                                     out);
    });
    MergeItems(call, begin, end, states, running);
  }
  for (const Run& run : scratch.runs) {
    const AttentionState* state = running + run.token_begin * args.query_heads;
    for (int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
      FinishRun(call, run, kv_head, state + kv_head * run.tokens() * call.heads_per_kv);
    }
  }
}

}  // namespace

AttentionState* AttentionScratch::States(size_t count) {
  const size_t bytes = count * sizeof(AttentionState);
  if (bytes > buffer_.size()) {
    auto larger = HugePageBuffer::Allocate(bytes, "attention states");
    CHECK(larger.ok()) << larger.status().message();
    buffer_ = *std::move(larger);
  }
  return reinterpret_cast<AttentionState*>(buffer_.data());
}

void RunPagedAttention(const CpuKernels& kernels, ThreadPool& pool, AttentionScratch& scratch,
                       const PagedAttentionArgs& args) {
  const Call call{kernels, pool, scratch, args, args.query_heads / args.kv_heads};
  FindRuns(call);
  if (ShouldSplit(call)) {
    RunSplit(call);
  } else {
    RunWhole(call);
  }
}

}  // namespace baton
