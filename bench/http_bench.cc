// Benchmark of the router's HTTP edge. The router is the production one. Behind it is a worker with
// a scripted engine, in a process of its own. Clients are in a third process.
//
//   bytes_per_stream  resident memory of the router for each of many streams that are open and
//                     silent
//   health_p99_ms     time of GET /health beside these streams
//   http_to_grpc      generated tokens per second over HTTP, divided by those over gRPC. Half of
//                     the answers' time is the worker's and the clients', so this is not the ratio
//                     of the edges' own speeds
//
// All processes share the machine's processors.
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/figure_list.h"
#include "bench/http_load_client.h"
#include "common/command_line.h"
#include "common/descriptor_limit.h"
#include "common/host_port.h"
#include "decode_worker/decode_service.h"
#include "router/server/router_server.h"
#include "tests/e2e/fake_engine.h"
#include "worker_rpc/worker_server.h"

namespace baton {
namespace {

constexpr int32_t kManyCalls = 1 << 20;
constexpr double kGoalBytesPerStream = 24 << 10;
constexpr double kGoalHealthMs = 10;
constexpr double kGoalRatio = 0.95;

struct BenchOptions {
  int32_t streams = 10'000;
  int32_t health_requests = 2000;
  int32_t clients = 64;
  int32_t tokens = 128;
  int64_t milliseconds = 5000;
  int32_t rounds = 4;
};

// A process that does one kind of work on command. Commands and replies are lines.
class Child {
 public:
  // `serve` runs in the new process with its descriptors for commands and replies.
  explicit Child(const std::function<void(std::istream&, std::ostream&)>& serve);
  ~Child();

  // Sends a line and returns the reply.
  std::string Ask(const std::string& line);

 private:
  pid_t process_ = -1;
  FILE* commands_ = nullptr;
  FILE* replies_ = nullptr;
};

// Reads lines from one descriptor and writes lines to another.
class LineStream final : public std::streambuf {
 public:
  explicit LineStream(int descriptor) : descriptor_(descriptor) {}

 private:
  int_type underflow() override {
    if (read(descriptor_, &byte_, 1) != 1) return traits_type::eof();
    setg(&byte_, &byte_, &byte_ + 1);
    return traits_type::to_int_type(byte_);
  }
  int_type overflow(int_type c) override {
    const char byte = static_cast<char>(c);
    return write(descriptor_, &byte, 1) == 1 ? c : traits_type::eof();
  }

  const int descriptor_;
  char byte_ = 0;
};

Child::Child(const std::function<void(std::istream&, std::ostream&)>& serve) {
  int to_child[2];
  int to_parent[2];
  CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(to_parent, O_CLOEXEC) == 0);
  process_ = fork();
  CHECK(process_ >= 0);
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(to_child[1]);
    close(to_parent[0]);
    LineStream in_bytes(to_child[0]);
    LineStream out_bytes(to_parent[1]);
    std::istream in(&in_bytes);
    std::ostream out(&out_bytes);
    serve(in, out);
    _exit(0);
  }
  close(to_child[0]);
  close(to_parent[1]);
  commands_ = fdopen(to_child[1], "w");
  replies_ = fdopen(to_parent[0], "r");
}

