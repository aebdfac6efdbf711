// `baton chat`: holds a conversation at the terminal. Ctrl-C ends an answer, and Ctrl-D ends the
// conversation.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/chat_input.h"
#include "cli/chat_sampling.h"
#include "cli/client_commands.h"
#include "cli/conversation.h"
#include "cli/job_flags.h"
#include "cli/ledger_table.h"
#include "cli/outcome.h"
#include "cli/router_client.h"
#include "cli/terminal.h"
#include "common/counted_noun.h"
#include "common/exit_code.h"
#include "common/nearest_name.h"
#include "rpc/channel.h"

namespace baton {
namespace {

// Delays between attempts to connect. Each is twice the previous one.
constexpr std::chrono::milliseconds kFirstRetry(300);
constexpr std::chrono::milliseconds kLongestRetry(3000);
constexpr int64_t kStatusMs = 1000;
constexpr int64_t kReconnectMs = 30'000;  // default at a terminal
constexpr long kWatchNs = 100'000'000;

struct ChatOptions {
  RouterClientOptions client{.router = kDefaultRouter};
  ConnectionFlags connection;
  std::string system;
  std::vector<std::string> chunks;  // texts, or "@FILE"
  Job job;                          // options of the chunks
  int64_t reconnect_ms = 0;
  std::string history_file = DefaultHistoryFile();
  bool ledger = false;
  SamplingParams sampling;
  FlagIsGiven flag_is_given;
};

sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal_number);
  return signals;
}

// Blocks the ending signals in this thread and in all threads that it starts. Only the Interrupter
// receives them.
struct BlockedSignals {
  BlockedSignals() {
    const sigset_t signals = EndingSignals();
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  }
};

// Handles SIGINT, SIGTERM and SIGHUP on a separate thread. SIGINT ends the running answer; between
// answers it drops the line at a terminal. The others end the conversation: at a terminal through
// the main thread, which restores the terminal's mode and saves the messages.
//
// Without a terminal, a blocking read cannot be interrupted: those signals, and SIGINT between
// answers, end the program at once.
class Interrupter {
 public:
  Interrupter(RouterClient& client, ChatInput& input)
      : client_(client), input_(input), thread_([this] { Watch(); }) {}
  ~Interrupter() {
    stopping_ = true;
    thread_.join();
  }

  void BeginAnswer() {
    const std::lock_guard lock(mutex_);
    answering_ = true;
    interrupted_ = ending_;
    if (!ending_) client_.Resume();
  }
  void EndAnswer() {
    const std::lock_guard lock(mutex_);
    answering_ = false;
  }
  // Returns true if an interrupt came since BeginAnswer.
  bool interrupted() const {
    const std::lock_guard lock(mutex_);
    return interrupted_;
  }
  // Returns true if SIGTERM or SIGHUP came.
  bool ending() const {
    const std::lock_guard lock(mutex_);
    return ending_;
  }
  // Waits for `duration`, or until an interrupt comes.
  void Pause(std::chrono::milliseconds duration) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration, [this] { return interrupted_; });
  }

 private:
  void Watch() {
    const sigset_t signals = EndingSignals();
    while (!stopping_) {
      const timespec pause{.tv_sec = 0, .tv_nsec = kWatchNs};
      const int signal_number = sigtimedwait(&signals, nullptr, &pause);
      if (signal_number >= 0) Take(signal_number);
    }
  }

  void Take(int signal_number) {
    const std::lock_guard lock(mutex_);
    const bool ends = signal_number != SIGINT;
    if (ends || !answering_) {
      if (!input_.Interrupt()) {
        std::fputs("\nbaton: the conversation ends here: it was interrupted\n", stderr);
        std::fflush(stdout);
        std::_Exit(kExitInterrupted);  // the main thread may block in a read forever
      }
      ending_ = ending_ || ends;
    }
    if (!answering_) return;
    interrupted_ = true;
    client_.Interrupt();
    changed_.notify_all();
  }

  RouterClient& client_;
  ChatInput& input_;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // notified when interrupted_ changes
  bool answering_ = false;           // guarded by mutex_, like the next two
  bool interrupted_ = false;
  bool ending_ = false;
  std::thread thread_;  // last member, because it uses the others
};

class Chat {
  using SteadyClock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

 public:
  Chat(const ChatOptions& options, std::vector<PromptPart> chunks)
      : options_(options),
        colours_(UsesColours(STDERR_FILENO)),
        client_(options.client),
        input_(UsesColours(STDOUT_FILENO), options.history_file),
        interrupter_(client_, input_),
        conversation_(options.system, std::move(chunks)) {}

