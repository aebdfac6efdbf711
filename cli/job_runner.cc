#include "cli/job_runner.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "cli/job_lines.h"
#include "cli/job_progress.h"
#include "cli/job_results.h"
#include "cli/ledger_table.h"
#include "cli/outcome.h"
#include "cli/terminal.h"
#include "common/exit_code.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kProgressInterval(500);
constexpr char kNotBegunMark[] = "baton.not-begun";

// Rewrites the progress line while jobs run, until it is destroyed.
class ProgressTicker {
 public:
  explicit ProgressTicker(JobLines& lines) : lines_(lines), thread_([this] { Tick(); }) {}
  ~ProgressTicker() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stop_.notify_all();
    thread_.join();
  }

 private:
  void Tick() {
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, kProgressInterval, [this] { return stopping_; })) {
      lines_.ShowProgress();
    }
  }

  JobLines& lines_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

// Returns the note that says why the answer was stopped, and the table of log-probabilities. `name`
// stands before them and may be empty. Empty if there is neither.
std::string NotesOf(const std::string& name, const Job& job, const JobResult& result,
                    const TokenPieces& pieces) {
  const std::string stopped = StopNote(job, result, pieces);
  const std::string table = LogprobsTable(result, pieces);
  if (stopped.empty() && table.empty()) return "";
  const char* const behind = name.empty() ? "" : stopped.empty() ? "\n" : " ";
  return absl::StrCat(name, behind, stopped, stopped.empty() ? "" : "\n", table);
}

std::string ChoiceName(const JobResult& result) {
  return result.choice ? absl::StrCat("choice ", *result.choice) : "";
}

void PrintForPeople(JobRunner& runner, const Job& job, const std::vector<JobResult>& results,
                    const RunJobsOptions& options) {
  const TokenPieces pieces = FindPieces(runner, TokensToShow(job, results));
  std::string notes;
  for (const JobResult& result : results) {
    PrintResult(result.choice
                    ? absl::StrCat("=== ", ChoiceTitle(result), " ===\n", result.text, "\n")
                    : "\n");
    notes += NotesOf(ChoiceName(result), job, result, pieces);
  }
  if (!options.no_ledger) absl::StrAppend(&notes, "\n", LedgerTable(WithOneLedger(results)));
  std::fprintf(stderr, "%s", notes.c_str());
}

// Returns the notes of a job of a file. They name the job, because others stand around them.
std::string NotesOfJob(const Job& job, const std::vector<JobResult>& results,
                       const TokenPieces& pieces) {
  std::string notes;
  for (const JobResult& result : results) {
    const std::string name =
        absl::StrCat("[", job.id, "]", result.choice ? " " : "", ChoiceName(result));
    notes += NotesOf(name, job, result, pieces);
  }
  return notes;
}

// Reports `error`, which ended an answer. After the answer's first text, a deadline or a
// cancellation is only a note. Returns the exit code.
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

// Shared state of all threads of a run.
struct LineRun {
  JobRunner& runner;
  const RunJobsOptions& options;
  const Job& defaults;
  const AnsweredJobs* answered;  // may be null
  JobLines& lines;
};

void AnswerJob(const LineRun& run, const Job& job) {
  if (run.answered != nullptr && run.answered->Has(job, job.n)) return run.lines.Skipped(job.line);
  const absl::StatusOr<std::vector<JobResult>> results = run.runner.Run(job, /*on_text=*/{});
  if (IsNotBegun(results.status())) return run.lines.NotBegun(job.line, results.status());
  if (!results.ok()) return run.lines.Failed(job.line, ErrorLine(job, results.status()));
  int64_t tokens = 0;
  for (const JobResult& result : *results) tokens += result.completion_tokens;
  const bool is_text = !run.options.json && job.form == JobForm::kBaton;
  const TokenPieces pieces =
      FindPieces(run.runner, is_text ? TokensToShow(job, *results) : TokensOfLogprobs(*results));
  const std::string text =
      JobResultText(job, *results, run.options.json, std::time(nullptr), pieces);
  const std::string notes = is_text ? NotesOfJob(job, *results, pieces) : "";
  run.lines.Answered(job.line, {.text = text, .notes = notes}, tokens);
}

