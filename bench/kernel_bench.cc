// Benchmark of the CPU kernels on the shapes of SmolLM2-135M, called through Ops. It measures every
// instruction set of this machine with one thread and with all threads, and the machine's peaks in
// the same run.
//
// Every shape has more matrices than fit into the caches and uses them in turn. A product of few
// tokens therefore reads from memory, as in the model. The limit of an op is the longer of two
// times: its bytes at the read bandwidth, and its int8 plus f32 operations at their peaks.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "bench/figure_list.h"
#include "bench/measured_peaks.h"
#include "bench/read_bandwidth.h"
#include "common/check.h"
#include "common/command_line.h"
#include "kernels/cpu/built_kernels.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/usable_processors.h"
#include "kernels/half.h"
#include "kernels/ops.h"

namespace baton {
namespace {

constexpr int64_t kLayers = 30;
constexpr int64_t kHidden = 576;
constexpr int64_t kFfn = 1536;
constexpr int64_t kHeads = 9;
constexpr int64_t kKvHeads = 3;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kVocabulary = 49152;
constexpr int64_t kMaxTokens = 512;
constexpr int64_t kBlockSize = 16;
constexpr size_t kColdBytes = 96 << 20;
constexpr double kLeastSeconds = 0.15;

struct Work {
  double bytes = 0;  // read from memory
  double int8 = 0;   // multiply-adds
  double f32 = 0;    // fused or single operations
};

// Weights and buffers of a forward pass. All numbers are random and finite.
class Model {
 public:
  Model(Device& device, uint64_t seed) : device_(device), random_(seed) {
    qkv_ = Matrices(WeightFormat::kQ4_1, 960, kHidden);
    attention_out_ = Matrices(WeightFormat::kQ4_1, kHidden, kHidden);
    gate_up_ = Matrices(WeightFormat::kQ4_1, 2 * kFfn, kHidden);
    down_ = Matrices(WeightFormat::kQ4_1, kHidden, kFfn);
    head_ = Matrices(WeightFormat::kQ8_0, kVocabulary, kHidden);
    x_ = Floats(kMaxTokens * 2 * kFfn);
    out_ = Floats(kMaxTokens * 2 * kFfn + kVocabulary * 8);
    weight_ = Floats(kFfn);
    cosines_ = Floats(kMaxTokens * kHeadDim / 2);
    sines_ = Floats(kMaxTokens * kHeadDim / 2);
    std::fill_n(cosines_, kMaxTokens * kHeadDim / 2, 0.8f);  // a rotation: magnitudes stay
    std::fill_n(sines_, kMaxTokens * kHeadDim / 2, 0.6f);
    q8_ = Allocate(kMaxTokens * kFfn)->as<int8_t>();
    scale_ = Floats(kMaxTokens * kFfn / kQuantGroup);
    scaled_sum_ = Floats(kMaxTokens * kFfn / kQuantGroup);
    gated_q8_ = Allocate(kMaxTokens * kFfn)->as<int8_t>();
    gated_scale_ = Floats(kMaxTokens * kFfn / kQuantGroup);
    gated_sum_ = Floats(kMaxTokens * kFfn / kQuantGroup);
    device.ops().Quantize(*stream_, x_, kMaxTokens, kFfn, Quantized());
    pool_ = Allocate(kLayers * kLayerElements * 2)->as<uint16_t>();
    for (int64_t i = 0; i < kLayers * kLayerElements; ++i) pool_[i] = F32ToF16(Normal());
    table_.resize(kMaxTokens / kBlockSize);
    for (size_t i = 0; i < table_.size(); ++i) table_[i] = static_cast<int32_t>(i * 7 % 32);
    sequence_.assign(kMaxTokens, 0);
    for (int32_t t = 0; t < kMaxTokens; ++t) {
      row_runs_.push_back({.run_count = 1, .last_end = t + 1});
      slots_.push_back(table_[t / kBlockSize] * kBlockSize + t % kBlockSize);
    }
  }

  void Product(const PackedMatrix& weight, int64_t tokens) {
    device_.ops().MatMul(*stream_, Args(weight, tokens));
  }
  void GatedProduct(const PackedMatrix& weight, int64_t tokens) {
    device_.ops().GatedMatMul(*stream_, {Args(weight, tokens), Gated()});
  }

