// What exactness costs: the products of a layer of Llama 8B in t1, with one accumulator and without
// split-K, against the fastest of the algorithms that cuBLASLt proposes for the same product, with
// split-K allowed. Both take turns in the same process. For the section `exactness` of cuda_bench.
//
//   exactness.NAME.tokens_T    our time over the library's; the limit is 1.05. `ours_us`,
//                              `library_us`, and how many algorithms were tried
//   exactness.layer.tokens_T   the same for the sums of the times of a layer's four products
//   attention.Sx1024.*         bytes/s of paged decode attention of these batches
//
// Ours reads activations in f32 and writes f32, as the engine's. The library reads and writes bf16,
// which is its fastest form. bench/exactness_cost.py adds the attention, with the peers' times.
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/bench_sizes.h"
#include "bench/cublas_lt.h"
#include "bench/device_bench.h"
#include "bench/median_interval.h"
#include "bench/random_weights.h"
#include "bench/step_shapes.h"
#include "kernels/cuda/cuda_stream.h"

namespace baton {

// Products y [tokens, rows] = x [tokens, cols] · wᵀ of one shape by cuBLASLt, in bf16.
class LibraryProduct {
 public:
  LibraryProduct(const CublasLt& library, CublasLtHandle handle, int64_t rows, int64_t cols,
                 int64_t tokens)
      : library_(library), handle_(handle) {
    const size_t workspace = kWorkspaceBytes;
    // The library's matrices have the columns next to each other: yᵀ = w · xᵀ.
    ok_ = library.ProductCreate(&product_, kCublasComputeF32, kCublasF32) == kCublasSuccess &&
          library.ProductSetAttribute(product_, kCublasLtTransposeA, &kCublasTransposed,
                                      sizeof(kCublasTransposed)) == kCublasSuccess &&
          library.LayoutCreate(&w_, kCublasBF16, cols, rows, cols) == kCublasSuccess &&
          library.LayoutCreate(&x_, kCublasBF16, cols, tokens, cols) == kCublasSuccess &&
          library.LayoutCreate(&y_, kCublasBF16, rows, tokens, rows) == kCublasSuccess &&
          library.PreferenceCreate(&preference_) == kCublasSuccess &&
          library.PreferenceSetAttribute(preference_, kCublasLtMostWorkspaceBytes, &workspace,
                                         sizeof(workspace)) == kCublasSuccess;
  }
  ~LibraryProduct() {
    if (product_ != nullptr) library_.ProductDestroy(product_);
    for (const CublasLtLayout layout : {w_, x_, y_}) {
      if (layout != nullptr) library_.LayoutDestroy(layout);
    }
    if (preference_ != nullptr) library_.PreferenceDestroy(preference_);
  }
  LibraryProduct(const LibraryProduct&) = delete;
  LibraryProduct& operator=(const LibraryProduct&) = delete;

  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;

  // Algorithms that the library proposes, its favourite first.
  std::vector<CublasLtAlgorithm> Algorithms() const {
    CublasLtHeuristic results[kMostAlgorithms] = {};
    int found = 0;
    std::vector<CublasLtAlgorithm> algorithms;
    if (!ok_ || library_.GetHeuristic(handle_, product_, w_, x_, y_, y_, preference_,
                                      kMostAlgorithms, results, &found) != kCublasSuccess) {
      return algorithms;
    }
    for (int i = 0; i < found; ++i) {
      if (results[i].state == kCublasSuccess) algorithms.push_back(results[i].algorithm);
    }
    return algorithms;
  }
  bool Enqueue(CuStream stream, const CublasLtAlgorithm& algorithm, const std::byte* w,
               const std::byte* x, std::byte* y, std::byte* workspace) const {
    const float one = 1, zero = 0;
    return library_.Multiply(handle_, product_, &one, w, w_, x, x_, &zero, y, y_, y, y_, &algorithm,
                             workspace, kWorkspaceBytes, stream) == kCublasSuccess;
  }

