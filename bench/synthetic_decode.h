// The engine with a synthetic model of a real shape (bench/synthetic_model.h), in two steps.
//
// 1. The same requests alone, together, in other chunks and blocks, and without graphs must give
//    the same tokens and the same logits, and every log-probability must be finite. The requests
//    are greedy or sampled with a seed, end around the borders of blocks and chunks, and some begin
//    with the prompt of another one, which is then cached.
// 2. Speed of the engine's own decode loop, and what happens between its steps:
//
//   engine.MODEL.batch_N          tokens/s of N sequences. The limit is the time to read weights,
//                                 keys and values at the read bandwidth
//   engine.MODEL.gap.in_flight_K  µs from the end of a step's graph to the begin of the next on the
//                                 device, for one sequence and K steps in flight. The limit is the
//                                 goal; `p99` and `timer_us`, the least difference of two stamps
//   engine.MODEL.host_busy        share of the time for which the engine's thread has the processor
//   engine.MODEL.equal            answers that are equal, of all
//
// Thread safety: belongs to one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/device_ceilings.h"
#include "bench/figure_list.h"
#include "bench/median_interval.h"
#include "bench/synthetic_model.h"
#include "engine/engine.h"
#include "kernels/create_device.h"

namespace baton {

// What one request gave.
struct SyntheticAnswer {
  std::vector<TokenId> tokens;
  uint64_t logits_hash = 0;
  int32_t cached_tokens = 0;
  bool finite = true;  // all log-probabilities
  absl::Status error;
  bool EqualTo(const SyntheticAnswer& other) const {
    return error.ok() && other.error.ok() && tokens == other.tokens &&
           logits_hash == other.logits_hash;
  }
};

// Waits for an answer. Notes when its tokens came, and the processor time of the engine's thread.
class SyntheticSink final : public RequestSink {
 public:
  struct Moment {
    double wall_s = 0, thread_s = 0;
  };

  void OnTicket(const TransferTicket&) override {}
  void OnTokens(TokenOutput output) override {
    const std::lock_guard lock(mutex_);
    answer_.tokens.insert(answer_.tokens.end(), output.token_ids.begin(), output.token_ids.end());
    for (const TokenDetail& detail : output.logprobs) {
      answer_.finite = answer_.finite && std::isfinite(detail.logprob);
    }
    moments_.push_back({Seconds(CLOCK_MONOTONIC), Seconds(CLOCK_THREAD_CPUTIME_ID)});
  }
  void OnFinish(FinishInfo info) override {
    const std::lock_guard lock(mutex_);
    answer_.logits_hash = info.logits_hash;
    answer_.cached_tokens = info.ledger.cached_tokens;
    ended_ = true;
    changed_.notify_all();
  }
  void OnError(absl::Status status) override {
    const std::lock_guard lock(mutex_);
    answer_.error = std::move(status);
    ended_ = true;
    changed_.notify_all();
  }

  SyntheticAnswer Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    return answer_;
  }
  // REQUIRES: Wait has returned.
  const std::vector<Moment>& moments() const { return moments_; }