  void Attend(int64_t layer, int64_t first_token, int64_t tokens) {
    PagedAttentionArgs args;
    args.q = x_;
    args.q_stride = 960;
    args.out = out_;
    args.query_heads = kHeads;
    args.kv_heads = kKvHeads;
    args.head_dim = kHeadDim;
    args.softmax_scale = 0.125f;
    args.kv = Kv(layer);
    args.sequence_of_token = sequence_.data();
    args.runs = &run_;
    args.row_runs = row_runs_.data() + first_token;
    args.block_tables = table_.data();
    args.table_stride = static_cast<int64_t>(table_.size());
    args.tokens = tokens;
    device_.ops().PagedAttention(*stream_, args);
  }

  void Norm(int64_t tokens) {
    Activations out = Quantized();
    device_.ops().RmsNorm(*stream_, {x_, weight_, 1e-5f, tokens, kHidden, out});
  }
  void Gate(int64_t tokens) { device_.ops().SiluMul(*stream_, {x_, tokens, kFfn, Quantized()}); }
  void Rotate(int64_t tokens) {
    RopeArgs args;
    args.x = x_;
    args.stride = 960;
    args.heads = kHeads + kKvHeads;
    args.head_dim = kHeadDim;
    args.cosines = cosines_;
    args.sines = sines_;
    args.half = kHeadDim / 2;
    args.tokens = tokens;
    device_.ops().Rope(*stream_, args);
  }
  void WriteKv(int64_t layer, int64_t tokens) {
    RopeKvWriteArgs args;
    args.qk = out_;
    args.v = out_;
    args.stride = kKvHeads * kHeadDim;
    args.kv_heads = kKvHeads;
    args.head_dim = kHeadDim;
    args.slot_mapping = slots_.data();
    args.kv = Kv(layer);
    args.tokens = tokens;
    device_.ops().RopeKvWrite(*stream_, args);
  }

  // Makes matrices of at least kColdBytes in total, and at least one per layer unless it is the
  // output head.
  std::vector<PackedMatrix> Matrices(WeightFormat format, int64_t rows, int64_t cols) {
    const size_t bytes = PackedMatrixBytes(format, rows, cols);
    const size_t least = rows == kVocabulary ? 1 : kLayers;
    std::vector<PackedMatrix> matrices;
    while (matrices.size() < least || matrices.size() * bytes < kColdBytes) {
      matrices.push_back(Matrix(format, rows, cols));
    }
    return matrices;
  }

  // Frees the matrices of the last call.
  void FreeLast(size_t count) { buffers_.resize(buffers_.size() - count); }

  const std::vector<PackedMatrix>& qkv() const { return qkv_; }
  const std::vector<PackedMatrix>& attention_out() const { return attention_out_; }
  const std::vector<PackedMatrix>& gate_up() const { return gate_up_; }
  const std::vector<PackedMatrix>& down() const { return down_; }
  const std::vector<PackedMatrix>& head() const { return head_; }

 private:
  static constexpr int64_t kLayerElements = kMaxTokens * 2 * kKvHeads * kHeadDim;

  float Normal() { return std::normal_distribution<float>(0, 1)(random_); }

  DeviceBuffer* Allocate(int64_t bytes) {
    auto buffer = device_.Allocate(static_cast<size_t>(bytes), "benchmark");
    CHECK(buffer.ok()) << buffer.status();
    buffers_.push_back(std::move(buffer).value());
    return buffers_.back().get();
  }

  float* Floats(int64_t count) {
    float* values = Allocate(count * 4)->as<float>();
    for (int64_t i = 0; i < count; ++i) values[i] = Normal();
    return values;
  }

  // Makes a matrix of random bytes in which every scale is a small f16.
  PackedMatrix Matrix(WeightFormat format, int64_t rows, int64_t cols) {
    const size_t bytes = PackedMatrixBytes(format, rows, cols);
    std::byte* data = Allocate(static_cast<int64_t>(bytes))->data();
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
      const uint64_t word = random_();
      std::memcpy(data + i, &word, 8);
    }
    const uint16_t small = F32ToF16(0.01f);  // a small number as bf16 too
    const BlockLayout layout = BlockLayoutOf(format);
    const size_t block = IsQuantized(format) ? layout.bytes() : 2;
    const size_t headers = IsQuantized(format) ? layout.headers * kRowGroup : 1;
    for (size_t at = 0; at < bytes; at += block) {
      for (size_t i = 0; i < headers; ++i) std::memcpy(data + at + 2 * i, &small, 2);
    }
    return {format, rows, cols, data};
  }

