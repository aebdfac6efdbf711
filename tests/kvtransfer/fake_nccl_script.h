// The FakeNccl of this process (fake_nccl.h), and transports that use it.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/fake_nccl.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {

inline std::string FakeNcclPath(const std::string& name = "fake_nccl") {
  return std::string(BATON_FAKE_NCCL_DIR "/lib") + name + ".so";
}

// Returns the library's FakeNccl, shared by all its users in this process.
inline FakeNccl& TheFakeNccl() {
  void* const library = dlopen(FakeNcclPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return *reinterpret_cast<FakeNcclFunction>(dlsym(library, kFakeNcclSymbol))();
}

inline void ResetFakeNccl() {
  FakeNccl& fake = TheFakeNccl();
  for (FakeNcclSide& side : fake.sides) {
    side.create_result = side.create_async_result = side.issue_polls = 0;
    side.issue_result = side.async_error = 0;
    side.create_hangs = side.create_call_hangs = false;
    side.hangs_at_operation = side.fails_at_operation = -1;
    side.dies_at_operation = side.spoils_at_operation = -1;
    side.operations = side.bytes = 0;
    side.create_calls = side.created = side.aborted = 0;
  }
  fake.version = 22809;
  fake.devices = 1;
  fake.unique_id_result = fake.copy_result = 0;
  fake.copies_of_device_memory = 0;
  fake.calls_from_two_threads = 0;
}

// Registers this pool's memory with the fake device, so that device copies reach it.
inline std::shared_ptr<void> IntroduceToTheFakeDevice(TestPool& pool) {
  std::byte* const address = pool.lender().AddressForCopyEngine();
  {
    const std::lock_guard lock(TheFakeNccl().device_mutex);
    TheFakeNccl().device_memory.push_back({address, pool.size(), pool.data()});
  }
  return std::shared_ptr<void>(address, [](void* gone) {
    const std::lock_guard lock(TheFakeNccl().device_mutex);
    std::erase_if(TheFakeNccl().device_memory,
                  [&](const FakeDeviceMemory& memory) { return memory.address == gone; });
  });
}

// Returns options with timeouts that no test can reach.
inline NcclOptions PatientNccl() {
  NcclOptions options;
  options.nccl_libraries = options.cuda_libraries = {FakeNcclPath()};
  options.patience_ms = options.create_timeout_ms = options.batch_timeout_ms = 3'600'000;
  return options;
}

inline TransportFactory Nccl(NcclOptions nccl, TcpOptions tcp = {},
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