 private:
  static double Seconds(clockid_t clock) {
    timespec now = {};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  SyntheticAnswer answer_;
  std::vector<Moment> moments_;
  bool ended_ = false;
};

class SyntheticDecode {
 public:
  // `model`: SHAPE:FORMAT, such as llama-8b:Q4_K.
  static absl::StatusOr<std::unique_ptr<SyntheticDecode>> Create(const std::string& model,
                                                                 const std::string& device,
                                                                 const std::string& numerics,
                                                                 bool tiny) {
    const size_t colon = model.find(':');
    const std::string shape = model.substr(0, colon);
    const std::string format = colon == std::string::npos ? "BF16" : model.substr(colon + 1);
    for (const SyntheticShape& known : kSyntheticShapes) {
      if (shape != known.name) continue;
      for (const WeightFormat candidate :
           {WeightFormat::kBF16, WeightFormat::kQ8_0, WeightFormat::kQ4_0, WeightFormat::kQ4_K}) {
        if (format != WeightFormatName(candidate) ||
            known.shape.hidden % BlockColumns(candidate) != 0 ||
            known.shape.inner % BlockColumns(candidate) != 0 ||
            known.shape.q_size() % BlockColumns(candidate) != 0) {
          continue;
        }
        return std::unique_ptr<SyntheticDecode>(new SyntheticDecode(
            absl::StrCat(shape, ".", format), known.shape, candidate, device, numerics, tiny));
      }
    }
    return absl::InvalidArgumentError(
        absl::StrCat("--model is ", model,
                     "; shapes: smollm2, llama-8b, qwen3-8b, tiny; formats: BF16, Q8_0, "
                     "Q4_0, Q4_K, whose blocks must divide the shape's rows"));
  }
  ~SyntheticDecode() { std::filesystem::remove(path_); }
  SyntheticDecode(const SyntheticDecode&) = delete;
  SyntheticDecode& operator=(const SyntheticDecode&) = delete;

  // Adds and prints the figures. FailedPrecondition: answers differ.
  absl::Status Run(FigureList& figures) {
    RETURN_IF_ERROR(Compare(figures));
    figures.Print("cuda", 16);  // stays if the rest runs out of time
    figures = {};
    return Measure(figures);
  }

 private:
  SyntheticDecode(std::string name, const LlamaShape& shape, WeightFormat format,
                  std::string device, std::string numerics, bool tiny)
      : name_(std::move(name)),
        shape_(shape),
        tiny_(tiny),
        architecture_(shape, format),
        architectures_{&architecture_},
        path_(std::filesystem::temp_directory_path() /
              absl::StrCat("baton-synthetic-", getpid(), ".gguf")) {
    WriteTokenizerFile(path_, name_, shape.vocabulary);
    options_.model = path_;
    options_.device = std::move(device);
    options_.numerics = std::move(numerics);
    options_.architectures = architectures_;
    options_.block_size = 64;
    options_.kv_blocks = tiny ? 40 : 2048;
    options_.context_length = tiny ? 512 : 8192;
    options_.max_running = tiny ? 4 : 32;
    if (tiny) options_.token_budget = options_.max_chunk_tokens = 64;
  }

  GenerateRequest Request(int32_t prompt_tokens, int32_t seed, int32_t max_tokens) const {
    GenerateRequest request;
    request.request_id = absl::StrCat("synthetic-", seed, "-", prompt_tokens);
    for (int32_t i = 0; i < prompt_tokens; ++i) {
      const int64_t number = (i + 1) * int64_t{7919} + seed * int64_t{104729};
      request.prompt.push_back(static_cast<TokenId>(number % shape_.vocabulary));
    }
    request.sampling.max_tokens = max_tokens;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = 0;
    request.sampling.seed = static_cast<uint64_t>(seed);
    return request;
  }

