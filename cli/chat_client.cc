// `baton chat`: a conversation at the terminal. Ctrl-C ends an answer, Ctrl-D the conversation.

#include <atomic>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/client_commands.h"
#include "cli/input_file.h"
#include "cli/job_flags.h"
#include "cli/ledger_table.h"
#include "cli/outcome.h"
#include "cli/router_client.h"
#include "common/exit_code.h"
#include "common/termination.h"

namespace baton {
namespace {

constexpr int kWatchMs = 100;
struct ChatOptions {
  RouterClientOptions client{.router = kDefaultRouter};
  std::string system;
  bool ledger = false;
  SamplingParams sampling;
};

// Ends the running answer at a signal; between answers, the program.
class AnswerInterrupter {
 public:
  explicit AnswerInterrupter(RouterClient& client)
      : client_(client), thread_([this] { Watch(); }) {}
  ~AnswerInterrupter() {
    stopping_ = true;
    thread_.join();
  }
  void set_answering(bool answering) { answering_ = answering; }

 private:
  void Watch() {
    while (!stopping_) {
      Termination termination;  // anew: after a signal the next one is to be caught as well
      if (termination.Wait(kWatchMs) <= 0) continue;
      if (!answering_) {
        std::fputc('\n', stdout);
        std::fflush(stdout);
        std::_Exit(kExitInterrupted);  // the main thread waits for a line that may never come
      }
      client_.InterruptRunning();
    }
  }

  RouterClient& client_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> answering_ = false;
  std::thread thread_;
};

// Asks with the whole conversation; false when there was no answer at all.
bool Answer(RouterClient& client, AnswerInterrupter& interrupter, const ChatOptions& options,
            std::vector<ChatMessage>& history) {
  Job job;
  job.id = "chat";
  job.messages = history;
  job.sampling = options.sampling;
  std::string answer;
  interrupter.set_answering(true);
  const absl::StatusOr<std::vector<JobResult>> results =
      client.Run(job, [&answer](std::string_view text) {
        answer += text;
        std::cout << text << std::flush;
      });
  interrupter.set_answering(false);
  std::cout << std::endl;
  if (!results.ok() && !absl::IsCancelled(results.status())) {
    ReportError(results.status());
    return false;
  }
  if (results.ok() && options.ledger) std::cerr << LedgerTable(results->front());
  history.push_back({.role = "assistant", .content = std::move(answer), .name = std::nullopt});
  return true;
}

int Chat(const ChatOptions& options) {
  const Termination block_signals_everywhere;
  RouterClient client(options.client);
  AnswerInterrupter interrupter(client);
  std::vector<ChatMessage> history;
  if (!options.system.empty()) {
    history.push_back({.role = "system", .content = options.system, .name = std::nullopt});
  }
  std::cerr << "Ctrl-C ends an answer, Ctrl-D the conversation.\n";
  InputFile input = InputFile::StandardInput();
  std::string line;
  LineRead read;
  while (std::cout << "> " << std::flush,
         (read = input.ReadLine(kMaxJobLineBytes, line)) != LineRead::kEnd) {
    if (read == LineRead::kFailed) return ReportError(input.status());
    if (read == LineRead::kTooLong) {
      ReportError(absl::InvalidArgumentError(
          absl::StrCat("the line has more than ", kMaxJobLineBytes, " bytes")));
      continue;
    }
    if (line.empty()) continue;
    history.push_back({.role = "user", .content = line, .name = std::nullopt});
    if (!Answer(client, interrupter, options, history)) history.pop_back();  // may be asked again
  }
  std::cout << std::endl;
  return 0;
}

}  // namespace

void AddChatCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand("chat", "Talk with the model through a router");
  auto options = std::make_shared<ChatOptions>();
  command.Add("--router", &options->client.router, "HOST:PORT of the router")
      .IsHostPort()
      .ShowDefault();
  command.Add("--system", &options->system, "A system message to begin with");
  command.AddFlag("--ledger", &options->ledger, "Print each answer's latency ledger");
  AddSamplingFlags(command, options->sampling);
  command.OnRun([options] { return Chat(*options); });
}

}  // namespace baton
