// Benchmark of the CUDA backend: first the device's own bandwidths, then kernels and whole steps on
// random weights, each against a limit that the same process measures. Sections (--only NAME):
//
//   bandwidth  copy, read           bytes/s of a copy inside the device (read and written bytes),
//                                   and of a kernel that only reads
//              to_device, to_host   bytes/s between pinned host memory and the device
//   attention  attention.SxC.*      bytes/s of paged decode attention, 32 query heads over 8 of
//                                   128, f16: with blocks of 64, of 16, and contiguous. The limit
//                                   is the copy; `of_read` is the share of the read
//              attention.SxC.*_to_* speed with blocks of 64 over contiguous, and of 16 over 64
//              attention.1x1024     its latency in µs
//   prefix     prefix.64x8192       µs of the same for 64 sequences with one prefix, which in t1 is
//                                   read once. The limit is the time to copy its bytes once, in t1
//                                   or that of the products, if it is longer
//              prefix.*.read_by_each µs where each sequence reads the prefix
//   prefill    prefill.C            TFLOP/s of causal attention of one sequence of C tokens
//              tile_copies          1 if the driver accepts the pool for tile copies; in t1-sm90
//   decode     decode.*             tokens/s of a step of Llama 8B, one graph, contexts of 1,024
//   chunk      chunk.*              TFLOP/s of a step of Llama 8B with one chunk of 2,048 tokens
//   matmul     matmul.*             µs of one product of Llama 8B, for 1 to 2,048 tokens. Several
//                                   matrices take turns, so that no cache holds them
//              matmul.tflops.N      TFLOP/s of a bf16 product of N×N×N
//   handoff    handoff.*            bytes/s of blocks between the pool and pinned memory, with and
//                                   without checksums. The limit is to_host or to_device
//   limits     limits.*             bench/device_limits.h
//   exactness  exactness.*          bench/exactness_cost.h
//   runner     runner.*             fixed costs of a decode step in the real runner
//                                   (bench/runner_steps.h), with the small model --model
//   engine     engine.*             bench/synthetic_decode.h, with --model SHAPE:FORMAT
//
// The limit of a step or product is the larger of two times: that of its bytes at the measured read
// bandwidth, and that of its operations. Their rate is that of a square product for bf16 in t1, and
// that of mma.sync on registers for int8. With --numerics, the names of figures end in that name.
// Each group of figures has a JSON line. --tiny measures nothing of use: it rehearses the program
// on the emulator. Without --only, all sections but the last two run.
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_sizes.h"
#include "bench/device_bench.h"
#include "bench/device_ceilings.h"
#include "bench/device_limits.h"
#include "bench/exactness_cost.h"
#include "bench/open_bench_device.h"
#include "bench/runner_steps.h"
#include "bench/step_shapes.h"
#include "bench/synthetic_decode.h"
#include "common/command_line.h"
#include "engine/model_loader.h"

namespace baton {
namespace {

constexpr int64_t kSeed = 16;
constexpr double kMega = 1e6;
constexpr double kTera = 1e12;

class CudaBench {
 public:
  // `suffix` ends the names of figures.
  CudaBench(Device& device, BenchSizes sizes, std::string suffix)
      : sizes_(std::move(sizes)),
        suffix_(std::move(suffix)),
        bench_(device, kSeed, sizes_.least_s) {}

  // Measures the limits of the other sections.
  void Ceilings(bool with_products) {
    bandwidths_ = MeasureBandwidths(bench_, sizes_.copied);
    copy_ = bandwidths_.copy_bytes_s;
    read_ = bandwidths_.read_bytes_s;
    if (!with_products) return;
    integer_products_ = DeviceLimits(bench_, sizes_.least_s == 0).MmaS8();
    if (IsT1(bench_.device().numerics())) {
      const auto [flops, time] = SquareProduct();
      products_ = flops / time.median_s;
    }
  }

  void Bandwidth() {
    const auto bytes = static_cast<double>(sizes_.copied);
    bench_.ReportRate("copy", 2.0 * bytes / kMega, bandwidths_.copy, "MB/s", 0);
    bench_.ReportRate("read", bytes / kMega, bandwidths_.read, "MB/s", 0);
    const size_t staged = Staged();
    const auto [to_device, to_host] = HostCopies(staged);
    bench_.ReportRate("to_device", static_cast<double>(staged) / kMega, to_device, "MB/s", 0);
    bench_.ReportRate("to_host", static_cast<double>(staged) / kMega, to_host, "MB/s", 0);
  }