  // Requests that have the same answers in every configuration. Equal seeds have equal beginnings.
  std::vector<GenerateRequest> Requests() const {
    const std::vector<int32_t> lengths = tiny_
                                             ? std::vector<int32_t>{1, 65, 70, 33}
                                             : std::vector<int32_t>{1, 63, 64, 65, 300, 700, 2100};
    std::vector<GenerateRequest> requests;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const bool shares = lengths[i] > 63 && i + 1 < lengths.size();
      GenerateRequest request =
          Request(lengths[i], shares ? 1000 : static_cast<int32_t>(i) + 1, tiny_ ? 3 : 12);
      SamplingParams& sampling = request.sampling;
      if (i % 3 == 1) sampling.temperature = 0.9f, sampling.top_p = 0.95f, sampling.top_k = 50;
      if (i % 3 == 2) sampling.temperature = 0.8f, sampling.repetition_penalty = 1.1f;
      sampling.logprobs = 0;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  static std::vector<SyntheticAnswer> Ask(Engine& engine,
                                          const std::vector<GenerateRequest>& requests,
                                          bool together) {
    std::vector<std::shared_ptr<SyntheticSink>> sinks;
    std::vector<SyntheticAnswer> answers;
    for (const GenerateRequest& request : requests) {
      sinks.push_back(std::make_shared<SyntheticSink>());
      engine.Generate(request, sinks.back());
      if (!together) answers.push_back(sinks.back()->Wait());
    }
    for (size_t i = answers.size(); i < sinks.size(); ++i) answers.push_back(sinks[i]->Wait());
    return answers;
  }

  absl::Status Compare(FigureList& figures) {
    struct Configuration {
      const char* name;
      bool together;
      EngineOptions options;
    };
    EngineOptions alone = options_;
    alone.hash_logits = true;
    EngineOptions chunks = alone;
    chunks.max_chunk_tokens = tiny_ ? 16 : 96;
    chunks.token_budget = tiny_ ? 48 : 256;
    chunks.block_size = 16;
    chunks.kv_blocks *= 4;
    EngineOptions eager = alone;
    eager.graph = false;
    eager.steps_in_flight = 1;
    eager.prefix_cache = false;
    const Configuration configurations[] = {{"alone", false, alone},
                                            {"together, in small chunks", true, chunks},
                                            {"together, without graphs", true, eager}};
    const std::vector<GenerateRequest> requests = Requests();
    std::vector<SyntheticAnswer> wanted;
    int64_t equal = 0, all = 0;
    int32_t cached = 0;
    for (const Configuration& configuration : configurations) {
      ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(configuration.options));
      if (wanted.empty()) std::printf("%s", engine->StartupReport().c_str());
      const std::vector<SyntheticAnswer> answers = Ask(*engine, requests, configuration.together);
      if (wanted.empty()) wanted = answers;
      for (size_t i = 0; i < answers.size(); ++i) {
        const SyntheticAnswer& answer = answers[i];
        const bool good = answer.finite && answer.EqualTo(wanted[i]);
        if (!good) {
          std::printf("%s: %s, request %zu: tokens %s, logits %016lx, %s%s\n", name_.c_str(),
                      configuration.name, i, TextOf(answer.tokens).c_str(), answer.logits_hash,
                      answer.finite ? "" : "not finite ", answer.error.ToString().c_str());
        }
        equal += good ? 1 : 0;
        cached += answer.cached_tokens;
        ++all;
      }
    }
    for (const SyntheticAnswer& answer : wanted) {
      std::printf("%s: tokens %s, logits %016lx\n", name_.c_str(), TextOf(answer.tokens).c_str(),
                  answer.logits_hash);
    }
    Report(figures, "equal", static_cast<double>(equal), "answers", static_cast<double>(all));
    Report(figures, "cached_prompt", cached, "tokens", std::nullopt);
    if (equal != all) return absl::FailedPreconditionError("answers differ, or are not finite");
    if (cached == 0) return absl::FailedPreconditionError("no prompt was cached");
    return absl::OkStatus();
  }

  absl::Status Measure(FigureList& figures) {
    const int32_t tokens = tiny_ ? 6 : 200;
    const int32_t prompt = tiny_ ? 5 : 512;
    for (const int in_flight : {2, 1}) {
      EngineOptions options = options_;
      options.steps_in_flight = in_flight;
      ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(options));
      if (in_flight == 2) RETURN_IF_ERROR(MeasureRead());
      const auto one = std::make_shared<SyntheticSink>();
      engine->Generate(Request(prompt, 1, tokens), one);
      RETURN_IF_ERROR(one->Wait().error);
      RETURN_IF_ERROR(ReportGap(figures, in_flight, tokens - tokens / 4));
      if (in_flight == 1) return absl::OkStatus();
      ReportRate(figures, {one}, prompt);
      const auto& moments = one->moments();
      const auto& first = moments[moments.size() / 4];
      const double busy = (moments.back().thread_s - first.thread_s) /
                          std::max(moments.back().wall_s - first.wall_s, 1e-9);
      Report(figures, "host_busy", busy, "of 1", std::nullopt);
      std::vector<std::shared_ptr<SyntheticSink>> many;
      for (int32_t i = 0; i < options.max_running; ++i) {
        many.push_back(std::make_shared<SyntheticSink>());
        engine->Generate(Request(prompt, 2 + i, tokens), many.back());
      }
      for (const auto& sink : many) RETURN_IF_ERROR(sink->Wait().error);
      ReportRate(figures, many, prompt);
    }
    return absl::OkStatus();
  }

