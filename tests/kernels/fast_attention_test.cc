// Compares the bits of vector attention segments with those of the plain ones (NUMERICS §8).
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/kernels/fast_kernels.h"
#include "tests/kernels/random_inputs.h"

namespace baton {
namespace {

class FastAttention : public InstructionSetTest {};
INSTANTIATE_TEST_SUITE_P(InstructionSets, FastAttention, FastInstructionSets(), NameOf);

struct Case {
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
};

std::string Describe(const Case& c) {
  return absl::StrCat(std::string(KvTypeName(c.type)), " head_dim ", c.head_dim, " heads_per_kv ",
                      c.heads_per_kv, " tokens ", c.tokens, " slots ", c.slots, " block log2 ",
                      c.block_size_log2, " contiguous ", c.contiguous, " many runs ", c.many_runs,
                      " extremes ", c.extremes);
}

// A pool with NaNs in every slot that no token sees. Block tables have no block where no slot is
// visible.
class Pool {
 public:
  Pool(std::mt19937_64& random, const Case& c) : case_(c) {
    const int64_t block_size = int64_t{1} << c.block_size_log2;
    const int64_t blocks = (c.slots + block_size - 1) >> c.block_size_log2;
    kv_.type = c.type;
    kv_.block_size_log2 = c.block_size_log2;
    kv_.head_stride = c.head_dim;
    kv_.token_stride = c.kv_heads * c.head_dim;
    kv_.scale_offset = kv_.token_stride;
    if (c.type == KvType::kInt8) kv_.token_stride += 4 * c.kv_heads + 3;
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

  // Runs all KV heads.
  std::vector<AttentionState> Run(InstructionSet set, int64_t run, int64_t segment) {
    const Case& c = case_;
    PagedAttentionArgs args;
    args.q = q_.data();
    args.q_stride = q_stride_;
    args.query_heads = c.kv_heads * c.heads_per_kv;
    args.kv_heads = c.kv_heads;
    args.head_dim = c.head_dim;
    args.softmax_scale = 0.125f;
    args.kv = kv_;
    args.sequence_of_token = sequence_of_token_.data();
    args.runs = runs_.data();
    args.row_runs = row_runs_.data();
    args.block_tables = c.contiguous ? nullptr : table_.data();
    args.table_stride = static_cast<int64_t>(table_.size());
    const int32_t first_block = 0;
    args.first_block = &first_block;
    args.tokens = c.tokens;
    std::vector<AttentionState> states(c.kv_heads * c.tokens * c.heads_per_kv);
    std::memset(states.data(), 0xee, states.size() * sizeof(AttentionState));
    KernelsFor(set).attention_segment(args, {0, c.tokens, 0, c.kv_heads, segment, run},
                                      states.data());
    return states;
  }

 private:
  int32_t Below(std::mt19937_64& random, int64_t end) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(end));
  }

  // Tokens share one list of runs, or each has its own list that agrees where it must.
  void MakeRuns(std::mt19937_64& random) {
    const Case& c = case_;
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
    const Case& c = case_;
    for (int64_t slot = 0; slot < c.slots; ++slot) {
      if (!Sees(slot)) continue;
      const int64_t block = table_[slot >> c.block_size_log2];
      const int64_t offset = slot & ((int64_t{1} << c.block_size_log2) - 1);
      for (int64_t at : {int64_t{0}, kv_.value_offset}) {
        const int64_t row = block * kv_.block_stride + offset * kv_.token_stride + at;
        for (int64_t i = 0; i < c.kv_heads * c.head_dim; ++i) Put(row + i, random);
        if (c.type != KvType::kInt8) continue;
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

  void Put(int64_t at, std::mt19937_64& random) {
    if (case_.type == KvType::kInt8) {
      storage_[at] = static_cast<std::byte>(random());
      return;
    }
    const float value = Value(random);
    if (case_.type == KvType::kF32) {
      std::memcpy(storage_.data() + 4 * at, &value, 4);
      return;
    }
    const uint16_t half = case_.type == KvType::kF16 ? F32ToF16(value) : F32ToBF16(value);
    std::memcpy(storage_.data() + 2 * at, &half, 2);
  }

  Case case_;
  KvLayerView kv_;
  std::vector<std::byte> storage_;
  std::vector<int32_t> table_;
  std::vector<float> q_;
  int64_t q_stride_ = 0;
  std::vector<int32_t> sequence_of_token_;
  std::vector<VisibleRun> runs_;
  std::vector<RowRuns> row_runs_;
};

void ExpectSameState(const AttentionState& expected, const AttentionState& actual, int64_t head_dim,
                     const std::string& what) {
  ASSERT_EQ(expected.any_visible, actual.any_visible) << what;
  // +0 and −0 are the same maximum, because the order of comparisons is not defined.
  ASSERT_EQ(expected.maximum, actual.maximum) << what;
  const auto sums = [](const AttentionState& s) {
    return std::vector<float>(s.lane_sums, s.lane_sums + kLanes);
  };
  const auto output = [head_dim](const AttentionState& s) {
    return std::vector<float>(s.output, s.output + head_dim);
  };
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(sums(expected), sums(actual), what + " lane_sums"));
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(output(expected), output(actual), what + " output"));
}

void ExpectPlainSegments(std::mt19937_64& random, InstructionSet set, const Case& c) {
  Pool pool(random, c);
  for (int64_t run = 0; run < pool.runs(); ++run) {
    for (int64_t segment = 0; segment * kAttentionSegment < c.slots + 2 * kAttentionSegment;
         ++segment) {
      const auto expected = pool.Run(InstructionSet::kPlain, run, segment);
      const auto actual = pool.Run(set, run, segment);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NO_FATAL_FAILURE(ExpectSameState(
            expected[i], actual[i], c.head_dim,
            absl::StrCat(Describe(c), " run ", run, " segment ", segment, " state ", i)));
      }
    }
  }
}

TEST_P(FastAttention, EqualsPlainForEveryHeadDimAndType) {
  std::mt19937_64 random(TestSeed());
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8}) {
    for (int64_t head_dim : {1, 8, 16, 32, 40, 64, 80, 96, 100, 128, 192, 255, 256}) {
      for (int64_t tokens : {1, 6}) {  // 3 and 18 queries: the row path and the transposed path
        const Case c = {.type = type, .head_dim = head_dim, .tokens = tokens, .slots = 330};
        ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
      }
    }
  }
}