  void Attention() {
    for (const auto& size : sizes_.attention) {
      const auto sequences = size.first;
      const auto context = size.second;
      const std::string name =
          "attention." + std::to_string(sequences) + "x" + std::to_string(context);
      const auto measure = [&](int32_t log2, bool contiguous, const std::string& kind) {
        const BenchAttention batch(bench_, sizes_.shape,
                                   {.sequences = sequences,
                                    .context = context,
                                    .block_size_log2 = log2,
                                    .contiguous = contiguous});
        const WorkTime time = DecodeTime(batch);
        auto& figure = bench_.ReportRate(Named(name + "." + kind), batch.bytes() / kMega, time,
                                         "MB/s", copy_ / kMega);
        figure["of_read"] = batch.bytes() / time.median_s / read_;
        return time.median_s;
      };
      const double of_64 = measure(6, false, "blocks_of_64");
      const double of_16 = measure(4, false, "blocks_of_16");
      const double contiguous = measure(6, true, "contiguous");
      bench_.Report(Named(name + ".paged_to_contiguous"), contiguous / of_64, "ratio", 0.99);
      bench_.Report(Named(name + ".blocks_of_16_to_64"), of_64 / of_16, "ratio", 0.95);
    }
    const BenchAttention one(bench_, sizes_.shape, {.context = 1024});
    bench_.ReportMicroseconds(Named("attention.1x1024"), DecodeTime(one),
                              one.bytes() / read_ * 1e6);
  }

  void Prefix() {
    const auto& size = sizes_.prefix;
    const auto measure = [&](bool shares, const std::string& kind) {
      const BenchAttention batch(
          bench_, sizes_.shape,
          {.sequences = size.first, .context = size.second, .one_prefix = true, .shares = shares});
      const WorkTime time = DecodeTime(batch);
      const double bytes_us = batch.bytes() / copy_ * 1e6;
      const double products_us = products_ > 0 ? batch.flops() / products_ * 1e6 : 0;
      auto& figure = bench_.ReportMicroseconds(
          Named("prefix." + std::to_string(size.first) + "x" + std::to_string(size.second) + kind),
          time, std::max(bytes_us, products_us));
      figure["of_unique_bytes"] = time.median_s * 1e6 / bytes_us;
      figure["products_us"] = products_us;
      figure["copy_of_all_bytes_us"] = batch.read_bytes() / copy_ * 1e6;
      return time.median_s;
    };
    const double by_each = measure(false, ".read_by_each");
    const double once = measure(true, "");
    bench_.Report(Named("prefix.speed_of_sharing"), by_each / once, "ratio", 0);
  }

  void Prefill() {
    if (bench_.device().numerics() == Numerics::kT1Sm90) {
      const BenchAttention batch(bench_, sizes_.shape, {.context = 64});
      TensorMap map;
      const bool encoded = bench_.launcher().EncodeTiles(batch.Tiles(), map);
      bench_.Report("tile_copies", encoded ? 1 : 0, "of 1", 1);
    }
    for (const int64_t context : sizes_.prefill) {
      const BenchAttention batch(bench_, sizes_.shape, {.context = context, .new_tokens = context});
      const auto rows = Rows(batch);
      const float* const q = rows.first->as<float>();
      float* const out = rows.second->as<float>();
      const WorkTime time = bench_.Enqueued(4, [&](int) { Attend(batch, q, out); });
      bench_.ReportRate(Named("prefill." + std::to_string(context)), batch.flops() / kTera, time,
                        "TFLOP/s", products_ / kTera);
    }
  }

  void Products() {
    const LlamaShape& s = sizes_.shape;
    struct Product {
      const char* name;
      int64_t rows, cols;
    };
    const Product products[] = {{"qkv", s.qkv_size(), s.hidden},
                                {"out", s.hidden, s.q_size()},
                                {"gate_up", 2 * s.inner, s.hidden},
                                {"down", s.hidden, s.inner},
                                {"head", s.vocabulary, s.hidden}};
    const auto [flops, time] = SquareProduct();
    bench_.ReportRate(Named("matmul.tflops." + std::to_string(sizes_.square)), flops / kTera, time,
                      "TFLOP/s", 0);
    for (const WeightFormat format :
         {WeightFormat::kBF16, WeightFormat::kQ4_K, WeightFormat::kQ8_0, WeightFormat::kQ4_0}) {
      for (const Product& product : products) {
        MatMul(format, product.name, product.rows, product.cols);
      }
      PrintFigures();
    }
  }

