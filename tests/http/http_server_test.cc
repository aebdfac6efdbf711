// Tests the server with clients over real sockets, most of them hostile.
#include "http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/http/http_server_fixture.h"
#include "tests/http/raw_http_client.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST_F(HttpServerTest, AnswersOneRequestAfterTheOtherOnAConnection) {
  Start();
  RawHttpClient client = Client();
  for (int i = 0; i < 3; ++i) {
    const RawHttpAnswer answer = client.Ask(kGet);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "hello");
    EXPECT_TRUE(answer.complete);
  }
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInTheirOrder) {
  Start();
  RawHttpClient client = Client();
  std::string requests;
  for (int i = 0; i < 20; ++i) {
    requests +=
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n" + std::to_string(10 + i);
  }
  client.Send(requests);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(client.Read().body, std::to_string(10 + i));
}

TEST_F(HttpServerTest, ARequestWaitsUntilTheOneBeforeIsAnswered) {
  Start();
  RawHttpClient client = Client();
  const auto first = Hold(client);
  client.Send(kGet);
  first->Begin({.status = 200, .content_type = "", .headers = {}, .body = "fir"});
  first->Write("st");
  first->End();
  EXPECT_EQ(client.Read().body, "first");
  EXPECT_EQ(client.Read().body, "hello");
}

TEST_F(HttpServerTest, EveryHostileRequestGetsItsStatusAndTheServerServesOn) {
  Start({.max_header_bytes = 2000});
  const std::string post = "POST /echo HTTP/1.1\r\nHost: h\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n", 404},
      {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 404},
      {"GET * HTTP/1.1\r\nHost: h\r\n\r\n", 404},
      {"PUT /echo HTTP/1.1\r\nHost: h\r\n\r\n", 405},
      {"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"OPTIONS /echo HTTP/1.1\r\nHost: h\r\n\r\n", 405},
      {post + "Content-Type: text/html\r\nContent-Length: 1\r\n\r\nx", 415},
      {post + "Content-Length: 1001\r\n\r\n", 413},
      {post + "Transfer-Encoding: chunked\r\n\r\nFFFF\r\n", 413},
      {post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {post + "Content-Length: 1\r\nExpect: x\r\n\r\n", 417},
      {"GET /hello HTTP/1.1\r\n\r\n", 400},
      {"GET /hello HTTP/1.1\r\nHost: h\r\nX: " + std::string(3000, 'a') + "\r\n\r\n", 431},
      {"GET /hello HTTP/3.0\r\n\r\n", 505},
      {"GET /hello HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", 400},
      {std::string("\0\0\0\0", 4), 400},
      {"\x16\x03\x01\x02", 400},
      {"GET /dropped HTTP/1.1\r\nHost: h\r\n\r\n", 500},
  };
  for (const auto& [bytes, status] : cases) {
    RawHttpClient client = Client();
    const RawHttpAnswer answer = client.Ask(bytes);
    EXPECT_EQ(answer.status, status) << bytes;
    EXPECT_TRUE(answer.complete) << bytes;
    EXPECT_FALSE(answer.headers.at("x-request-id").empty());
    if (status == 405) {
      EXPECT_FALSE(answer.headers.at("allow").empty());
    }
  }
  EXPECT_EQ(Client().Ask(kGet).status, 200);
}

TEST_F(HttpServerTest, ABrokenRequestEndsItsConnectionAndAnUnknownPathDoesNot) {
  Start();
  RawHttpClient client = Client();
  EXPECT_EQ(client.Ask("GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n").status, 404);
  EXPECT_EQ(client.Ask(kGet).status, 200);
  const RawHttpAnswer broken =
      client.Ask("GET /hello HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n" + std::string(kGet));
  EXPECT_EQ(broken.status, 400);
  EXPECT_EQ(broken.headers.at("connection"), "close");
  EXPECT_TRUE(client.IsClosed());
  EXPECT_EQ(client.unread(), "");  // what followed was not taken for a request
}

