#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#ifdef BATON_GRPC
#include "baton/v1/worker.grpc.pb.h"
#include "cli/worker_choice_client.h"
#include "rpc/status_conversion.h"
#endif

namespace baton {
namespace {
#ifdef BATON_GRPC

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::GetStatusResponse Fleet() {
  v1::GetStatusResponse status;
  for (const char* name : {"prefill-0", "decode-0", "decode-1"}) {
    v1::WorkerStatus& worker = *status.add_workers();
    worker.set_worker_id(name);
    worker.set_address("127.0.0.1:" + std::to_string(9000 + status.workers_size()));
  }
  return status;
}

std::vector<std::string> Found(const WorkerChoice& choice) {
  std::vector<std::string> out;
  const auto workers = FindWorkers(choice, Fleet());
  EXPECT_TRUE(workers.ok()) << workers.status();
  if (!workers.ok()) return out;
  for (const NamedWorker& worker : *workers) out.push_back(worker.name + " " + worker.address);
  return out;
}

std::string Refusal(const WorkerChoice& choice, const v1::GetStatusResponse& status) {
  return std::string(FindWorkers(choice, status).status().message());
}

TEST(WorkerChoice, FindsANameOrAllWorkers) {
  EXPECT_THAT(Found({.worker = "decode-0"}), ElementsAre("decode-0 127.0.0.1:9002"));
  EXPECT_THAT(Found({.all = true}),
              ElementsAre("decode-0 127.0.0.1:9002", "decode-1 127.0.0.1:9003",
                          "prefill-0 127.0.0.1:9001"));
}

TEST(WorkerChoice, AnUnknownNameGetsTheNearestNameOrAllNames) {
  EXPECT_EQ(Refusal({.worker = "decod-0"}, Fleet()),
            "there is no worker decod-0; did you mean decode-0?");
  EXPECT_EQ(Refusal({.worker = "zebra"}, Fleet()),
            "there is no worker zebra; there are: decode-0, decode-1, prefill-0");
  EXPECT_EQ(Refusal({.all = true}, v1::GetStatusResponse()), "the router has no workers");
}

TEST(WorkerChoice, ANamesAddressIsNotTrusted) {
  v1::GetStatusResponse status = Fleet();
  status.mutable_workers(1)->set_address("unix:/tmp/\x1bsocket");
  EXPECT_THAT(Refusal({.worker = "decode-0"}, status), HasSubstr("unix:/tmp/\\x1bsocket"));
}

// Nothing listens at port 1.
TEST(WorkerChoice, AnErrorGivesTheExitCodeAndAnAddressNeedsNoRouter) {
  ::testing::internal::CaptureStderr();
  const int code = ForEachWorker({.router = "127.0.0.1:1", .worker = "127.0.0.1:7"},
                                 [](const auto& channel) -> absl::StatusOr<std::string> {
                                   EXPECT_NE(channel, nullptr);
                                   return absl::InvalidArgumentError("no");
                                 });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "baton: INVALID_ARGUMENT: no\n");
  EXPECT_EQ(code, 2);
}

// Nothing listens at port 1.
TEST(WorkerChoice, AnErrorWithoutARouterSaysHowToGetOne) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ForEachWorker({.router = "127.0.0.1:1", .worker = "decode-0"}, nullptr), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("no router answers at 127.0.0.1:1: start one with `baton up`, or give "
                        "--router"));
}

// Nothing listens at port 1.
TEST(WorkerChoice, AnErrorWithoutAWorkerNamesTheAddress) {
  const auto call = [](const std::string& worker) {
    ::testing::internal::CaptureStderr();
    const int code = ForEachWorker(
        {.worker = worker},
        [](const std::shared_ptr<grpc::Channel>& channel) -> absl::StatusOr<std::string> {
          const auto stub = v1::Worker::NewStub(channel);
          grpc::ClientContext context;
          v1::SetRoleResponse answer;
          return FromGrpcStatus(stub->SetRole(&context, {}, &answer));
        });
    EXPECT_NE(code, 0);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(call("127.0.0.1:1"), HasSubstr("no worker answers at 127.0.0.1:1: `baton status`"));
  EXPECT_THAT(call("http://127.0.0.1:1"), HasSubstr("leave out http://"));
}

TEST(WorkerChoice, RefusesAnEmptyChoice) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ForEachWorker({}, nullptr), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--worker NAME or --all"));
}

#endif  // BATON_GRPC
}  // namespace
}  // namespace baton
