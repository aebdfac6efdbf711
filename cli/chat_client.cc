// `baton chat`: a conversation at the terminal. Ctrl-C ends an answer, Ctrl-D the conversation.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/client_commands.h"
#include "cli/conversation.h"
#include "cli/input_file.h"
#include "cli/job_flags.h"
#include "cli/ledger_table.h"
#include "cli/line_editor.h"
#include "cli/outcome.h"
#include "cli/router_client.h"
#include "cli/terminal.h"
#include "common/exit_code.h"
#include "common/nearest_name.h"
#include "common/termination.h"
#include "rpc/channel.h"

namespace baton {
namespace {

constexpr auto kRetryInterval = std::chrono::milliseconds(300);
constexpr long kWatchNs = 100'000'000;

struct ChatOptions {
  RouterClientOptions client{.router = kDefaultRouter};
  std::string system;
  int64_t reconnect_ms = 30'000;
  bool ledger = false;
  SamplingParams sampling;
};

// Lines from a terminal, with editing, or from a file or pipe.
class ChatInput {
 public:
  explicit ChatInput(bool colours) {
    if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) editor_.emplace(colours);
  }

  bool is_terminal() const { return editor_.has_value(); }
  // kTooLong of a file alone; status() says why one failed.
  enum class Read : uint8_t { kLine, kTooLong, kInterrupted, kEnd, kFailed };
  Read Next(std::string& line) {
    if (editor_) {
      const LineEdit edited = editor_->Read(line);
      if (edited == LineEdit::kLine && !line.empty()) editor_->Remember(line);
      return edited == LineEdit::kLine          ? Read::kLine
             : edited == LineEdit::kInterrupted ? Read::kInterrupted
                                                : Read::kEnd;
    }
    std::cout << "> " << std::flush;
    const LineRead read = file_.ReadLine(kMaxJobLineBytes, line);
    return read == LineRead::kLine      ? Read::kLine
           : read == LineRead::kTooLong ? Read::kTooLong
           : read == LineRead::kFailed  ? Read::kFailed
                                        : Read::kEnd;
  }
  const absl::Status& status() const { return file_.status(); }
  // From any thread: ends a Next at a terminal. False where there is none.
  bool Interrupt() {
    if (editor_) editor_->Interrupt();
    return editor_.has_value();
  }

 private:
  std::optional<LineEditor> editor_;
  InputFile file_ = InputFile::StandardInput();
};

// Takes SIGINT and SIGTERM on a thread of its own. SIGINT ends the running answer; between answers
// it drops the line at a terminal. SIGTERM, and SIGINT where no terminal is, end the program.
class Interrupter {
 public:
  Interrupter(RouterClient& client, ChatInput& input)
      : client_(client), input_(input), thread_([this] { Watch(); }) {}
  ~Interrupter() {
    stopping_ = true;
    thread_.join();
  }

  void BeginAnswer() {
    interrupted_ = false;
    answering_ = true;
  }
  void EndAnswer() { answering_ = false; }
  // Since BeginAnswer.
  bool interrupted() const { return interrupted_; }

 private:
  void Watch() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    while (!stopping_) {
      const timespec pause{.tv_sec = 0, .tv_nsec = kWatchNs};
      const int signal_number = sigtimedwait(&signals, nullptr, &pause);
      if (signal_number < 0) continue;
      if (signal_number == SIGINT && answering_) {
        interrupted_ = true;
        client_.InterruptRunning();
      } else if (signal_number == SIGTERM || !input_.Interrupt()) {
        std::fputs("\nbaton: the conversation ends here: it was interrupted\n", stderr);
        std::fflush(stdout);
        std::_Exit(kExitInterrupted);  // the main thread waits for a line that may never come
      }
    }
  }

  RouterClient& client_;
  ChatInput& input_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> answering_ = false;
  std::atomic<bool> interrupted_ = false;
  std::thread thread_;
};

class Chat {
 public:
  explicit Chat(const ChatOptions& options)
      : options_(options),
        colours_(UsesColours(STDERR_FILENO)),
        client_(options.client),
        input_(UsesColours(STDOUT_FILENO)),
        interrupter_(client_, input_),
        conversation_(options.system) {}

  int Run() {
    Note("Ctrl-C ends an answer, Ctrl-D the conversation; /help lists more.");
    std::string line;
    while (true) {
      switch (input_.Next(line)) {
        case ChatInput::Read::kEnd:
          std::cout << std::endl;
          return kExitSuccess;
        case ChatInput::Read::kFailed:
          return ReportError(input_.status());
        case ChatInput::Read::kTooLong:
          Problem(absl::InvalidArgumentError(
              absl::StrCat("the line has more than ", kMaxJobLineBytes, " bytes")));
          break;
        case ChatInput::Read::kInterrupted:
          std::cout << std::endl;
          Note("Ctrl-D ends the conversation.");
          break;
        case ChatInput::Read::kLine:
          if (!line.empty()) Take(line);
      }
    }
  }

