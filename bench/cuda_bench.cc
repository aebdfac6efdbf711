// Benchmark of the CUDA backend: first the device's own bandwidths, then kernels and a decode step
// on synthetic weights, each against the bytes that it must read at the measured read bandwidth.
//
//   copy, read           bytes/s of a copy inside the device (read and written bytes), and of a
//                        kernel that only reads
//   to_device, to_host   bytes/s between pinned host memory and the device
//   attention.*          paged decode attention, 32 query heads over 8 of 128, f16. ".1x1024" is
//                        its latency in µs; the others are bytes/s, with blocks of 64, of 16, and
//                        contiguous
//   matmul.*             µs of one product of Llama 8B, for 1 to 128 tokens. Several matrices take
//                        turns, so that no cache holds them
//   decode.*             tokens/s of a whole step of Llama 8B as one graph, 1,024 tokens of context
//   prefill.C            TFLOP/s of causal attention of one sequence of C tokens, same heads
//   chunk.*              TFLOP/s of a whole step of Llama 8B with one chunk of 2,048 tokens
//
// The limits count only weights, keys and values. So for many tokens they are milder than a
// combined roofline. --tiny measures nothing of use: it rehearses the program on the emulator.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "bench/device_bench.h"
#include "bench/read_bytes_params.h"
#include "bench/step_shapes.h"
#include "common/command_line.h"
#include "kernels/cuda/cuda_device.h"

namespace baton {
namespace {

constexpr int64_t kSeed = 16;
constexpr double kMega = 1e6;

struct Sizes {
  LlamaShape shape;
  size_t copied;    // bytes of the copies
  double uncached;  // bytes of matrices that take turns
  int repeats;      // of small work in a graph
  double least_s;   // of each measurement
  std::vector<int64_t> tokens;
  std::vector<std::pair<int64_t, int64_t>> attention;  // sequences, context
  std::vector<int64_t> prefill;                        // contexts
  int64_t chunk;
};

Sizes RealSizes() {
  return {.shape = kLlama8B,
          .copied = size_t{2} << 30,
          .uncached = 300e6,
          .repeats = 20,
          .least_s = 0.1,
          .tokens = {1, 8, 32, 128},
          .attention = {{8, 8192}, {64, 1024}, {1, 65536}, {64, 8192}},
          .prefill = {2048, 8192},
          .chunk = 2048};
}
Sizes TinySizes() {
  return {.shape = kTinyLlama,
          .copied = 1 << 20,
          .uncached = 0,
          .repeats = 1,
          .least_s = 0,
          .tokens = {1, 8},
          .attention = {{2, 96}},
          .prefill = {80},
          .chunk = 70};
}

// The kernels of cuda_bench are in the tests' library, beside the program.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name) {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  CudaDeviceOptions options;
  if (name == "cuda-emulated") {
    options.kernel_library = folder / "libbaton_gpu_emulator.so";
    options.driver_libraries = {options.kernel_library};
  } else {
    options.kernel_library = folder / "libbaton_cuda_test_kernels.so";
    if (name.starts_with("cuda:")) options.index = std::atoi(name.c_str() + 5);
  }
  return CreateCudaDevice(options);
}

class CudaBench {
 public:
  CudaBench(Device& device, Sizes sizes)
      : sizes_(std::move(sizes)), bench_(device, kSeed, sizes_.least_s) {}

  void Bandwidths() {
    const size_t bytes = sizes_.copied;
    const auto from = bench_.Filled(bytes);
    const auto to = bench_.Filled(bytes);
    const double copy =
        bench_.Seconds(2, [&](int) { bench_.stream().Copy(to->data(), from->data(), bytes); });
    bench_.Report("copy", 2.0 * static_cast<double>(bytes) / copy / kMega, "MB/s", 0);
    const ReadBytesParams params = {from->data(), static_cast<int64_t>(bytes / 16),
                                    to->as<uint32_t>()};
    const auto blocks = static_cast<uint32_t>(8 * bench_.launcher().multiprocessors());
    const double read = bench_.Seconds(2, [&](int) {
      bench_.launcher().Launch("baton_read_bytes", {{blocks, 1, 1}, {kReadThreads, 1, 1}, 0},
                               &params, sizeof(params));
    });
    read_ = static_cast<double>(bytes) / read;
    bench_.Report("read", read_ / kMega, "MB/s", 0);
    const size_t staged = std::min(bytes, size_t{256} << 20);
    auto staging = bench_.device().AllocateStaging(staged, "bench");
    CHECK(staging.ok()) << staging.status();
    const double down = bench_.Seconds(
        2, [&](int) { bench_.stream().Copy(to->data(), (*staging)->data(), staged); });
    bench_.Report("to_device", static_cast<double>(staged) / down / kMega, "MB/s", 0);
    const double up = bench_.Seconds(
        2, [&](int) { bench_.stream().Copy((*staging)->data(), to->data(), staged); });
    bench_.Report("to_host", static_cast<double>(staged) / up / kMega, "MB/s", 0);
  }

