// The FakeNccl of this process (fake_nccl.h) on the emulated driver, and transports that use them.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/nccl_api.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "kvtransfer/transport.h"
#include "tests/gpu_emulator/emulated_driver.h"
#include "tests/kvtransfer/fake_nccl.h"
#include "tests/kvtransfer/patient_tcp.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {

inline std::string FakeNcclPath(const std::string& name = "fake_nccl") {
  return std::string(BATON_FAKE_NCCL_DIR "/lib") + name + ".so";
}

// The emulated driver, without kernels.
inline std::string EmulatedDriverPath() { return FakeNcclPath("emulated_driver"); }

// Returns a function that a library exports.
template <typename Function>
Function* FunctionOf(const std::string& path, const char* name) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr) << dlerror();
  auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
  CHECK(found != nullptr) << dlerror();
  return found;
}

// Returns the library's FakeNccl, shared by all its users in this process.
inline FakeNccl& TheFakeNccl() {
  return *FunctionOf<FakeNccl*()>(FakeNcclPath(), kFakeNcclSymbol)();
}

// Returns the driver's faults, shared in the same way.
inline gpu_emulator::EmulatedCallFaults& TheCallFaults() {
  return *FunctionOf<gpu_emulator::EmulatedCallFaults*()>(EmulatedDriverPath(),
                                                          "baton_emulator_call_faults")();
}

inline std::shared_ptr<CudaContext> OpenEmulatedGpu() {
  return *CudaContext::Open(*LoadCudaDriver({EmulatedDriverPath()}), 0);
}

// Returns the copies that the device has made since it was opened.
inline int64_t CopiesOfTheDevice() {
  gpu_emulator::EmulatorCounters counters;
  FunctionOf<void(gpu_emulator::EmulatorCounters*)>(EmulatedDriverPath(),
                                                    "baton_emulator_counters")(&counters);
  return counters.copies;
}

inline void ResetFakeNccl() {
  FakeNccl& fake = TheFakeNccl();
  for (FakeNcclSide& side : fake.sides) {
    side.create_result = side.create_async_result = side.issue_polls = 0;
    side.issue_result = side.async_error = 0;
    side.polls_per_operation = 0;
    side.create_hangs = side.create_call_hangs = false;
    side.hangs_at_operation = side.fails_at_operation = -1;
    side.dies_at_operation = side.spoils_at_operation = -1;
    side.operations = side.bytes = side.collectives = 0;
    side.create_calls = side.created = side.aborted = 0;
  }
  fake.version = 22809;
  fake.unique_id_result = 0;
  fake.calls_from_two_threads = 0;
  TheCallFaults().devices = 1;
  TheCallFaults().copy_result = kCuSuccess;
}

// Makes the pool's memory, which this process cannot access, memory of the emulated device.
inline std::shared_ptr<void> IntroduceToTheFakeDevice(TestPool& pool) {
  std::byte* const address = pool.lender().AddressForCopyEngine();
  const std::shared_ptr<CudaContext> context = OpenEmulatedGpu();  // the device lasts as long
  CHECK_EQ(FunctionOf<CuResult(void*, size_t)>(EmulatedDriverPath(), "baton_emulator_adopt")(
               address, pool.size()),
           kCuSuccess);
  CuStream stream = nullptr;
  CHECK_EQ(context->Enter().StreamCreate(&stream, kCuStreamNonBlocking), kCuSuccess);
  pool.copies().copy_on_device = [=](PoolCopies::Direction direction, const PoolCopies::Run& run) {
    const auto in_pool = reinterpret_cast<CuDevicePointer>(address + run.pool_offset);
    const auto outside = reinterpret_cast<CuDevicePointer>(run.staging);
    const bool out = direction == PoolCopies::Direction::kFromPool;
    const CudaDriver& cuda = context->Enter();
    CuResult result = cuda.MemcpyAsync(out ? outside : in_pool, out ? in_pool : outside,
                                       static_cast<size_t>(run.bytes), stream);
    if (result == kCuSuccess) result = cuda.StreamSynchronize(stream);
    return result == kCuSuccess ? absl::OkStatus() : NcclCudaError(cuda, "cuMemcpyAsync", result);
  };
  return std::shared_ptr<void>(address, [context, stream, &pool](void* gone) {
    // The pool outlives this, and ends its last copies later.
    pool.copies().copy_on_device = [](PoolCopies::Direction, const PoolCopies::Run&) {
      return absl::OkStatus();
    };
    CHECK_EQ(context->Enter().StreamDestroy(stream), kCuSuccess);
    FunctionOf<CuResult(void*)>(EmulatedDriverPath(), "baton_emulator_disown")(gone);
  });
}

// Returns options with timeouts that no test can reach.
inline NcclOptions PatientNccl() {
  NcclOptions options;
  options.nccl_libraries = {FakeNcclPath()};
  options.cuda_libraries = {EmulatedDriverPath()};
  options.patience_ms = options.create_timeout_ms = options.batch_timeout_ms = 3'600'000;
  return options;
}

inline TransportFactory Nccl(NcclOptions nccl, TcpOptions tcp = kPatient,
                             std::string listen = "127.0.0.1:0") {
  return [=](TransportOptions options) {
    return CreateSocketTransport(
        {.tcp_listen = listen, .tcp_advertise_host = "", .shm_name = "", .nccl = nccl},
        std::move(options), tcp);
  };
}

// Records the reasons why a transport sent payload over TCP.
class Fallbacks {
 public:
  NcclOptions Into(NcclOptions options) {
    options.on_fallback = [this](const absl::Status& why) {
      const std::lock_guard lock(mutex_);
      seen_.push_back(why);
    };
    return options;
  }
  std::vector<absl::Status> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  bool Has(absl::StatusCode code) {
    for (const absl::Status& status : seen()) {
      if (status.code() == code) return true;
    }
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<absl::Status> seen_;
};

}  // namespace baton
