// Benchmark of prefill and decode: the whole forward pass on a real model. It compares each speed
// with limits from peaks that it measures in the same run:
//   limit             the combined roofline. Its time is a sum: matrix multiply-adds at the int8
//                     peak, multiply-adds of float weights and of attention at the f32 peak, and
//                     bytes at the read bandwidth. `ratio` is value / limit. A step that computes
//                     while it reads can exceed 1.
//   overlapped_limit  stricter, and never exceeded but by noise: compute and memory reads overlap,
//                     so only the longer one counts. `overlapped_ratio` is value / this.
//   product_ceiling   milder: as `limit`, but with the rate of matrix multiply-adds that remains if
//                     the float sums of a format with a minimum (Q4_1, NUMERICS §4) use the same
//                     execution units
// Bytes are the weights, once per step, and the visible keys and values, once per step or once per
// prompt. The read bandwidth is that of a set of as many bytes (`read_gb_per_s`). The limits do not
// count softmax, norms and gates.
//
// With --profile FILE it measures the times of single steps instead, and writes them to FILE for
// `baton simulate` (loadtest/engine_profile.h). `profile_mixed_step_ratio` is then what the profile
// predicts for a step that mixes decoding and a prompt, as a multiple of its measured time.
//
// `value` is the speed of the fastest run, `mean_value` the mean of all runs. A peer must be
// compared by the same one of the two (bench/engine_peer.py).
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "bench/bench_model.h"
#include "bench/figure_list.h"
#include "bench/measured_peaks.h"
#include "bench/profile_times.h"
#include "bench/read_bandwidth.h"
#include "common/command_line.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/usable_processors.h"

namespace baton {
namespace {

constexpr double kLeastSeconds = 1.0;
constexpr int kRounds = 4;

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

// What `tokens` tokens need.
struct Work {
  double tokens = 0;
  MatrixMacs matrices;
  double attention_macs = 0;
  double bytes = 0;
};

class EngineBench {
 public:
  // `only`: comma-separated prefixes of the figures to measure; empty: all figures.
  EngineBench(const LoadedModel& model, const EngineOptions& options, const MeasuredPeaks& peaks,
              InstructionSet set, int threads, const std::string& only)
      : model_(model),
        options_(options),
        peaks_(peaks),
        set_(set),
        threads_(threads),
        cost_(CostOf(model, options.kv_type)),
        only_(absl::StrSplit(only, ',')) {
    figures_.AddCondition(
        "The benchmark calls the model runner in its own process. There is no server and no load "
        "generator.");
    std::printf("%-28s %10s %10s %10s %7s %11s %7s %10s %7s\n", "figure", "tokens/s", "mean",
                "limit", "ratio", "overlapped", "ratio", "ceiling", "GB/s");
  }

  void Prefill(int32_t tokens) {
    const std::string name = "prefill_" + std::to_string(tokens) + "_tokens_per_s";
    if (!IsWanted(name)) return;
    BenchModel bench(model_, options_, 1, tokens);
    const double n = tokens;
    Measure(name,
            {.tokens = n,
             .matrices = cost_.layers * n + cost_.head,
             .attention_macs = n * (n + 1) / 2 * cost_.attention_macs,
             .bytes = cost_.weight_bytes + n * cost_.kv_bytes},
            [&] { bench.Prefill(0, 0, tokens); });
  }

  // Measures one decode step of `batch` sequences with `context` slots each.
  void Decode(const std::string& name, int32_t batch, int32_t context) {
    if (!IsWanted(name)) return;
    BenchModel bench(model_, options_, batch, context + 1);
    for (int32_t s = 0; s < batch; ++s) bench.Prefill(s, 0, context);
    const double n = batch;
    const double slots = n * (context + 1);
    Measure(name,
            {.tokens = n,
             .matrices = (cost_.layers + cost_.head) * n,
             .attention_macs = slots * cost_.attention_macs,
             .bytes = cost_.weight_bytes + slots * cost_.kv_bytes},
            [&] { bench.Decode(batch, context); });
  }

  const FigureList& figures() const { return figures_; }

 private:
  bool IsWanted(std::string_view name) const {
    for (const std::string& begin : only_) {
      if (name.starts_with(begin)) return true;
    }
    return false;
  }