  // Activations in float and quantised form. All column counts share the same memory.
  Activations Input() { return {x_, q8_, scale_, scaled_sum_}; }
  Activations Quantized() { return {nullptr, q8_, scale_, scaled_sum_}; }
  // Output buffers for a product that reads Quantized().
  Activations Gated() { return {nullptr, gated_q8_, gated_scale_, gated_sum_}; }

  MatMulArgs Args(const PackedMatrix& weight, int64_t tokens) {
    MatMulArgs args;
    args.x = Input();
    args.weight = weight;
    args.out = out_;
    args.out_stride = weight.rows;
    args.tokens = tokens;
    return args;
  }

  KvLayerView Kv(int64_t layer) {
    KvLayerView kv;
    kv.base = pool_ + layer * kLayerElements;
    kv.type = KvType::kF16;
    kv.block_size_log2 = 4;
    kv.head_stride = kHeadDim;
    kv.token_stride = kKvHeads * kHeadDim;
    kv.value_offset = kBlockSize * kv.token_stride;
    kv.block_stride = 2 * kv.value_offset;
    return kv;
  }

  Device& device_;
  std::mt19937_64 random_;
  std::unique_ptr<Stream> stream_ = device_.CreateStream();
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<PackedMatrix> qkv_, attention_out_, gate_up_, down_, head_;
  float *x_, *out_, *weight_, *cosines_, *sines_;
  float *scale_, *scaled_sum_, *gated_scale_, *gated_sum_;
  int8_t *q8_, *gated_q8_;
  uint16_t* pool_;
  std::vector<int32_t> table_, sequence_;
  const VisibleRun run_;
  std::vector<RowRuns> row_runs_;
  std::vector<int64_t> slots_;
};

Work ProductWork(const PackedMatrix& m, int64_t tokens) {
  const double products = static_cast<double>(m.rows) * m.cols * tokens;
  const auto bytes = static_cast<double>(PackedMatrixBytes(m.format, m.rows, m.cols));
  if (!IsQuantized(m.format)) return {bytes, 0, products};
  const double per_group = m.format == WeightFormat::kQ6_K ? 4 : HasMinimum(m.format) ? 3 : 2;
  return {bytes, products, products / kQuantGroup * per_group};
}

Work Times(Work work, double count) {
  return {work.bytes * count, work.int8 * count, work.f32 * count};
}
Work Plus(Work a, Work b) { return {a.bytes + b.bytes, a.int8 + b.int8, a.f32 + b.f32}; }

Work LayerWork(const Model& model, int64_t tokens) {
  Work work;
  for (const auto* m : {&model.qkv(), &model.attention_out(), &model.gate_up(), &model.down()}) {
    work = Plus(work, ProductWork(m->front(), tokens));
  }
  return work;
}

// Work of attention for tokens [first, first + tokens): scores and values, with K and V read once
// as f16.
Work AttentionWork(int64_t first, int64_t tokens) {
  double pairs = 0;
  for (int64_t t = first; t < first + tokens; ++t) pairs += static_cast<double>(t + 1) * kHeads;
  return {static_cast<double>(first + tokens) * kKvHeads * kHeadDim * 4, 0, 2 * pairs * kHeadDim};
}

class Report {
 public:
  // `only`: measures ops whose names contain one of these, separated by commas; empty: all.
  Report(InstructionSet set, int threads, const MeasuredPeaks& peaks, Device& device,
         const std::string& only, FigureList& figures)
      : prefix_(std::string(InstructionSetName(set)) + "/" + std::to_string(threads) +
                (threads == 1 ? " thread" : " threads")),
        peaks_(peaks),
        bandwidth_(device, set, threads),
        only_(absl::StrSplit(only, ',')),
        figures_(figures) {
    std::printf("\n%s: measured peaks %.0f int8 GMAC/s, %.0f f32 GFMA/s\n", prefix_.c_str(),
                peaks.int8_per_second / 1e9, peaks.f32_per_second / 1e9);
    std::printf("%-34s %10s %9s %9s %9s %9s %7s\n", "op", "us", "Gop/s", "GB/s", "peak GB/s",
                "limit us", "ratio");
  }

