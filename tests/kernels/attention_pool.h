// Attention problem of one sequence with random runs, bounds and queries, for tests that compare
// kernels with the plain ones.
//
// Slots that no token sees are NaN. Blocks without a visible slot have an id far outside the pool.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/half.h"
#include "kernels/ops.h"
#include "tests/kernels/random_inputs.h"

namespace baton {

// One attention problem.
struct PoolCase {
  KvType type = KvType::kF16;
  int64_t head_dim = 64;
  int64_t heads_per_kv = 3;
  int64_t kv_heads = 2;
  int64_t tokens = 1;
  int64_t slots = 300;  // length of the sequence
  int32_t block_size_log2 = 4;
  bool contiguous = false;
  bool many_runs = false;  // with random origins, bounds and queries; else one causal run
  bool extremes = false;   // some visible values are infinities or NaNs
  bool finite_v = false;   // none of V, as in pools of t1 (NUMERICS_T1 §4)
};

inline std::string Describe(const PoolCase& c) {
  return absl::StrCat(std::string(KvTypeName(c.type)), " head_dim ", c.head_dim, " heads_per_kv ",
                      c.heads_per_kv, " tokens ", c.tokens, " slots ", c.slots, " block log2 ",
                      c.block_size_log2, " contiguous ", c.contiguous, " many runs ", c.many_runs,
                      " extremes ", c.extremes);
}

// A pool with NaNs in every slot that no token sees. Block tables have no block where no slot is
// visible.
class AttentionPool {
 public:
  AttentionPool(std::mt19937_64& random, const PoolCase& c) : case_(c) {
    const int64_t block_size = int64_t{1} << c.block_size_log2;
    const int64_t blocks = (c.slots + block_size - 1) >> c.block_size_log2;
    kv_.type = c.type;
    kv_.block_size_log2 = c.block_size_log2;
    kv_.head_stride = c.head_dim;
    kv_.token_stride = c.kv_heads * c.head_dim;
    kv_.scale_offset = kv_.token_stride;
    if (HasScales(c.type)) kv_.token_stride += 4 * c.kv_heads + 3;
    kv_.value_offset = block_size * kv_.token_stride;
    kv_.block_stride = 2 * kv_.value_offset;
    storage_.resize(blocks * kv_.block_stride * KvTypeBytes(c.type), std::byte{0xff});  // NaNs
    kv_.base = storage_.data();
    for (int64_t b = 0; b < blocks; ++b) table_.push_back(static_cast<int32_t>(b));
    if (!c.contiguous) std::shuffle(table_.begin(), table_.end(), random);
    q_stride_ = c.kv_heads * c.heads_per_kv * c.head_dim + 3;
    q_ = RandomFloats(random, 3 * c.tokens * q_stride_, 1.5f);
    sequence_of_token_.assign(c.tokens, 0);
    MakeRuns(random);
    Fill(random);
    ForgetUnseenBlocks();
  }

  int64_t runs() const { return row_runs_.front().run_count; }

  // Returns arguments that are valid as long as this object. `out` is [tokens, query heads,
  // head_dim].
  PagedAttentionArgs Args(float* out) const {
    const PoolCase& c = case_;
    PagedAttentionArgs args;
    args.q = q_.data();
    args.q_stride = q_stride_;
    args.out = out;
    args.query_heads = c.kv_heads * c.heads_per_kv;
    args.kv_heads = c.kv_heads;
    args.head_dim = c.head_dim;
    args.softmax_scale = 0.125f;
    args.kv = kv_;
    args.kv.base = const_cast<std::byte*>(storage_.data());
    args.sequence_of_token = sequence_of_token_.data();
    args.runs = runs_.data();
    args.row_runs = row_runs_.data();
    args.block_tables = c.contiguous ? nullptr : table_.data();
    args.table_stride = static_cast<int64_t>(table_.size());
    args.first_block = &first_block_;
    args.tokens = c.tokens;
    return args;
  }

  // Runs all KV heads.
  std::vector<AttentionState> Run(InstructionSet set, int64_t run, int64_t segment) const {
    const PoolCase& c = case_;
    std::vector<AttentionState> states(c.kv_heads * c.tokens * c.heads_per_kv);
    std::memset(states.data(), 0xee, states.size() * sizeof(AttentionState));
    KernelsFor(set).attention_segment(Args(nullptr), {0, c.tokens, 0, c.kv_heads, segment, run},
                                      states.data());
    return states;
  }

