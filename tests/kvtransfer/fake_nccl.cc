// The functions that NCCL's stand-in exports (fake_nccl.h).
#include "tests/kvtransfer/fake_nccl.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kvtransfer/nccl/nccl_api.h"
#include "tests/kvtransfer/fake_nccl_communicator.h"

namespace baton {

struct NcclComm {
  std::shared_ptr<FakeNcclCommunicator> communicator;
};

namespace {

using Operation = FakeNcclCommunicator::Operation;

// Settings that the environment can give.
struct NamedSetting {
  const char* name;
  std::atomic<int64_t> FakeNcclSide::*setting;
};
constexpr NamedSetting kNamedSettings[] = {
    {"polls_per_operation", &FakeNcclSide::polls_per_operation},
    {"hangs_at_operation", &FakeNcclSide::hangs_at_operation},
    {"fails_at_operation", &FakeNcclSide::fails_at_operation},
    {"dies_at_operation", &FakeNcclSide::dies_at_operation},
    {"spoils_at_operation", &FakeNcclSide::spoils_at_operation},
};

// The settings and counters of this process.
struct Process {
  Process() {
    const char* const text = std::getenv("BATON_FAKE_NCCL");
    std::istringstream settings(text == nullptr ? "" : text);
    for (std::string setting; std::getline(settings, setting, ',');) Set(setting);
  }
  ~Process() {
    const char* const path = std::getenv("BATON_FAKE_NCCL_REPORT");
    if (path == nullptr) return;
    std::ofstream(path, std::ios::app)
        << "0 " << fake.sides[0].bytes << " 1 " << fake.sides[1].bytes << std::endl;
  }

  // `setting`: RANK.NAME=NUMBER. An unknown one ends the program, so that no test passes in vain.
  void Set(const std::string& setting) {
    const size_t dot = setting.find('.'), equals = setting.find('=');
    for (const auto& [name, member] : kNamedSettings) {
      if (dot != 1 || equals == std::string::npos || setting.substr(2, equals - 2) != name)
        continue;
      if (setting[0] != '0' && setting[0] != '1') continue;
      fake.sides[setting[0] - '0'].*member = std::stoll(setting.substr(equals + 1));
      return;
    }
    std::fprintf(stderr, "BATON_FAKE_NCCL has \"%s\"\n", setting.c_str());
    std::abort();
  }

  FakeNccl fake;
};

FakeNccl& Fake() {
  static Process process;
  return process.fake;
}

// Calls between ncclGroupStart and ncclGroupEnd.
thread_local std::vector<std::pair<FakeNcclCommunicator*, Operation>> group;

FakeNcclCommunicator& Checked(NcclComm* comm) {
  if (!comm->communicator->OnItsThread()) ++Fake().calls_from_two_threads;
  return *comm->communicator;
}

NcclResult Enqueue(std::byte* memory, size_t bytes, int peer, NcclComm* comm, CuStream stream) {
  FakeNcclCommunicator& communicator = Checked(comm);
  if (peer == communicator.rank()) return kNcclInvalidArgument;
  const int result = communicator.side().issue_result;
  if (result != 0) return static_cast<NcclResult>(result);
  group.push_back({&communicator, {memory, bytes, stream}});
  return kNcclSuccess;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) FakeNccl* FakeNcclOfThisLibrary() { return &Fake(); }

NcclResult ncclGetVersion(int* version) {
  *version = Fake().version;
  return kNcclSuccess;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  static std::atomic<int> next = 0;
  std::memset(id->internal, 0, sizeof(id->internal));
  const std::string name = "fake-nccl-" + std::to_string(getpid()) + "-" +
                           std::to_string(reinterpret_cast<uintptr_t>(&Fake())) + "-" +
                           std::to_string(next++);
  std::memcpy(id->internal, name.data(), name.size());
  return static_cast<NcclResult>(Fake().unique_id_result.load());
}

NcclResult ncclCommInitRankConfig(NcclComm** comm, int ranks, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  const bool usable = ranks == 2 && rank >= 0 && rank < 2 && config->magic == 0xcafebeef &&
                      config->size == sizeof(NcclConfig) && config->blocking == 0;
  if (!usable) return kNcclInvalidArgument;
  FakeNcclSide& side = Fake().sides[rank];
  ++side.create_calls;
  while (side.create_call_hangs) std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (side.create_result != 0) return static_cast<NcclResult>(side.create_result.load());
  *comm = new NcclComm{std::make_shared<FakeNcclCommunicator>(rank, id, side)};
  return kNcclInProgress;
}

NcclResult ncclCommGetAsyncError(NcclComm* comm, NcclResult* error) {
  *error = Checked(comm).State();
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm* comm) {
  Checked(comm).Abort();
  delete comm;
  return kNcclSuccess;
}

NcclResult ncclGroupStart() {
  group.clear();
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() {
  NcclResult result = kNcclSuccess;
  for (const auto& [communicator, operation] : group) result = communicator->Add(operation);
  group.clear();
  return result;
}

NcclResult ncclSend(const void* from, size_t count, NcclDataType, int peer, NcclComm* comm,
                    CuStream stream) {
  return Enqueue(static_cast<std::byte*>(const_cast<void*>(from)), count, peer, comm, stream);
}

#ifndef FAKE_NCCL_WITHOUT_RECV
NcclResult ncclRecv(void* to, size_t count, NcclDataType, int peer, NcclComm* comm,
                    CuStream stream) {
  return Enqueue(static_cast<std::byte*>(to), count, peer, comm, stream);
}
#endif

const char* ncclGetErrorString(NcclResult result) {
  return result == kNcclRemoteError ? "fake remote error" : "fake error";
}

}  // extern "C"
}  // namespace baton