  // `count`: how many units one run counts; `unit` is per second.
  void Measure(const std::string& name, const Work& work, double count, const char* unit,
               const std::function<void()>& run) {
    const auto contains = [&](const std::string& part) { return absl::StrContains(name, part); };
    if (std::none_of(only_.begin(), only_.end(), contains)) return;
    run();
    const double seconds = BestSeconds(run, kLeastSeconds);
    const double bytes_per_second = work.bytes > 0 ? bandwidth_.BytesPerSecond(work.bytes) : 0;
    const double memory_s = work.bytes > 0 ? work.bytes / bytes_per_second : 0;
    const double limit =
        std::max(memory_s, work.int8 / peaks_.int8_per_second + work.f32 / peaks_.f32_per_second);
    std::printf("%-34s %10.1f %9.1f %9.2f %9.2f %9.1f %7.3f\n", name.c_str(), seconds * 1e6,
                (work.int8 > 0 ? work.int8 : work.f32) / seconds / 1e9, work.bytes / seconds / 1e9,
                bytes_per_second / 1e9, limit * 1e6, limit / seconds);
    figures_.Add(prefix_ + "/" + name, count / seconds, unit, count / limit);
  }

 private:
  std::string prefix_;
  MeasuredPeaks peaks_;
  BandwidthBySize bandwidth_;
  std::vector<std::string> only_;
  FigureList& figures_;
};

// Measures one product with each matrix in turn. With 64 or more tokens, compute is the limit and
// four matrices suffice.
void MeasureProducts(Model& model, Report& report, std::vector<PackedMatrix> matrices,
                     const std::string& name, int64_t tokens) {
  if (tokens >= 64) matrices.resize(4);
  const auto count = static_cast<double>(matrices.size());
  const Work work = ProductWork(matrices.front(), tokens);
  report.Measure(name + " x" + std::to_string(tokens), Times(work, count),
                 (work.int8 > 0 ? work.int8 : work.f32) * count / 1e9, "GMAC/s", [&] {
                   for (const PackedMatrix& m : matrices) model.Product(m, tokens);
                 });
}

// Measures one shape in every weight format.
void MeasureFormats(Model& model, Report& report) {
  for (const WeightFormat format :
       {WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kQ8_0, WeightFormat::kQ4_0,
        WeightFormat::kQ5_0, WeightFormat::kQ5_1, WeightFormat::kQ4_K, WeightFormat::kQ5_K,
        WeightFormat::kQ6_K}) {
    const auto matrices = model.Matrices(format, kHidden, kFfn);
    std::string name(WeightFormatName(format));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return std::tolower(c); });
    for (const int64_t tokens : {1, 8, 64}) {
      MeasureProducts(model, report, matrices, name + " 576x1536", tokens);
    }
    model.FreeLast(matrices.size());
  }
}

void MeasureForwards(Model& model, Report& report) {
  for (int64_t tokens : {int64_t{1}, int64_t{8}, kMaxTokens}) {
    const int64_t first = tokens == kMaxTokens ? 0 : kMaxTokens - tokens;
    const int64_t sampled = tokens == kMaxTokens ? 1 : tokens;
    const Work layer = Plus(LayerWork(model, tokens), AttentionWork(first, tokens));
    const Work work = Plus(Times(layer, kLayers), ProductWork(model.head().front(), sampled));
    report.Measure("all ops of a pass x" + std::to_string(tokens), work,
                   static_cast<double>(tokens), "tokens/s", [&] {
                     for (int64_t l = 0; l < kLayers; ++l) {
                       model.Norm(tokens);
                       model.Product(model.qkv()[l], tokens);
                       model.Rotate(tokens);
                       model.WriteKv(l, tokens);
                       model.Attend(l, first, tokens);
                       model.Product(model.attention_out()[l], tokens);
                       model.Norm(tokens);
                       model.GatedProduct(model.gate_up()[l], tokens);
                       model.Product(model.down()[l], tokens);
                     }
                     model.Norm(sampled);
                     model.Product(model.head().front(), sampled);
                   });
  }
}

