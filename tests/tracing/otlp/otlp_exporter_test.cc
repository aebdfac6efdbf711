#include "tracing/otlp/otlp_exporter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/security/trial_set.h"
#include "tests/tracing/otlp/fake_collector.h"
#include "tracing/otlp/otlp_collector.h"

namespace baton {
namespace {

class OtlpExporterTest : public ::testing::Test {
 protected:
  std::unique_ptr<OtlpExporter> Start(const std::string& endpoint) {
    return OtlpExporter::Start({.otlp_endpoint = endpoint}, "baton-router", "r", &metrics_);
  }
  static void Record(OtlpExporter& exporter, int spans) {
    for (int i = 0; i < spans; ++i) {
      exporter.tracer()->Record({.context = exporter.tracer()->NewSpan(std::nullopt),
                                 .name = "span " + std::to_string(i)});
    }
  }
  // Waits at most 20 s.
  bool Await(Metric metric, int64_t least) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (metrics_.Cells(metric) < least) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  MetricSet metrics_{MetricPrograms::kRouters};
};

TEST_F(OtlpExporterTest, SendsEverySpanOnceAndCountsThem) {
  FakeCollector collector;
  const auto exporter = Start(collector.address());
  Record(*exporter, 1200);  // more than a batch
  EXPECT_EQ(collector.Spans(1200).size(), 1200u);
  EXPECT_TRUE(Await(Metric::kTraceSpans, 1200));
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpansDropped), 0);
}

TEST_F(OtlpExporterTest, IsOffWithoutACollector) { EXPECT_EQ(Start(""), nullptr); }

TEST_F(OtlpExporterTest, ADeadCollectorCostsTheSpansAndNothingElse) {
  auto exporter = Start("127.0.0.1:1");
  Record(*exporter, 100);
  EXPECT_TRUE(Await(Metric::kTraceSpansDropped, 100));
  Record(*exporter, 10'000);  // while the thread pauses; the queue has room for 8,192
  EXPECT_TRUE(Await(Metric::kTraceSpansDropped, 100 + 10'000 - 8192));
  exporter.reset();
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpansDropped), 10'100);
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpans), 0);
}

TEST_F(OtlpExporterTest, ASlowCollectorDelaysNeitherSpansNorTheEnd) {
  FakeCollector collector;
  collector.Hold(true);
  auto exporter = Start(collector.address());
  Record(*exporter, 10);
  ASSERT_TRUE(collector.AwaitCall());
  Record(*exporter, 20'000);  // returns while the call runs
  EXPECT_GE(metrics_.Cells(Metric::kTraceSpansDropped), 20'000 - 8192);
  exporter.reset();  // cuts the call off
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpansDropped), 20'010);
}

TEST_F(OtlpExporterTest, WhatTheCollectorRejectsIsDropped) {
  FakeCollector collector;
  collector.Reject(1'000'000);  // everything, in however many batches it comes
  const auto exporter = Start(collector.address());
  Record(*exporter, 5);
  EXPECT_TRUE(Await(Metric::kTraceSpansDropped, 5));
  EXPECT_EQ(metrics_.Cells(Metric::kTraceSpans), 0);
}

TEST_F(OtlpExporterTest, TheEndForgetsNoSpan) {
  FakeCollector collector;
  auto exporter = Start(collector.address());
  Record(*exporter, 1);
  ASSERT_EQ(collector.Spans(1).size(), 1u);
  Record(*exporter, 700);
  exporter.reset();
  const int64_t sent = metrics_.Cells(Metric::kTraceSpans);
  EXPECT_EQ(sent + metrics_.Cells(Metric::kTraceSpansDropped), 701);
  EXPECT_GE(static_cast<int64_t>(collector.Spans(0).size()), sent);
}

// A collector with TLS, whose certificate names 127.0.0.1.
class OtlpExporterTlsTest : public OtlpExporterTest {
 protected:
  std::shared_ptr<grpc::ServerCredentials> Credentials(bool asks_for_certificate) const {
    grpc::SslServerCredentialsOptions options(
        asks_for_certificate ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
    const std::string pem = Content("router.pem");
    options.pem_key_cert_pairs = {{.private_key = pem, .cert_chain = pem}};
    options.pem_root_certs = Content("ca.crt");
    return grpc::SslServerCredentials(options);
  }
  std::string Content(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(set_.Path(name)).rdbuf();
    return text.str();
  }
  // Returns true if the collector took a span, and false if it was dropped.
  bool Arrives(const TracingOptions& options) {
    EXPECT_TRUE(CheckCollector(options).ok()) << CheckCollector(options);
    const int64_t dropped = metrics_.Cells(Metric::kTraceSpansDropped);
    const int64_t sent = metrics_.Cells(Metric::kTraceSpans);
    const auto exporter = OtlpExporter::Start(options, "baton-router", "r", &metrics_);
    Record(*exporter, 1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      if (metrics_.Cells(Metric::kTraceSpans) > sent) return true;
      if (metrics_.Cells(Metric::kTraceSpansDropped) > dropped) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the span neither arrived nor was dropped";
    return false;
  }

  const TrialSet set_;
};

TEST_F(OtlpExporterTlsTest, SendsSpansToTheAuthoritysCollectorOnly) {
  const FakeCollector collector(Credentials(/*asks_for_certificate=*/false));
  const std::string endpoint = "https://" + collector.address();
  EXPECT_TRUE(Arrives({.otlp_endpoint = endpoint, .otlp_authorities = set_.Path("ca.crt")}));
  const TrialSet other;
  EXPECT_FALSE(Arrives({.otlp_endpoint = endpoint, .otlp_authorities = other.Path("ca.crt")}));
  EXPECT_FALSE(Arrives({.otlp_endpoint = endpoint})) << "no authority of the system signed it";
  EXPECT_FALSE(Arrives({.otlp_endpoint = "http://" + collector.address()}));
}

TEST_F(OtlpExporterTlsTest, ChecksTheCollectorsName) {
  ASSERT_TRUE(RenewTrialCertificates({.directory = set_.directory(),
                                      .router_names = std::vector<std::string>{"router.example"}})
                  .ok());
  const FakeCollector collector(Credentials(/*asks_for_certificate=*/false));
  EXPECT_FALSE(Arrives({.otlp_endpoint = "https://" + collector.address(),
                        .otlp_authorities = set_.Path("ca.crt")}));
}

TEST_F(OtlpExporterTlsTest, ShowsItsCertificate) {
  const FakeCollector collector(Credentials(/*asks_for_certificate=*/true));
  TracingOptions options{.otlp_endpoint = "https://" + collector.address(),
                         .otlp_authorities = set_.Path("ca.crt")};
  EXPECT_FALSE(Arrives(options));
  options.otlp_certificate = set_.Path("client.pem");
  EXPECT_TRUE(Arrives(options));
  options.otlp_key = set_.Path("client.pem");
  EXPECT_TRUE(Arrives(options));
}

TEST_F(OtlpExporterTest, AnHttpAddressIsPlaintext) {
  FakeCollector collector;
  const auto exporter = Start("http://" + collector.address());
  Record(*exporter, 1);
  EXPECT_EQ(collector.Spans(1).size(), 1u);
}

}  // namespace
}  // namespace baton