 private:
  int32_t Below(std::mt19937_64& random, int64_t end) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(end));
  }

  // Tokens share one list of runs, or each has its own list that agrees where it must.
  void MakeRuns(std::mt19937_64& random) {
    const PoolCase& c = case_;
    const int32_t count = c.many_runs ? 1 + Below(random, 6) : 1;
    const bool share = random() % 2 == 0;
    for (int32_t i = 0; i < count; ++i) {
      VisibleRun run;
      if (c.many_runs) {
        run.tile_origin = Below(random, c.slots + 1) - Below(random, 100);
        run.query_offset = static_cast<int32_t>(c.tokens * Below(random, 3));
      }
      runs_.push_back(run);
    }
    for (int64_t t = 0; t < c.tokens; ++t) {
      if (t > 0 && !share) runs_.insert(runs_.end(), runs_.begin(), runs_.begin() + count);
      RowRuns row = {.first_run = static_cast<int32_t>(runs_.size()) - count, .run_count = count};
      if (!share || t == 0) {
        for (int32_t i = 0; i < count; ++i) SetBounds(random, runs_[row.first_run + i]);
      }
      VisibleRun last = runs_[row.first_run + count - 1];
      SetBounds(random, last);
      if (!c.many_runs) {
        last.end = static_cast<int32_t>(std::max<int64_t>(0, c.slots - c.tokens + 1 + t));
      }
      row.last_begin = last.begin;
      row.last_end = last.end;
      row_runs_.push_back(row);
    }
  }

  // Makes some runs empty and some reversed.
  void SetBounds(std::mt19937_64& random, VisibleRun& run) {
    if (!case_.many_runs) return;
    const int32_t least = std::max(0, run.tile_origin);
    run.begin = least + Below(random, case_.slots + 1 - least);
    run.end = Below(random, case_.slots + 1);
  }

  // Returns true if some token sees `slot`.
  bool Sees(int64_t slot) const {
    for (const RowRuns& row : row_runs_) {
      for (int32_t i = 0; i < row.run_count; ++i) {
        const bool last = i == row.run_count - 1;
        const VisibleRun& run = runs_[row.first_run + i];
        const int32_t begin = last ? row.last_begin : run.begin;
        const int32_t end = last ? row.last_end : run.end;
        if (slot >= begin && slot < end) return true;
      }
    }
    return false;
  }

  void Fill(std::mt19937_64& random) {
    const PoolCase& c = case_;
    for (int64_t slot = 0; slot < c.slots; ++slot) {
      if (!Sees(slot)) continue;
      const int64_t block = table_[slot >> c.block_size_log2];
      const int64_t offset = slot & ((int64_t{1} << c.block_size_log2) - 1);
      for (int64_t at : {int64_t{0}, kv_.value_offset}) {
        const int64_t row = block * kv_.block_stride + offset * kv_.token_stride + at;
        const bool finite = at > 0 && c.finite_v;
        for (int64_t i = 0; i < c.kv_heads * c.head_dim; ++i) Put(row + i, random, finite);
        if (!HasScales(c.type)) continue;
        for (int64_t head = 0; head < c.kv_heads; ++head) {
          const float scale = std::abs(Value(random)) / 100;
          std::memcpy(storage_.data() + row + kv_.scale_offset + 4 * head, &scale, 4);
        }
      }
    }
  }

  // Replaces unseen blocks by an id far outside the pool, so that a forbidden look-up crashes.
  void ForgetUnseenBlocks() {
    constexpr int32_t kNowhere = std::numeric_limits<int32_t>::min();
    for (int64_t b = 0; b < static_cast<int64_t>(table_.size()); ++b) {
      bool seen = false;
      for (int64_t slot = b << case_.block_size_log2; slot < (b + 1) << case_.block_size_log2;
           ++slot) {
        seen = seen || Sees(slot);
      }
      if (!seen) table_[b] = kNowhere;
    }
    table_.resize(table_.size() + kAttentionSegment, kNowhere);
  }

  float Value(std::mt19937_64& random) {
    if (case_.extremes && random() % 3000 == 0) {
      return random() % 2 == 0 ? std::numeric_limits<float>::infinity()
                               : std::numeric_limits<float>::quiet_NaN();
    }
    return std::normal_distribution<float>(0, 1)(random);
  }

  void Put(int64_t at, std::mt19937_64& random, bool finite) {
    if (HasScales(case_.type)) {  // any byte
      storage_[at] = static_cast<std::byte>(random());
      return;
    }
    float value = Value(random);
    if (finite && !std::isfinite(value)) value = 1;
    if (case_.type == KvType::kF32) {
      std::memcpy(storage_.data() + 4 * at, &value, 4);
      return;
    }
    const uint16_t half = case_.type == KvType::kF16 ? F32ToF16(value) : F32ToBF16(value);
    std::memcpy(storage_.data() + 2 * at, &half, 2);
  }

  PoolCase case_;
  KvLayerView kv_;
  std::vector<std::byte> storage_;
  std::vector<int32_t> table_;
  std::vector<float> q_;
  int64_t q_stride_ = 0;
  std::vector<int32_t> sequence_of_token_;
  int32_t first_block_ = 0;
  std::vector<VisibleRun> runs_;
  std::vector<RowRuns> row_runs_;
};

}  // namespace baton