// Measures elementwise ops on cached data, as in the model. The limit counts the float operations
// that NUMERICS.md specifies.
void MeasureElementwise(Model& model, Report& report) {
  const auto measure = [&](const char* name, double operations, const std::function<void()>& run) {
    report.Measure(name, {0, 0, operations * kMaxTokens}, operations * kMaxTokens / 1e9, "GFMA/s",
                   run);
  };
  measure("rms_norm+quantize x512", kHidden * 5.0, [&] { model.Norm(kMaxTokens); });
  const PackedMatrix& gate_up = model.gate_up().front();
  Work gated = ProductWork(gate_up, kMaxTokens);
  gated.f32 += kFfn * 20.0 * kMaxTokens;
  report.Measure("gated q4_1 3072x576 x512", gated, gated.int8 / 1e9, "GMAC/s",
                 [&] { model.GatedProduct(gate_up, kMaxTokens); });
  measure("silu_mul+quantize x512", kFfn * 20.0, [&] { model.Gate(kMaxTokens); });
  measure("rope x512", (kHeads + kKvHeads) * kHeadDim * 2.0, [&] { model.Rotate(kMaxTokens); });
}

void Run(InstructionSet set, int threads, uint64_t seed, const std::string& only,
         FigureList& figures) {
  auto device = CreateCpuDevice({threads, set});
  CHECK(device.ok()) << device.status();
  const MeasuredPeaks peaks = MeasurePeaks(set, threads);
  Model model(**device, seed);
  Report report(set, threads, peaks, **device, only, figures);
  for (int64_t tokens : {1, 2, 8, 16, 64, 512}) {
    MeasureProducts(model, report, model.qkv(), "q4_1 960x576", tokens);
    MeasureProducts(model, report, model.attention_out(), "q4_1 576x576", tokens);
    MeasureProducts(model, report, model.gate_up(), "q4_1 3072x576", tokens);
    MeasureProducts(model, report, model.down(), "q4_1 576x1536", tokens);
  }
  for (int64_t tokens : {1, 8}) {
    MeasureProducts(model, report, model.head(), "q8_0 49152x576", tokens);
  }
  MeasureFormats(model, report);
  for (int64_t tokens : {int64_t{1}, int64_t{64}, kMaxTokens}) {
    const int64_t first = kMaxTokens - tokens;
    const Work work = AttentionWork(first, tokens);
    report.Measure("attention f16 x" + std::to_string(tokens) + " of 512 slots",
                   Times(work, kLayers), work.f32 * kLayers / 1e9, "GFMA/s", [&] {
                     for (int64_t l = 0; l < kLayers; ++l) model.Attend(l, first, tokens);
                   });
  }
  MeasureElementwise(model, report);
  MeasureForwards(model, report);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line("Measures the CPU kernels on the shapes of SmolLM2-135M.");
  uint64_t seed = 1;
  std::string sets;
  std::string only;
  line.Add("--seed", &seed, "Seed of all weights and activations");
  line.Add("--instruction-sets", &sets, "Measure only these, e.g. avx2,avx512; empty: all");
  line.Add("--only", &only,
           "Measure only ops whose names contain one of these, e.g. q4_1,attention");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  baton::FigureList figures;
  const std::vector<std::string> wanted = absl::StrSplit(sets, ',', absl::SkipEmpty());
  for (const baton::InstructionSet set : baton::kInstructionSets) {
    if (set == baton::InstructionSet::kPlain) continue;
    const auto found = std::find(wanted.begin(), wanted.end(), baton::InstructionSetName(set));
    if (!wanted.empty() && found == wanted.end()) continue;
    if (!baton::IsSupported(set)) {
      figures.AddAbsent(std::string(baton::InstructionSetName(set)), "",
                        "this processor lacks instructions of this set");
      continue;
    }
    if (!baton::IsBuilt(set)) {
      figures.AddAbsent(std::string(baton::InstructionSetName(set)), "",
                        "this build lacks the kernels of this set");
      continue;
    }
    baton::Run(set, 1, seed, only, figures);
    const int all = baton::UsableProcessors();
    if (all > 1) baton::Run(set, all, seed, only, figures);
  }
  figures.Print("kernel", static_cast<int64_t>(seed));
}