  void Decode() {
    for (const WeightFormat format :
         {WeightFormat::kBF16, WeightFormat::kQ4_K, WeightFormat::kQ8_0}) {
      for (const int64_t sequences : sizes_.decoded) {
        const int64_t context = sizes_.shape.layers > 2 ? 1024 : 64;
        LlamaStep step(bench_, sizes_.shape, format, {.sequences = sequences, .context = context});
        const auto tokens = static_cast<double>(sequences);
        bench_.ReportRate(Named("decode." + std::string(WeightFormatName(format)) + ".batch_" +
                                std::to_string(sequences)),
                          tokens, bench_.InGraph(1, [&](int) { step.Enqueue(); }), "tokens/s",
                          tokens / LimitSeconds(format, step.bytes(), step.flops()));
      }
      PrintFigures();
    }
  }

  void Chunks() {
    for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kQ4_K}) {
      LlamaStep step(bench_, sizes_.shape, format,
                     {.context = sizes_.chunk, .new_tokens = sizes_.chunk});
      bench_.ReportRate(Named("chunk." + std::string(WeightFormatName(format))),
                        step.flops() / kTera, bench_.Enqueued(1, [&](int) { step.Enqueue(); }),
                        "TFLOP/s", ProductRate(format) / kTera);
      PrintFigures();
    }
  }

