// A file of scored questions, so that a run of hours may be stopped and go on later. One JSON
// object on each line:
//
//   {"computed_by": "…", "set": "one_fact_8x64", "question": {…}, "modes": {"full":
//    {"right": true, "greedy": false, "nll": 2.5, "kl": 0}, "alone_first4": {"refused": "…"}}}
//
// `question` is the line of bench/chunk_questions.h. `computed_by` names what a score depends on:
// the model, the numerics and the KV type. So one file may hold the scores of many runs.
//
// Thread safety: belongs to one thread, and a file to one process.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/chunk_questions.h"
#include "common/str_cat.h"

namespace baton {

// The score of one question in one mode.
struct ModeScore {
  std::string refused = {};  // the request's error, if it has no score; else empty
  bool right = false;        // the answer is more probable than every other choice
  bool greedy = false;       // the greedy tokens are the answer's
  double nll = 0;            // of the answer, mean of its tokens, nats
  double divergence = 0;     // from full attention, mean of the answer's tokens, nats

  bool operator==(const ModeScore&) const = default;
};

class ChunkScoreFile {
 public:
  // Scores by name of the mode.
  using Scores = std::map<std::string, ModeScore>;

  // Reads the file, if there is one. A last line without its end is that of a stopped run, and is
  // cut off. InvalidArgument names the file and the line.
  static absl::StatusOr<ChunkScoreFile> Open(const std::string& path, std::string computed_by) {
    ChunkScoreFile scores(path, std::move(computed_by));
    std::ifstream file(path);
    std::string line;
    std::uintmax_t whole_bytes = 0;
    for (int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
      if (const absl::Status read = scores.ReadLine(line); !read.ok()) {
        return absl::InvalidArgumentError(
            StrCat(path, ", line ", number, ": ", std::string(read.message())));
      }
      whole_bytes += line.size() + 1;
    }
    file.close();
    std::error_code error;
    if (std::filesystem::exists(path, error))
      std::filesystem::resize_file(path, whole_bytes, error);
    scores.out_.open(path, std::ios::app);
    if (error || !scores.out_) return scores.CannotWrite();
    return scores;
  }

  // Returns null for a question that was not scored yet, and if its scores lack one of `modes`.
  const Scores* Find(const std::string& set, const ChunkQuestion& question,
                     const std::vector<std::string>& modes) const {
    const auto found = known_.find({computed_by_, set, QuestionToLine(question)});
    if (found == known_.end()) return nullptr;
    for (const std::string& mode : modes) {
      if (!found->second.contains(mode)) return nullptr;
    }
    return &found->second;
  }

  // InvalidArgument: the file cannot be written.
  absl::Status Add(const std::string& set, const ChunkQuestion& question, const Scores& scores) {
    nlohmann::json modes = nlohmann::json::object();
    for (const auto& [mode, score] : scores) modes[mode] = ToJson(score);
    const nlohmann::json line = {{"computed_by", computed_by_},
                                 {"set", set},
                                 {"question", nlohmann::json::parse(QuestionToLine(question))},
                                 {"modes", modes}};
    out_ << line.dump() << '\n' << std::flush;
    return out_ ? absl::OkStatus() : CannotWrite();
  }

 private:
  ChunkScoreFile(std::string path, std::string computed_by)
      : path_(std::move(path)), computed_by_(std::move(computed_by)) {}

  absl::Status CannotWrite() const {
    return absl::InvalidArgumentError(StrCat(path_, ": cannot be written"));
  }

  static nlohmann::json ToJson(const ModeScore& score) {
    if (!score.refused.empty()) return {{"refused", score.refused}};
    return {{"right", score.right},
            {"greedy", score.greedy},
            {"nll", score.nll},
            {"kl", score.divergence}};
  }

  absl::Status ReadLine(const std::string& text) {
    const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    try {
      Scores scores;
      for (const auto& [mode, score] : line.at("modes").items()) {
        ModeScore& read = scores[mode];
        if (score.contains("refused")) {
          read.refused = score.at("refused").get<std::string>();
          continue;
        }
        read = {.right = score.at("right").get<bool>(),
                .greedy = score.at("greedy").get<bool>(),
                .nll = score.at("nll").get<double>(),
                .divergence = score.at("kl").get<double>()};
      }
      ASSIGN_OR_RETURN(const ChunkQuestion question, QuestionLine(line.at("question")).Read());
      known_[{line.at("computed_by").get<std::string>(), line.at("set").get<std::string>(),
              QuestionToLine(question)}] = std::move(scores);
    } catch (const nlohmann::json::exception& error) {
      return absl::InvalidArgumentError(StrCat("no scores of a question: ", error.what()));
    }
    return absl::OkStatus();
  }

  std::string path_;
  std::string computed_by_;
  std::ofstream out_;
  // The key: what computed the scores, set, and the question's line.
  std::map<std::tuple<std::string, std::string, std::string>, Scores> known_;
};

}  // namespace baton
