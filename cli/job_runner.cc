#include "cli/job_runner.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/ledger_table.h"
#include "cli/outcome.h"
#include "common/exit_code.h"

namespace baton {
namespace {

constexpr auto kProgressInterval = std::chrono::seconds(2);

// Hands out lines and collects results. Apart, so that results are printed while a line is waited
// for.
class JobLines {
 public:
  explicit JobLines(InputFile& input) : input_(input) {}

  // The next line that is not blank, with its number; the end too where there is no use in more.
  LineRead Next(std::string& line, int64_t& number) {
    std::lock_guard lock(input_mutex_);
    while (true) {
      if (output_lost_.load()) return LineRead::kEnd;
      const LineRead read = input_.ReadLine(kMaxJobLineBytes, line);
      number = ++lines_;
      const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
      if (read != LineRead::kLine || !blank) return read;
    }
  }

  void Print(const std::string& line, bool failed) {
    std::lock_guard lock(mutex_);
    if (!PrintResult(line + "\n")) output_lost_.store(true);
    ++done_;
    if (failed) ++failed_;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_progress_ < kProgressInterval) return;
    last_progress_ = now;
    std::fprintf(stderr, "%lld jobs done, %lld failed\n", static_cast<long long>(done_),
                 static_cast<long long>(failed_));
  }

  int64_t failed() const { return failed_; }

 private:
  InputFile& input_;
  std::mutex input_mutex_;
  std::atomic<bool> output_lost_ = false;
  std::mutex mutex_;
  int64_t lines_ = 0;
  int64_t done_ = 0;
  int64_t failed_ = 0;
  std::chrono::steady_clock::time_point last_progress_ = std::chrono::steady_clock::now();
};

std::string ChoiceTitle(const JobResult& result) {
  return absl::StrCat("choice ", *result.choice, " (", result.finish_reason, ")");
}

std::string PlainResult(const JobResult& result) {
  if (!result.choice) return "[" + result.id + "] " + result.text;
  return absl::StrCat("[", result.id, "] ", ChoiceTitle(result), ": ", result.text);
}

void PrintForPeople(JobRunner& runner, const Job& job, const std::vector<JobResult>& results,
                    const RunJobsOptions& options) {
  const TokenPieces pieces = FindPieces(runner, job, results);
  std::string notes;
  for (const JobResult& result : results) {
    PrintResult(result.choice
                    ? absl::StrCat("=== ", ChoiceTitle(result), " ===\n", result.text, "\n")
                    : "\n");
    const std::string stopped = StopNote(job, result, pieces);
    const std::string table = LogprobsTable(result, pieces);
    if (stopped.empty() && table.empty()) continue;
    if (result.choice)
      absl::StrAppend(&notes, "choice ", *result.choice, stopped.empty() ? "\n" : " ");
    absl::StrAppend(&notes, stopped, stopped.empty() ? "" : "\n", table);
  }
  if (!options.no_ledger) absl::StrAppend(&notes, "\n", LedgerTable(WithOneLedger(results)));
  std::fprintf(stderr, "%s", notes.c_str());
}

// An answer that has begun and then ends with `error`: a deadline and a cancellation are no more
// than a reason. Returns the exit code.
int ReportBreak(const absl::Status& error, bool has_text) {
  if (has_text) PrintResult("\n");
  const std::string note = has_text ? StopNote(error) : "";
  if (note.empty()) return ReportError(error);
  std::fprintf(stderr, "%s\n", note.c_str());
  return ExitCodeOf(error);
}

absl::Status TooLong(int64_t number) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", number, ": it has more than ", kMaxJobLineBytes, " bytes"));
}

void AnswerLines(JobRunner& runner, JobLines& lines, const RunJobsOptions& options) {
  std::string line;
  int64_t number = 0;
  while (true) {
    const LineRead read = lines.Next(line, number);
    if (read == LineRead::kEnd || read == LineRead::kFailed) return;
    if (read == LineRead::kTooLong) {
      lines.Print(ErrorLine(absl::StrCat(number), TooLong(number)), true);
      continue;
    }
    const absl::StatusOr<Job> job = ParseJob(line, number);
    if (!job.ok()) {
      lines.Print(ErrorLine(JobId(line, number), job.status()), true);
      continue;
    }
    const absl::StatusOr<std::vector<JobResult>> results =
        runner.Run(*job, [](std::string_view) {});
    if (!results.ok()) {
      lines.Print(ErrorLine(job->id, results.status()), true);
      continue;
    }
    std::vector<std::string> choices;
    for (const JobResult& result : *results) {
      choices.push_back(options.json ? ResultLine(result) : PlainResult(result));
    }
    lines.Print(absl::StrJoin(choices, "\n"), false);
  }
}

}  // namespace

TokenPieces FindPieces(JobRunner& runner, const Job& job, const std::vector<JobResult>& results) {
  const std::vector<TokenId> tokens = TokensToShow(job, results);
  TokenPieces out;
  if (tokens.empty()) return out;
  absl::StatusOr<std::vector<std::string>> pieces = runner.Pieces(tokens);
  if (!pieces.ok() || pieces->size() != tokens.size()) return out;
  for (size_t i = 0; i < tokens.size(); ++i) out[tokens[i]] = std::move((*pieces)[i]);
  return out;
}

int RunOneJob(JobRunner& runner, const Job& job, const RunJobsOptions& options) {
  bool has_text = false;
  const absl::StatusOr<std::vector<JobResult>> results =
      runner.Run(job, [&](std::string_view text) {
        if (options.json) return;
        has_text = true;
        PrintResult(text);
      });
  if (!results.ok()) {
    if (!options.json) return ReportBreak(results.status(), has_text);
    std::printf("%s\n", ErrorLine(job.id, results.status()).c_str());
    return ExitCodeOf(results.status());
  }
  if (options.json) {
    for (const JobResult& result : *results) std::printf("%s\n", ResultLine(result).c_str());
  } else {
    PrintForPeople(runner, job, *results, options);
  }
  return kExitSuccess;
}

int RunJobLines(JobRunner& runner, InputFile& input, const RunJobsOptions& options) {
  JobLines lines(input);
  std::vector<std::thread> threads;
  for (int i = 0; i < options.concurrency; ++i) {
    threads.emplace_back([&] { AnswerLines(runner, lines, options); });
  }
  for (std::thread& thread : threads) thread.join();
  if (!input.status().ok()) {
    ReportError(input.status());
    return kExitFailed;
  }
  return lines.failed() == 0 ? kExitSuccess : kExitFailed;
}

}  // namespace baton