  int Run() {
    if (AtTerminal()) Note("Ctrl-C ends an answer, Ctrl-D the conversation; /help lists more.");
    std::string line;
    while (true) {
      const ChatInput::Read read =
          interrupter_.ending() ? ChatInput::Read::kEnd : input_.Next(line);
      if (interrupter_.ending() || input_.TerminalIsGone()) return EndInterrupted();
      switch (read) {
        case ChatInput::Read::kEnd:
          if (AtTerminal()) std::cout << std::endl;
          return ExitCode();
        case ChatInput::Read::kFailed:
          return ReportError(input_.status());
        case ChatInput::Read::kTooLong:
          Problem(absl::InvalidArgumentError(
              absl::StrCat("the line has more than ", input_.max_line_bytes(), " bytes")));
          break;
        case ChatInput::Read::kInterrupted:
          std::cout << std::endl;
          Note("Ctrl-D ends the conversation.");
          break;
        case ChatInput::Read::kLine:
          if (!line.empty()) Take(line);
          if (quits_) return ExitCode();
      }
    }
  }

 private:
  // A script learns that questions had no answer.
  int ExitCode() const { return unanswered_ && !AtTerminal() ? kExitFailed : kExitSuccess; }
  static bool AtTerminal() { return isatty(STDIN_FILENO) == 1; }
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
        return Note("started a new conversation");
      case ChatCommand::kUndo:
        return Note(conversation_.Undo() ? "removed the last question and its answer"
                                         : "there is nothing to undo");
      case ChatCommand::kSave:
        return Save(parsed.text);
      case ChatCommand::kSystem:
        if (!parsed.text.empty()) conversation_.SetSystem(parsed.text);
        return Note(conversation_.system().empty() ? "there is no system message"
                                                   : "system: " + conversation_.system());
      case ChatCommand::kSettings:
        return Note(DescribeSettings());
      case ChatCommand::kQuit:
        quits_ = true;
        return;
      case ChatCommand::kUnknown:
        return Note(absl::StrCat(UnknownName("command", parsed.text, ChatCommandNames()),
                                 " (/help lists all; write a message that begins with / as //…)"));
    }
  }

  // Saves the messages, because the user can no longer do it.
  int EndInterrupted() const {
    std::cerr << "\nbaton: the conversation was interrupted" << std::endl;
    const bool answered =
        conversation_.messages().size() > (conversation_.system().empty() ? 0 : 1);
    if (answered) {
      Save(absl::StrCat("baton-chat-",
                        absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()), "-",
                        getpid(), ".jsonl"));
    }
    return kExitInterrupted;
  }

  std::string DescribeSettings() {
    const SamplingParams sampling = Sampling();
    return absl::StrCat(
        "sampling: ", DescribeChatSampling(ModelSampling(), options_.flag_is_given, sampling),
        sampling.max_tokens ? absl::StrCat(", max-tokens ", *sampling.max_tokens, " (flag)") : "");
  }

  void Save(const std::string& path) const {
    if (path.empty()) return Note("name a file: /save FILE");
    const absl::Status saved = conversation_.Save(path);
    if (!saved.ok()) return Problem(saved);
    const auto count = static_cast<int64_t>(conversation_.messages().size());
    Note(absl::StrCat(CountedNoun(count, "message"), " saved in ", path));
  }

  void Ask(const std::string& question) {
    conversation_.Ask(question);
    std::string answer;
    Job job = options_.job;
    job.id = "chat";
    job.messages = conversation_.messages();
    interrupter_.BeginAnswer();
    absl::StatusOr<std::vector<JobResult>> results = absl::UnavailableError("not asked yet");
    const auto give_up = SteadyClock::now() + Milliseconds(options_.reconnect_ms);
    // A router that is down, or has no workers, is asked again: no worker has begun an answer.
    for (bool again = false; !again || MayAskAgain(results.status(), answer, give_up);
         again = true) {
      WaitForRouter(give_up, again);
      job.sampling = Sampling();
      results = client_.Run(job, [&answer](std::string_view text) {
        answer += text;
        std::cout << text << std::flush;
      });
    }
    interrupter_.EndAnswer();
    std::cout << std::endl;
    if (results.ok()) ShowNotes(job, *results);
    if (!results.ok() && !interrupter_.interrupted()) Problem(results.status());
    if (results.ok() || !answer.empty()) {
      conversation_.Answer(answer);
      if (!results.ok()) Note("the answer was broken off; its text is kept, /undo removes it");
    } else {
      unanswered_ = true;
      conversation_.TakeBack();
      Note(absl::StrCat("no answer came; the message is taken back",
                        input_.is_terminal() ? ", press ↑ to send it again" : ""));
    }
  }

  void ShowNotes(const Job& job, const std::vector<JobResult>& results) {
    const JobResult& result = results.front();
    const TokenPieces pieces = FindPieces(client_, TokensToShow(job, results));
    if (const std::string stopped = StopNote(job, result, pieces); !stopped.empty()) Note(stopped);
    const std::string tables = absl::StrCat(LogprobsTable(result, pieces),
                                            options_.ledger ? LedgerTable(result) : std::string());
    if (!tables.empty()) std::cerr << Dim(tables, colours_) << std::flush;
  }

  // Asks the router until it has answered once. A new connection may lead to another model.
  SamplingDefaults ModelSampling() {
    if (!model_sampling_) {
      const absl::StatusOr<SamplingDefaults> answer = client_.RecommendedSampling();
      if (answer.ok()) model_sampling_ = *answer;
    }
    return model_sampling_.value_or(SamplingDefaults());
  }

  SamplingParams Sampling() {
    SamplingParams sampling = options_.sampling;
    SetChatSampling(ModelSampling(), options_.flag_is_given, sampling);
    return sampling;
  }

  bool MayAskAgain(const absl::Status& failure, const std::string& answer,
                   SteadyClock::time_point give_up) const {
    return absl::IsUnavailable(failure) && answer.empty() && !interrupter_.interrupted() &&
           SteadyClock::now() < give_up;
  }

  // Returns when a router is connected, the time is up or an interrupt comes. A router that was
  // down, or that could not answer (`again`), must also have its workers.
  void WaitForRouter(SteadyClock::time_point give_up, bool again) {
    const auto left = [give_up] {
      return std::chrono::duration_cast<Milliseconds>(give_up - SteadyClock::now());
    };
    if (again) interrupter_.Pause(std::clamp(left(), Milliseconds(0), Milliseconds(kFirstRetry)));
    Milliseconds retry_delay = kFirstRetry;
    for (bool said = false; left().count() > 0 && !interrupter_.interrupted(); said = true) {
      const bool connected = client_.Connect(left().count());
      if (connected && ((!said && !again) || IsReady())) return;
      if (interrupter_.interrupted()) return;
      if (!said) {
        Note(absl::StrCat(
            connected ? "no worker is ready behind the router at " : "no router answers at ",
            options_.client.router, "; trying again, Ctrl-C gives up"));
      }
      interrupter_.Pause(std::clamp(left(), Milliseconds(0), retry_delay));
      retry_delay = std::min(2 * retry_delay, kLongestRetry);
      client_.Reconnect();
      model_sampling_.reset();
    }
  }

  bool IsReady() {
    const absl::StatusOr<v1::GetStatusResponse> status = client_.GetStatus(kStatusMs);
    // The status is for operators. Other clients find out by their message.
    const bool hidden =
        absl::IsPermissionDenied(status.status()) || absl::IsUnauthenticated(status.status());
    return hidden || (status.ok() && status->ready());
  }

  const ChatOptions& options_;
  const bool colours_;  // colours on standard error
  const BlockedSignals block_signals_everywhere_;
  RouterClient client_;
  ChatInput input_;
  Interrupter interrupter_;
  Conversation conversation_;
  bool unanswered_ = false;                         // a question got no answer
  bool quits_ = false;                              // /quit was typed
  std::optional<SamplingDefaults> model_sampling_;  // from the router
};

}  // namespace

void AddChatCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("chat", "Have a conversation with the model through a router");
  auto options = std::make_shared<ChatOptions>();
  command.Add("--router", &options->client.router, "HOST:PORT of the router")
      .IsHostPort()
      .FromEnvironment()
      .ShowDefault();
  AddConnectionFlags(command, &options->connection);
  command.Add("--system", &options->system, "System message of the conversation");
  command
      .Add("--chunk", &options->chunks,
           "A chunk of the first question, such as a document to talk about. @FILE reads a file. "
           "Other conversations reuse its KV in any order and beside any other chunks")
      .TakesOne()
      .Group("Chunks");
  AddChunkOptionFlags(command, options->job);
  // Only at a terminal: a script must not wait for each of its lines.
  if (isatty(STDIN_FILENO) == 1) options->reconnect_ms = kReconnectMs;
  command
      .Add("--reconnect-ms", &options->reconnect_ms,
           absl::StrCat("How long a message waits for a router that is down, in milliseconds. The "
                        "default is ",
                        kReconnectMs, " if standard input is a terminal, else 0"))
      .Range(int64_t{0}, kMaxTimeoutMs);
  command
      .Add("--history", &options->history_file,
           "File that keeps the lines typed at a terminal, for the arrow keys and Ctrl-R of later "
           "conversations. Empty: none. Default: baton/chat_history in $XDG_STATE_HOME, or else in "
           "~/.local/state")
      .Value("FILE");
  command.AddFlag("--ledger", &options->ledger, "Print each answer's latency ledger");
  options->sampling.temperature = kChatTemperature;  // the help shows these
  options->sampling.top_p = kChatTopP;
  AddSamplingFlags(command, options->sampling);
  command.AddHelpText(kChatSamplingHelp);
  options->flag_is_given = [&command](const std::string& flag) { return command.IsGiven(flag); };
  command.ShowWithSettings([options = options.get()] {
    return ChatSamplingLine(std::nullopt, options->flag_is_given, options->sampling);
  });
  command.OnRun([options] {
    const BlockedSignals blocked;  // before OpenConnection, which may start threads of gRPC
    const absl::StatusOr<ClientConnection> connection = OpenConnection(options->connection);
    if (!connection.ok()) return ReportError(connection.status());
    options->client.connection = *connection;
    absl::StatusOr<std::vector<PromptPart>> chunks = ReadChunks(options->chunks);
    if (!chunks.ok()) return ReportError(chunks.status());
    return Chat(*options, *std::move(chunks)).Run();
  });
}

}  // namespace baton
