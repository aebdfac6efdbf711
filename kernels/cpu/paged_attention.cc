#include "kernels/cpu/paged_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

using Run = AttentionScratch::Run;
using Item = AttentionScratch::Item;

constexpr int64_t kQueryTileTokens = 64;  // many, because they share the filling of key tiles
constexpr int64_t kFewQueryTokens = 16;   // of a run where more would leave too few runs
constexpr int64_t kQueryTileRows = 192;   // (token, head) pairs of one kv head
constexpr int64_t kSplitStates = 8192;    // of one round of split attention; 9 MiB
constexpr int64_t kInlineMerges = 128;    // fewer are not worth a thread
constexpr int64_t kUnitsPerThread = 4;    // so that threads end together

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One call: the arguments and what follows from them.
struct Call {
  const CpuKernels& kernels;
  ThreadPool& pool;
  AttentionScratch& scratch;
  const PagedAttentionArgs& args;
  int64_t heads_per_kv;
  // Kv heads are handed out in groups: neighbours in memory, so one thread should take them.
  int64_t kv_heads_per_unit = 1;

  int64_t head_groups() const { return CeilDiv(args.kv_heads, kv_heads_per_unit); }
  AttentionUnit Unit(const Run& run, int64_t group, int64_t segment) const {
    const int64_t first = group * kv_heads_per_unit;
    return {run.token_begin, run.token_end, first,
            std::min(first + kv_heads_per_unit, args.kv_heads), segment};
  }
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
  const PagedAttentionArgs& args = call.args;
  const int64_t units = 2 * kUnitsPerThread * call.pool.threads();  // late runs see more slots
  const int64_t fair =
      std::clamp(args.tokens * args.kv_heads / units, kFewQueryTokens, kQueryTileTokens);
  const int64_t tile = std::clamp<int64_t>(kQueryTileRows / call.heads_per_kv, 1, fair);
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

// Writes the results of a run for the kv heads of a unit.
void FinishUnit(const Call& call, const AttentionUnit& unit, const AttentionState* states) {
  const PagedAttentionArgs& args = call.args;
  for (int64_t kv_head = unit.kv_head_begin; kv_head < unit.kv_head_end; ++kv_head) {
    for (int64_t token = unit.token_begin; token < unit.token_end; ++token) {
      const int64_t row = token * args.query_heads + kv_head * call.heads_per_kv;
      for (int64_t head = 0; head < call.heads_per_kv; ++head) {
        call.kernels.finish_attention(*states++, args.head_dim,
                                      args.out + (row + head) * args.head_dim);
      }
    }
  }
}

void ForgetStates(AttentionState* states, int64_t count) {
  for (int64_t i = 0; i < count; ++i) states[i].any_visible = false;
}

// Every unit is a whole run for a group of kv heads. `running` and `next` hold its rows.
void WalkRun(const Call& call, const Run& run, int64_t group, AttentionState* running,
             AttentionState* next) {
  AttentionUnit unit = call.Unit(run, group, run.segment_begin);
  const int64_t rows = unit.tokens() * unit.kv_heads() * call.heads_per_kv;
  ForgetStates(running, rows);
  for (; unit.segment < run.segment_end; ++unit.segment) {
    AttentionState* states = unit.segment == run.segment_begin ? running : next;
    call.kernels.attention_segment(call.args, unit, states);
    if (states == running) continue;
    for (int64_t i = 0; i < rows; ++i) {
      call.kernels.merge_attention(running[i], next[i], call.args.head_dim);
    }
  }
  FinishUnit(call, unit, running);
}

// How many kv heads a unit takes: as many as its states' memory and busy threads allow.
int64_t KvHeadsPerUnit(const Call& call, int64_t units) {
  int64_t tokens = 1;
  for (const Run& run : call.scratch.runs) tokens = std::max(tokens, run.tokens());
  const int64_t wanted = kUnitsPerThread * call.pool.threads();
  const int64_t most = call.pool.threads() == 1
                           ? call.args.kv_heads
                           : std::max<int64_t>(1, call.args.kv_heads * units / wanted);
  return std::clamp<int64_t>(kQueryTileRows / (tokens * call.heads_per_kv), 1,
                             std::min(call.args.kv_heads, most));
}

void RunWhole(Call call) {
  const std::vector<Run>& runs = call.scratch.runs;
  call.kv_heads_per_unit = KvHeadsPerUnit(call, static_cast<int64_t>(runs.size()));
  const int64_t rows = std::max(kQueryTileRows, call.heads_per_kv);
  AttentionState* states = call.scratch.States(2 * rows * call.pool.threads());
  const int64_t groups = call.head_groups();
  const int64_t units = static_cast<int64_t>(runs.size()) * groups;
  call.pool.ParallelFor(units, [&](int64_t unit, int worker) {
    // Last runs first: they see the most slots, and what ends the loop should be short.
    const int64_t index = units - 1 - unit;
    AttentionState* mine = states + 2 * rows * worker;
    WalkRun(call, runs[index / groups], index % groups, mine, mine + rows);
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
        call.kernels.merge_attention(into[i], from[i], call.args.head_dim);
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

void RunSplit(Call call) {
  const PagedAttentionArgs& args = call.args;
  const AttentionScratch& scratch = call.scratch;
  ListItems(call);
  call.kv_heads_per_unit = KvHeadsPerUnit(call, static_cast<int64_t>(scratch.items.size()));
  const int64_t rows = args.tokens * args.query_heads;
  const int64_t budget = std::max(kSplitStates, kQueryTileTokens * args.query_heads);
  AttentionState* running = call.scratch.States(rows + budget);
  AttentionState* states = running + rows;
  ForgetStates(running, rows);
  const auto item_count = static_cast<int64_t>(scratch.items.size());
  for (int64_t begin = 0, end = 0; begin < item_count; begin = end) {
    end = PlaceItems(call, begin, budget);
    const int64_t groups = call.head_groups();
    call.pool.ParallelFor((end - begin) * groups, [&](int64_t index, int) {
      const Item& item = scratch.items[begin + index / groups];
      const Run& run = scratch.runs[item.run];
      const AttentionUnit unit = call.Unit(run, index % groups, item.segment);
      AttentionState* out =
          states + item.first_state + unit.kv_head_begin * run.tokens() * call.heads_per_kv;
      call.kernels.attention_segment(args, unit, out);
    });
    MergeItems(call, begin, end, states, running);
  }
  for (const Run& run : scratch.runs) {
    const AttentionUnit whole{run.token_begin, run.token_end, 0, args.kv_heads, 0};
    FinishUnit(call, whole, running + run.token_begin * args.query_heads);
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
