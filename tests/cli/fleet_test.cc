#include "cli/fleet.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace baton {
namespace {

using ::testing::ElementsAre;

FleetMember Shell(const std::string& name, const std::string& script) {
  return {.name = name, .arguments = {"/bin/sh", "-c", script}};
}

class FleetTest : public ::testing::Test {
 protected:
  FleetTest() : output_(open("/dev/null", O_WRONLY | O_CLOEXEC)) {
    log_ = *MergedLog::Create(output_);
    fleet_.emplace(log_.get(), &clock_);
  }
  ~FleetTest() override {
    fleet_.reset();
    log_.reset();
    close(output_);
  }

  // Polls `done` until it holds or half a minute has passed.
  static bool Eventually(const std::function<bool()>& done) {
    for (int i = 0; i < 3000; ++i) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // Returns a path without a file.
  static std::string NoFile(const std::string& name) {
    const std::string path = ::testing::TempDir() + "baton_fleet_test_" + name;
    std::filesystem::remove(path);
    return path;
  }

  int output_;
  ManualClock clock_;
  std::unique_ptr<MergedLog> log_;
  std::optional<Fleet> fleet_;
  std::vector<std::string> said_;
  const std::function<void(const std::string&)> say_ = [this](const std::string& sentence) {
    said_.push_back(sentence);
  };
};

TEST_F(FleetTest, WhatEndsIsStartedAgainAndTheOthersGoOn) {
  const std::string first = NoFile("first");
  const std::string second = NoFile("second");
  ASSERT_TRUE(fleet_->Start(Shell("router", "exec sleep 1000")).ok());
  // The first process of this name exits; the second one keeps running.
  const std::string script = "test -e " + first + " && touch " + second +
                             " && exec sleep 1000; touch " + first + "; exit 3";
  ASSERT_TRUE(fleet_->Start(Shell("worker", script)).ok());
  ASSERT_TRUE(Eventually([&] { return fleet_->FirstEnd().has_value(); }));
  EXPECT_EQ(fleet_->FirstEnd()->name, "worker");
  EXPECT_EQ(fleet_->FirstEnd()->exit_code, 3);
  fleet_->Restart(say_);
  EXPECT_THAT(said_, ElementsAre("worker ended: exit code 3; starting it again in 0.5 s"));
  EXPECT_FALSE(fleet_->FirstEnd().has_value());
  clock_.AdvanceUs(499'999);
  fleet_->Restart(say_);  // not yet
  EXPECT_EQ(said_.size(), 1);
  clock_.AdvanceUs(1);
  fleet_->Restart(say_);
  ASSERT_EQ(said_.size(), 2);
  EXPECT_EQ(said_[1], "worker is starting again");
  ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(second); }));
  EXPECT_FALSE(fleet_->FirstEnd().has_value());
}

TEST_F(FleetTest, TheRoutersOutputIsReadLineByLineAlsoAfterItsRestart) {
  ASSERT_TRUE(fleet_->Start(Shell("router", "echo one; echo two; exit 0")).ok());
  std::vector<std::string> lines;
  const auto read = [&] {
    clock_.AdvanceUs(500'000);
    fleet_->Restart(say_);
    while (const std::optional<std::string> line = fleet_->RouterSays()) lines.push_back(*line);
    return lines.size();
  };
  ASSERT_TRUE(Eventually([&] {
    while (const std::optional<std::string> line = fleet_->RouterSays()) lines.push_back(*line);
    return lines.size() == 2;
  }));
  EXPECT_THAT(lines, ElementsAre("one", "two"));
  fleet_->ReplaceRouterArguments({"/bin/sh", "-c", "echo three; exec sleep 1000"});
  ASSERT_TRUE(Eventually([&] { return read() == 3; }));
  EXPECT_EQ(lines.back(), "three");
}

TEST_F(FleetTest, AShutdownSignalsEachProcessOnceAndTheRouterFirst) {
  const std::string file = NoFile("order");
  const std::string router_is_up = NoFile("router_is_up");
  const std::string worker_is_up = NoFile("worker_is_up");
  const auto script = [&](const std::string& name, const std::string& is_up) {
    return "trap 'echo " + name + " >> " + file + "' TERM; touch " + is_up + "; while ! grep -q " +
           name + " " + file + " 2>/dev/null; do sleep 0.02; done";
  };
  ASSERT_TRUE(fleet_->Start(Shell("router", script("router", router_is_up))).ok());
  ASSERT_TRUE(fleet_->Start(Shell("worker", script("worker", worker_is_up))).ok());
  for (const std::string& is_up : {router_is_up, worker_is_up}) {
    ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(is_up); }));
  }
  fleet_->Shutdown();
  std::string text;
  FILE* const written = fopen(file.c_str(), "r");
  ASSERT_NE(written, nullptr);
  for (int c; (c = fgetc(written)) != EOF;) text += static_cast<char>(c);
  fclose(written);
  EXPECT_EQ(text, "router\nworker\n");
}

}  // namespace
}  // namespace baton