 private:
  void Note(const std::string& text) const { std::cerr << Dim(text, colours_) << std::endl; }
  void Problem(const absl::Status& status) const {
    if (colours_) std::cerr << "\033[31m";
    ReportError(status);
    if (colours_) std::cerr << "\033[0m" << std::flush;
  }

  void Take(const std::string& line) {
    const ChatLine parsed = ParseChatLine(line);
    switch (parsed.command) {
      case ChatCommand::kMessage:
        return Ask(parsed.text);
      case ChatCommand::kHelp:
        std::cerr << ChatHelp() << std::flush;
        return;
      case ChatCommand::kReset:
        conversation_.Reset();
        return Note("a new conversation");
      case ChatCommand::kUndo:
        return Note(conversation_.Undo() ? "the last question and its answer are forgotten"
                                         : "there is nothing to undo");
      case ChatCommand::kSave:
        return Save(parsed.text);
      case ChatCommand::kSystem:
        if (!parsed.text.empty()) conversation_.SetSystem(parsed.text);
        return Note(conversation_.system().empty() ? "there is no system message"
                                                   : "system: " + conversation_.system());
      case ChatCommand::kUnknown:
        const std::string nearest = NearestName(parsed.text, ChatCommandNames());
        return Note(absl::StrCat(
            "there is no command ", parsed.text, nearest.empty() ? "" : "; did you mean ", nearest,
            nearest.empty() ? "" : "?", " A message that begins with / is written //…; see /help"));
    }
  }

  void Save(const std::string& path) const {
    if (path.empty()) return Note("name a file: /save FILE");
    const absl::Status saved = conversation_.Save(path);
    if (!saved.ok()) return Problem(saved);
    Note(absl::StrCat(conversation_.messages().size(), " messages saved in ", path));
  }

  void Ask(const std::string& question) {
    conversation_.Ask(question);
    std::string answer;
    interrupter_.BeginAnswer();
    const absl::StatusOr<std::vector<JobResult>> results = AnswerOrReconnect(answer);
    interrupter_.EndAnswer();
    std::cout << std::endl;
    if (results.ok() && options_.ledger) {
      std::cerr << Dim(LedgerTable(results->front()), colours_) << std::flush;
    }
    if (!results.ok() && !interrupter_.interrupted()) Problem(results.status());
    if (results.ok() || !answer.empty()) {
      conversation_.Answer(answer);
      if (!results.ok()) Note("the answer was broken off; what came of it is kept (/undo)");
    } else {
      conversation_.TakeBack();
      Note("no answer came: the message is taken back, the conversation before it is kept");
    }
  }

  // While no router is there, waits for one: nothing was answered yet.
  absl::StatusOr<std::vector<JobResult>> AnswerOrReconnect(std::string& answer) {
    using SteadyClock = std::chrono::steady_clock;
    const auto give_up = SteadyClock::now() + std::chrono::milliseconds(options_.reconnect_ms);
    Job job;
    job.id = "chat";
    job.messages = conversation_.messages();
    job.sampling = options_.sampling;
    for (bool said = false;; said = true) {
      absl::StatusOr<std::vector<JobResult>> results =
          client_.Run(job, [&answer](std::string_view text) {
            answer += text;
            std::cout << text << std::flush;
          });
      const bool lost = absl::IsUnavailable(results.status()) && answer.empty();
      if (!lost || interrupter_.interrupted() || SteadyClock::now() >= give_up) return results;
      if (!said) {
        Note(absl::StrCat("no answer from ", options_.client.router, " (",
                          results.status().message(), "); trying again, Ctrl-C gives up"));
      }
      std::this_thread::sleep_for(kRetryInterval);
      if (interrupter_.interrupted()) return results;
      client_.Reconnect();
    }
  }

  const ChatOptions& options_;
  const bool colours_;  // of standard error
  const Termination block_signals_everywhere_;
  RouterClient client_;
  ChatInput input_;
  Interrupter interrupter_;
  Conversation conversation_;
};

}  // namespace

void AddChatCommand(CommandLine& line) {
  CommandLine& command = line.AddCommand("chat", "Talk with the model through a router");
  auto options = std::make_shared<ChatOptions>();
  command.Add("--router", &options->client.router, "HOST:PORT of the router")
      .IsHostPort()
      .FromEnvironment()
      .ShowDefault();
  command.Add("--system", &options->system, "A system message to begin with");
  command
      .Add("--reconnect-ms", &options->reconnect_ms,
           "How long a message waits for a router that is down, in milliseconds")
      .Range(int64_t{0}, kMaxTimeoutMs)
      .ShowDefault();
  command.AddFlag("--ledger", &options->ledger, "Print each answer's latency ledger");
  AddSamplingFlags(command, options->sampling);
  command.OnRun([options] { return Chat(*options).Run(); });
}

}  // namespace baton
