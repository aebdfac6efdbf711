// Speed of prompts in chunks: time to the first token, and speed of the answer. Each is compared
// with that of an ordinary prompt of the same tokens.
//
// A round makes one request of every variant, in an order that changes from round to round. A
// figure is the median of the rounds' ratios, so a change of the machine's speed between rounds
// does not count. `processor_ratio` is the same ratio of the processor time of all threads.
//
// Thread safety: belongs to one thread.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/chunk_prompts.h"
#include "bench/figure_list.h"
#include "bench/goal_figures.h"
#include "bench/timed_requests.h"
#include "common/status_macros.h"
#include "engine/engine.h"

namespace baton {

class ChunkSpeed {
 public:
  // Variants of a request with the tokens of one prompt.
  enum Variant : int {
    kFull,       // ordinary prompt, nothing cached
    kCold,       // chunked, nothing cached
    kPrefixHit,  // ordinary, everything before the question cached
    kOverlap,    // chunked, all chunks cached; so are the following ones
    kSequential,
    kAlone,
    kFirst16,  // overlap, first:16
    kShare15,  // overlap, share:0.15
    kVariants,
  };

  // `answer_tokens`: length of the answers whose speed is measured.
  ChunkSpeed(Engine* engine, ChunkPrompts* prompts, int32_t answer_tokens)
      : engine_(engine), prompts_(prompts), answer_tokens_(answer_tokens) {}

  // Computes everything that later requests find in the cache, then measures. The error is that of
  // a request, except for a repair that the engine refuses: its figures are then absent.
  absl::Status Measure(int rounds) {
    RETURN_IF_ERROR(Run(kPrefixHit).status());
    for (int variant = kOverlap; variant < kVariants; ++variant) {
      if (const auto warm = Run(static_cast<Variant>(variant)); !warm.ok()) {
        if (!absl::IsFailedPrecondition(warm.status())) return warm.status();
        refused_[variant] = warm.status();
      }
    }
    for (int round = 0; round < rounds; ++round) {
      std::fprintf(stderr, "\rround %d of %d ", round + 1, rounds);
      for (int i = 0; i < kVariants; ++i) {
        const int at = (i + round / 2) % kVariants;
        const auto variant = static_cast<Variant>(round % 2 == 0 ? at : kVariants - 1 - at);
        if (!refused_[variant].ok()) continue;
        ASSIGN_OR_RETURN(TimedAnswer answer, Run(variant));
        RETURN_IF_ERROR(Check(variant, answer));
        answers_[variant].push_back(std::move(answer));
      }
    }
    std::fprintf(stderr, "\n");
    return absl::OkStatus();
  }

  void Report(FigureList& figures) const {
    PrintTimes();
    AddTtft(figures, "ttft_full_over_cached", kFull, kOverlap, AtLeast(40));
    AddTtft(figures, "ttft_full_over_cached_sequential", kFull, kSequential);
    AddTtft(figures, "ttft_full_over_cached_first16", kFull, kFirst16, AtLeast(15));
    AddTtft(figures, "ttft_full_over_cached_share15", kFull, kShare15, AtLeast(3));
    AddTtft(figures, "cold_over_full", kCold, kFull, AtMost(0.6));
    AddTtft(figures, "ttft_over_prefix_hit", kOverlap, kPrefixHit, AtMost(1.1));
    AddTtft(figures, "ttft_over_prefix_hit_sequential", kSequential, kPrefixHit, AtMost(1.25));
    AddTtft(figures, "ttft_over_prefix_hit_alone", kAlone, kPrefixHit);
    AddDecode(figures, "decode_over_ordinary", kOverlap, AtLeast(0.95));
    AddDecode(figures, "decode_over_ordinary_sequential", kSequential, AtLeast(0.90));
    AddDecode(figures, "decode_over_ordinary_alone", kAlone, std::nullopt);
    AddReuse(figures);
    for (int i = 0; i < kVariants; ++i) {
      if (answers_[i].empty()) continue;
      AddMedian(figures, absl::StrCat("ttft_s_", kNames[i].figure), Ttfts(static_cast<Variant>(i)),
                "s");
    }
  }