Child::~Child() {
  fclose(commands_);
  fclose(replies_);
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

std::string Child::Ask(const std::string& line) {
  std::fprintf(commands_, "%s\n", line.c_str());
  std::fflush(commands_);
  std::string reply;
  for (int c = std::fgetc(replies_); c != EOF && c != '\n'; c = std::fgetc(replies_)) {
    reply.push_back(static_cast<char>(c));
  }
  CHECK(!reply.empty()) << "a child of the benchmark has ended; it was asked: " << line;
  return reply;
}

// The worker's process. A command is the router's address; the worker then serves until it is
// killed.
std::function<void(std::istream&, std::ostream&)> Worker(uint64_t epoch,
                                                         const FakeEngine::Script& script) {
  return [epoch, script](std::istream& in, std::ostream& out) {
    std::string router;
    if (!std::getline(in, router)) return;
    ConcurrencyLimit limit(kManyCalls);
    FakeEngine engine(epoch, script);
    WorkerServerOptions options = {.server = {},
                                   .worker_id = "worker-" + std::to_string(epoch),
                                   .advertise = "",
                                   .role = v1::WORKER_ROLE_DECODE,
                                   .routers = {router}};
    options.server.max_concurrent_streams = kManyCalls;
    const auto server = *WorkerServer::Start(&engine, &limit, options, {DecodeRoleService()});
    out << "ready" << std::endl;
    std::getline(in, router);
    server->Shutdown();
  };
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options),
        silent_(Worker(1, {.tokens = 1, .finish = false})),
        quick_(Worker(2, {.tokens = options.tokens})),
        load_([options](std::istream& in, std::ostream& out) {
          ServeHttpLoad(in, out, options.tokens);
        }) {
    RouterServerOptions router;
    router.server.listen = "127.0.0.1:0";
    router.server.max_active_requests = kManyCalls;
    router.server.drain_ms = 0;
    router.http.listen = "127.0.0.1:0";
    router_ = *RouterServer::Start(router);
    ticker_ = std::thread([this] {
      while (!ended_) {
        ready_ = router_->Tick();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    });
  }
  ~Bench() {
    ended_ = true;
    ticker_.join();
  }

  void Run(FigureList& figures) {
    figures.AddCondition(
        "The router, the worker with its scripted engine and the clients share this machine's " +
        std::to_string(std::thread::hardware_concurrency()) + " processors.");
    Serve(silent_);
    load_.Ask("open " + Http() + " 100");  // buffers and pools that later streams share
    const int64_t before = ResidentBytes();
    load_.Ask("open " + Http() + " " + std::to_string(options_.streams));
    const int64_t after = ResidentBytes();
    const double bytes = static_cast<double>(after - before) / options_.streams;
    std::printf("%-24s %10.0f bytes with %d streams; at most %.0f wanted\n", "bytes_per_stream",
                bytes, options_.streams, kGoalBytesPerStream);
    figures.Add("bytes_per_stream", bytes, "bytes", kGoalBytesPerStream);
    const double health_ms =
        std::stod(load_.Ask("health " + Http() + " " + std::to_string(options_.health_requests)));
    std::printf("%-24s %10.3f ms beside them; at most %.0f wanted\n", "health_p99_ms", health_ms,
                kGoalHealthMs);
    figures.Add("health_p99_ms", health_ms, "ms", kGoalHealthMs);
    load_.Ask("close");
    while (router_->core().counters().active_requests > 0) Pause();
    silent_.Ask("");
    Compare(figures);
  }

 private:
  std::string Http() const { return router_->http()->address(); }
  static void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  void Serve(Child& worker) {
    worker.Ask(router_->rpc().address());
    while (!ready_) Pause();
  }

  void Compare(FigureList& figures) {
    while (ready_) Pause();  // the silent worker has left
    Serve(quick_);
    const std::string rest =
        " " + std::to_string(options_.clients) + " " + std::to_string(options_.milliseconds);
    std::vector<double> http;
    std::vector<double> grpc;
    for (int32_t round = 0; round < options_.rounds; ++round) {  // they take turns
      http.push_back(std::stod(load_.Ask("http " + Http() + rest)));
      grpc.push_back(std::stod(load_.Ask("grpc " + router_->rpc().address() + rest)));
    }
    const double http_median = Median(http);
    const double grpc_median = Median(grpc);
    std::printf("%-24s %10.0f tokens/s, %d clients\n", "http_tokens_per_s", http_median,
                options_.clients);
    std::printf("%-24s %10.0f tokens/s, %d clients\n", "grpc_tokens_per_s", grpc_median,
                options_.clients);
    std::printf("%-24s %10.3f; at least %.2f wanted\n", "http_to_grpc", http_median / grpc_median,
                kGoalRatio);
    figures.Add("http_tokens_per_s", http_median, "tokens/s");
    figures.Add("grpc_tokens_per_s", grpc_median, "tokens/s");
    figures.Add("http_to_grpc", http_median / grpc_median, "ratio", kGoalRatio);
  }

  static double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  const BenchOptions options_;
  // Children are forked before any thread begins.
  Child silent_;
  Child quick_;
  Child load_;
  std::unique_ptr<RouterServer> router_;
  std::atomic<bool> ready_ = false;
  std::atomic<bool> ended_ = false;
  std::thread ticker_;
};

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  baton::BenchOptions options;
  baton::CommandLine line("Measures the router's HTTP edge with scripted answers.", "http_bench");
  line.Add("--streams", &options.streams, "Silent streams to hold open")
      .Range(1, 16'000)
      .ShowDefault();
  line.Add("--health-requests", &options.health_requests, "Requests of GET /health beside them")
      .Range(100, 1'000'000)
      .ShowDefault();
  line.Add("--clients", &options.clients, "Clients of the comparison with gRPC")
      .Range(1, 1000)
      .ShowDefault();
  line.Add("--tokens", &options.tokens, "Tokens of each answer").Range(1, 500).ShowDefault();
  line.Add("--milliseconds", &options.milliseconds, "Length of each turn")
      .Range(int64_t{100}, int64_t{600'000})
      .ShowDefault();
  line.Add("--rounds", &options.rounds, "Turns of each protocol").Range(1, 100).ShowDefault();
  if (const std::optional<int> ended = line.Parse(argc, argv)) return *ended;
  baton::RaiseDescriptorLimit();
  baton::FigureList figures;
  baton::Bench(options).Run(figures);
  figures.Print("http", /*seed=*/0);
  return 0;
}
