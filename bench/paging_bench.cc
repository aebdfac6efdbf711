// Benchmark of the cost of paging. The compared measurements alternate in one run:
//   paged_to_contiguous_*         decode steps with block tables and with contiguous sequences
//   kv_write_per_token_to_batched one KV write call per token and one call per chunk
//   fork_copy_*                   the copy at a fork's first write: all slots but one of its last
//                                 block, in every layer, on cold memory. The limits are the
//                                 published 10 us for 64 KiB, and memcpy of the same bytes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <optional>

#include "bench/bench_model.h"
#include "bench/figure_list.h"
#include "common/command_line.h"
#include "kernels/ops.h"

namespace baton {
namespace {

constexpr int kRounds = 60;

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Medians of two alternating measurements, in seconds, and the median of their ratios.
struct Pair {
  double first = 0;
  double second = 0;
  double ratio = 0;  // first / second
};
Pair Alternate(const std::function<void()>& first, const std::function<void()>& second) {
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> ratios;
  first();
  second();
  for (int i = 0; i < kRounds; ++i) {
    a.push_back(Seconds(first));
    b.push_back(Seconds(second));
    ratios.push_back(a.back() / b.back());
  }
  return {Median(a), Median(b), Median(ratios)};
}

void MeasureSteps(const LoadedModel& model, const EngineOptions& options, FigureList& figures) {
  std::printf("%-28s %12s %14s %10s\n", "decode step", "paged us", "contiguous us", "ratio");
  for (const auto& [batch, context] : {std::pair{1, 512}, {1, 4000}, {16, 512}}) {
    EngineOptions contiguous = options;
    contiguous.paged = false;
    BenchModel a(model, options, batch, context + 1);
    BenchModel b(model, contiguous, batch, context + 1);
    for (int s = 0; s < batch; ++s) {
      a.Prefill(s, 0, context);
      b.Prefill(s, 0, context);
    }
    const Pair pair = Alternate([&, n = batch, c = context] { a.Decode(n, c); },
                                [&, n = batch, c = context] { b.Decode(n, c); });
    const std::string name = std::to_string(batch) + "x" + std::to_string(context);
    std::printf("%-28s %12.1f %14.1f %10.4f\n", name.c_str(), pair.first * 1e6, pair.second * 1e6,
                pair.ratio);
    figures.Add("paged_to_contiguous_" + name, pair.ratio, "ratio", 1.03);
  }
}

void MeasureKvWrite(const LoadedModel& model, const EngineOptions& options, FigureList& figures) {
  constexpr int64_t kTokens = 512;
  KvGroupSpec group = model.info.spec.KvOfType(options.kv_type).groups.front();
  group.layers = 1;
  const int64_t row = int64_t{group.kv_heads} * group.head_dim;
  auto memory =
      model.device->Allocate(kTokens * row * (sizeof(float) + 2 * sizeof(float)), "bench");
  const KvLayout layout = *KvLayout::Create(group, KvLayoutKind::kLayerMajor, 16, kTokens / 16);
  auto pool = model.device->Allocate(layout.pool_bytes(), "bench pool");
  CHECK(memory.ok() && pool.ok());
  std::vector<int64_t> slots(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) slots[i] = i;
  KvLayerView view{.base = (*pool)->data(),
                   .type = options.kv_type,
                   .block_size_log2 = layout.block_size_log2(),
                   .block_stride = layout.block_stride(),
                   .token_stride = layout.token_stride(),
                   .head_stride = layout.head_stride(),
                   .value_offset = layout.value_offset(),
                   .scale_offset = layout.scale_offset()};
  const auto stream = model.device->CreateStream();
  float* const k = (*memory)->as<float>();
  const auto write = [&](int64_t first, int64_t count) {
    model.device->ops().RopeKvWrite(*stream, {.qk = k + first * row,
                                              .v = k + first * row,
                                              .stride = row,
                                              .kv_heads = group.kv_heads,
                                              .head_dim = group.head_dim,
                                              .slot_mapping = slots.data() + first,
                                              .kv = view,
                                              .tokens = count});
  };
  const Pair pair = Alternate(
      [&] {
        for (int64_t i = 0; i < kTokens; ++i) write(i, 1);
      },
      [&] { write(0, kTokens); });
  std::printf(
      "\nKV write of %lld tokens, one layer: %.1f us in one call, %.1f us with a call per token, "
      "ratio %.2f\n",
      static_cast<long long>(kTokens), pair.second * 1e6, pair.first * 1e6, pair.ratio);
  figures.Add("kv_write_per_token_to_batched", pair.ratio, "ratio", 1.0);
}

void MeasureForkCopy(const LoadedModel& model, const EngineOptions& options, FigureList& figures) {
  constexpr double kSourceUsPerByte = 10.0 / (64 << 10);
  constexpr int32_t kSequences = 16, kContext = 1024;
  BenchModel cache(model, options, kSequences, kContext);
  const int32_t blocks = kSequences * cache.blocks_per_sequence();
  const int32_t tokens = std::max(1, options.block_size - 1);
  const KvGroupSpec group = model.info.spec.KvOfType(options.kv_type).groups.front();
  const int64_t bytes =
      KvLayout::Create(group, options.layout, options.block_size, 1)->pool_bytes() /
      options.block_size * tokens;
  std::vector<char> pool(static_cast<size_t>(bytes * blocks));
  // A large stride, so that no copy uses blocks that an earlier copy has just touched.
  auto block = [&, at = 0]() mutable { return at = (at + blocks / 3 + 1) % blocks; };
  auto fork = [&, next = block]() mutable {
    const BlockId from(next());
    cache.CopyBlock(from, BlockId(next()), tokens);
  };
  auto plain = [&, next = block]() mutable {
    const int64_t from = next();
    std::memcpy(&pool[static_cast<size_t>(next() * bytes)],
                &pool[static_cast<size_t>(from * bytes)], static_cast<size_t>(bytes));
  };
  for (int i = 0; i < blocks; ++i) fork();  // touches all of the pool's memory
  const Pair pair = Alternate(fork, plain);
  std::printf(
      "\nfork of a sequence: copies %lld KiB of its last block in %.1f us; one memcpy: %.1f us, "
      "ratio %.2f\n",
      static_cast<long long>(bytes >> 10), pair.first * 1e6, pair.second * 1e6, pair.ratio);
  figures.Add("fork_copy_us", pair.first * 1e6, "us",
              kSourceUsPerByte * static_cast<double>(bytes));
  figures.Add("fork_copy_to_memcpy", pair.ratio, "ratio", 1.0);
}

int Run(EngineOptions options) {
  const absl::StatusOr<LoadedModel> model = LoadModel(options);
  if (!model.ok()) {
    std::cerr << model.status() << "\n";
    return 2;
  }
  SettleForDevice(options, *model->device);
  std::printf("%s\n", model->device->Description().c_str());
  FigureList figures;
  MeasureSteps(*model, options, figures);
  MeasureKvWrite(*model, options, figures);
  MeasureForkCopy(*model, options, figures);
  figures.Print("paging", /*seed=*/0);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line("Measures the cost of paging, KV writes and forks.");
  baton::EngineOptions options;
  baton::SettingList settings;
  baton::RegisterSettings(options, settings);
  line.AddSettings(settings, "Engine");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  return baton::Run(options);
}