TEST_P(FastAttention, EqualsPlainForEveryQueryCountAndBlockSize) {
  std::mt19937_64 random(TestSeed());
  for (int64_t heads_per_kv = 1; heads_per_kv <= 8; ++heads_per_kv) {
    for (int32_t block_size_log2 = 0; block_size_log2 <= 7; ++block_size_log2) {
      const Case c = {.type = random() % 2 == 0 ? KvType::kF16 : KvType::kInt8,
                      .heads_per_kv = heads_per_kv,
                      .tokens = 1 + static_cast<int64_t>(random() % 9),
                      .slots = 10 + static_cast<int64_t>(random() % 200),
                      .block_size_log2 = block_size_log2,
                      .contiguous = random() % 2 == 0};
      ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
    }
  }
}

TEST_P(FastAttention, EqualsPlainForManyRunsOverGarbage) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 40; ++i) {
    const Case c = {.type = i % 4 < 2 ? KvType::kF16 : KvType::kInt8,
                    .head_dim = i % 2 == 0 ? 64 : 40,
                    .heads_per_kv = 1 + static_cast<int64_t>(random() % 4),
                    .tokens = 1 + static_cast<int64_t>(random() % 12),
                    .slots = 1 + static_cast<int64_t>(random() % 400),
                    .many_runs = true};
    ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
  }
}

TEST_P(FastAttention, EqualsPlainForInfinitiesAndNansThatOnlySomeTokensSee) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 20; ++i) {
    const Case c = {.type = i % 4 < 2 ? KvType::kF16 : KvType::kInt8,
                    .tokens = 1 + static_cast<int64_t>(random() % 8),
                    .slots = 200,
                    .many_runs = i % 2 == 0,
                    .extremes = true};
    ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
  }
}

// A single token reads the pool directly, a few query heads at a time.
TEST_P(FastAttention, EqualsPlainForOneTokenOfManyHeads) {
  std::mt19937_64 random(TestSeed());
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8}) {
    for (int64_t heads_per_kv = 1; heads_per_kv <= 9; ++heads_per_kv) {
      const Case c = {.type = type,
                      .head_dim = heads_per_kv % 2 == 0 ? 64 : 96,
                      .heads_per_kv = heads_per_kv,
                      .kv_heads = 7,
                      .slots = 1 + static_cast<int64_t>(random() % 200),
                      .block_size_log2 = static_cast<int32_t>(random() % 8),
                      .many_runs = random() % 2 == 0};
      ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
    }
  }
}

// Uses more queries than the kernel prepares at once.
TEST_P(FastAttention, EqualsPlainForAHundredQueriesOfOneHead) {
  std::mt19937_64 random(TestSeed());
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    const Case c = {.type = type, .heads_per_kv = 25, .tokens = 4, .slots = 130, .many_runs = true};
    ASSERT_NO_FATAL_FAILURE(ExpectPlainSegments(random, GetParam(), c));
  }
}

// One query sees a key with score 0 and 63 keys around the score at which Exp becomes +0. The lane
// sums show each exponential.
TEST_P(FastAttention, WeightsEqualPlainAroundTheLowestExponent) {
  std::vector<float> pool(2 * kAttentionTile, 1.0f);
  for (uint32_t i = 0; i < kAttentionTile; ++i) {
    pool[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(-87.3365478515625f) + i - 33);
  }
  pool[0] = 0.0f;
  const float q = 1.0f;
  const int32_t zero = 0;
  const VisibleRun run;
  const RowRuns row = {.run_count = 1, .last_end = kAttentionTile};
  PagedAttentionArgs args;
  args.q = &q;
  args.q_stride = 1;
  args.query_heads = 1;
  args.kv_heads = 1;
  args.head_dim = 1;
  args.softmax_scale = 1;
  args.kv.base = pool.data();
  args.kv.type = KvType::kF32;
  args.kv.block_size_log2 = 6;
  args.kv.token_stride = 1;
  args.kv.value_offset = kAttentionTile;
  args.kv.block_stride = 2 * kAttentionTile;
  args.sequence_of_token = &zero;
  args.runs = &run;
  args.row_runs = &row;
  args.first_block = &zero;
  args.tokens = 1;
  AttentionState expected;
  AttentionState actual;
  PlainKernels().attention_segment(args, {0, 1, 0, 1, 0}, &expected);
  KernelsFor(GetParam()).attention_segment(args, {0, 1, 0, 1, 0}, &actual);
  ASSERT_NO_FATAL_FAILURE(ExpectSameState(expected, actual, 1, "lowest exponent"));
}

}  // namespace
}  // namespace baton
