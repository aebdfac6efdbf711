// Benchmark of prefill and decode: the whole forward pass on a real model. It compares each speed
// with limits from peaks that it measures in the same run:
//   limit             the combined roofline. Its time is a sum: matrix multiply-adds at the int8
//                     peak, multiply-adds of float weights and of attention at the f32 peak, and
//                     bytes at the read bandwidth. `ratio` is speed / limit.
//   overlapped_limit  stricter: compute and memory reads overlap, so only the longer one counts
//   product_ceiling   milder: as `limit`, but with the rate of matrix multiply-adds that remains if
//                     the float sums of a format with a minimum (Q4_1, NUMERICS §4) use the same
//                     execution units
// Bytes are the weights, once per step, and the visible keys and values, once per step or once per
// prompt. The limits do not count softmax, norms and gates.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "bench/bench_model.h"
#include "bench/measured_peaks.h"
#include "common/command_line.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/usable_processors.h"

namespace baton {
namespace {

constexpr double kLeastSeconds = 1.0;

// Multiply-adds of the model, and the bytes that it reads.
struct BenchCost : ModelCost {
  double weight_bytes = 0;  // read once per step
  double kv_bytes = 0;      // per visible slot, read once per sequence
};

BenchCost CostOf(const LoadedModel& model, KvType kv_type) {
  BenchCost cost{model.weights->cost()};
  cost.weight_bytes = static_cast<double>(model.weights->bytes());
  cost.kv_bytes =
      static_cast<double>(KvLayout::Create(model.info.spec.KvOfType(kv_type).groups.front(),
                                           KvLayoutKind::kBlockMajor, 1, 1)
                              ->bytes_per_block());
  return cost;
}

class EngineBench {
 public:
  // `only`: comma-separated prefixes of the figures to measure; empty: all figures.
  EngineBench(const LoadedModel& model, const EngineOptions& options, const MeasuredPeaks& peaks,
              const std::string& only)
      : model_(model),
        options_(options),
        peaks_(peaks),
        cost_(CostOf(model, options.kv_type)),
        only_(absl::StrSplit(only, ',')) {
    std::printf("%-32s %12s %12s %7s %12s\n", "figure", "tokens/s", "limit", "ratio", "overlapped");
  }

  void Prefill(int32_t tokens) {
    const std::string name = "prefill_" + std::to_string(tokens) + "_tokens_per_s";
    if (!IsWanted(name)) return;
    BenchModel bench(model_, options_, 1, tokens);
    const double seconds = BestSeconds([&] { bench.Prefill(0, 0, tokens); }, kLeastSeconds);
    const double n = tokens;
    Add(name, n, seconds, cost_.layers * n + cost_.head, n * (n + 1) / 2 * cost_.attention_macs,
        cost_.weight_bytes + n * cost_.kv_bytes);
  }

  // Measures one decode step of `batch` sequences with `context` slots each.
  void Decode(const std::string& name, int32_t batch, int32_t context) {
    if (!IsWanted(name)) return;
    BenchModel bench(model_, options_, batch, context + 1);
    for (int32_t s = 0; s < batch; ++s) bench.Prefill(s, 0, context);
    const double seconds = BestSeconds([&] { bench.Decode(batch, context); }, kLeastSeconds);
    const double n = batch;
    const double slots = n * (context + 1);
    Add(name, n, seconds, (cost_.layers + cost_.head) * n, slots * cost_.attention_macs,
        cost_.weight_bytes + slots * cost_.kv_bytes);
  }

  nlohmann::json figures() const { return figures_; }

 private:
  bool IsWanted(std::string_view name) const {
    for (const std::string& begin : only_) {
      if (name.starts_with(begin)) return true;
    }
    return false;
  }

  // Reports that `tokens` took `seconds`. The other arguments are the work for these tokens.
  void Add(const std::string& name, double tokens, double seconds, MatrixMacs matrices,
           double attention_macs, double bytes) {
    const double compute = matrices.int8 / peaks_.int8_per_second +
                           (matrices.f32 + attention_macs) / peaks_.f32_per_second;
    const double memory = bytes / peaks_.bytes_per_second;
    const double value = tokens / seconds;
    const double limit = tokens / (compute + memory);
    const double overlapped = tokens / std::max(compute, memory);
    const double ceiling = tokens / (compute + memory + matrices.int8 / peaks_.product_per_second -
                                     matrices.int8 / peaks_.int8_per_second);
    std::printf("%-32s %10.1f %10.1f %7.3f %10.1f %10.1f\n", name.c_str(), value, limit,
                value / limit, overlapped, ceiling);
    std::fflush(stdout);
    figures_.push_back({{"name", name},
                        {"value", value},
                        {"unit", "tokens/s"},
                        {"limit", limit},
                        {"ratio", value / limit},
                        {"overlapped_limit", overlapped},
                        {"product_ceiling", ceiling}});
  }

  const LoadedModel& model_;
  const EngineOptions options_;
  const MeasuredPeaks peaks_;
  const BenchCost cost_;
  const std::vector<std::string> only_;
  nlohmann::json figures_ = nlohmann::json::array();
};

int Run(const EngineOptions& options, bool quick, const std::string& only) {
  const absl::StatusOr<LoadedModel> model = LoadModel(options);
  if (!model.ok()) {
    std::cerr << model.status() << "\n";
    return 2;
  }
  InstructionSet set = BestInstructionSet();
  if (options.instruction_set == "avx2") set = InstructionSet::kAvx2;
  const int threads = options.threads > 0 ? options.threads : UsableProcessors();
  auto read = model->device->Allocate(size_t{256} << 20, "bandwidth measurement");
  CHECK(read.ok()) << read.status();
  std::memset((*read)->data(), 1, (*read)->size());
  const MeasuredPeaks peaks =
      MeasurePeaks(set, threads, (*read)->data(), static_cast<int64_t>((*read)->size()));
  read->reset();
  std::printf(
      "%s\n%s, %d threads: %.0f int8 GMAC/s (%.0f with float sums), %.0f f32 GFMA/s, %.1f GB/s "
      "read\n",
      model->device->Description().c_str(), std::string(InstructionSetName(set)).c_str(), threads,
      peaks.int8_per_second / 1e9, peaks.product_per_second / 1e9, peaks.f32_per_second / 1e9,
      peaks.bytes_per_second / 1e9);
  EngineBench bench(*model, options, peaks, only);
  bench.Decode("decode_1_tokens_per_s", 1, 64);
  bench.Prefill(512);
  if (!quick) {
    bench.Prefill(2048);
    bench.Prefill(8000);
    for (const int32_t batch : {1, 4, 8, 16, 32, 64}) {
      bench.Decode("decode_" + std::to_string(batch) + "x512_tokens_per_s", batch, 512);
    }
  }
  const nlohmann::json line = {{"bench", "engine"}, {"seed", 0}, {"figures", bench.figures()}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line("Measures prefill and decode speed of a whole model.");
  baton::EngineOptions options;
  baton::SettingList settings;
  bool quick = false;
  std::string only;
  line.AddFlag("--quick", &quick, "Measure only prefill_512 and decode_1");
  line.Add("--only", &only, "Measure only figures with these prefixes, e.g. decode_16,prefill");
  baton::RegisterSettings(options, settings);
  line.AddSettings(settings, "Engine");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  return baton::Run(options, quick, only);
}
