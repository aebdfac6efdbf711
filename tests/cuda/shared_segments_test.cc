// Shared segments in the attention kernels of t1: rows of different sequences that share the KV of
// their first slots have the twin's bits, for every kernel, tile, division of work and kind of row.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch_tensor_core_attention.h"
#include "kernels/tensor_core/tensor_core_attention.h"
#include "tests/common/random_operations.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/fast_kernels.h"

namespace baton {
namespace {

using gpu_emulator::ExecutionOrder;
using gpu_emulator::ExecutionRules;
using gpu_emulator::TensorCore;

constexpr uint64_t kSeed = 58;
constexpr int32_t kGroup = kT1GroupSegments * kAttentionSegment;  // slots

// A sequence whose first `groups` groups of segments are those of other sequences with this prefix.
struct Member {
  int prefix = 0;
  int32_t groups = 0;  // 0: shares nothing
  AttentionSequence sequence;
};

// A batch in which adjacent members with one prefix share it, also in the block tables.
class SharedBatch {
 public:
  SharedBatch(const AttentionShape& shape, std::vector<Member> members)
      : problem_(shape, Named(members), kSeed) {
    const PagedAttentionArgs args = problem_.Args(nullptr);
    const auto stride = args.table_stride;
    tables_.assign(args.block_tables,
                   args.block_tables + stride * static_cast<int64_t>(members.size()));
    for (size_t i = 0; i < members.size(); ++i) {
      const Member& member = members[i];
      const bool shares = i > 0 && member.groups > 0 && member.prefix == members[i - 1].prefix;
      const auto tokens = member.sequence.tokens.size();
      const bool first = member.groups > 0 && !shares;
      for (size_t t = 0; t < tokens; ++t) {
        shared.push_back(shares || (first && t > 0) ? member.groups * kT1GroupSegments : 0);
      }
      if (!shares) continue;
      const int64_t blocks = int64_t{member.groups} * kGroup >> shape.block_size_log2;
      const auto to = tables_.begin() + static_cast<int64_t>(i) * stride;
      std::copy(to - stride, to - stride + blocks, to);
    }
  }
  PagedAttentionArgs Args() const {
    PagedAttentionArgs args = problem_.Args(nullptr);
    args.block_tables = tables_.data();
    args.shared_segments = shared.data();
    return args;
  }
  std::vector<float> Twin(const DotModel& model) const {
    std::vector<float> out(problem_.out_size());
    TensorCoreAttention(problem_.Args(out.data()), 0, problem_.tokens(), model);
    return out;
  }

  std::vector<int32_t> shared;

 private:
  // Equal names give equal K and V.
  static std::vector<AttentionSequence> Named(const std::vector<Member>& members) {
    std::vector<AttentionSequence> sequences;
    for (size_t i = 0; i < members.size(); ++i) {
      AttentionSequence& sequence = sequences.emplace_back(members[i].sequence);
      for (int64_t slot = 0; slot < sequence.slots; ++slot) {
        const bool common = slot < int64_t{members[i].groups} * kGroup;
        const uint64_t owner = common ? 1000 + members[i].prefix : i + 1;
        sequence.slot_names.push_back(owner << 32 | static_cast<uint64_t>(slot));
      }
    }
    return sequences;
  }

  const AttentionCase problem_;
  std::vector<int32_t> tables_;
};

// Rests of no slot, a few, and more than one segment; a chunk of several tokens; two prefixes next
// to each other; rows that share nothing, see a window, or nothing; first runs that others follow.
std::vector<Member> MixedMembers() {
  const AttentionSequence none{.slots = 5, .tokens = {{}, {}}};
  const auto two_runs = [](int32_t second) {
    return AttentionSequence{.slots = kGroup + 700,
                             .tokens = {{{0, kGroup + 300}, {kGroup + 320, second, kGroup + 310}}}};
  };
  return {{0, 0, CausalSequence(90, 1)},           {1, 1, CausalSequence(kGroup + 70, 1)},
          {1, 1, CausalSequence(kGroup + 300, 1)}, {1, 1, CausalSequence(kGroup + 3, 3)},
          {2, 1, CausalSequence(kGroup, 1)},       {2, 1, CausalSequence(kGroup + 1, 1)},
          {0, 0, CausalSequence(700, 1, 300)},     {3, 1, two_runs(kGroup + 400)},
          {3, 1, two_runs(kGroup + 690)},          {0, 0, none}};
}

Numerics NumericsFor(const KernelLauncher& launcher) {
  const bool sm80 = launcher.max_shared_bytes() < gpu_emulator::kMostSharedBytes;
  return sm80 ? Numerics::kT1Sm80 : Numerics::kT1Sm90;
}

std::vector<float> Attend(const SharedBatch& batch, KernelLauncher& launcher,
                          int64_t most_state_bytes = kMostAttentionStateBytes,
                          AttentionBatch kind = AttentionBatch::kChunks) {
  PagedAttentionArgs args = batch.Args();
  std::vector<float> out(args.tokens * args.query_heads * args.head_dim, -12345);
  args.out = out.data();
  LaunchTensorCoreAttention(launcher, args, kind, NumericsFor(launcher), most_state_bytes);
  return out;
}

class SharedSegments : public testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, SharedSegments,
                         testing::Values(KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kFp8),
                         [](const auto& info) { return std::string(KvTypeName(info.param)); });

// Tiles of 4 and 32 tokens, the latter also where there is room for more.
TEST_P(SharedSegments, RowsHaveTheBitsOfTheTwin) {
  for (const int64_t heads : {32, 4, 1}) {
    if (kThreadSanitizer && heads != 32) continue;
    const SharedBatch batch(
        {.query_heads = heads, .kv_heads = 1, .head_dim = 24, .type = GetParam(), .row_padding = 4},
        MixedMembers());
    ChosenLauncher launcher({.order = ExecutionOrder::kSeeded}, 3);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(batch.Twin(kHopperDot), Attend(batch, launcher),
                                           absl::StrCat(heads, " heads")));
  }
}