  // Blocks of one layer's keys and values, in random order in the pool.
  void Handoff() {
    const size_t staged = Staged();
    const auto [to_device, to_host] = HostCopies(staged);
    const size_t block = std::min<size_t>(staged, size_t{256} << 10);
    const auto pool = bench_.Filled(2 * staged);
    auto staging = bench_.device().AllocateStaging(staged, "bench");
    auto checksums = bench_.device().AllocateStaging(staged / block * 4, "bench");
    CHECK(staging.ok() && checksums.ok());
    std::vector<size_t> places(2 * staged / block);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), bench_.random());
    std::vector<ByteRun> out, in;
    for (size_t i = 0; i < staged / block; ++i) {
      const auto in_pool = static_cast<int64_t>(places[i] * block);
      const auto in_staging = static_cast<int64_t>(i * block);
      out.push_back({in_pool, in_staging, static_cast<int64_t>(block)});
      in.push_back({in_staging, in_pool, static_cast<int64_t>(block)});
    }
    const auto report = [&](const char* name, const std::byte* from, std::byte* to,
                            const std::vector<ByteRun>& runs, uint32_t* sums,
                            const WorkTime& limit) {
      const WorkTime time = bench_.Enqueued(1, [&](int) {
        bench_.device().ops().CopyRuns(
            bench_.stream(),
            {.from = from, .to = to, .runs = runs, .staging = true, .checksums = sums});
      });
      const double megabytes = static_cast<double>(staged) / kMega;
      bench_.ReportRate(name, megabytes, time, "MB/s", megabytes / limit.median_s);
    };
    std::byte* const host = (*staging)->data();
    report("handoff.to_host", pool->data(), host, out, nullptr, to_host);
    report("handoff.to_host.checksums", pool->data(), host, out, (*checksums)->as<uint32_t>(),
           to_host);
    report("handoff.to_device", host, pool->data(), in, nullptr, to_device);
  }

  void Limits() { DeviceLimits(bench_, sizes_.least_s == 0).Report(); }

  void Exactness() { ExactnessCost(bench_, sizes_).Report(); }

  // Prints the figures since the last call. The rest of the section may fail or run out of time.
  void PrintFigures() {
    bench_.figures().Print("cuda", kSeed);
    bench_.figures() = {};
  }
  FigureList& figures() { return bench_.figures(); }

 private:
  std::string Named(const std::string& name) const { return name + suffix_; }
  double ProductRate(WeightFormat format) const {
    return IsQuantized(format) ? integer_products_ : products_;
  }
  double LimitSeconds(WeightFormat format, double bytes, double flops) const {
    const double rate = ProductRate(format);
    return std::max(bytes / read_, rate > 0 ? flops / rate : 0);
  }
  size_t Staged() const { return std::min(sizes_.copied, size_t{256} << 20); }

  // Times of copies of `bytes` bytes to the device, and from it.
  std::pair<WorkTime, WorkTime> HostCopies(size_t bytes) {
    const auto on_device = bench_.Filled(bytes);
    auto staging = bench_.device().AllocateStaging(bytes, "bench");
    CHECK(staging.ok()) << staging.status();
    std::byte* const host = (*staging)->data();
    const WorkTime up =
        bench_.InGraph(2, [&](int) { bench_.stream().Copy(host, on_device->data(), bytes); });
    const WorkTime down =
        bench_.InGraph(2, [&](int) { bench_.stream().Copy(on_device->data(), host, bytes); });
    return {down, up};
  }

  // Operations and time of a square product of bf16.
  std::pair<double, WorkTime> SquareProduct() {
    const int64_t size = sizes_.square;
    const BenchMatrix weight(bench_, WeightFormat::kBF16, size, size);
    return {weight.flops(size), ProductTime({&weight}, size, 2)};
  }

  // Rows of queries and of results.
  std::pair<std::unique_ptr<DeviceBuffer>, std::unique_ptr<DeviceBuffer>> Rows(
      const BenchAttention& batch) {
    const int64_t bytes = batch.tokens() * sizes_.shape.q_size() * 4;
    return {bench_.Filled(bytes), bench_.Filled(bytes)};
  }
  void Attend(const BenchAttention& batch, const float* q, float* out) {
    bench_.device().ops().PagedAttention(bench_.stream(),
                                         batch.Attention(q, sizes_.shape.q_size(), out));
  }
  WorkTime DecodeTime(const BenchAttention& batch) {
    const auto rows = Rows(batch);
    const float* const q = rows.first->as<float>();
    float* const out = rows.second->as<float>();
    return bench_.InGraph(sizes_.repeats, [&](int) { Attend(batch, q, out); });
  }

  WorkTime ProductTime(const std::vector<const BenchMatrix*>& weights, int64_t tokens,
                       int repeats) {
    const PackedMatrix& shape = weights[0]->view();
    const BenchActivations x(bench_, tokens, shape.cols);
    const auto out = bench_.Filled(tokens * shape.rows * 4);
    return bench_.InGraph(repeats, [&](int i) {
      bench_.device().ops().MatMul(bench_.stream(), {.x = x.FormOf(shape.format),
                                                     .weight = weights[i % weights.size()]->view(),
                                                     .out = out->as<float>(),
                                                     .out_stride = shape.rows,
                                                     .tokens = tokens,
                                                     .accumulate = false});
    });
  }

  void MatMul(WeightFormat format, const std::string& name, int64_t rows, int64_t cols) {
    std::vector<std::unique_ptr<BenchMatrix>> matrices;
    std::vector<const BenchMatrix*> views;
    double bytes = 0;
    do {
      matrices.push_back(std::make_unique<BenchMatrix>(bench_, format, rows, cols));
      views.push_back(matrices.back().get());
      bytes += matrices.back()->bytes();
    } while (bytes < sizes_.uncached);
    for (const int64_t tokens : sizes_.tokens) {
      const WorkTime time = ProductTime(views, tokens, std::max(static_cast<int>(views.size()), 4));
      bench_.ReportMicroseconds(
          Named("matmul." + std::string(WeightFormatName(format)) + "." + name + ".tokens_" +
                std::to_string(tokens)),
          time, LimitSeconds(format, views[0]->bytes(), views[0]->flops(tokens)) * 1e6);
    }
  }

  const BenchSizes sizes_;
  const std::string suffix_;
  DeviceBench bench_;
  Bandwidths bandwidths_;
  double copy_ = 0, read_ = 0;   // bytes/s; a copied byte counts twice
  double products_ = 0;          // operations/s of a square bf16 product in t1; 0: not measured
  double integer_products_ = 0;  // operations/s of mma.sync on int8; 0: not measured
};