TEST_F(HttpServerTest, ATooLongBodyIsRefusedBeforeItIsSentAndTheClientSeesWhy) {
  Start();
  RawHttpClient client = Client();
  client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 500000\r\n\r\n" +
              std::string(500'000, 'x'));
  const RawHttpAnswer answer = client.Read();
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(answer.body, HasSubstr("500000 bytes; at most 1000"));
}

TEST_F(HttpServerTest, HeadHasTheLengthWithoutTheBody) {
  Start();
  RawHttpClient client = Client();
  client.Send("HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  const RawHttpAnswer answer = client.Read(/*head_only=*/true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-length"), "5");
  EXPECT_EQ(client.Ask(kGet).body, "hello");
}

TEST_F(HttpServerTest, AClientThatExpectsContinueGetsItUnlessItsRequestIsRefused) {
  Start();
  RawHttpClient client = Client();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n";
  EXPECT_EQ(client.Ask(head + "Content-Length: 2\r\n\r\n").status, 100);
  EXPECT_EQ(client.Ask("ab").body, "ab");
  EXPECT_EQ(client.Ask(head + "Content-Length: 2000\r\n\r\n").status, 413);
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(HttpServerTest, AnOldClientGetsItsAnswerUntilTheConnectionEnds) {
  Start();
  RawHttpClient client = Client();
  const auto exchange = Hold(client, "1.0");
  EXPECT_TRUE(exchange->Begin({.status = 200, .content_type = "", .headers = {}, .body = "a"}));
  EXPECT_TRUE(exchange->Write("b"));
  exchange->End();
  const RawHttpAnswer answer = client.Read();
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_EQ(answer.body, "ab");
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(HttpServerTest, PiecesArriveWhenTheyAreWritten) {
  Start();
  RawHttpClient client = Client();
  const auto exchange = Hold(client);
  exchange->Begin({.status = 200, .content_type = "", .headers = {}, .body = ""});
  exchange->Write("one");
  EXPECT_TRUE(client.Sees("3\r\none\r\n"));
  exchange->Write("two");
  EXPECT_TRUE(client.Sees("3\r\ntwo\r\n"));
  exchange->End();
  EXPECT_EQ(client.Read().body, "onetwo");
}

TEST_F(HttpServerTest, ABrokenOffAnswerIsIncomplete) {
  Start();
  RawHttpClient client = Client();
  const auto exchange = Hold(client);
  exchange->Begin({.status = 200, .content_type = "", .headers = {}, .body = "one"});
  EXPECT_TRUE(client.Sees("one"));
  exchange->Abort();
  EXPECT_FALSE(client.Read().complete);
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticedWhileItWaits) {
  Start();
  RawHttpClient client = Client();
  const auto exchange = Hold(client);
  client.Send("GET /hello HT");  // also with bytes of another request in the way
  client.Close();
  EXPECT_TRUE(IsGone());
  EXPECT_FALSE(exchange->Begin({.status = 200, .content_type = "", .headers = {}, .body = ""}));
}

TEST_F(HttpServerTest, AClientThatLeavesDuringAStreamIsNoticed) {
  Start();
  RawHttpClient client = Client();
  const auto exchange = Hold(client);
  exchange->Begin({.status = 200, .content_type = "", .headers = {}, .body = "one"});
  EXPECT_TRUE(client.Sees("one"));
  client.Close();
  EXPECT_TRUE(IsGone());
  EXPECT_FALSE(exchange->Write("two"));
  EXPECT_EQ(gone_, 1);
}

TEST_F(HttpServerTest, AnswersCarryTheClientsIdIfItIsSane) {
  Start();
  RawHttpClient client = Client();
  const std::string head = "GET /hello HTTP/1.1\r\nHost: h\r\nx-request-id: ";
  EXPECT_EQ(client.Ask(head + "mine-1\r\n\r\n").headers.at("x-request-id"), "mine-1");
  EXPECT_THAT(client.Ask(head + "a b\r\n\r\n").headers.at("x-request-id"),
              testing::StartsWith("req-"));
}

TEST_F(HttpServerTest, OnlyAllowedPagesReadAnswers) {
  Start({.allow_origins = "https://a.example"});
  const std::string preflight =
      "OPTIONS /echo HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: POST\r\nOrigin: ";
  RawHttpClient client = Client();
  const RawHttpAnswer allowed = client.Ask(preflight + "https://a.example\r\n\r\n");
  EXPECT_EQ(allowed.status, 204);
  EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(allowed.headers.at("access-control-allow-methods"), "POST");
  const RawHttpAnswer other = client.Ask(preflight + "https://b.example\r\n\r\n");
  EXPECT_FALSE(other.headers.contains("access-control-allow-origin"));
  const RawHttpAnswer error =
      client.Ask("GET /nothing HTTP/1.1\r\nHost: h\r\nOrigin: https://a.example\r\n\r\n");
  EXPECT_EQ(error.headers.at("access-control-allow-origin"), "https://a.example");
}

TEST_F(HttpServerTest, AServerThatEndsConnectionsClosesEachWithItsNextAnswer) {
  Start();
  RawHttpClient idle = Client();
  EXPECT_EQ(idle.Ask(kGet).headers.count("connection"), 0u);
  server_->EndConnections();
  const RawHttpAnswer last = idle.Ask(kGet);
  EXPECT_EQ(last.status, 200) << "an idle connection stays open until its next answer";
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(idle.IsClosed());
  EXPECT_EQ(Client().Ask(kGet).status, 200) << "new connections are accepted";
}

TEST_F(HttpServerTest, ADrainingServerAnswersAndKeepsNoConnection) {
  Start();
  RawHttpClient idle = Client();
  EXPECT_EQ(idle.Ask(kGet).status, 200);
  RawHttpClient busy = Client();
  const auto exchange = Hold(busy);
  server_->Drain();
  EXPECT_TRUE(idle.IsClosed());
  exchange->Reply({.status = 200, .content_type = "", .headers = {}, .body = "last"});
  EXPECT_EQ(busy.Read().body, "last");
  EXPECT_TRUE(busy.IsClosed());
  EXPECT_EQ(Client().Ask(kGet).headers.at("connection"), "close");
}

TEST_F(HttpServerTest, ShutdownEndsWhatIsStillOpen) {
  Start();
  RawHttpClient client = Client();
  const auto exchange = Hold(client);
  server_->Shutdown(0);
  EXPECT_EQ(gone_, 1);
  exchange->Reply({.status = 200, .content_type = "", .headers = {}, .body = ""});
  EXPECT_TRUE(client.IsClosed());
  server_.reset();
  EXPECT_FALSE(exchange->Write("x"));
}

TEST_F(HttpServerTest, AnAddressInUseIsNamed) {
  Start();
  const auto second = HttpServer::Start({.listen = server_->address()}, HttpRoutes());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(server_->address()));
}

TEST_F(HttpServerTest, ManyThreadsWriteToManyClients) {
  Start({.io_threads = 2});
  constexpr int kClients = 40;
  constexpr int kPieces = 200;
  std::vector<std::unique_ptr<RawHttpClient>> clients;
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawHttpClient>(server_->port()));
    exchanges.push_back(Hold(*clients.back()));
    exchanges.back()->Begin({.status = 200, .content_type = "", .headers = {}, .body = ""});
  }
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&exchanges, writer] {
      for (int piece = 0; piece < kPieces; ++piece) {
        for (int i = writer; i < kClients; i += 4) {
          exchanges[i]->Write("client " + std::to_string(i) + " piece " + std::to_string(piece) +
                              "\n");
        }
      }
      for (int i = writer; i < kClients; i += 4) exchanges[i]->End();
    });
  }
  for (int i = 0; i < kClients; ++i) {
    std::string expected;
    for (int piece = 0; piece < kPieces; ++piece) {
      expected += "client " + std::to_string(i) + " piece " + std::to_string(piece) + "\n";
    }
    EXPECT_EQ(clients[i]->Read().body, expected) << i;
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace baton
