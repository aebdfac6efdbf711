// A file of scored questions, so that a run of hours may be stopped and go on later. One JSON
// object on each line:
//
//   {"computed_by": "…", "set": "one_fact_8x64", "question": {…}, "modes": {"full":
//    {"right": true, "greedy": false, "nll": 2.5, "kl": 0}, "alone_first4": {"refused": "…"}}}
//
// `question` is the line of bench/chunk_questions.h. `computed_by` names the model, the numerics,
// the KV type and the ranks, so one file may hold the scores of many runs. It does not name the
// build.
//
// Thread safety: belongs to one thread, and a file to one process.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
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

  // Reads the file, if there is one. A last line that is only the beginning of one was written by a
  // stopped run, and is cut off. InvalidArgument names the file, and the line that has no scores.
  static absl::StatusOr<ChunkScoreFile> Open(const std::string& path, std::string computed_by) {
    ChunkScoreFile scores(path, std::move(computed_by));
    std::error_code error;
    if (std::filesystem::exists(path, error)) RETURN_IF_ERROR(scores.Read());
    scores.out_.open(path, std::ios::app);
    if (!scores.out_) return scores.Fault("cannot be written");
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

  // InvalidArgument: the file cannot be written, or a score is not a finite number.
  absl::Status Add(const std::string& set, const ChunkQuestion& question, const Scores& scores) {
    nlohmann::json modes = nlohmann::json::object();
    for (const auto& [mode, score] : scores) {
      if (!std::isfinite(score.nll) || !std::isfinite(score.divergence)) {
        return absl::InvalidArgumentError(
            StrCat("mode ", mode, " has an NLL of ", score.nll, " and a KL of ", score.divergence));
      }
      modes[mode] = ToJson(score);
    }
    const nlohmann::json line = {{"computed_by", computed_by_},
                                 {"set", set},
                                 {"question", nlohmann::json::parse(QuestionToLine(question))},
                                 {"modes", modes}};
    out_ << line.dump() << '\n' << std::flush;
    return out_ ? absl::OkStatus() : Fault("cannot be written");
  }

 private:
  ChunkScoreFile(std::string path, std::string computed_by)
      : path_(std::move(path)), computed_by_(std::move(computed_by)) {}

  absl::Status Fault(const std::string& what) const {
    return absl::InvalidArgumentError(StrCat(path_, ": ", what));
  }

  absl::Status Read() {
    std::ifstream file(path_);
    if (!file) return Fault("cannot be read");
    std::string line;
    std::uintmax_t bytes = 0;  // of the lines that count
    bool ends = true;          // the last one has its end
    for (int64_t number = 1; std::getline(file, line); ++number) {
      const absl::Status read = ReadLine(line);
      ends = !file.eof();
      const bool is_cut =
          !ends && kLineBegin.starts_with(std::string_view(line).substr(0, kLineBegin.size()));
      if (!read.ok() && is_cut) {
        ends = true;
        break;
      }
      if (!read.ok()) {
        return Fault(StrCat("line ", number, ": ", std::string(read.message())));
      }
      bytes += line.size() + (ends ? 1 : 0);
    }
    if (file.bad()) return Fault("cannot be read to its end");
    file.close();
    std::error_code error;
    if (std::filesystem::file_size(path_, error) != bytes) {
      std::filesystem::resize_file(path_, bytes, error);
    }
    if (!ends) std::ofstream(path_, std::ios::app) << '\n';
    return error ? Fault(error.message()) : absl::OkStatus();
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

  // Every line begins so: the keys of an object are sorted.
  static constexpr std::string_view kLineBegin = R"({"computed_by":")";

  std::string path_;
  std::string computed_by_;
  std::ofstream out_;
  // The key: what computed the scores, set, and the question's line.
  std::map<std::tuple<std::string, std::string, std::string>, Scores> known_;
};

}  // namespace baton