  // The device of an engine is not reachable from outside, so this opens it once more.
  absl::Status MeasureRead() {
    DeviceOptions device{.name = options_.device, .numerics = options_.numerics};
    ASSIGN_OR_RETURN(const std::unique_ptr<Device> opened, CreateDevice(device));
    DeviceBench bench(*opened, 16, tiny_ ? 0 : 0.05);
    read_ = MeasureBandwidths(bench, tiny_ ? 1 << 16 : size_t{1} << 30).read_bytes_s;
    return absl::OkStatus();
  }

  absl::Status ReportGap(FigureList& figures, int in_flight, int64_t steps) {
    std::vector<double> gaps = architecture_.loaded().stamps().GapsUs(steps);
    if (gaps.empty()) return absl::FailedPreconditionError("no decode step ran as a graph");
    const double median = MedianOf(gaps).median;
    nlohmann::json& figure =
        Report(figures, absl::StrCat("gap.in_flight_", in_flight), median, "us", 10);
    std::ranges::sort(gaps);
    figure["p99"] = gaps[gaps.size() * 99 / 100];
    double least = gaps.back();
    for (size_t i = 1; i < gaps.size(); ++i) {
      if (gaps[i] > gaps[i - 1]) least = std::min(least, gaps[i] - gaps[i - 1]);
    }
    figure["timer_us"] = least;
    return absl::OkStatus();
  }

  // Of the time in which all sequences decode, without the first quarter of the tokens.
  void ReportRate(FigureList& figures, const std::vector<std::shared_ptr<SyntheticSink>>& sinks,
                  int32_t prompt) {
    double begin = 0, end = 1e300;
    for (const auto& sink : sinks) {
      begin = std::max(begin, sink->moments()[sink->moments().size() / 4].wall_s);
      end = std::min(end, sink->moments().back().wall_s);
    }
    int64_t tokens = 0;
    for (const auto& sink : sinks) {
      for (const auto& moment : sink->moments()) {
        if (moment.wall_s > begin && moment.wall_s <= end) ++tokens;
      }
    }
    const auto sequences = static_cast<double>(sinks.size());
    const double slot_bytes =
        static_cast<double>(shape_.layers * shape_.kv_heads * shape_.head_dim * 2 * 2);
    const double kv_bytes = sequences * slot_bytes * (prompt + 100);
    const double limit =
        sequences * read_ / (static_cast<double>(architecture_.loaded().bytes()) + kv_bytes);
    Report(figures, absl::StrCat("batch_", sinks.size()),
           static_cast<double>(tokens) / std::max(end - begin, 1e-9), "tokens/s", limit);
  }

  nlohmann::json& Report(FigureList& figures, const std::string& figure, double value,
                         const char* unit, std::optional<double> limit) {
    const std::string name = absl::StrCat("engine.", name_, ".", figure);
    std::printf("%-44s %12.2f %-9s %12.2f %7.3f\n", name.c_str(), value, unit, limit.value_or(0),
                limit.value_or(0) == 0 ? 0 : value / *limit);
    std::fflush(stdout);
    return figures.Add(name, value, unit, limit);
  }
  static std::string TextOf(const std::vector<TokenId>& tokens) {
    std::string text;
    for (const TokenId token : tokens) absl::StrAppend(&text, text.empty() ? "" : ",", token);
    return absl::StrCat("[", text, "]");
  }

  const std::string name_;
  const LlamaShape shape_;
  const bool tiny_;
  const SyntheticLlama architecture_;
  const std::vector<const Architecture*> architectures_;
  const std::string path_;
  EngineOptions options_;
  double read_ = 0;  // bytes/s
};

}  // namespace baton