  void Attention() {
    for (const auto& [sequences, context] : sizes_.attention) {
      for (const auto& [log2, contiguous] :
           {std::pair{6, false}, std::pair{4, false}, std::pair{6, true}}) {
        const BenchAttention batch(bench_, sizes_.shape, sequences, context, 1, log2, contiguous);
        const double seconds = AttentionSeconds(batch);
        bench_.Report("attention." + std::to_string(sequences) + "x" + std::to_string(context) +
                          (contiguous ? ".contiguous" : ".blocks_of_" + std::to_string(1 << log2)),
                      batch.bytes() / seconds / kMega, "MB/s", read_ / kMega);
      }
    }
    const BenchAttention one(bench_, sizes_.shape, 1, 1024, 1, 6, false);
    bench_.Report("attention.1x1024", AttentionSeconds(one) * 1e6, "us", one.bytes() / read_ * 1e6);
    for (const int64_t context : sizes_.prefill) {
      const BenchAttention batch(bench_, sizes_.shape, 1, context, context, 6, false);
      bench_.Report("prefill." + std::to_string(context),
                    batch.flops() / AttentionSeconds(batch, 1) / 1e12, "TFLOP/s", 0);
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
    for (const WeightFormat format :
         {WeightFormat::kQ4_K, WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kBF16}) {
      for (const Product& product : products) {
        MatMul(format, product.name, product.rows, product.cols);
      }
    }
  }

  void Decode() {
    for (const WeightFormat format :
         {WeightFormat::kQ4_K, WeightFormat::kQ8_0, WeightFormat::kBF16}) {
      for (const int64_t sequences : sizes_.tokens) {
        if (sequences > 32) continue;  // the pool of 128 sequences takes too long to fill
        const int64_t context = sizes_.shape.layers > 2 ? 1024 : 64;
        LlamaStep step(bench_, sizes_.shape, format, sequences, context, 1, 6);
        const double seconds = bench_.Seconds(1, [&](int) { step.Enqueue(); });
        const auto tokens = static_cast<double>(sequences);
        bench_.Report("decode." + std::string(WeightFormatName(format)) + ".batch_" +
                          std::to_string(sequences),
                      tokens / seconds, "tokens/s", tokens * read_ / step.bytes());
      }
    }
  }

  void Chunks() {
    for (const WeightFormat format : {WeightFormat::kQ4_K, WeightFormat::kBF16}) {
      LlamaStep step(bench_, sizes_.shape, format, 1, sizes_.chunk, sizes_.chunk, 6);
      const double seconds = bench_.Seconds(1, [&](int) { step.Enqueue(); });
      bench_.Report("chunk." + std::string(WeightFormatName(format)), step.flops() / seconds / 1e12,
                    "TFLOP/s", 0);
    }
  }

  FigureList& figures() { return bench_.figures(); }

 private:
  double AttentionSeconds(const BenchAttention& batch, int repeats = 0) {
    const int64_t row = sizes_.shape.q_size();
    const auto q = bench_.Filled(batch.tokens() * row * 4);
    const auto out = bench_.Filled(batch.tokens() * row * 4);
    return bench_.Seconds(repeats == 0 ? sizes_.repeats : repeats, [&](int) {
      bench_.device().ops().PagedAttention(bench_.stream(),
                                           batch.Attention(q->as<float>(), row, out->as<float>()));
    });
  }

  void MatMul(WeightFormat format, const std::string& name, int64_t rows, int64_t cols) {
    std::vector<std::unique_ptr<BenchMatrix>> matrices;
    double bytes = 0;
    do {
      matrices.push_back(std::make_unique<BenchMatrix>(bench_, format, rows, cols));
      bytes += matrices.back()->bytes();
    } while (bytes < sizes_.uncached);
    for (const int64_t tokens : sizes_.tokens) {
      const BenchActivations x(bench_, tokens, cols);
      const auto out = bench_.Filled(tokens * rows * 4);
      const int count = static_cast<int>(matrices.size());
      const double seconds = bench_.Seconds(std::max(count, 4), [&](int i) {
        bench_.device().ops().MatMul(bench_.stream(), {.x = x.view(),
                                                       .weight = matrices[i % count]->view(),
                                                       .out = out->as<float>(),
                                                       .out_stride = rows,
                                                       .tokens = tokens,
                                                       .accumulate = false});
      });
      bench_.Report("matmul." + std::string(WeightFormatName(format)) + "." + name + ".tokens_" +
                        std::to_string(tokens),
                    seconds * 1e6, "us", matrices[0]->bytes() / read_ * 1e6);
    }
  }

  const Sizes sizes_;
  DeviceBench bench_;
  double read_ = 0;  // bytes/s
};

int Run(const std::string& name, bool tiny) {
  const absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(name);
  if (!device.ok()) {
    std::cerr << device.status().message() << "\n";
    return 1;
  }
  std::printf("%s\n%-44s %12s %-9s %12s %7s\n", (*device)->Description().c_str(), "figure", "value",
              "unit", "limit", "ratio");
  CudaBench bench(**device, tiny ? TinySizes() : RealSizes());
  if (tiny) bench.figures().AddCondition("tiny sizes: the figures mean nothing");
  bench.Bandwidths();
  bench.Attention();
  bench.Decode();
  bench.Chunks();
  bench.Products();
  bench.figures().Print("cuda", kSeed);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line("Measures the CUDA backend on synthetic weights.");
  std::string device = "cuda";
  bool tiny = false;
  line.Add("--device", &device, "cuda, cuda:N or cuda-emulated").ShowDefault();
  line.AddFlag("--tiny", &tiny, "Small sizes, to rehearse on the emulator");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  return baton::Run(device, tiny);
}
