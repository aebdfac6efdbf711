// What prompts in chunks cost in quality: the same questions with full attention, in every mode of
// chunks with every repair, and two controls (without documents, with the right ones only).
//
// Thread safety: belongs to one thread.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/chunk_score_file.h"
#include "bench/chunk_scores.h"
#include "bench/figure_list.h"
#include "bench/paired_differences.h"
#include "common/prompt_chunks.h"
#include "common/status_macros.h"

namespace baton {

class ChunkQuality {
 public:
  // The engine has the tap. With `file`, questions that it has are not asked again, and new scores
  // are added to it. All must outlive this.
  ChunkQuality(Engine* engine, LogitTap* tap, ChunkScoreFile* file, uint64_t seed)
      : engine_(engine),
        file_(file),
        scorer_(engine, tap),
        encoder_(&engine->tokenizer(), engine->model_info().chat_template),
        seed_(seed) {}

  // Scores all questions and adds the figures, whose names begin with `set`. InvalidArgument: a
  // question that this model cannot be asked, and a file that cannot be written.
  absl::Status Run(const std::string& set, const std::vector<ChunkQuestion>& questions,
                   FigureList& figures) {
    std::vector<Series> all;
    std::vector<std::string> names;
    for (const Mode& mode : AllModes()) {
      all.push_back({.mode = mode});
      names.push_back(mode.name);
    }
    Progress progress(set, questions.size());
    double choices = 0;
    for (const ChunkQuestion& question : questions) {
      choices += static_cast<double>(1 + question.distractors.size());
      if (file_ != nullptr) {
        if (const auto* const known = file_->Find(set, question, names); known != nullptr) {
          AddScores(*known, all);
          progress.Skip();
          continue;
        }
      }
      const absl::StatusOr<ChunkScoreFile::Scores> scores = ScoresOf(question);
      if (!scores.ok()) {
        return absl::Status(scores.status().code(),
                            absl::StrCat("question ", progress.done() + 1, " (", question.id,
                                         "): ", std::string(scores.status().message())));
      }
      AddScores(*scores, all);
      if (file_ != nullptr) RETURN_IF_ERROR(file_->Add(set, question, *scores));
      RETURN_IF_ERROR(engine_->ClearCache(std::nullopt).status());
      progress.Ask();
    }
    progress.End(figures);
    const double chance = static_cast<double>(questions.size()) / choices;
    Report(set, chance, all, figures);
    return absl::OkStatus();
  }

 private:
  enum class Kind : uint8_t { kFull, kChunks, kNoChunks, kRightChunks };
  struct Mode {
    std::string name;
    Kind kind = Kind::kChunks;
    ChunkOptions options = {};
  };
  // Parallel vectors: one entry for each question.
  struct Series {
    Mode mode;
    std::string refused = {};  // not empty: the mode has no figures
    std::vector<double> right = {};
    std::vector<double> greedy = {};
    std::vector<double> nll = {};
    std::vector<double> divergence = {};
  };