  const std::vector<TimedAnswer>& answers(Variant variant) const { return answers_[variant]; }

 private:
  struct Names {
    const char* text;
    const char* figure;
  };
  static constexpr std::array<Names, kVariants> kNames = {
      Names{"ordinary, nothing cached", "full"},
      {"chunks, nothing cached", "cold"},
      {"ordinary, prefix cached", "prefix_hit"},
      {"chunks cached, overlap", "cached"},
      {"chunks cached, sequential", "cached_sequential"},
      {"chunks cached, alone", "cached_alone"},
      {"chunks cached, repair first:16", "cached_first16"},
      {"chunks cached, repair share:0.15", "cached_share15"}};

  static ChunkOptions OptionsOf(Variant variant) {
    ChunkOptions options;
    if (variant == kSequential) options.positions = ChunkPositions::kSequential;
    if (variant == kAlone) options.scope = ChunkScope::kAlone;
    if (variant == kFirst16) {
      options.repair = {.kind = ChunkRepair::Kind::kFirst, .first_tokens = 16};
    }
    if (variant == kShare15) {
      options.repair = {.kind = ChunkRepair::Kind::kShare, .share_millionths = 150'000};
    }
    return options;
  }

  absl::StatusOr<TimedAnswer> Run(Variant variant) {
    if (variant == kFull || variant == kCold) {
      // A namespace of its own finds nothing in the cache.
      const CacheNamespace own(++last_namespace_);
      auto answer =
          variant == kFull
              ? AskTimed(*engine_, GreedyRequest(prompts_->Ordinary(), 1, own))
              : AskTimed(*engine_, GreedyRequest(prompts_->Chunked(OptionsOf(variant)), 1, own));
      RETURN_IF_ERROR(engine_->ClearCache(own).status());
      return answer;
    }
    const int32_t tokens = 1 + answer_tokens_;
    if (variant == kPrefixHit) {
      return AskTimed(*engine_, GreedyRequest(prompts_->Ordinary(), tokens, kWarm));
    }
    return AskTimed(*engine_, GreedyRequest(prompts_->Chunked(OptionsOf(variant)), tokens, kWarm));
  }

  // A figure must not compare a request that missed the cache.
  absl::Status Check(Variant variant, const TimedAnswer& answer) const {
    const ChunkShape& shape = prompts_->shape();
    const int32_t prompt = shape.prefix_tokens() + shape.question_tokens;
    const int32_t repaired = answer.ledger.chunk.repaired_tokens;
    const bool misses = variant == kFull || variant == kCold;
    const int32_t expected = misses ? prompt : shape.question_tokens + repaired;
    if (answer.ledger.computed_tokens == expected) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(kNames[variant].text, ": computed ",
                                            answer.ledger.computed_tokens, " tokens instead of ",
                                            expected));
  }

  using Quantity = std::function<double(const TimedAnswer&)>;
  std::vector<double> Values(Variant variant, const Quantity& quantity) const {
    std::vector<double> values;
    for (const TimedAnswer& answer : answers_[variant]) values.push_back(quantity(answer));
    return values;
  }
  std::vector<double> Ttfts(Variant variant) const {
    return Values(variant, [](const TimedAnswer& answer) { return answer.first_token_s; });
  }

