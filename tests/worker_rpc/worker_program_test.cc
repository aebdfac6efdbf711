// Command line of a worker's program. Each case runs in a separate process.
#include "worker_rpc/worker_program.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "common/listening_sockets.h"

namespace baton {
namespace {

[[noreturn]] void RunProgram(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "test-worker");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::exit(RunWorkerMain(static_cast<int>(arguments.size()), argv.data(),
                          {.name = "test-worker",
                           .description = "Tests.",
                           .id_prefix = "test",
                           .role = v1::WORKER_ROLE_DECODE,
                           .role_services = {}}));
}

class WorkerProgramDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(WorkerProgramDeathTest, HelpAndSettingsAreNoErrors) {
  EXPECT_EXIT(RunProgram({"--help"}), ::testing::ExitedWithCode(kExitSuccess), "");
  EXPECT_EXIT(RunProgram({"--show-settings"}), ::testing::ExitedWithCode(kExitSuccess), "");
  EXPECT_EXIT(RunProgram({"--man-page"}), ::testing::ExitedWithCode(kExitSuccess), "");
}

TEST_F(WorkerProgramDeathTest, AWrongCommandLineIsNamed) {
  EXPECT_EXIT(RunProgram({"--nonsense"}), ::testing::ExitedWithCode(kExitUsage), "--nonsense");
  EXPECT_EXIT(RunProgram({"--router", "nowhere"}), ::testing::ExitedWithCode(kExitUsage),
              "--router.*nowhere");
  EXPECT_EXIT(RunProgram({"--nice", "20"}), ::testing::ExitedWithCode(kExitUsage), "--nice.*20");
}

TEST_F(WorkerProgramDeathTest, AddressesAreCheckedBeforeAModelIsLoaded) {
  const std::string no_model = "--model=/nowhere/model.gguf";
  EXPECT_EXIT(RunProgram({no_model, "--listen=127.0.0.1"}), ::testing::ExitedWithCode(kExitUsage),
              "test-worker: --listen: \"127.0.0.1\" is not HOST:PORT");
  EXPECT_EXIT(RunProgram({no_model, "--transfer-listen=here"}),
              ::testing::ExitedWithCode(kExitUsage),
              "test-worker: --transfer-listen: \"here\" is not HOST:PORT");
  EXPECT_EXIT(RunProgram({no_model}), ::testing::ExitedWithCode(kExitUsage), "/nowhere/model.gguf");
}

TEST_F(WorkerProgramDeathTest, ACheckFindsWhatAStartWouldRefuse) {
  const absl::StatusOr<ListeningSockets> taken = ListenAt({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(taken.ok());
  const std::string in_use = absl::StrCat("127.0.0.1:", taken->port);
  for (const char* const option : {"--listen=", "--transfer-listen=", "--metrics-listen="}) {
    EXPECT_EXIT(RunProgram({"--check", "--model=/nowhere/model.gguf", option + in_use}),
                ::testing::ExitedWithCode(kExitFailed),
                "cannot listen on 127.0.0.1:[0-9]+: Address already in use");
  }
  EXPECT_EXIT(RunProgram({"--check", "--listen=127.0.0.1:0", "--model=/nowhere/model.gguf"}),
              ::testing::ExitedWithCode(kExitUsage), "/nowhere/model.gguf");
  EXPECT_EXIT(RunProgram({"--check", "--listen=127.0.0.1:0", "--tls-cert=/nowhere/worker.pem",
                          "--tls-ca=/nowhere/ca.crt"}),
              ::testing::ExitedWithCode(kExitUsage), "/nowhere/");
}

TEST_F(WorkerProgramDeathTest, WarnsOfAWildcardAddress) {
  EXPECT_EXIT(RunProgram({"--model=/nowhere/model.gguf", "--listen=0.0.0.0:0", "--plaintext"}),
              ::testing::ExitedWithCode(kExitUsage),
              "--listen 0.0.0.0:0 accepts connections to every address");
}

}  // namespace
}  // namespace baton
