// The checks of a collector's settings. tests/tracing/otlp/otlp_exporter_test.cc uses the channel.
#include "tracing/otlp/otlp_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/security/trial_set.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string Fault(const TracingOptions& options) {
  return std::string(CheckCollector(options).message());
}

TEST(OtlpCollector, TakesAddressesWithAndWithoutAScheme) {
  for (const char* endpoint : {"", "127.0.0.1:4317", "http://collector:4317", "[::1]:4317",
                               "https://collector.example:4317", "HTTPS://collector:4317"}) {
    EXPECT_TRUE(CheckCollector({.otlp_endpoint = endpoint}).ok()) << endpoint;
  }
  for (const char* endpoint : {"collector", "https://", "http://:4317", "https://collector",
                               "https://collector:0", "https://::1:4317"}) {
    EXPECT_THAT(Fault({.otlp_endpoint = endpoint}), HasSubstr("--otlp-endpoint: ")) << endpoint;
  }
  // A user must not be led to plaintext.
  for (const char* endpoint : {"ftp://collector:1", "grpcs://collector:1", "https://collector:1/",
                               "https://collector:1/v1/traces", "https://https://collector:1"}) {
    EXPECT_THAT(Fault({.otlp_endpoint = endpoint}),
                HasSubstr("must be HOST:PORT, http://HOST:PORT or https://HOST:PORT"));
  }
}

TEST(OtlpCollector, FilesNeedAnEndpointWithTls) {
  const TrialSet set;
  for (const char* endpoint : {"", "127.0.0.1:4317", "http://127.0.0.1:4317"}) {
    EXPECT_THAT(Fault({.otlp_endpoint = endpoint, .otlp_authorities = set.Path("ca.crt")}),
                HasSubstr(std::string("begins with https://; it is \"") + endpoint + "\""));
  }
  EXPECT_EQ(Fault({.otlp_endpoint = "https://a:1", .otlp_key = set.Path("client.pem")}),
            "--otlp-key needs --otlp-cert");
}

TEST(OtlpCollector, WrongFilesAreNamed) {
  const TrialSet set;
  const std::string endpoint = "https://127.0.0.1:4317";
  EXPECT_THAT(Fault({.otlp_endpoint = endpoint, .otlp_authorities = set.Path("none.crt")}),
              HasSubstr("none.crt: the file cannot be read"));
  EXPECT_THAT(Fault({.otlp_endpoint = endpoint, .otlp_certificate = set.Path("ca.crt")}),
              HasSubstr("ca.crt"))
      << "it has no key";
}

}  // namespace
}  // namespace baton
