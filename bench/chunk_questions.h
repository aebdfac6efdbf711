// Questions about documents, for the quality of prompts in chunks. A file has one JSON object on
// each line:
//
//   {"id": "q1", "system": "…", "chunks": ["…", "…"], "question": "…", "answer": " Berlin",
//    "distractors": [" Paris", " Rome"], "right_chunks": [0]}
//
// `answer` and `distractors` continue the question as they are, so they usually begin with a blank.
// `right_chunks` is optional: numbers of the chunks that hold the answer, from 0 on. Without it,
// they are the chunks that contain the answer's text.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/strip.h"
#include "common/prompt_chunks.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {

struct ChunkQuestion {
  std::string id;
  std::string system;
  std::vector<std::string> chunks;
  std::string question;
  std::string answer;
  std::vector<std::string> distractors;
  std::vector<int32_t> right_chunks;  // rising; may be empty
};

// Reads the fields of one line. Errors name the field.
class QuestionLine {
 public:
  explicit QuestionLine(const nlohmann::json& line) : line_(line) {}

  absl::StatusOr<ChunkQuestion> Read() {
    if (!line_.is_object()) return Fault("the line", "must be a JSON object");
    ChunkQuestion question;
    ASSIGN_OR_RETURN(question.id, Text("id", /*may_be_empty=*/false));
    ASSIGN_OR_RETURN(question.system, Text("system", /*may_be_empty=*/true));
    ASSIGN_OR_RETURN(question.chunks, Texts("chunks"));
    ASSIGN_OR_RETURN(question.question, Text("question", /*may_be_empty=*/false));
    ASSIGN_OR_RETURN(question.answer, Text("answer", /*may_be_empty=*/false));
    ASSIGN_OR_RETURN(question.distractors, Texts("distractors"));
    if (const absl::Status status = CheckChunkCount(static_cast<int64_t>(question.chunks.size()));
        !status.ok()) {
      return Fault("chunks", std::string(status.message()));
    }
    for (size_t i = 0; i < question.distractors.size(); ++i) {
      if (question.distractors[i] != question.answer) continue;
      return Fault(absl::StrCat("distractors[", i, "]"), "equals the answer");
    }
    RETURN_IF_ERROR(ReadRightChunks(question));
    for (const auto& [key, value] : line_.items()) {
      if (!known_.contains(key)) return Fault(key, "is not a field of a question");
    }
    return question;
  }

 private:
  static absl::Status Fault(const std::string& field, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
  }

  const nlohmann::json* Find(const std::string& field) {
    known_.insert(field);
    const auto found = line_.find(field);
    return found == line_.end() ? nullptr : &*found;
  }

  static absl::StatusOr<std::string> TextOf(const nlohmann::json& value, const std::string& field,
                                            bool may_be_empty) {
    if (!value.is_string()) return Fault(field, "must be a string");
    auto text = value.get<std::string>();
    if (text.empty() && !may_be_empty) return Fault(field, "is empty");
    return text;
  }

  absl::StatusOr<std::string> Text(const std::string& field, bool may_be_empty) {
    const nlohmann::json* const value = Find(field);
    if (value == nullptr) return Fault(field, "is missing");
    return TextOf(*value, field, may_be_empty);
  }

  absl::StatusOr<std::vector<std::string>> Texts(const std::string& field) {
    const nlohmann::json* const value = Find(field);
    if (value == nullptr) return Fault(field, "is missing");
    if (!value->is_array() || value->empty()) {
      return Fault(field, "must be an array of at least one string");
    }
    std::vector<std::string> texts;
    for (size_t i = 0; i < value->size(); ++i) {
      const std::string name = absl::StrCat(field, "[", i, "]");
      ASSIGN_OR_RETURN(std::string text, TextOf((*value)[i], name, /*may_be_empty=*/false));
      texts.push_back(std::move(text));
    }
    return texts;
  }

  absl::Status ReadRightChunks(ChunkQuestion& question) {
    const nlohmann::json* const value = Find("right_chunks");
    if (value == nullptr) {
      const absl::string_view answer = absl::StripAsciiWhitespace(question.answer);
      for (size_t i = 0; i < question.chunks.size(); ++i) {
        const bool has = question.chunks[i].find(std::string(answer)) != std::string::npos;
        if (has) question.right_chunks.push_back(static_cast<int32_t>(i));
      }
      return absl::OkStatus();
    }
    if (!value->is_array()) return Fault("right_chunks", "must be an array of chunk numbers");
    std::set<int32_t> numbers;
    for (size_t i = 0; i < value->size(); ++i) {
      const nlohmann::json& number = (*value)[i];
      const auto limit = static_cast<int64_t>(question.chunks.size());
      if (!number.is_number_integer() || number < 0 || number >= limit) {
        return Fault(absl::StrCat("right_chunks[", i, "]"),
                     absl::StrCat("must be a chunk number below ", limit));
      }
      numbers.insert(number.get<int32_t>());
    }
    question.right_chunks.assign(numbers.begin(), numbers.end());
    return absl::OkStatus();
  }

  const nlohmann::json& line_;
  std::set<std::string> known_;
};

// Parses one line. InvalidArgument names the field.
inline absl::StatusOr<ChunkQuestion> ParseQuestion(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("the line is not JSON");
  return QuestionLine(json).Read();
}

// Reads all questions of a file, and skips blank lines. InvalidArgument names the file, the line
// and the field. A file without questions is an error.
inline absl::StatusOr<std::vector<ChunkQuestion>> ReadQuestions(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be opened"));
  std::vector<ChunkQuestion> questions;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<ChunkQuestion> question = ParseQuestion(line);
    if (!question.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ", line ", number, ": ", std::string(question.status().message())));
    }
    questions.push_back(*std::move(question));
  }
  if (file.bad()) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  if (questions.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no question"));
  return questions;
}

// Returns the line that ReadQuestions reads.
inline std::string QuestionToLine(const ChunkQuestion& question) {
  return nlohmann::json{{"id", question.id},
                        {"system", question.system},
                        {"chunks", question.chunks},
                        {"question", question.question},
                        {"answer", question.answer},
                        {"distractors", question.distractors},
                        {"right_chunks", question.right_chunks}}
      .dump();
}

}  // namespace baton
