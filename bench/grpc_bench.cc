// Benchmark of gRPC alone: the least time that a request's way through a service can take. A client
// calls a server that answers at once, or a server that first calls another one, as a router calls
// a worker. All calls are streams of one request and one answer with gRPC's callback interface, as
// Baton's are. Each server has a process of its own.
//
//   grpc_hop_us               from the start of a call to its first answer, one call at once
//   grpc_two_hops_us          the same through both servers
//   grpc_hop_rested_us        as grpc_hop_us, after a rest as long as a prompt of some dozen tokens
//                             takes: the processors have gone to sleep
//   grpc_two_hops_rested_us   as grpc_two_hops_us, after such a rest
//
// All are medians. tests/e2e/added_ttft.py measures what Baton adds to the last one.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "bench/figure_list.h"
#include "common/check.h"
#include "common/command_line.h"

namespace baton {
namespace {

constexpr size_t kRequestBytes = 400;
constexpr size_t kAnswerBytes = 64;
constexpr char kMethod[] = "/baton.bench.Hop/Ask";

struct BenchOptions {
  int32_t calls = 300;
  int32_t rest_ms = 35;
};

grpc::ByteBuffer Message(size_t bytes) {
  const grpc::Slice slice(std::string(bytes, 'x'));
  return grpc::ByteBuffer(&slice, 1);
}

// A call with one request. `on_answer` runs on a thread of gRPC. Deletes itself at its end.
class Call final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(grpc::GenericStub& stub, const grpc::ByteBuffer& request,
       std::function<void(bool)> on_answer)
      : request_(request), on_answer_(std::move(on_answer)) {
    stub.PrepareBidiStreamingCall(&context_, kMethod, {}, this);
    StartWriteLast(&request_, {});
    StartRead(&answer_);
    StartCall();
  }
  void OnReadDone(bool ok) override { on_answer_(ok); }
  void OnDone(const grpc::Status&) override { delete this; }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  const std::function<void(bool)> on_answer_;
};

class Server final : public grpc::CallbackGenericService {
 public:
  // `next`: the server to ask before each answer; null: none.
  explicit Server(const std::shared_ptr<grpc::Channel>& next) {
    if (next != nullptr) next_ = std::make_unique<grpc::GenericStub>(next);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    CHECK(server_ != nullptr && port_ > 0) << "no port";
  }
  int port() const { return port_; }
  void Wait() { server_->Wait(); }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Answer(next_.get());
  }

 private:
  class Answer final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Answer(grpc::GenericStub* next) : next_(next) { StartRead(&request_); }
    void OnReadDone(bool ok) override {
      if (!ok || next_ == nullptr) return End(ok);
      new Call(*next_, request_, [this](bool answered) { End(answered); });
    }
    void OnDone() override { delete this; }

   private:
    void End(bool ok) {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
    }
    grpc::GenericStub* const next_;
    grpc::ByteBuffer request_;
    grpc::ByteBuffer answer_ = Message(kAnswerBytes);
  };

  std::unique_ptr<grpc::GenericStub> next_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

std::string AddressOf(int port) { return "127.0.0.1:" + std::to_string(port); }

std::shared_ptr<grpc::Channel> ChannelTo(int port) {
  return grpc::CreateChannel(AddressOf(port), grpc::InsecureChannelCredentials());
}

// Starts a server in a process that ends with this one. Returns its port. `next_port` 0: it asks no
// other server. REQUIRES: this process has not used gRPC yet.
int StartServer(int next_port) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Server server(next_port == 0 ? nullptr : ChannelTo(next_port));
    const int port = server.port();
    CHECK(write(ends[1], &port, sizeof(port)) == sizeof(port));
    server.Wait();
  }
  int port = 0;
  CHECK(read(ends[0], &port, sizeof(port)) == sizeof(port)) << "the server did not start";
  return port;
}

double MedianMicroseconds(int port, int32_t calls, int32_t rest_ms) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUp = 10;
  grpc::GenericStub stub(ChannelTo(port));
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + calls; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(rest_ms));
    absl::Notification answered;
    Clock::time_point end;
    const Clock::time_point begin = Clock::now();
    new Call(stub, Message(kRequestBytes), [&](bool ok) {
      CHECK(ok) << "a call failed";
      end = Clock::now();
      answered.Notify();
    });
    answered.WaitForNotification();
    if (i >= kWarmUp)
      times.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

int Bench(const BenchOptions& options) {
  const int last = StartServer(0);
  const int middle = StartServer(last);
  FigureList figures;
  figures.AddCondition("Client and servers share this machine's " +
                       std::to_string(std::thread::hardware_concurrency()) + " processors.");
  const auto add = [&](const char* name, int port, int32_t rest_ms) {
    const double median = MedianMicroseconds(port, options.calls, rest_ms);
    std::printf("%-24s %.0f us\n", name, median);
    figures.Add(name, median, "us");
  };
  add("grpc_hop_us", last, 0);
  add("grpc_two_hops_us", middle, 0);
  add("grpc_hop_rested_us", last, options.rest_ms);
  add("grpc_two_hops_rested_us", middle, options.rest_ms);
  figures.Print("grpc", 0);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  baton::BenchOptions options;
  baton::CommandLine line("Measures the time of gRPC calls through one server and two.");
  line.Add("--calls", &options.calls, "Calls for each figure").Range(10, 100'000).ShowDefault();
  line.Add("--rest-ms", &options.rest_ms, "Rest before each call of the rested figures")
      .Range(0, 10'000)
      .ShowDefault();
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  return baton::Bench(options);
}
