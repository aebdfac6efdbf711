// Generates questions about documents. Equal seeds give equal questions.
//
//   one-fact   Each document tells the secret word of one person. The question asks for one of
//   them. two-fact   Half of the documents tell the town of a person, the others the secret word of
//   a
//              town. The question asks for the word of a person's town, so it needs two documents.
//
// The other choices are secret words of other documents of the same prompt. So a model that only
// knows which words are secret words is right by chance. All choices are single tokens, if enough
// of the words are single tokens of the model.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/chunk_questions.h"
#include "common/check.h"
#include "text/tokenizer.h"

namespace baton {

struct QuestionSet {
  bool two_facts = false;
  int32_t chunks = 8;         // even
  int32_t chunk_tokens = 64;  // the most of a document
  std::string name() const {
    return absl::StrCat(two_facts ? "two_fact_" : "one_fact_", chunks, "x", chunk_tokens);
  }
};
inline constexpr int32_t kGeneratedChoices = 4;

class QuestionGenerator {
 public:
  // `tokenizer` must outlive this.
  QuestionGenerator(const Tokenizer* tokenizer, uint64_t seed)
      : tokenizer_(tokenizer), random_(seed) {
    for (const char* const word : kWords) {
      if (CountTokens(absl::StrCat(" ", word)) == 1) words_.push_back(word);
    }
    if (words_.size() < 16) words_.assign(kWords.begin(), kWords.end());
  }

  ChunkQuestion Next(const QuestionSet& set, const std::string& id) {
    return set.two_facts ? TwoFacts(set, id) : OneFact(set, id);
  }

 private:
  static constexpr std::array kNames = {"Maria", "Peter", "Anna",  "David", "Laura", "James",
                                        "Sarah", "Simon", "Helen", "Frank", "Emily", "Oscar",
                                        "Linda", "Henry", "Alice", "Bruno"};
  static constexpr std::array kTowns = {"Paris",  "London", "Berlin",  "Rome",
                                        "Madrid", "Vienna", "Dublin",  "Oslo",
                                        "Athens", "Boston", "Chicago", "Dallas"};
  static constexpr std::array kWords = {
      "river",  "garden", "window", "silver", "orange", "winter", "forest", "bridge",
      "pencil", "hammer", "castle", "island", "rabbit", "mirror", "ladder", "basket",
      "candle", "engine", "flower", "guitar", "jacket", "kettle", "lemon",  "magnet",
      "needle", "ocean",  "paper",  "quartz", "rocket", "sugar",  "tiger",  "valley"};
  static constexpr std::array kSubjects = {
      "The committee", "A visitor",   "The old teacher", "The farmer",      "A young engineer",
      "The museum",    "The library", "A neighbour",     "The train guide", "The gardener"};
  static constexpr std::array kActions = {"opened the report",        "looked at the map",
                                          "waited for the bus",       "counted the chairs",
                                          "wrote a short letter",     "cleaned the kitchen",
                                          "talked about the weather", "repaired the fence",
                                          "bought fresh bread",       "planned the next meeting"};
  static constexpr std::array kEndings = {
      "early in the morning", "after a long walk", "before the rain came", "on the second day",
      "without any hurry",    "near the station",  "with two friends",     "in the afternoon"};

  static constexpr char kSystem[] =
      "The following documents are reports. Each tells a few facts. Answer the question with one "
      "word.\n\n";

  size_t Below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  int32_t CountTokens(const std::string& text) const {
    return static_cast<int32_t>(
        tokenizer_->Encode(text, {.add_bos = false, .add_eos = false}).size());
  }

  // Returns `count` different entries.
  template <typename List>
  std::vector<std::string> Draw(const List& list, size_t count) {
    std::vector<std::string> all(list.begin(), list.end());
    CHECK_LE(count, all.size());
    for (size_t i = 0; i < count; ++i) std::swap(all[i], all[i + Below(all.size() - i)]);
    all.resize(count);
    return all;
  }

  std::string Filler() {
    return absl::StrCat(kSubjects[Below(kSubjects.size())], " ", kActions[Below(kActions.size())],
                        " ", kEndings[Below(kEndings.size())], ".");
  }