void AnswerLines(const LineRun& run) {
  std::string line;
  int64_t number = 0;
  while (true) {
    const LineRead read = run.lines.Next(line, number);
    if (read == LineRead::kEnd || read == LineRead::kFailed) return;
    if (read == LineRead::kTooLong) {
      const JobLabel label = {.id = absl::StrCat(number), .line = number};
      run.lines.Failed(number, ErrorLine(label, TooLong(number)));
      continue;
    }
    const absl::StatusOr<Job> job = ParseJob(line, number, run.defaults);
    if (job.ok()) {
      AnswerJob(run, *job);
    } else {
      run.lines.Failed(number, ErrorLine(LabelOfLine(line, number), job.status()));
    }
  }
}

void AnswerAllLines(const LineRun& run, bool show_progress) {
  std::optional<ProgressTicker> ticker;
  if (show_progress) ticker.emplace(run.lines);
  std::vector<std::thread> threads;
  for (int i = 0; i < run.options.concurrency; ++i) {
    threads.emplace_back([&run] { AnswerLines(run); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Returns the number of jobs to do. Absent if the input cannot be read twice.
absl::StatusOr<std::optional<int64_t>> JobsToDo(InputFile& input, const Job& defaults,
                                                const AnsweredJobs* answered) {
  if (input.CanRewind()) return CountJobsToDo(input, defaults, answered);
  if (answered == nullptr) return std::optional<int64_t>();
  return absl::InvalidArgumentError(
      "--resume reads the jobs twice, so --jobs must be a file and not a pipe");
}

}  // namespace

TokenPieces FindPieces(JobRunner& runner, const std::vector<TokenId>& tokens) {
  TokenPieces out;
  if (tokens.empty()) return out;
  absl::StatusOr<std::vector<std::string>> pieces = runner.Pieces(tokens);
  if (!pieces.ok() || pieces->size() != tokens.size()) return out;
  for (size_t i = 0; i < tokens.size(); ++i) out[tokens[i]] = std::move((*pieces)[i]);
  return out;
}

absl::Status NotBegun(absl::Status status) {
  status.SetPayload(kNotBegunMark, absl::Cord("1"));
  return status;
}

bool IsNotBegun(const absl::Status& status) { return status.GetPayload(kNotBegunMark).has_value(); }

absl::Status AsBegun(absl::Status status) {
  status.ErasePayload(kNotBegunMark);
  return status;
}

int RunOneJob(JobRunner& runner, const Job& job, const RunJobsOptions& options) {
  bool has_text = false;
  std::function<void(std::string_view)> on_text;
  if (!options.json) {
    on_text = [&has_text](std::string_view text) {
      has_text = true;
      PrintResult(text);
    };
  }
  const absl::StatusOr<std::vector<JobResult>> results = runner.Run(job, on_text);
  if (!results.ok()) {
    if (!options.json) return ReportBreak(results.status(), has_text);
    std::printf("%s\n", ErrorLine(job, results.status()).c_str());
    return ExitCodeOf(results.status());
  }
  if (options.json) {
    const TokenPieces pieces = FindPieces(runner, TokensOfLogprobs(*results));
    for (const JobResult& result : *results) {
      std::printf("%s\n", ResultLine(job, result, pieces).c_str());
    }
  } else {
    PrintForPeople(runner, job, *results, options);
  }
  return kExitSuccess;
}

int RunJobLines(JobRunner& runner, InputFile& input, const RunJobsOptions& options,
                const Job& defaults, const AnsweredJobs* answered) {
  const absl::StatusOr<std::optional<int64_t>> to_do = JobsToDo(input, defaults, answered);
  if (!to_do.ok()) return ReportError(to_do.status());
  ProgressDisplay display(stderr, TakesEscapes(STDERR_FILENO));
  JobLines lines(&input, &display, options.ordered, *to_do);
  const LineRun run = {.runner = runner,
                       .options = options,
                       .defaults = defaults,
                       .answered = answered,
                       .lines = lines};
  AnswerAllLines(run, display.enabled());
  display.Clear();
  const absl::Status not_begun = lines.not_begun_status();
  if (!input.status().ok()) ReportError(input.status());
  if (!not_begun.ok() && !absl::IsCancelled(not_begun)) ReportError(not_begun);
  const JobCounts counts = lines.counts();
  std::fprintf(stderr, "%s\n", TotalsText(counts, lines.elapsed()).c_str());
  const bool all_done = input.status().ok() && counts.failed == 0 && counts.not_begun == 0;
  return all_done ? kExitSuccess : kExitFailed;
}

}  // namespace baton
