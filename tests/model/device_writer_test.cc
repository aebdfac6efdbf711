#include "model/device_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/create_device.h"

namespace baton {
namespace {

using ::testing::Each;

// A CPU device that says that the host cannot access its memory.
class FarDevice final : public Device {
 public:
  std::string Description() const override { return near_->Description(); }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(size_t bytes,
                                                         std::string_view purpose) override {
    return near_->Allocate(bytes, purpose);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> AllocateShared(size_t bytes,
                                                               std::string_view purpose) override {
    return near_->AllocateShared(bytes, purpose);
  }
  size_t allocated_bytes() const override { return near_->allocated_bytes(); }
  absl::Status Health() const override { return health; }
  bool asynchronous() const override { return true; }
  bool host_accessible() const override { return false; }
  std::unique_ptr<Stream> CreateStream() override { return near_->CreateStream(); }
  const Ops& ops() const override { return near_->ops(); }

  absl::Status health;

 private:
  const std::unique_ptr<Device> near_ = *CreateDevice({.name = "cpu-async", .threads = 1});
};

TEST(DeviceWriter, MemoryThatTheHostCanAccessIsFilledInPlace) {
  const auto device = *CreateDevice({.threads = 1});
  const auto memory = *device->Allocate(100, "test");
  std::byte* filled = nullptr;
  ASSERT_TRUE(DeviceWriter(*device)
                  .Write(memory->data(), 100, [&](std::byte* host) { filled = host; })
                  .ok());
  EXPECT_EQ(filled, memory->data());
}

TEST(DeviceWriter, OtherMemoryHasTheContentsWhenTheCallReturns) {
  FarDevice device;
  const auto memory = *device.Allocate(300, "test");
  DeviceWriter writer(device);
  for (int value = 1; value <= 2; ++value) {
    std::byte* const to = memory->data() + 100 * value;
    ASSERT_TRUE(writer
                    .Write(to, 100,
                           [&](std::byte* host) {
                             EXPECT_NE(host, to);
                             std::memset(host, value, 100);
                           })
                    .ok());
    EXPECT_THAT(std::vector(to, to + 100), Each(std::byte(value)));
  }
  EXPECT_EQ(memory->data()[99], std::byte{0});
}

TEST(DeviceWriter, AFailedDeviceIsAnError) {
  FarDevice device;
  device.health = absl::InternalError("failed");
  const auto memory = *device.Allocate(1, "test");
  EXPECT_EQ(DeviceWriter(device).Write(memory->data(), 1, [](std::byte*) {}), device.health);
}

}  // namespace
}  // namespace baton