TEST_P(SharedSegments, OnAmpereRowsHaveTheBitsOfTheTwin) {
  if (!ChosenDeviceName().empty()) GTEST_SKIP() << "not run: needs the emulator's rules";
  const SharedBatch batch(
      {.query_heads = 32, .kv_heads = 1, .head_dim = 24, .type = GetParam(), .row_padding = 4},
      MixedMembers());
  ChosenLauncher launcher({.tensor_core = TensorCore::kAmpere}, 3);
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(batch.Twin(kAmpereDot), Attend(batch, launcher), "sm80"));
}

// Blocks begin inside of shared segments, of rests, and of later groups.
TEST(SharedSegmentsSplit, ResultsDoNotDependOnTheNumberOrOrderOfBlocks) {
  const std::vector<Member> members = {
      {1, 2, CausalSequence(2 * kGroup + 2300, 1)}, {1, 2, CausalSequence(2 * kGroup + 40, 1)},
      {1, 2, CausalSequence(2 * kGroup + 600, 1)},  {0, 0, CausalSequence(1900, 1, 1500)},
      {2, 1, CausalSequence(kGroup + 900, 1)},      {2, 1, CausalSequence(kGroup + 2, 2)}};
  struct Way {
    int multiprocessors;
    ExecutionOrder order;
    int64_t most_state_bytes = kMostAttentionStateBytes;
  };
  for (const KvType type : {KvType::kBF16, KvType::kInt8}) {
    const SharedBatch batch(
        {.query_heads = 4, .kv_heads = 1, .head_dim = 24, .type = type, .row_padding = 4}, members);
    const std::vector<float> expected = batch.Twin(kHopperDot);
    for (const Way& way :
         {Way{1, ExecutionOrder::kForward}, Way{4, ExecutionOrder::kReverse},
          Way{7, ExecutionOrder::kSeeded}, Way{70, ExecutionOrder::kReverse},
          Way{2, ExecutionOrder::kForward, 1 << 17}, Way{3, ExecutionOrder::kSeeded, 12 << 16}}) {
      if (kThreadSanitizer && way.multiprocessors != 7) continue;
      ExecutionRules rules;
      rules.order = way.order;
      ChosenLauncher launcher(rules, way.multiprocessors);
      ASSERT_NO_FATAL_FAILURE(
          ExpectSameBits(expected, Attend(batch, launcher, way.most_state_bytes),
                         absl::StrCat(std::string(KvTypeName(type)), ", ", way.multiprocessors,
                                      " blocks, ", way.most_state_bytes, " bytes")));
    }
  }
}

// The kernel for decode reads each row's own blocks.
TEST(SharedSegmentsDecode, TheKernelForDecodeIgnoresThem) {
  const SharedBatch batch(
      {.query_heads = 4, .kv_heads = 1, .head_dim = 24, .type = KvType::kBF16},
      {{1, 1, CausalSequence(kGroup + 70, 1)}, {1, 1, CausalSequence(kGroup + 3, 1)}});
  ChosenLauncher launcher;
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(
      batch.Twin(kHopperDot),
      Attend(batch, launcher, kMostAttentionStateBytes, AttentionBatch::kDecode), "decode"));
}

// The comparison can fail: a batch that claims to share more than it does has other bits.
TEST(SharedSegmentsClaims, OneGroupTooManyWouldBeNoticed) {
  const AttentionShape shape = {
      .query_heads = 4, .kv_heads = 1, .head_dim = 24, .type = KvType::kBF16};
  SharedBatch batch(shape, {{1, 1, CausalSequence(2 * kGroup + 70, 1)},
                            {1, 1, CausalSequence(2 * kGroup + 3, 1)}});
  ChosenLauncher launcher;
  const std::vector<float> expected = batch.Twin(kHopperDot);
  EXPECT_EQ(Attend(batch, launcher), expected);
  batch.shared.back() += kT1GroupSegments;
  EXPECT_NE(Attend(batch, launcher), expected);
}

}  // namespace
}  // namespace baton