  void PrintTimes() const {
    std::printf("\n%-34s %12s %12s %14s %10s\n", "request", "TTFT ms", "CPU ms", "then tokens/s",
                "computed");
    for (int i = 0; i < kVariants; ++i) {
      const auto variant = static_cast<Variant>(i);
      if (answers_[i].empty()) {
        std::printf("%-34s %s\n", kNames[i].text, std::string(refused_[i].message()).c_str());
        continue;
      }
      const double cpu = MedianOf(Values(variant, [](const TimedAnswer& answer) {
                           return answer.first_token_cpu_s;
                         })).median;
      std::printf("%-34s %12.2f %12.2f ", kNames[i].text, 1e3 * MedianOf(Ttfts(variant)).median,
                  1e3 * cpu);
      if (answers_[i][0].tokens.size() > 1) {
        std::printf("%14.1f", MedianOf(Decodes(variant)).median);
      } else {
        std::printf("%14s", "");
      }
      std::printf(" %10d\n", answers_[i][0].ledger.computed_tokens);
    }
    std::printf("\n%-40s %12s  %s\n", "figure", "median", "[interval]");
  }

  std::vector<double> Decodes(Variant variant) const {
    return Values(variant, [](const TimedAnswer& answer) { return answer.decode_tokens_per_s(); });
  }

  bool AddIfRefused(FigureList& figures, const std::string& name, Variant variant) const {
    if (refused_[variant].ok()) return false;
    figures.AddAbsent(name, "ratio", std::string(refused_[variant].message()));
    return true;
  }

  void AddTtft(FigureList& figures, const std::string& name, Variant above, Variant below,
               std::optional<Goal> goal = std::nullopt) const {
    if (AddIfRefused(figures, name, above) || AddIfRefused(figures, name, below)) return;
    const Quantity cpu = [](const TimedAnswer& answer) { return answer.first_token_cpu_s; };
    const double processor = MedianOf(Quotients(Values(above, cpu), Values(below, cpu))).median;
    AddMedian(figures, name, Quotients(Ttfts(above), Ttfts(below)), "ratio",
              goal)["processor_ratio"] = processor;
  }

  void AddDecode(FigureList& figures, const std::string& name, Variant variant,
                 std::optional<Goal> goal) const {
    const Quantity cpu = [](const TimedAnswer& answer) {
      return 1 / (answer.end_cpu_s - answer.first_token_cpu_s);
    };
    const double processor =
        MedianOf(Quotients(Values(variant, cpu), Values(kPrefixHit, cpu))).median;
    AddMedian(figures, name, Quotients(Decodes(variant), Decodes(kPrefixHit)), "ratio",
              goal)["processor_ratio"] = processor;
  }

  // Time to compute the chunks ÷ time to find and place them. With sequential positions, the
  // rotation of the question's queries for each chunk counts too: the time by which the first token
  // comes later than with overlapping positions.
  void AddReuse(FigureList& figures) const {
    const auto compute = Values(kCold, [](const TimedAnswer& answer) {
      return static_cast<double>(answer.ledger.chunk.compute_us);
    });
    const Quantity reuse = [](const TimedAnswer& answer) {
      const ChunkLedger& ledger = answer.ledger.chunk;
      return static_cast<double>(ledger.lookup_us + ledger.place_us);
    };
    const std::vector<double> overlap = Values(kOverlap, reuse);
    std::vector<double> sequential = Values(kSequential, reuse);
    const std::vector<double> first = Ttfts(kOverlap);
    const std::vector<double> first_sequential = Ttfts(kSequential);
    for (size_t i = 0; i < sequential.size(); ++i) {
      sequential[i] += std::max(0.0, 1e6 * (first_sequential[i] - first[i]));
    }
    AddMedian(figures, "reuse_over_compute", Quotients(compute, overlap), "ratio", AtLeast(1000));
    AddMedian(figures, "reuse_over_compute_sequential", Quotients(compute, sequential), "ratio",
              AtLeast(100));
    AddMedian(figures, "compute_us", compute, "us");
    AddMedian(figures, "reuse_us", overlap, "us");
    AddMedian(figures, "reuse_us_sequential", sequential, "us");
  }

  static constexpr CacheNamespace kWarm{1};

  Engine* const engine_;
  ChunkPrompts* const prompts_;
  const int32_t answer_tokens_;
  uint64_t last_namespace_ = 1000;
  std::array<std::vector<TimedAnswer>, kVariants> answers_;
  std::array<absl::Status, kVariants> refused_;
};

}  // namespace baton