  static std::vector<Mode> AllModes() {
    using Repair = ChunkRepair::Kind;
    std::vector<Mode> modes = {{.name = "full", .kind = Kind::kFull}};
    const std::pair<const char*, ChunkOptions> places[] = {
        {"overlap", {}},
        {"sequential", {.positions = ChunkPositions::kSequential}},
        {"alone", {.scope = ChunkScope::kAlone}}};
    const std::pair<const char*, ChunkRepair> repairs[] = {
        {"none", {}},
        {"first4", {.kind = Repair::kFirst, .first_tokens = 4}},
        {"first16", {.kind = Repair::kFirst, .first_tokens = 16}},
        {"first64", {.kind = Repair::kFirst, .first_tokens = 64}},
        {"share15", {.kind = Repair::kShare, .share_millionths = 150'000}}};
    for (const auto& [name, place] : places) {
      for (const auto& [repair_name, repair] : repairs) {
        ChunkOptions options = place;
        options.repair = repair;
        modes.push_back({.name = absl::StrCat(name, "_", repair_name), .options = options});
      }
    }
    modes.push_back(
        {.name = "alone_sequential_none",
         .options = {.positions = ChunkPositions::kSequential, .scope = ChunkScope::kAlone}});
    modes.push_back({.name = "no_chunks", .kind = Kind::kNoChunks});
    modes.push_back({.name = "right_chunks_only", .kind = Kind::kRightChunks});
    return modes;
  }

  // Prints how far a run is.
  class Progress {
   public:
    Progress(std::string set, size_t questions) : set_(std::move(set)), questions_(questions) {}
    size_t done() const { return skipped_ + asked_; }
    void Skip() { ++skipped_; }
    void Ask() {
      ++asked_;
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
      std::fprintf(
          stderr, "\r%s: %zu of %zu questions, %.0f s, about %.0f s left ", set_.c_str(), done(),
          questions_, passed.count(),
          passed.count() / static_cast<double>(asked_) * static_cast<double>(questions_ - done()));
    }
    void End(FigureList& figures) const {
      std::fprintf(stderr, "\n");
      if (skipped_ == 0) return;
      figures.AddCondition(
          absl::StrCat(set_, ": the scores of ", skipped_, " of ", questions_,
                       " questions come from earlier runs (--scores), perhaps of another build."));
    }

   private:
    const std::string set_;
    const size_t questions_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    size_t skipped_ = 0;
    size_t asked_ = 0;
  };

  // Asks the question in every mode.
  absl::StatusOr<ChunkScoreFile::Scores> ScoresOf(const ChunkQuestion& question) {
    ASSIGN_OR_RETURN(const EncodedQuestion encoded,
                     EncodeQuestion(question, encoder_, engine_->tokenizer()));
    ChunkScoreFile::Scores scores;
    std::optional<QuestionScore> full;
    for (const Mode& mode : AllModes()) {
      ChunkedPrompt prompt = encoded.parts;
      prompt.options = mode.options;
      if (mode.kind == Kind::kNoChunks || mode.kind == Kind::kRightChunks) prompt.chunks.clear();
      if (mode.kind == Kind::kRightChunks) {
        for (const int32_t i : encoded.right_chunks) {
          prompt.chunks.push_back(encoded.parts.chunks[static_cast<size_t>(i)]);
        }
      }
      absl::StatusOr<QuestionScore> score = scorer_.Score(
          prompt, mode.kind == Kind::kChunks, encoded, full ? &full->answer_rows : nullptr);
      if (absl::IsFailedPrecondition(score.status())) {
        scores[mode.name].refused = std::string(score.status().message());
        continue;
      }
      RETURN_IF_ERROR(score.status());
      scores[mode.name] = score->summary;
      if (mode.kind == Kind::kFull) full = *std::move(score);
    }
    return scores;
  }

  static void AddScores(const ChunkScoreFile::Scores& scores, std::vector<Series>& all) {
    for (Series& series : all) {
      const ModeScore& score = scores.at(series.mode.name);
      if (!score.refused.empty()) {
        series.refused = score.refused;
        continue;
      }
      series.right.push_back(score.right ? 1 : 0);
      series.greedy.push_back(score.greedy ? 1 : 0);
      series.nll.push_back(score.nll);
      series.divergence.push_back(score.divergence);
    }
  }

  void Report(const std::string& set, double chance, const std::vector<Series>& all,
              FigureList& figures) const {
    const Series& full = all.front();
    std::printf("\n%s: %zu questions, chance %.3f. Differences are those from full attention.\n",
                set.c_str(), full.right.size(), chance);
    std::printf("%-24s %8s %24s %8s %8s %24s %20s\n", "mode", "accuracy", "difference [95 %]",
                "greedy", "NLL", "difference [95 %]", "KL [95 %]");
    for (const Series& series : all) {
      const std::string name = absl::StrCat(set, "_", series.mode.name);
      if (!series.refused.empty()) {
        figures.AddAbsent(absl::StrCat(name, "_accuracy"), "share", series.refused);
        continue;
      }
      const MeanInterval right = DifferenceOf(series.right, full.right, seed_);
      const MeanInterval nll = DifferenceOf(series.nll, full.nll, seed_);
      const MeanInterval divergence = MeanIntervalOf(series.divergence, seed_);
      const double accuracy = MeanOf(series.right);
      const double greedy = MeanOf(series.greedy);
      std::printf(
          "%-24s %8.3f %+8.3f [%+.3f, %+.3f] %8.3f %8.3f %+8.3f [%+.3f, %+.3f] %6.3f [%.3f, "
          "%.3f]\n",
          series.mode.name.c_str(), accuracy, right.mean, right.low, right.high, greedy,
          MeanOf(series.nll), nll.mean, nll.low, nll.high, divergence.mean, divergence.low,
          divergence.high);
      // Full attention must reach twice chance, or the questions are too hard for the model.
      const bool is_full = series.mode.kind == Kind::kFull;
      AddDifference(figures.Add(absl::StrCat(name, "_accuracy"), accuracy, "share",
                                is_full ? std::optional(2 * chance) : std::nullopt),
                    right);
      figures.Add(absl::StrCat(name, "_greedy_match"), greedy, "share");
      AddDifference(figures.Add(absl::StrCat(name, "_nll"), MeanOf(series.nll), "nats"), nll);
      AddDifference(figures.Add(absl::StrCat(name, "_kl"), divergence.mean, "nats"), divergence);
    }
    if (MeanOf(full.right) < 2 * chance) {
      figures.AddCondition(absl::StrCat(set, ": full attention is below twice chance (", 2 * chance,
                                        "), so this set cannot show the cost of chunks."));
    }
    std::fflush(stdout);
  }

  static void AddDifference(nlohmann::json& figure, const MeanInterval& difference) {
    figure["difference"] = difference.mean;
    figure["low"] = difference.low;
    figure["high"] = difference.high;
  }

  Engine* const engine_;
  ChunkScoreFile* const file_;  // may be null
  QuestionScorer scorer_;
  const PromptEncoder encoder_;
  const uint64_t seed_;
};

}  // namespace baton
