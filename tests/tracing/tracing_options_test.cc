#include "tracing/tracing_options.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(TracingOptions, AreOffByDefaultAndTheShareIsAtMostOne) {
  TracingOptions options;
  SettingList settings;
  RegisterSettings(options, settings);
  EXPECT_EQ(options.otlp_endpoint, "");
  EXPECT_EQ(options.sample, 1);
  EXPECT_TRUE(settings.Set("otlp-endpoint", "127.0.0.1:4317").ok());
  EXPECT_EQ(options.otlp_endpoint, "127.0.0.1:4317");
  EXPECT_TRUE(settings.Set("trace-sample", "0.25").ok());
  EXPECT_EQ(options.sample, 0.25);
  EXPECT_FALSE(settings.Set("trace-sample", "1.5").ok());
  EXPECT_FALSE(settings.Set("trace-sample", "-0.1").ok());
}

}  // namespace
}  // namespace baton