struct Section {
  const char* name;
  void (CudaBench::*run)();
  bool with_products;    // its limits contain the rate of products
  double least_s = 0.1;  // of each measurement
};
constexpr Section kSections[] = {
    {"bandwidth", &CudaBench::Bandwidth, false}, {"attention", &CudaBench::Attention, false},
    {"prefix", &CudaBench::Prefix, true},        {"prefill", &CudaBench::Prefill, true},
    {"decode", &CudaBench::Decode, true},        {"chunk", &CudaBench::Chunks, true},
    {"matmul", &CudaBench::Products, true},      {"handoff", &CudaBench::Handoff, false},
    {"limits", &CudaBench::Limits, false},       {"exactness", &CudaBench::Exactness, false, 0.01}};

struct Choices {
  std::string device = "cuda";
  std::string only;
  std::string numerics = "auto";
  std::string model;
  bool tiny = false;
  bool describe = false;
};

int Fail(std::string_view why) {
  std::cerr << why << "\n";
  return 1;
}

int RunRunner(const Choices& choices) {
  EngineOptions options;
  options.model = choices.model;
  options.device = choices.device;
  options.numerics = choices.numerics;
  const absl::StatusOr<LoadedModel> model = LoadModel(options);
  if (!model.ok()) return Fail(std::string(model.status().message()));
  FigureList figures;
  figures.AddCondition(model->device->Description());
  if (choices.tiny) figures.AddCondition("tiny sizes: the figures mean nothing");
  RunnerSteps(*model).Measure(choices.tiny ? 20 : 2000, figures);
  figures.Print("cuda", kSeed);
  return 0;
}

int RunEngine(const Choices& choices) {
  const auto decode =
      SyntheticDecode::Create(choices.model, choices.device, choices.numerics, choices.tiny);
  if (!decode.ok()) return Fail(std::string(decode.status().message()));
  FigureList figures;
  if (choices.tiny) figures.AddCondition("tiny sizes: the figures mean nothing");
  const absl::Status ended = (*decode)->Run(figures);
  figures.Print("cuda", kSeed);
  return ended.ok() ? 0 : Fail(std::string(ended.message()));
}

int Run(const Choices& choices) {
  if (choices.only == "runner") return RunRunner(choices);
  if (choices.only == "engine") return RunEngine(choices);
  std::optional<Numerics> numerics;
  if (choices.numerics != "auto") {
    for (const Numerics known : kAllNumerics) {
      if (choices.numerics == NumericsName(known)) numerics = known;
    }
    if (!numerics.has_value()) return Fail("--numerics is auto, r1, t1-sm80 or t1-sm90");
  }
  const auto device = OpenBenchDevice(choices.device, numerics);
  if (!device.ok()) return Fail(std::string(device.status().message()));
  std::printf("%s\n", (*device)->Description().c_str());
  if (choices.describe) return 0;
  std::printf("%-44s %12s %-9s %12s %7s\n", "figure", "value", "unit", "limit", "ratio");
  bool found = false;
  for (const Section& section : kSections) {
    if (!choices.only.empty() && choices.only != section.name) continue;
    found = true;
    CudaBench bench(**device, choices.tiny ? TinySizes() : RealSizes(section.least_s),
                    numerics.has_value() ? "." + choices.numerics : "");
    bench.figures().AddCondition((*device)->Description());
    if (choices.tiny) bench.figures().AddCondition("tiny sizes: the figures mean nothing");
    bench.Ceilings(section.with_products);
    (bench.*section.run)();
    bench.PrintFigures();
  }
  return found ? 0 : Fail("--only is no section: " + choices.only);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line("Measures the CUDA backend on random weights.");
  baton::Choices choices;
  line.Add("--device", &choices.device, "cuda, cuda:N or cuda-emulated").ShowDefault();
  line.Add("--only", &choices.only,
           "Section: bandwidth, attention, prefix, prefill, decode, chunk, matmul, handoff, "
           "limits, exactness, runner, engine");
  line.Add("--model", &choices.model,
           "Path of a GGUF file, for the section runner; SHAPE:FORMAT for the section engine");
  line.Add("--numerics", &choices.numerics, "auto, r1, t1-sm80 or t1-sm90").ShowDefault();
  line.AddFlag("--tiny", &choices.tiny, "Small sizes, to rehearse on the emulator");
  line.AddFlag("--describe", &choices.describe, "Only describes the device");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  return baton::Run(choices);
}
