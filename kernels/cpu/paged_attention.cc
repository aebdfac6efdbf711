#include "kernels/cpu/paged_attention.h"

#include <algorithm>
#include <span>

#include "common/check.h"

namespace baton {
namespace {

using Group = AttentionScratch::Group;
using Span = AttentionScratch::Span;
using Item = AttentionScratch::Item;

constexpr int64_t kQueryTileTokens = 64;  // large: tokens share the filling of key tiles
constexpr int64_t kFewQueryTokens = 16;   // of a group, where larger groups would be too few
constexpr int64_t kQueryTileRows = 192;   // (token, head) pairs of one kv head
constexpr int64_t kSplitStates = 8192;    // states of one round of split attention; 9 MiB
constexpr int64_t kInlineMerges = 128;    // fewer merges do not pay for a thread
constexpr int64_t kUnitsPerThread = 4;    // several, so that threads end at about the same time

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One call: its arguments and values derived from them.
struct Call {
  const CpuKernels& kernels;
  ThreadPool& pool;
  AttentionScratch& scratch;
  const PagedAttentionArgs& args;
  int64_t heads_per_kv;
  // A unit takes a group of adjacent kv heads. They are adjacent in memory, so one thread should
  // read them.
  int64_t kv_heads_per_unit = 1;

  int64_t head_groups() const { return CeilDiv(args.kv_heads, kv_heads_per_unit); }
  AttentionUnit Unit(const Group& group, int64_t head_group, int64_t segment, int64_t run) const {
    const int64_t first = head_group * kv_heads_per_unit;
    return {group.token_begin,
            group.token_end,
            first,
            std::min(first + kv_heads_per_unit, args.kv_heads),
            segment,
            run};
  }
  std::span<const Span> Spans(const Group& group) const {
    return std::span(scratch.spans).subspan(group.first_span, group.span_count);
  }
};

// Returns true if one unit can take both tokens. REQUIRES: the tokens are adjacent in one sequence.
bool HaveLikeRuns(const PagedAttentionArgs& args, const RowRuns& a, const RowRuns& b) {
  if (a.run_count != b.run_count) return false;
  if (a.first_run == b.first_run) return true;
  const auto like = [](const VisibleRun& x, const VisibleRun& y) {
    return x.tile_origin == y.tile_origin && x.query_offset == y.query_offset;
  };
  return std::equal(args.runs + a.first_run, args.runs + a.first_run + a.run_count,
                    args.runs + b.first_run, like);
}

// Widens the span to include the segments of a token's run.
void Extend(const VisibleRun& run, Span& span) {
  if (run.begin >= run.end) return;
  const int64_t origin = run.tile_origin;
  const int64_t begin = (run.begin - origin) / kAttentionSegment;
  const int64_t end = CeilDiv(run.end - origin, kAttentionSegment);
  span.begin = span.begin == span.end ? begin : std::min(span.begin, begin);
  span.end = std::max(span.end, end);
}

void FindGroups(const Call& call) {
  const PagedAttentionArgs& args = call.args;
  const int64_t units = 2 * kUnitsPerThread *
                        call.pool.threads();  // twice as many, because late groups see more slots
  const int64_t fair =
      std::clamp(args.tokens * args.kv_heads / units, kFewQueryTokens, kQueryTileTokens);
  const int64_t tile = std::clamp<int64_t>(kQueryTileRows / call.heads_per_kv, 1, fair);
  std::vector<Group>& groups = call.scratch.groups;
  std::vector<Span>& spans = call.scratch.spans;
  groups.clear();
  spans.clear();
  for (int64_t token = 0; token < args.tokens; ++token) {
    const RowRuns& row = args.row_runs[token];
    const bool joins = !groups.empty() && groups.back().tokens() < tile &&
                       args.sequence_of_token[token] == args.sequence_of_token[token - 1] &&
                       HaveLikeRuns(args, args.row_runs[token - 1], row);
    if (!joins) {
      groups.push_back({.token_begin = token,
                        .token_end = token,
                        .first_span = static_cast<int64_t>(spans.size()),
                        .span_count = row.run_count});
      for (int64_t run = 0; run < row.run_count; ++run) spans.push_back({.run = run});
    }
    Group& group = groups.back();
    ++group.token_end;
    // If two tokens share their runs, only the last run can hold slots that the previous token did
    // not see.
    const bool shares = joins && row.first_run == args.row_runs[token - 1].first_run;
    for (int64_t run = shares ? std::max(row.run_count - 1, 0) : 0; run < row.run_count; ++run) {
      Extend(RunOf(args, token, run), spans[group.first_span + run]);
    }
  }
  for (Group& group : groups) {
    for (const Span& span : call.Spans(group)) group.segments += span.end - span.begin;
  }
}

// Returns true if whole groups would leave threads idle: the largest group is more than half of a
// thread's share, and there is a group to split.
bool ShouldSplit(const Call& call) {
  if (call.pool.threads() == 1) return false;
  int64_t total = 0;
  int64_t largest = 0;
  bool divisible = false;
  for (const Group& group : call.scratch.groups) {
    const int64_t work = group.tokens() * group.segments;
    total += work;
    largest = std::max(largest, work);
    divisible = divisible || group.segments > 1;
  }
  return divisible && total * call.args.kv_heads < 2 * call.pool.threads() * largest;
}

// Writes the results of a group for the unit's kv heads.
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

// Computes one unit: a whole group for a group of kv heads. `running` and `next` have room for its
// rows.
void WalkGroup(const Call& call, const Group& group, int64_t head_group, AttentionState* running,
               AttentionState* next) {
  AttentionUnit unit = call.Unit(group, head_group, 0, 0);
  const int64_t rows = unit.tokens() * unit.kv_heads() * call.heads_per_kv;
  ForgetStates(running, rows);
  AttentionState* states = running;  // `running` for the first segment, then `next`
  for (const Span& span : call.Spans(group)) {
    unit.run = span.run;
    for (unit.segment = span.begin; unit.segment < span.end; ++unit.segment) {
      call.kernels.attention_segment(call.args, unit, states);
      if (states == next) {
        for (int64_t i = 0; i < rows; ++i) {
          call.kernels.merge_attention(running[i], next[i], call.args.head_dim);
        }
      }
      states = next;
    }
  }
  FinishUnit(call, unit, running);
}

// Returns the number of kv heads per unit: as many as fit the memory for states and keep all
// threads busy.
int64_t KvHeadsPerUnit(const Call& call, int64_t units) {
  int64_t tokens = 1;
  for (const Group& group : call.scratch.groups) tokens = std::max(tokens, group.tokens());
  const int64_t wanted = kUnitsPerThread * call.pool.threads();
  const int64_t most = call.pool.threads() == 1
                           ? call.args.kv_heads
                           : std::max<int64_t>(1, call.args.kv_heads * units / wanted);
  return std::clamp<int64_t>(kQueryTileRows / (tokens * call.heads_per_kv), 1,
                             std::min(call.args.kv_heads, most));
}

void RunWhole(Call call) {
  const std::vector<Group>& groups = call.scratch.groups;
  call.kv_heads_per_unit = KvHeadsPerUnit(call, static_cast<int64_t>(groups.size()));
  const int64_t rows = std::max(kQueryTileRows, call.heads_per_kv);
  AttentionState* states = call.scratch.States(2 * rows * call.pool.threads());
  const int64_t head_groups = call.head_groups();
  const int64_t units = static_cast<int64_t>(groups.size()) * head_groups;
  call.pool.ParallelFor(units, [&](int64_t unit, int worker) {
    // Start with the last groups, which see the most slots. The units at the end of the loop should
    // be short.
    const int64_t index = units - 1 - unit;
    AttentionState* mine = states + 2 * rows * worker;
    WalkGroup(call, groups[index / head_groups], index % head_groups, mine, mine + rows);
  });
}

void ListItems(const Call& call) {
  std::vector<Item>& items = call.scratch.items;
  items.clear();
  for (int64_t g = 0; g < call.scratch.groups.size(); ++g) {
    Group& group = call.scratch.groups[g];
    group.first_item = static_cast<int64_t>(items.size());
    for (const Span& span : call.Spans(group)) {
      for (int64_t segment = span.begin; segment < span.end; ++segment) {
        items.push_back({.group = g, .run = span.run, .segment = segment});
      }
    }
  }
}

// Places items from `begin` on into `budget` states, at least one item. Returns the first item not
// placed.
int64_t PlaceItems(const Call& call, int64_t begin, int64_t budget) {
  std::vector<Item>& items = call.scratch.items;
  int64_t used = 0;
  int64_t end = begin;
  for (; end < items.size(); ++end) {
    const int64_t states = call.scratch.groups[items[end].group].tokens() * call.args.query_heads;
    if (end > begin && used + states > budget) break;
    items[end].first_state = used;
    used += states;
  }
  return end;
}

// Merges the items [begin, end) of all groups into `running` [tokens, query heads]. Its order is by
// group, then kv head, then token.
void MergeItems(const Call& call, int64_t begin, int64_t end, const AttentionState* states,
                AttentionState* running) {
  const AttentionScratch& scratch = call.scratch;
  const int64_t kv_heads = call.args.kv_heads;
  const int64_t first_group = scratch.items[begin].group;
  const int64_t groups = scratch.items[end - 1].group + 1 - first_group;
  const auto merge = [&](int64_t unit, int) {
    const Group& group = scratch.groups[first_group + unit / kv_heads];
    const int64_t rows = group.tokens() * call.heads_per_kv;
    const int64_t skip = unit % kv_heads * rows;
    AttentionState* into = running + group.token_begin * call.args.query_heads + skip;
    const int64_t last = std::min(end, group.first_item + group.segments);
    for (int64_t item = std::max(begin, group.first_item); item < last; ++item) {
      const AttentionState* from = states + scratch.items[item].first_state + skip;
      for (int64_t i = 0; i < rows; ++i) {
        call.kernels.merge_attention(into[i], from[i], call.args.head_dim);
      }
    }
  };
  const Item& last = scratch.items[end - 1];
  if (last.first_state < kInlineMerges) {
    for (int64_t unit = 0; unit < groups * kv_heads; ++unit) merge(unit, 0);
  } else {
    call.pool.ParallelFor(groups * kv_heads, merge);
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
    const int64_t head_groups = call.head_groups();
    call.pool.ParallelFor((end - begin) * head_groups, [&](int64_t index, int) {
      const Item& item = scratch.items[begin + index / head_groups];
      const Group& group = scratch.groups[item.group];
      const AttentionUnit unit = call.Unit(group, index % head_groups, item.segment, item.run);
      AttentionState* out =
          states + item.first_state + unit.kv_head_begin * group.tokens() * call.heads_per_kv;
      call.kernels.attention_segment(args, unit, out);
    });
    MergeItems(call, begin, end, states, running);
  }
  for (const Group& group : scratch.groups) {
    const AttentionUnit whole{group.token_begin, group.token_end, 0, args.kv_heads};
    FinishUnit(call, whole, running + group.token_begin * args.query_heads);
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
  FindGroups(call);
  if (ShouldSplit(call)) {
    RunSplit(call);
  } else {
    RunWhole(call);
  }
}

}  // namespace baton