 private:
  static constexpr int kMostAlgorithms = 16;

  const CublasLt& library_;
  const CublasLtHandle handle_;
  CublasLtProduct product_ = nullptr;
  CublasLtLayout w_ = nullptr, x_ = nullptr, y_ = nullptr;
  CublasLtPreference preference_ = nullptr;
  bool ok_ = false;
};

class ExactnessCost {
 public:
  // `uncached`: bytes of matrices that take turns.
  ExactnessCost(DeviceBench& bench, const BenchSizes& sizes) : bench_(bench), sizes_(sizes) {}

  void Report() {
    for (const int64_t sequences : sizes_.decoded) ReportAttention(sequences);
    const absl::Status opened = Open();
    for (const int64_t tokens : sizes_.tokens) ReportLayer(tokens, opened);
    if (handle_ != nullptr) library_.Destroy(handle_);
  }

 private:
  struct Product {
    const char* name;
    int64_t rows, cols;
  };
  struct Times {
    double ours_s = 0, library_s = 0, ratio = 0;
    int algorithms = 0;  // that ran
  };

  absl::Status Open() {
    if (!IsT1(bench_.device().numerics())) {
      return absl::UnavailableError("the products of r1 have no peer");
    }
    ASSIGN_OR_RETURN(library_, LoadCublasLt());
    if (library_.Create(&handle_) != kCublasSuccess) {
      handle_ = nullptr;
      return absl::UnavailableError("cublasLtCreate failed");
    }
    return absl::OkStatus();
  }

  void ReportAttention(int64_t sequences) {
    const int64_t context = sizes_.shape.layers > 2 ? 1024 : 64;
    const BenchAttention batch(bench_, sizes_.shape, {.sequences = sequences, .context = context});
    const int64_t bytes = batch.tokens() * sizes_.shape.q_size() * 4;
    const auto q = bench_.Filled(bytes), out = bench_.Filled(bytes);
    const WorkTime time = bench_.InGraph(sizes_.repeats, [&](int) {
      bench_.device().ops().PagedAttention(
          bench_.stream(),
          batch.Attention(q->as<float>(), sizes_.shape.q_size(), out->as<float>()));
    });
    bench_.ReportRate(absl::StrCat("attention.", sequences, "x", context, ".blocks_of_64"),
                      batch.bytes() / 1e6, time, "MB/s", 0);
  }

  void ReportLayer(int64_t tokens, const absl::Status& opened) {
    const LlamaShape& s = sizes_.shape;
    const Product products[] = {{"qkv", s.qkv_size(), s.hidden},
                                {"out", s.hidden, s.q_size()},
                                {"gate_up", 2 * s.inner, s.hidden},
                                {"down", s.hidden, s.inner}};
    double ours_s = 0, library_s = 0;
    bool complete = true;
    for (const Product& product : products) {
      const std::string name = absl::StrCat("exactness.", product.name, ".tokens_", tokens);
      if (!opened.ok()) {
        bench_.figures().AddAbsent(name, "times", std::string(opened.message()));
        continue;
      }
      const Times times = Compare(product, tokens);
      if (times.algorithms == 0) {
        bench_.figures().AddAbsent(name, "times", "cuBLASLt has no algorithm that runs");
        complete = false;
        continue;
      }
      ours_s += times.ours_s;
      library_s += times.library_s;
      nlohmann::json& figure = bench_.Report(name, times.ratio, "times", kMostCost);
      figure["ours_us"] = times.ours_s * 1e6;
      figure["library_us"] = times.library_s * 1e6;
      figure["algorithms"] = times.algorithms;
    }
    if (!opened.ok() || !complete) return;
    nlohmann::json& figure = bench_.Report(absl::StrCat("exactness.layer.tokens_", tokens),
                                           ours_s / library_s, "times", kMostCost);
    figure["ours_us"] = ours_s * 1e6;
    figure["library_us"] = library_s * 1e6;
  }

