// `baton bench mock`: an OpenAI-compatible server of known times.

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/mock_server.h"
#include "cli/outcome.h"
#include "common/exit_code.h"
#include "common/termination.h"

namespace baton {
namespace {

constexpr double kMaxMockMs = 3'600'000;

struct MockOptions {
  std::string listen = "127.0.0.1:8000";
  double ttft_ms = 100;
  double itl_ms = 5;
  double stall_ms = 0;
  double stall_every_ms = 0;
};

int64_t ToUs(double ms) { return static_cast<int64_t>(ms * 1000); }

int RunMock(const MockOptions& options) {
  if ((options.stall_ms > 0) != (options.stall_every_ms > 0)) {
    return ReportError(
        absl::InvalidArgumentError("--stall-ms and --stall-every-ms need each other"));
  }
  if (options.stall_every_ms > 0 && options.stall_ms >= options.stall_every_ms) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("--stall-ms is ", options.stall_ms,
                     "; must be below --stall-every-ms, which is ", options.stall_every_ms)));
  }
  Termination termination;
  const auto server =
      MockServer::Start(options.listen, {.ttft_us = ToUs(options.ttft_ms),
                                         .itl_us = ToUs(options.itl_ms),
                                         .stall_us = ToUs(options.stall_ms),
                                         .stall_every_us = ToUs(options.stall_every_ms)});
  if (!server.ok()) return ReportError(server.status());
  if (!PrintResult(absl::StrCat("ready ", (*server)->address(), "\n"))) return kExitFailed;
  termination.Wait();
  return kExitSuccess;
}

}  // namespace

void AddBenchMockCommand(CommandLine& bench) {
  CommandLine& command = bench.AddCommand(
      "mock", "Run an OpenAI-compatible server of known times, to check the load generator");
  auto options = std::make_shared<MockOptions>();
  command
      .Add("--listen", &options->listen,
           "HOST:PORT to listen on; port 0 picks a free one. Prints \"ready HOST:PORT\"")
      .IsListenAddress()
      .ShowDefault();
  command.Add("--ttft-ms", &options->ttft_ms, "Milliseconds from a request to its first token")
      .Range(0.0, kMaxMockMs)
      .ShowDefault();
  command.Add("--itl-ms", &options->itl_ms, "Milliseconds between two tokens")
      .Range(0.0, kMaxMockMs)
      .ShowDefault();
  command
      .Add("--stall-ms", &options->stall_ms,
           "Milliseconds of a stall, in which the server does nothing; 0: no stalls")
      .Range(0.0, kMaxMockMs)
      .ShowDefault();
  command
      .Add("--stall-every-ms", &options->stall_every_ms,
           "Milliseconds from the begin of a stall to the begin of the next; 0: no stalls")
      .Range(0.0, kMaxMockMs)
      .ShowDefault();
  command.OnRun([options] { return RunMock(*options); });
}

}  // namespace baton
