// Launcher for tests of ops, on the device that the environment variable BATON_TEST_DEVICE names:
//   not set         the emulator runs each kernel at once, on the host's memory
//   cuda-emulated   the backend's own stream, on the emulated driver
//   cuda, cuda:N    the backend's own stream, on a GPU
//
// Operands are ordinary memory of the test (tests/cuda/memory_mirror.h). A launch returns when the
// kernel has run. If the device fails, the program ends with its error.
//
// The libraries with the kernels lie beside the program: libbaton_cuda_test_kernels.so for a GPU.
//
// Thread safety: belongs to the main thread.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "gtest/gtest.h"
#include "kernels/cuda/copy_params.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_launch.h"
#include "kernels/device.h"
#include "tests/cuda/emulator_library.h"
#include "tests/cuda/memory_mirror.h"
#include "tests/gpu_emulator/emulated_launcher.h"

namespace baton {

// Empty: the emulator's launcher.
inline std::string ChosenDeviceName() {
  const char* const name = std::getenv("BATON_TEST_DEVICE");
  return name == nullptr ? "" : name;
}

// The device and stream of this process. They are made at the first use and stay.
class ChosenDevice {
 public:
  static ChosenDevice& Get() {
    static const std::unique_ptr<ChosenDevice> device(new ChosenDevice(ChosenDeviceName()));
    return *device;
  }
  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  KernelLauncher& launcher() { return *launcher_; }

  void LaunchOnHostMemory(std::string_view kernel, const LaunchShape& shape, const void* params,
                          size_t bytes) {
    std::vector<uint64_t> words((bytes + 7) / 8);
    std::memcpy(words.data(), params, bytes);
    mirror_->ToDevice(*stream_, __builtin_frame_address(0));
    mirror_->ReplacePointers(words);
    // A kernel behind another one may begin early (kernels/cuda/kernel_order.cuh).
    const JoinChecksumsParams nothing = {};
    launcher_->Launch("baton_join_checksums", {.block = {kCopyThreads, 1, 1}}, &nothing,
                      sizeof(nothing));
    launcher_->Launch(kernel, shape, words.data(), bytes);
    stream_->Synchronize();
    CHECK(device_->Health().ok()) << kernel << ": " << device_->Health();
    mirror_->FromDevice(*stream_);
    CHECK(device_->Health().ok()) << kernel << ": " << device_->Health();
  }
  // REQUIRES: the tensor lies on the heap.
  bool EncodeTilesOfHostMemory(TiledTensor tensor, TensorMap& map) {
    tensor.address = mirror_->OnDevice(tensor.address);
    CHECK(launcher_->EncodeTiles(tensor, map)) << "the driver refuses a tensor map";
    return true;
  }

 private:
  explicit ChosenDevice(const std::string& name) {
    if (name == "cuda-emulated") {
      device_ = CreateEmulatedDevice();
    } else {
      CudaDeviceOptions options;
      if (name.starts_with("cuda:")) options.index = std::atoi(name.c_str() + 5);
      CHECK(name.starts_with("cuda")) << "BATON_TEST_DEVICE is " << name;
      options.kernel_library = std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                               "libbaton_cuda_test_kernels.so";
      auto device = CreateCudaDevice(options);
      CHECK(device.ok()) << device.status();
      device_ = *std::move(device);
    }
    stream_ = device_->CreateStream();
    launcher_ = dynamic_cast<KernelLauncher*>(stream_.get());
    CHECK(launcher_ != nullptr);
    mirror_.emplace(*device_);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  KernelLauncher* launcher_ = nullptr;
  std::optional<MemoryMirror> mirror_;
};

class ChosenLauncher final : public KernelLauncher {
 public:
  // `rules` are the emulator's. `multiprocessors` is the number that launches are planned for.
  explicit ChosenLauncher(const gpu_emulator::ExecutionRules& rules = {}, int multiprocessors = 3)
      : multiprocessors_(multiprocessors) {
    if (ChosenDeviceName().empty()) emulator_.emplace(rules, multiprocessors);
  }

  void Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
              size_t bytes) override {
    most_launched_ = std::max(most_launched_, shape.shared_bytes);
    if (emulator_) return emulator_->Launch(kernel, shape, params, bytes);
    ChosenDevice::Get().LaunchOnHostMemory(kernel, shape, params, bytes);
  }
  int multiprocessors() const override { return multiprocessors_; }
  uint32_t max_shared_bytes() const override {
    return std::min(max_shared_bytes_, emulator_
                                           ? emulator_->max_shared_bytes()
                                           : ChosenDevice::Get().launcher().max_shared_bytes());
  }
  // Plans launches for a device with less shared memory.
  void set_max_shared_bytes(uint32_t bytes) { max_shared_bytes_ = bytes; }
  uint32_t most_shared_bytes_launched() const { return most_launched_; }
  std::byte* Workspace(std::string_view purpose, size_t bytes) override {
    if (emulator_) return emulator_->Workspace(purpose, bytes);
    return ChosenDevice::Get().launcher().Workspace(purpose, bytes);
  }
  bool EncodeTiles(const TiledTensor& tensor, TensorMap& map) override {
    if (emulator_) return emulator_->EncodeTiles(tensor, map);
    return ChosenDevice::Get().EncodeTilesOfHostMemory(tensor, map);
  }

 private:
  // Opens the device before a test allocates operands. Tests that fork open it themselves, because
  // a process with a CUDA context cannot fork.
  class OpensDevice final : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo& test) override {
      if (std::string_view(test.test_suite_name()) != "NcclRanks") ChosenDevice::Get();
    }
  };
  inline static const bool kHeapIsPrepared = [] {
    if (ChosenDeviceName().empty()) return false;
    MemoryMirror::PrepareHeap();
    testing::UnitTest::GetInstance()->listeners().Append(new OpensDevice);  // gtest deletes it
    return true;
  }();

  std::optional<gpu_emulator::EmulatedLauncher> emulator_;
  const int multiprocessors_;
  uint32_t max_shared_bytes_ = gpu_emulator::kMostSharedBytes;
  uint32_t most_launched_ = 0;
};

}  // namespace baton
