// Devices on the emulated GPU (tests/gpu_emulator/emulated_driver.h), for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/shared_library.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/device.h"
#include "tests/gpu_emulator/emulated_driver.h"

namespace baton {

// The functions that the emulator's library exports for tests.
class EmulatorLibrary {
 public:
  // In the folder of the running program, or where the build put it.
  static std::string Path() {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    const std::filesystem::path beside = program.parent_path() / "libbaton_gpu_emulator.so";
    return std::filesystem::exists(beside) ? beside.string() : BATON_GPU_EMULATOR_LIBRARY;
  }

  EmulatorLibrary() : library_({Path()}) {
    library_.Find("baton_emulator_configure", configure_);
    library_.Find("baton_emulator_counters", counters_);
    library_.Find("baton_emulator_fail_after", fail_after_);
    library_.Find("baton_emulator_hang_after", hang_after_);
    library_.Find("baton_emulator_hold_maps", hold_maps_);
    library_.Find("baton_emulator_maps_waiting", maps_waiting_);
    library_.Find("baton_emulator_fail_unmaps", fail_unmaps_);
    library_.Find("baton_emulator_enqueue", enqueue_);
    library_.Find("baton_emulator_call_faults", call_faults_);
    CHECK(library_.status().ok()) << library_.status();
  }
  void Configure(const gpu_emulator::EmulatorSettings& settings) const { configure_(&settings); }
  gpu_emulator::EmulatorCounters counters() const {
    gpu_emulator::EmulatorCounters counters;
    counters_(&counters);
    return counters;
  }
  void FailAfter(int64_t launches) const { fail_after_(launches); }
  void HangAfter(int64_t launches) const { hang_after_(launches); }
  void EndHang() const { hang_after_(-1); }
  void HoldMaps(bool hold) const { hold_maps_(hold); }
  int64_t maps_waiting() const { return maps_waiting_(); }
  void FailUnmaps(int64_t count) const { fail_unmaps_(count); }
  gpu_emulator::EmulatedCallFaults& call_faults() const { return *call_faults_(); }
  CuResult Enqueue(CuStream stream, const gpu_emulator::ExternalWork& work) const {
    return enqueue_(stream, work);
  }

 private:
  SharedLibrary library_;
  void (*configure_)(const gpu_emulator::EmulatorSettings*) = nullptr;
  void (*counters_)(gpu_emulator::EmulatorCounters*) = nullptr;
  void (*fail_after_)(int64_t) = nullptr;
  void (*hang_after_)(int64_t) = nullptr;
  void (*hold_maps_)(bool) = nullptr;
  int64_t (*maps_waiting_)() = nullptr;
  void (*fail_unmaps_)(int64_t) = nullptr;
  CuResult (*enqueue_)(CuStream, const gpu_emulator::ExternalWork&) = nullptr;
  gpu_emulator::EmulatedCallFaults* (*call_faults_)() = nullptr;
};

// Creates the device. Without `numerics` it chooses them, as --numerics auto does. REQUIRES: no
// other emulated device of this process exists.
inline std::unique_ptr<Device> CreateEmulatedDevice(
    const gpu_emulator::EmulatorSettings& settings = {},
    std::optional<Numerics> numerics = std::nullopt) {
  EmulatorLibrary().Configure(settings);
  auto device = CreateCudaDevice({.driver_libraries = {EmulatorLibrary::Path()},
                                  .kernel_library = EmulatorLibrary::Path(),
                                  .numerics = numerics});
  CHECK(device.ok()) << device.status();
  return *std::move(device);
}

// NCCL's stand-in on the emulator (tests/kvtransfer/fake_nccl.h), beside it.
inline std::string EmulatedNcclPath() {
  return (std::filesystem::path(EmulatorLibrary::Path()).parent_path() /
          "libbaton_emulated_nccl.so")
      .string();
}

// Creates the devices of a tensor-parallel group, on an emulator with that many devices. The number
// stays until the next call. REQUIRES: as CreateEmulatedDevice.
inline absl::StatusOr<DeviceGroup> CreateEmulatedGroup(
    int32_t degree, const gpu_emulator::EmulatorSettings& settings = {},
    std::optional<Numerics> numerics = std::nullopt) {
  const EmulatorLibrary emulator;
  emulator.Configure(settings);
  emulator.call_faults().devices = degree;
  return CreateCudaDeviceGroup({.driver_libraries = {EmulatorLibrary::Path()},
                                .kernel_library = EmulatorLibrary::Path(),
                                .numerics = numerics},
                               {EmulatedNcclPath()}, degree);
}

// Copies values of the host to new device memory.
template <typename T>
std::unique_ptr<DeviceBuffer> ToDevice(Device& device, const std::vector<T>& values) {
  auto buffer = device.Allocate(values.size() * sizeof(T), "test");
  CHECK(buffer.ok()) << buffer.status();
  const auto stream = device.CreateStream();
  stream->Copy((*buffer)->data(), values.data(), values.size() * sizeof(T));
  stream->Synchronize();
  return *std::move(buffer);
}

// Copies `count` values of device memory to the host, after everything that `stream` has enqueued.
template <typename T>
std::vector<T> FromDevice(Stream& stream, const void* from, size_t count) {
  std::vector<T> values(count);
  stream.Copy(values.data(), from, count * sizeof(T));
  stream.Synchronize();
  return values;
}

}  // namespace baton
