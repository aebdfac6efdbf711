// Clients of http_bench, in a process of their own. Commands and replies are lines:
//   open ADDRESS N             opens N streams and waits for the first event of each → "open"
//   health ADDRESS N           asks /health N times, one after the other → 99th percentile in ms
//   close                      closes the streams → "closed"
//   http ADDRESS CLIENTS MS    clients stream answers, one after the other → tokens per second
//   grpc ADDRESS CLIENTS MS    the same over gRPC
//
// Thread safety: belongs to one thread, which starts others.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <istream>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "baton/v1/inference.grpc.pb.h"
#include "common/check.h"
#include "common/file_descriptor.h"
#include "common/host_port.h"
#include "rpc/channel.h"

namespace baton {

// A connection that blocks.
class LoadConnection {
 public:
  explicit LoadConnection(const std::string& address)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where = {};
    where.sin_family = AF_INET;
    where.sin_port = htons(static_cast<uint16_t>(ParseHostPort(address)->port));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(socket_.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)) == 0);
  }

  void Send(std::string_view bytes) {
    CHECK(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
  }
  // Reads until `mark` was received, and drops what was read. Returns false at the connection's
  // end.
  bool ReadUntil(std::string_view mark) {
    while (unread_.find(mark) == std::string::npos) {
      // Only an incomplete mark must stay.
      if (unread_.size() > mark.size()) unread_.erase(0, unread_.size() - mark.size());
      char bytes[16384];
      const ssize_t count = recv(socket_.get(), bytes, sizeof(bytes), 0);
      if (count <= 0) return false;
      unread_.append(bytes, static_cast<size_t>(count));
    }
    unread_.erase(0, unread_.find(mark) + mark.size());
    return true;
  }

 private:
  const FileDescriptor socket_;
  std::string unread_;
};

inline std::string LoadRequest(std::string_view method_and_path, const std::string& body) {
  return absl::StrCat(std::string(method_and_path), " HTTP/1.1\r\nHost: bench\r\n",
                      "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n",
                      body);
}

inline const std::string& StreamedCompletion() {
  static const std::string request = LoadRequest(
      "POST /v1/completions", R"({"prompt": "hello", "max_tokens": 400, "stream": true})");
  return request;
}

inline double HealthP99Ms(const std::string& address, int requests) {
  LoadConnection connection(address);
  const std::string request = LoadRequest("GET /health", "");
  std::vector<double> times_ms;
  for (int i = 0; i < requests; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    connection.Send(request);
    CHECK(connection.ReadUntil("\"ok\"}"));
    times_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::sort(times_ms.begin(), times_ms.end());
  return times_ms[times_ms.size() * 99 / 100];
}

// Runs `answer` on each of `clients` threads again and again. Returns answers per second.
template <typename MakeClient>
double AnswersPerSecond(int clients, int64_t milliseconds, const MakeClient& make_client) {
  std::atomic<int64_t> answers = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + std::chrono::milliseconds(milliseconds);
  std::vector<std::thread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&] {
      const auto ask = make_client();
      while (std::chrono::steady_clock::now() < end) {
        ask();
        ++answers;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(answers) / took.count();
}

inline double HttpAnswersPerSecond(const std::string& address, int clients, int64_t milliseconds) {
  return AnswersPerSecond(clients, milliseconds, [&address] {
    const auto connection = std::make_shared<LoadConnection>(address);
    return [connection] {
      connection->Send(StreamedCompletion());
      CHECK(connection->ReadUntil("data: [DONE]\n\n\r\n0\r\n\r\n"));
    };
  });
}

inline double GrpcAnswersPerSecond(const std::string& address, int clients, int64_t milliseconds) {
  const auto channel = MakeChannel(address);
  return AnswersPerSecond(clients, milliseconds, [&channel] {
    const std::shared_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(channel);
    return [stub] {
      grpc::ClientContext context;
      v1::GenerateRequest request;
      request.set_prompt("hello");
      request.mutable_sampling()->set_max_tokens(400);
      const auto reader = stub->Generate(&context, request);
      v1::GenerateResponse response;
      while (reader->Read(&response)) {
      }
      const grpc::Status status = reader->Finish();
      CHECK(status.ok()) << status.error_message();
    };
  });
}

// Serves commands until `in` ends. `tokens`: of each answer.
inline void ServeHttpLoad(std::istream& in, std::ostream& out, int tokens) {
  std::vector<std::unique_ptr<LoadConnection>> streams;
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string command;
    std::string address;
    int count = 0;
    int64_t milliseconds = 0;
    words >> command >> address >> count >> milliseconds;
    if (command == "open") {
      for (int i = 0; i < count; ++i) {
        streams.push_back(std::make_unique<LoadConnection>(address));
        streams.back()->Send(StreamedCompletion());
        CHECK(streams.back()->ReadUntil("data: "));
      }
      out << "open" << std::endl;
    } else if (command == "health") {
      out << HealthP99Ms(address, count) << std::endl;
    } else if (command == "close") {
      streams.clear();
      out << "closed" << std::endl;
    } else if (command == "http") {
      out << tokens * HttpAnswersPerSecond(address, count, milliseconds) << std::endl;
    } else if (command == "grpc") {
      out << tokens * GrpcAnswersPerSecond(address, count, milliseconds) << std::endl;
    }
  }
}

}  // namespace baton