  // A document of at most `tokens` tokens, with `fact` among other sentences.
  std::string Document(const std::string& fact, int32_t tokens) {
    const auto text_of = [](const std::vector<std::string>& sentences) {
      std::string text = "Report:";
      for (const std::string& sentence : sentences) absl::StrAppend(&text, " ", sentence);
      return absl::StrCat(text, "\n\n");
    };
    std::vector<std::string> sentences = {fact};
    CHECK_LE(CountTokens(text_of(sentences)), tokens) << "the documents are too short for a fact";
    while (true) {
      std::vector<std::string> longer = sentences;
      longer.push_back(Filler());
      if (CountTokens(text_of(longer)) > tokens) break;
      sentences = std::move(longer);
    }
    std::swap(sentences[0], sentences[Below(sentences.size())]);
    return text_of(sentences);
  }

  // Puts the answer and other words into the question.
  void SetChoices(const std::vector<std::string>& words, size_t right, ChunkQuestion& question) {
    question.answer = absl::StrCat(" ", words[right]);
    std::vector<std::string> others = words;
    others.erase(others.begin() + static_cast<int64_t>(right));
    for (const std::string& other : Draw(others, kGeneratedChoices - 1)) {
      question.distractors.push_back(absl::StrCat(" ", other));
    }
  }

  ChunkQuestion OneFact(const QuestionSet& set, const std::string& id) {
    const auto count = static_cast<size_t>(set.chunks);
    const std::vector<std::string> names = Draw(kNames, count);
    const std::vector<std::string> words = Draw(words_, count);
    ChunkQuestion question;
    question.id = id;
    question.system = kSystem;
    for (size_t i = 0; i < count; ++i) {
      question.chunks.push_back(Document(
          absl::StrCat("The secret word of ", names[i], " is ", words[i], "."), set.chunk_tokens));
    }
    const size_t right = Below(count);
    question.question = absl::StrCat("Question: What is the secret word of ", names[right],
                                     "?\nAnswer: The secret word of ", names[right], " is");
    question.right_chunks = {static_cast<int32_t>(right)};
    SetChoices(words, right, question);
    return question;
  }

  ChunkQuestion TwoFacts(const QuestionSet& set, const std::string& id) {
    const auto pairs = static_cast<size_t>(set.chunks / 2);
    const std::vector<std::string> names = Draw(kNames, pairs);
    const std::vector<std::string> towns = Draw(kTowns, pairs);
    const std::vector<std::string> words = Draw(words_, pairs);
    std::vector<std::pair<std::string, size_t>> facts;  // with the number of their pair
    for (size_t i = 0; i < pairs; ++i) {
      facts.emplace_back(absl::StrCat(names[i], " lives in ", towns[i], "."), i);
      facts.emplace_back(absl::StrCat("The secret word of ", towns[i], " is ", words[i], "."), i);
    }
    for (size_t i = 0; i + 1 < facts.size(); ++i) {
      std::swap(facts[i], facts[i + Below(facts.size() - i)]);
    }
    const size_t right = Below(pairs);
    ChunkQuestion question;
    question.id = id;
    question.system = kSystem;
    for (size_t i = 0; i < facts.size(); ++i) {
      question.chunks.push_back(Document(facts[i].first, set.chunk_tokens));
      if (facts[i].second == right) question.right_chunks.push_back(static_cast<int32_t>(i));
    }
    question.question =
        absl::StrCat("Question: What is the secret word of the town in which ", names[right],
                     " lives?\nAnswer: ", names[right], " lives in a town whose secret word is");
    SetChoices(words, right, question);
    return question;
  }

  const Tokenizer* const tokenizer_;
  std::mt19937_64 random_;
  std::vector<std::string> words_;
};

// Returns `count` questions of a set.
inline std::vector<ChunkQuestion> GenerateQuestions(const Tokenizer& tokenizer,
                                                    const QuestionSet& set, int32_t count,
                                                    uint64_t seed) {
  QuestionGenerator generator(&tokenizer, seed);
  std::vector<ChunkQuestion> questions;
  for (int32_t i = 0; i < count; ++i) {
    questions.push_back(generator.Next(set, absl::StrCat(set.name(), "_", i)));
  }
  return questions;
}

}  // namespace baton
