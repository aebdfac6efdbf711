// The functions that NCCL's stand-in exports (fake_nccl.h).
#include "tests/kvtransfer/fake_nccl.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/nccl_api.h"
#include "tests/kvtransfer/fake_nccl_communicator.h"
#include "tests/kvtransfer/fake_nccl_group.h"

namespace baton {

struct NcclComm {
  std::shared_ptr<FakeNcclCommunicator> communicator = nullptr;  // null: of a group
  std::shared_ptr<FakeNcclGroup> group = nullptr;
  int rank = 0;
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
        << "0 " << fake.sides[0].bytes << " 1 " << fake.sides[1].bytes << " collectives "
        << fake.sides[0].collectives << " " << fake.sides[1].collectives << std::endl;
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
thread_local std::vector<std::function<NcclResult()>> calls;

FakeNcclSide& SideOf(const NcclComm* comm) { return Fake().sides[comm->rank == 0 ? 0 : 1]; }

FakeNcclCommunicator& Checked(NcclComm* comm) {
  if (!comm->communicator->OnItsThread()) ++Fake().calls_from_two_threads;
  return *comm->communicator;
}

NcclResult Enqueue(FakeNcclGroup::Operation operation, NcclComm* comm) {
  if (operation.peer == comm->rank && operation.kind != FakeNcclGroup::Kind::kBroadcast &&
      operation.kind != FakeNcclGroup::Kind::kAllGather) {
    return kNcclInvalidArgument;
  }
  const int result = SideOf(comm).issue_result;
  if (result != 0) return static_cast<NcclResult>(result);
  if (comm->group != nullptr) {
    calls.emplace_back([comm, operation] { return comm->group->Add(comm->rank, operation); });
    return kNcclSuccess;
  }
  FakeNcclCommunicator& communicator = Checked(comm);
  const Operation moved{operation.memory, operation.bytes, operation.stream};
  calls.emplace_back([&communicator, moved] { return communicator.Add(moved); });
  return kNcclSuccess;
}

// The groups of this process. They last as long as the process, because captured operations may
// outlive their communicators.
std::shared_ptr<FakeNcclGroup> GroupOf(const NcclUniqueId& id, int ranks) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<FakeNcclGroup>> groups;
  const std::lock_guard lock(mutex);
  auto& group = groups[std::string(id.internal, sizeof(id.internal))];
  if (group == nullptr) group = std::make_shared<FakeNcclGroup>(ranks);
  return group;
}

std::byte* Bytes(const void* memory) { return static_cast<std::byte*>(const_cast<void*>(memory)); }

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
  const bool groups =
      config->comm_name != nullptr && std::string(config->comm_name) == kFakeNcclGroupName;
  const bool usable = (groups || ranks == 2) && rank >= 0 && rank < ranks &&
                      config->magic == 0xcafebeef && config->size == sizeof(NcclConfig) &&
                      config->blocking == 0;
  if (!usable) return kNcclInvalidArgument;
  FakeNcclSide& side = Fake().sides[rank == 0 ? 0 : 1];
  ++side.create_calls;
  while (side.create_call_hangs) std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (side.create_result != 0) return static_cast<NcclResult>(side.create_result.load());
  *comm = new NcclComm{.rank = rank};
  if (groups) {
    (*comm)->group = GroupOf(id, ranks);
    (*comm)->group->Join(rank);
  } else {
    (*comm)->communicator = std::make_shared<FakeNcclCommunicator>(rank, id, side);
  }
  return kNcclInProgress;
}

NcclResult ncclCommGetAsyncError(NcclComm* comm, NcclResult* error) {
  *error =
      comm->group != nullptr ? comm->group->State(comm->rank, SideOf(comm)) : Checked(comm).State();
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm* comm) {
  if (comm->group != nullptr) {
    comm->group->Abort(comm->rank);
  } else {
    Checked(comm).Abort();
  }
  delete comm;
  return kNcclSuccess;
}

NcclResult ncclGroupStart() {
  calls.clear();
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() {
  NcclResult result = kNcclSuccess;
  for (const auto& call : calls) result = call();
  calls.clear();
  return result;
}

NcclResult ncclSend(const void* from, size_t count, NcclDataType, int peer, NcclComm* comm,
                    CuStream stream) {
  return Enqueue({FakeNcclGroup::Kind::kSend, Bytes(from), count, peer, stream}, comm);
}

#ifndef FAKE_NCCL_WITHOUT_RECV
NcclResult ncclRecv(void* to, size_t count, NcclDataType, int peer, NcclComm* comm,
                    CuStream stream) {
  return Enqueue({FakeNcclGroup::Kind::kReceive, Bytes(to), count, peer, stream}, comm);
}
#endif

// Only in place, and only within a group.
NcclResult ncclAllGather(const void* from, void* to, size_t count, NcclDataType, NcclComm* comm,
                         CuStream stream) {
  if (comm->group == nullptr || Bytes(from) != Bytes(to) + comm->rank * count) {
    return kNcclInvalidArgument;
  }
  return Enqueue({FakeNcclGroup::Kind::kAllGather, Bytes(to), count, 0, stream}, comm);
}

NcclResult ncclBroadcast(const void* from, void* to, size_t count, NcclDataType, int root,
                         NcclComm* comm, CuStream stream) {
  if (comm->group == nullptr || from != to) return kNcclInvalidArgument;
  return Enqueue({FakeNcclGroup::Kind::kBroadcast, Bytes(to), count, root, stream}, comm);
}

const char* ncclGetErrorString(NcclResult result) {
  return result == kNcclRemoteError ? "fake remote error" : "fake error";
}

}  // extern "C"
}  // namespace baton
