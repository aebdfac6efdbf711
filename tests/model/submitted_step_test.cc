#include "model/submitted_step.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/create_device.h"

namespace baton {
namespace {

using Told = std::vector<std::pair<int32_t, int32_t>>;  // layers, chunks

struct Fixture {
  explicit Fixture(const char* device_name)
      : device(*CreateDevice({.name = device_name, .threads = 1})),
        stream(device->CreateStream()),
        step(*device, /*layers=*/3) {
    for (const int32_t count : {2, 1}) {
      input.chunks.push_back(
          {.tokens = std::span(tokens).first(count), .block_table = {}, .logit_rows = 1});
    }
    input.wanted = [this] { return wanted.load(); };
    input.kv_written = [this](int32_t layers, int32_t chunks) {
      EXPECT_EQ(std::this_thread::get_id(), engine_thread);
      told.emplace_back(layers, chunks);
    };
  }
  std::unique_ptr<Device> device;
  std::vector<TokenId> tokens = {1, 2};
  std::atomic<int32_t> wanted{2};
  Told told;
  const std::thread::id engine_thread = std::this_thread::get_id();
  StepInput input;
  std::unique_ptr<Stream> stream;
  SubmittedStep step;
};

TEST(SubmittedStep, OnAnInlineDeviceEverythingIsDoneAtOnce) {
  Fixture f("cpu");
  f.step.Begin(StepId(7), f.input);
  EXPECT_EQ(f.step.id(), StepId(7));
  EXPECT_EQ(f.step.tokens().most(), 3);
  EXPECT_EQ(f.step.logits().most(), 2);
  f.step.RecordLayer(*f.stream, nullptr);
  f.step.TellLayers();
  EXPECT_EQ(f.told, (Told{{1, 2}}));
  f.wanted = 1;
  f.step.RecordLayer(*f.stream, nullptr);
  f.step.TellLayers();
  f.wanted = 0;
  f.step.RecordLayer(*f.stream, nullptr);
  f.step.TellLayers();
  EXPECT_EQ(f.told, (Told{{1, 2}, {2, 1}})) << "no chunk was wanted at the third";
  f.step.RecordEnd(*f.stream, nullptr);
  EXPECT_TRUE(f.step.Done());
  EXPECT_TRUE(f.step.abandoned());
}

TEST(SubmittedStep, OnAnAsynchronousDeviceLayersAreReportedOnTheEnginesThreadOnceTheyHaveRun) {
  Fixture f("cpu-async");
  std::atomic<int> go{0}, woken{0};
  const auto waker = [&] { ++woken; };
  for (int round = 1; round <= 3; ++round) {
    f.told.clear();
    f.wanted = 2;
    woken = go = 0;
    f.step.Begin(StepId(round), f.input);
    for (int layer = 1; layer <= 3; ++layer) {
      f.stream->Call([&, layer] {
        for (int seen = go; seen < layer; seen = go) go.wait(seen);
      });
      f.step.RecordLayer(*f.stream, waker);
    }
    f.step.RecordEnd(*f.stream, waker);
    EXPECT_FALSE(f.step.Done());
    f.step.TellLayers();
    EXPECT_EQ(f.told, Told{});
    go = 1;
    go.notify_all();
    while (woken < 1) std::this_thread::yield();
    f.step.TellLayers();
    EXPECT_EQ(f.told, (Told{{1, 2}}));
    f.wanted = 1;
    go = 3;
    go.notify_all();
    f.step.Wait();
    f.step.TellLayers();
    EXPECT_EQ(f.told, (Told{{1, 2}, {2, 1}, {3, 1}}));
    EXPECT_TRUE(f.step.Done());
    EXPECT_FALSE(f.step.abandoned());
    f.stream->Synchronize();  // the last wake-up comes after the end
    EXPECT_EQ(woken, 4);
  }
}

TEST(SubmittedStep, StopsAGraphOnTheStreamsThread) {
  Fixture f("cpu-async");
  std::atomic<bool> stopped_elsewhere{false};
  f.input.wanted = [&] {
    stopped_elsewhere = std::this_thread::get_id() != f.engine_thread;
    return 0;
  };
  f.step.Begin(StepId(1), f.input);
  int ran = 0;
  f.stream->BeginCapture();
  int source = 1;
  f.stream->Copy(&ran, &source, sizeof(int));
  const auto graph = f.stream->EndCapture();
  f.stream->LaunchUntil(*graph, f.step.Unwanted());
  f.step.RecordEnd(*f.stream, nullptr);
  f.step.Wait();
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(stopped_elsewhere);
  EXPECT_TRUE(f.step.abandoned());
}

TEST(SubmittedStep, RecordsNoEventsWithoutLayersToReport) {
  Fixture f("cpu");
  f.input.kv_written = nullptr;
  f.input.wanted = nullptr;
  f.step.Begin(StepId(1), f.input);
  for (int layer = 0; layer < 3; ++layer) f.step.RecordLayer(*f.stream, nullptr);
  f.step.TellLayers();
  f.step.RecordEnd(*f.stream, nullptr);
  EXPECT_FALSE(f.step.abandoned());
}

}  // namespace
}  // namespace baton
