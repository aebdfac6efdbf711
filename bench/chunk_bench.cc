// Benchmark of prompts in chunks, through the engine and on a real model.
//
//   chunk_bench                       speed: time to the first token, speed of the answer, cost of
//   a
//                                     lookup, shared memory. 8 chunks of 512 tokens by default.
//   chunk_bench --generated           quality of every mode on generated questions
//   chunk_bench --questions F.jsonl   quality on the questions of a file (bench/chunk_questions.h)
//   chunk_bench --wakes               only chunks that sleep: time to wake them, and their memory
//   chunk_bench --rotation            why queries are rotated, and not keys: times and errors
//
// A figure with a goal has the keys of bench/goal_figures.h.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/chunk_cache_figures.h"
#include "bench/chunk_quality.h"
#include "bench/chunk_questions.h"
#include "bench/chunk_score_file.h"
#include "bench/chunk_speed.h"
#include "bench/chunk_wake_figures.h"
#include "bench/generated_questions.h"
#include "bench/key_rotation_errors.h"
#include "bench/key_rotation_times.h"
#include "common/command_line.h"
#include "common/exit_code.h"
#include "engine/engine.h"

namespace baton {
namespace {

struct BenchOptions {
  EngineOptions engine;
  ChunkShape shape;
  int32_t rounds = 11;
  int32_t answer_tokens = 48;
  int64_t seed = 1;
  bool generated = false;
  bool rotation = false;
  bool wakes = false;
  std::string questions;
  std::string write_questions;
  std::string scores;   // path; empty: none
  std::string sets;     // comma-separated names; empty: all
  int32_t limit = 100;  // questions of a set
};

void AddLoad(FigureList& figures) {
  std::string load = "unknown";
  std::ifstream file("/proc/loadavg");
  std::getline(file, load);
  figures.AddCondition(absl::StrCat("Load of the machine (1, 5, 15 minutes, running/all): ", load));
}

absl::Status RunSpeed(const BenchOptions& options, FigureList& figures) {
  ASSIGN_OR_RETURN(const auto engine, Engine::Create(options.engine));
  std::printf("%s", engine->StartupReport().c_str());
  figures.AddCondition(
      absl::StrCat("One process without a server. ", options.shape.chunks, " chunks of ",
                   options.shape.chunk_tokens, " tokens, system part ", options.shape.system_tokens,
                   ", question ", options.shape.question_tokens, ", ", options.rounds, " rounds."));
  AddLoad(figures);
  ChunkPrompts prompts(options.shape, engine->model_info().spec.vocabulary,
                       static_cast<uint64_t>(options.seed));
  if (options.wakes) return MeasureWakes(options.engine, prompts, options.rounds, figures);
  ChunkSpeed speed(engine.get(), &prompts, options.answer_tokens);
  RETURN_IF_ERROR(speed.Measure(options.rounds));
  speed.Report(figures);
  constexpr int32_t kEntries = 500;
  constexpr int kLookups = 21;
  constexpr int32_t kConcurrent = 8;
  RETURN_IF_ERROR(MeasureLookup(*engine, prompts, kEntries, kLookups, figures));
  RETURN_IF_ERROR(MeasureSharedBytes(*engine, prompts, kConcurrent, figures));
  RETURN_IF_ERROR(MeasureWakes(options.engine, prompts, options.rounds, figures));
  constexpr char kNoFleet[] = "needs a fleet; bench/chunk_fleet.py measures it";
  figures.AddAbsent("ttft_full_over_cached_fleet", "ratio", kNoFleet);
  figures.AddAbsent("pull_over_compute", "ratio", kNoFleet);
  AddLoad(figures);
  return absl::OkStatus();
}

absl::Status WriteQuestions(const std::string& path, const std::vector<ChunkQuestion>& questions) {
  std::ofstream file(path, std::ios::app);
  for (const ChunkQuestion& question : questions) file << QuestionToLine(question) << "\n";
  file.flush();
  if (file) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be written"));
}

// The sets with these names, or all without names.
absl::StatusOr<std::vector<QuestionSet>> SetsNamed(const std::string& names) {
  const std::set<std::string> wanted = absl::StrSplit(names, ',', absl::SkipEmpty());
  std::vector<QuestionSet> sets;
  std::vector<std::string> all;
  for (const int32_t tokens : {64, 512}) {
    for (const bool two_facts : {false, true}) {
      const QuestionSet set{.two_facts = two_facts, .chunks = 8, .chunk_tokens = tokens};
      all.push_back(set.name());
      if (wanted.empty() || wanted.contains(set.name())) sets.push_back(set);
    }
  }
  for (const std::string& name : wanted) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--sets: there is no set \"", name,
                                                   "\"; there are ", absl::StrJoin(all, ", ")));
  }
  return sets;
}