  // The same weights' bytes in two layouts: as many matrices as exceed the caches.
  Times Compare(const Product& product, int64_t tokens) {
    std::vector<std::unique_ptr<BenchMatrix>> ours;
    std::vector<std::unique_ptr<DeviceBuffer>> theirs;
    const std::span<const std::byte> pattern = bench_.Pattern(
        absl::StrCat("rows of bf16 ", product.cols),
        [&] { return RandomWeights(WeightFormat::kBF16, 64, product.cols, bench_.random()); });
    double bytes = 0;
    do {
      ours.push_back(
          std::make_unique<BenchMatrix>(bench_, WeightFormat::kBF16, product.rows, product.cols));
      theirs.push_back(bench_.Repeating(pattern, product.rows * product.cols * 2));
      bytes += ours.back()->bytes();
    } while (bytes < sizes_.uncached);
    const BenchActivations activations(bench_, tokens, product.cols);
    const auto out = bench_.Filled(tokens * product.rows * 4);
    const auto x = bench_.Repeating(pattern, tokens * product.cols * 2);
    const auto y = bench_.Zeros(tokens * product.rows * 2);
    const auto workspace = bench_.Zeros(LibraryProduct::kWorkspaceBytes);
    const int repeats = std::max(static_cast<int>(ours.size()), 4);
    const LibraryProduct library(library_, handle_, product.rows, product.cols, tokens);
    auto& stream = static_cast<CudaStream&>(bench_.stream());

    const auto ours_s = [&] {
      return bench_
          .InGraph(repeats,
                   [&](int i) {
                     bench_.device().ops().MatMul(stream,
                                                  {.x = activations.FormOf(WeightFormat::kBF16),
                                                   .weight = ours[i % ours.size()]->view(),
                                                   .out = out->as<float>(),
                                                   .out_stride = product.rows,
                                                   .tokens = tokens,
                                                   .accumulate = false});
                   })
          .median_s;
    };
    const auto library_s = [&](const CublasLtAlgorithm& algorithm) {
      return bench_
          .InGraph(repeats,
                   [&](int i) {
                     stream.CallLibrary([&, i](CuStream on) {
                       library.Enqueue(on, algorithm, theirs[i % theirs.size()]->data(), x->data(),
                                       y->data(), workspace->data());
                     });
                   })
          .median_s;
    };
    // An algorithm that fails inside a capture would end the device. So each runs once before.
    const auto runs = [&](const CublasLtAlgorithm& algorithm) {
      bool good = false;
      stream.CallLibrary([&](CuStream on) {
        good = library.Enqueue(on, algorithm, theirs[0]->data(), x->data(), y->data(),
                               workspace->data());
      });
      stream.Synchronize();
      return good;
    };
    Times times;
    const CublasLtAlgorithm* best = nullptr;
    const std::vector<CublasLtAlgorithm> algorithms = library.Algorithms();
    for (const CublasLtAlgorithm& algorithm : algorithms) {
      if (!runs(algorithm)) continue;
      ++times.algorithms;
      const double seconds = library_s(algorithm);
      if (best == nullptr || seconds < times.library_s) {
        best = &algorithm;
        times.library_s = seconds;
      }
    }
    if (best == nullptr) return times;
    std::vector<double> of_ours, of_library, ratios;
    for (int round = 0; round < kRounds; ++round) {
      of_ours.push_back(ours_s());
      of_library.push_back(library_s(*best));
      ratios.push_back(of_ours.back() / of_library.back());
    }
    times.ours_s = MedianOf(of_ours).median;
    times.library_s = MedianOf(of_library).median;
    times.ratio = MedianOf(ratios).median;
    return times;
  }

  static constexpr double kMostCost = 1.05;
  static constexpr int kRounds = 3;

  DeviceBench& bench_;
  const BenchSizes& sizes_;
  CublasLt library_;
  CublasLtHandle handle_ = nullptr;
};

}  // namespace baton