  template <typename Function>
  void Measure(const std::string& name, const Work& work, const Function& run) {
    // Peaks and figure are measured in turn, because a shared machine's speed changes.
    ReadBandwidth bandwidth(*model_.device, set_, threads_, work.bytes);
    RunTimes times;
    for (int round = 0; round < kRounds; ++round) {
      peaks_ = Best(peaks_, MeasurePeaks(set_, threads_));
      bandwidth.BytesPerSecond();
      run();  // brings the weights back into the caches
      TimeRuns(run, kLeastSeconds / kRounds, times);
    }
    const double bytes_per_second = bandwidth.BytesPerSecond();

    const double int8_s = work.matrices.int8 / peaks_.int8_per_second;
    const double compute_s =
        int8_s + (work.matrices.f32 + work.attention_macs) / peaks_.f32_per_second;
    const double memory_s = work.bytes / bytes_per_second;
    const double product_s = work.matrices.int8 / peaks_.product_per_second;
    const double value = work.tokens / times.best_s;
    const double mean = work.tokens / times.mean_s();
    const double limit = work.tokens / (compute_s + memory_s);
    const double overlapped = work.tokens / std::max(compute_s, memory_s);
    const double ceiling = work.tokens / (compute_s + memory_s + product_s - int8_s);
    std::printf("%-28s %10.1f %10.1f %10.1f %7.3f %11.1f %7.3f %10.1f %7.1f\n", name.c_str(), value,
                mean, limit, value / limit, overlapped, value / overlapped, ceiling,
                bytes_per_second / 1e9);
    std::fflush(stdout);
    nlohmann::json& figure = figures_.Add(name, value, "tokens/s", limit);
    figure["mean_value"] = mean;
    figure["overlapped_limit"] = overlapped;
    figure["overlapped_ratio"] = value / overlapped;
    figure["product_ceiling"] = ceiling;
    figure["read_gb_per_s"] = bytes_per_second / 1e9;
  }

  const LoadedModel& model_;
  const EngineOptions options_;
  MeasuredPeaks peaks_;  // the best so far
  const InstructionSet set_;
  const int threads_;
  const BenchCost cost_;
  const std::vector<std::string> only_;
  FigureList figures_;
};

int WriteProfile(const LoadedModel& model, const EngineOptions& options, bool quick,
                 const std::string& path) {
  std::ofstream file(path);
  if (!file) {
    std::cerr << "cannot write profile " << path << "\n";
    return 2;
  }
  ProfileTimes times(model, options);
  const EngineProfile profile = times.Measure(quick);
  file << ProfileText(profile);
  file.close();
  if (!file) {
    std::cerr << "cannot write profile " << path << ": the disk may be full\n";
    return 1;
  }
  FigureList figures;
  figures.AddCondition("The benchmark calls the model runner in its own process.");
  figures.Add("profile_mixed_step_ratio", times.MixedRatio(profile), "1", 1);
  figures.Print("engine", /*seed=*/0);
  return 0;
}

int Run(const EngineOptions& options, bool quick, const std::string& only,
        const std::string& profile) {
  const absl::StatusOr<LoadedModel> model = LoadModel(options);
  if (!model.ok()) {
    std::cerr << model.status() << "\n";
    return 2;
  }
  if (!profile.empty()) return WriteProfile(*model, options, quick, profile);
  const auto* set = std::find_if(
      std::begin(kInstructionSets), std::end(kInstructionSets),
      [&](InstructionSet known) { return InstructionSetName(known) == model->instruction_set; });
  const int threads = options.threads > 0 ? options.threads : UsableProcessors();
  const MeasuredPeaks peaks = MeasurePeaks(*set, threads);
  std::printf("%s\n%s, %d threads: %.0f int8 GMAC/s (%.0f with float sums), %.0f f32 GFMA/s\n",
              model->device->Description().c_str(), std::string(InstructionSetName(*set)).c_str(),
              threads, peaks.int8_per_second / 1e9, peaks.product_per_second / 1e9,
              peaks.f32_per_second / 1e9);
  EngineBench bench(*model, options, peaks, *set, threads, only);
  bench.Decode("decode_1_tokens_per_s", 1, 64);
  bench.Prefill(512);
  if (!quick) {
    bench.Prefill(2048);
    bench.Prefill(8000);
    for (const int32_t batch : {1, 4, 8, 16, 32, 64}) {
      bench.Decode("decode_" + std::to_string(batch) + "x512_tokens_per_s", batch, 512);
    }
  }
  bench.figures().Print("engine", /*seed=*/0);
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
  std::string profile;
  line.AddFlag("--quick", &quick,
               "Measure only prefill_512 and decode_1; of a profile, only a few steps");
  line.Add("--only", &only, "Measure only figures with these prefixes, e.g. decode_16,prefill");
  line.Add("--profile", &profile,
           "Measure the times of single steps instead, and write them to this file for `baton "
           "simulate`")
      .Value("FILE");
  baton::RegisterSettings(options, settings);
  line.AddSettings(settings, "Engine");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  return baton::Run(options, quick, only, profile);
}