absl::Status RunQuality(BenchOptions options, FigureList& figures) {
  std::vector<ChunkQuestion> asked;
  if (!options.questions.empty()) {
    ASSIGN_OR_RETURN(asked, ReadQuestions(options.questions));
    if (asked.size() > static_cast<size_t>(options.limit)) {
      figures.AddCondition(
          absl::StrCat("The first ", options.limit, " of ", asked.size(), " questions (--limit)."));
      asked.resize(static_cast<size_t>(options.limit));
    }
  }
  LogitTap tap;
  const TappedArchitectures tapped(&tap);
  options.engine.architectures = tapped.list();
  ASSIGN_OR_RETURN(const auto engine, Engine::Create(options.engine));
  std::printf("%s", engine->StartupReport().c_str());
  AddLoad(figures);
  std::optional<ChunkScoreFile> file;
  if (!options.scores.empty()) {
    const KvFingerprint& kv = engine->fingerprint();
    const std::string by = absl::StrCat(kv.model, " ", kv.numerics, " ", kv.kv_type, " ",
                                        options.engine.tensor_parallel);
    ASSIGN_OR_RETURN(file, ChunkScoreFile::Open(options.scores, by));
  }
  ChunkQuality quality(engine.get(), &tap, file ? &*file : nullptr,
                       static_cast<uint64_t>(options.seed));
  if (!asked.empty()) {
    RETURN_IF_ERROR(quality.Run("file", asked, figures));
    AddLoad(figures);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<QuestionSet> sets, SetsNamed(options.sets));
  for (const QuestionSet& set : sets) {
    const std::vector<ChunkQuestion> questions = GenerateQuestions(
        engine->tokenizer(), set, options.limit, static_cast<uint64_t>(options.seed));
    if (!options.write_questions.empty()) {
      RETURN_IF_ERROR(WriteQuestions(options.write_questions, questions));
      continue;
    }
    RETURN_IF_ERROR(quality.Run(set.name(), questions, figures));
  }
  AddLoad(figures);
  return absl::OkStatus();
}

absl::Status RunRotation(const BenchOptions& options, FigureList& figures) {
  ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.engine));
  ASSIGN_OR_RETURN(const auto file, OpenModel(options.engine.model));
  ASSIGN_OR_RETURN(const LlamaConfig config, ReadLlamaConfig(*file));
  AddLoad(figures);
  ChunkPrompts prompts(options.shape, config.vocabulary, static_cast<uint64_t>(options.seed));
  {
    ASSIGN_OR_RETURN(const auto times,
                     KeyRotationTimes::Create(*model.device, config, options.shape));
    times->Measure(options.rounds, figures);
  }
  for (const ChunkScope scope : {ChunkScope::kAlone, ChunkScope::kSystem}) {
    ASSIGN_OR_RETURN(const auto errors, KeyRotationErrors::Create(model, config, prompts, scope));
    RETURN_IF_ERROR(errors->Measure(figures));
  }
  AddLoad(figures);
  return absl::OkStatus();
}

int Run(const BenchOptions& options) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a run takes minutes
  FigureList figures;
  const bool asks = options.generated || !options.questions.empty();
  if (!asks && !options.scores.empty()) {
    std::cerr << "chunk_bench: --scores needs --generated or --questions\n";
    return kExitUsage;
  }
  const absl::Status done = asks               ? RunQuality(options, figures)
                            : options.rotation ? RunRotation(options, figures)
                                               : RunSpeed(options, figures);
  if (!done.ok()) {
    std::cerr << "chunk_bench: " << done.message() << "\n";
    return ExitCodeOf(done);
  }
  figures.Print(asks               ? "chunk_quality"
                : options.rotation ? "chunk_rotation"
                                   : "chunk",
                options.seed);
  return kExitSuccess;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::CommandLine line("Measures prompts in chunks: speed, quality, and ways to move keys.");
  baton::BenchOptions options;
  options.engine.chunk_cache_share = 0.5;  // room for the prompt's chunks and for a second prompt's
  auto generated =
      line.AddFlag("--generated", &options.generated, "Measure quality on generated questions");
  auto questions = line.Add("--questions", &options.questions,
                            "Measure quality on the questions of this JSONL file")
                       .Value("FILE");
  auto rotation = line.AddFlag("--rotation", &options.rotation,
                               "Compare rotated queries with rotated keys: times and errors");
  generated.Excludes(questions);
  generated.Excludes(rotation);
  questions.Excludes(rotation);
  line.AddFlag(
      "--wakes", &options.wakes,
      "Only measure chunks that sleep in host memory: time to wake them, and their memory");
  line.Add("--limit", &options.limit, "With questions: the most questions of each set")
      .Range(1, 1'000'000)
      .ShowDefault();
  line.Add(
          "--sets", &options.sets,
          "With --generated: comma-separated sets of one_fact_8x64, two_fact_8x64, one_fact_8x512, "
          "two_fact_8x512. Default: all")
      .Needs(generated);
  auto writing = line.Add("--write-questions", &options.write_questions,
                          "Only append the generated questions to this file, as lines for "
                          "--questions")
                     .Value("FILE")
                     .Needs(generated);
  line.Add("--scores", &options.scores,
           "With questions: keep the scores of each question in this file, and do not ask those "
           "that it has. So a stopped run goes on where it was")
      .Value("FILE")
      .Excludes(writing);
  line.Add("--rounds", &options.rounds, "Rounds of the speed figures")
      .Range(1, 10'000)
      .ShowDefault();
  line.Add("--chunks", &options.shape.chunks, "Chunks of the speed figures' prompt")
      .Range(2, 100)
      .ShowDefault();
  line.Add("--chunk-tokens", &options.shape.chunk_tokens, "Tokens of each of these chunks")
      .Range(16, 4096)
      .ShowDefault();
  line.Add("--answer-tokens", &options.answer_tokens, "Tokens over which an answer's speed counts")
      .Range(1, 1000)
      .ShowDefault();
  line.Add("--seed", &options.seed, "Seed of tokens and questions")
      .Range(int64_t{0}, int64_t{1} << 53)
      .ShowDefault();
  baton::SettingList settings;
  baton::RegisterSettings(options.engine, settings);
  line.AddSettings(settings, "Engine");
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  return baton::Run(options);
}
