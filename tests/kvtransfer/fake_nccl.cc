#include "tests/kvtransfer/fake_nccl.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/file_descriptor.h"
#include "kvtransfer/nccl/nccl_api.h"

namespace baton {

// A stream runs nothing by itself. A copy has ended when its call returns. Communicators count the
// operations put on a stream and those that have ended.
struct CuStreamTag {
  std::atomic<int64_t> put = 0;
  std::atomic<int64_t> ended = 0;
};
struct CuEventTag {
  CuStreamTag* stream = nullptr;
  int64_t behind = 0;  // number of operations that precede the event
};

namespace {

FakeNccl fake;

void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

struct Operation {
  std::byte* memory = nullptr;
  size_t bytes = 0;
  CuStreamTag* stream = nullptr;
};

// Calls between ncclGroupStart and ncclGroupEnd.
thread_local std::vector<std::pair<NcclComm*, Operation>> group;

sockaddr_un AddressOf(const NcclUniqueId& id, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An abstract address: the first byte of the name is zero.
  std::memcpy(address.sun_path + 1, id.internal, 64);
  length = offsetof(sockaddr_un, sun_path) + 1 + 64;
  return address;
}

// Returns the address at which this process can access the memory of a device copy.
void* Reachable(void* address) {
  auto* const at = static_cast<std::byte*>(address);
  const std::lock_guard lock(fake.device_mutex);
  for (const FakeDeviceMemory& memory : fake.device_memory) {
    if (at < memory.address || at >= memory.address + memory.bytes) continue;
    ++fake.copies_of_device_memory;
    return memory.readable + (at - memory.address);
  }
  return address;
}

}  // namespace

struct NcclComm {
  NcclComm(int rank, const NcclUniqueId& id)
      : rank(rank), id(id), side(fake.sides[rank]), owner(std::this_thread::get_id()) {
    ++side.created;
    thread = std::thread([this] { Run(); });
  }

  void Abort() {
    {
      const std::lock_guard lock(mutex);
      aborted = true;
    }
    thread.join();
    for (const Operation& operation : waiting) operation.stream->ended += 1;
    ++side.aborted;
  }

  NcclResult State() {
    const std::lock_guard lock(mutex);
    if (state == kNcclSuccess && side.async_error != 0) {
      state = static_cast<NcclResult>(side.async_error.load());
    }
    if (state != kNcclSuccess || operations.empty()) return state;
    if (polls_left-- > 0) return kNcclInProgress;
    for (Operation& operation : operations) {
      ++operation.stream->put;
      waiting.push_back(operation);
    }
    operations.clear();
    return kNcclSuccess;
  }

  NcclResult Add(const Operation& operation) {
    const std::lock_guard lock(mutex);
    if (state != kNcclSuccess) return state == kNcclInProgress ? kNcclInvalidUsage : state;
    operations.push_back(operation);
    polls_left = side.issue_polls;
    return kNcclInProgress;
  }

  void CheckThread() {
    if (std::this_thread::get_id() != owner) ++fake.calls_from_two_threads;
  }

  const int rank;
  const NcclUniqueId id;
  FakeNcclSide& side;
  const std::thread::id owner;

 private:
  void Run() {
    while (side.create_hangs && !Aborted()) Pause();
    if (side.create_async_result != 0) {
      return SetState(static_cast<NcclResult>(side.create_async_result.load()));
    }
    if (!Meet()) return;
    SetState(kNcclSuccess);
    while (!Aborted()) {
      if (const auto operation = Next()) {
        if (!Do(*operation)) return SetState(kNcclRemoteError);
      } else {
        Pause();
      }
    }
  }

  // Rank 0 listens, rank 1 connects.
  bool Meet() {
    socklen_t length;
    const sockaddr_un address = AddressOf(id, length);
    const auto* where = reinterpret_cast<const sockaddr*>(&address);
    FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (rank == 0) {
      if (bind(fd.get(), where, length) != 0 || listen(fd.get(), 1) != 0) {
        SetState(kNcclSystemError);
        return false;
      }
    }
    while (!Aborted()) {
      if (rank == 0) {
        link = FileDescriptor(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (link.get() >= 0) return true;
      } else if (connect(fd.get(), where, length) == 0) {
        link = std::move(fd);
        return true;
      }
      Pause();
    }
    return false;
  }

  std::optional<Operation> Next() {
    const std::lock_guard lock(mutex);
    if (waiting.empty()) return std::nullopt;
    return waiting.front();
  }

  // Returns false when the communicator is unusable.
  bool Do(Operation operation) {
    const int64_t number = side.operations++;
    while (side.hangs_at_operation >= 0 && number >= side.hangs_at_operation) {
      if (Aborted()) return true;
      Pause();
    }
    if (number == side.fails_at_operation) return false;
    const bool dies = number == side.dies_at_operation;
    std::vector<std::byte> spoiled;
    if (rank == 0 && number == side.spoils_at_operation) {
      spoiled.assign(operation.memory, operation.memory + operation.bytes);
      spoiled[operation.bytes / 2] ^= std::byte{1};
      operation.memory = spoiled.data();
    }
    uint64_t count = operation.bytes;
    if (!Move(reinterpret_cast<std::byte*>(&count), sizeof(count))) return Aborted();
    if (count != operation.bytes) return false;
    if (!Move(operation.memory, dies ? count / 2 : count)) return Aborted();
    if (dies) {
      link = FileDescriptor();
      return false;
    }
    side.bytes += static_cast<int64_t>(count);
    const std::lock_guard lock(mutex);
    operation.stream->ended += 1;
    waiting.pop_front();
    return true;
  }

  bool Move(std::byte* memory, size_t bytes) {
    while (bytes > 0) {
      const ssize_t moved = rank == 0 ? send(link.get(), memory, bytes, MSG_NOSIGNAL)
                                      : recv(link.get(), memory, bytes, 0);
      if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (moved > 0) {
        memory += moved;
        bytes -= static_cast<size_t>(moved);
        continue;
      }
      if (Aborted()) return false;
      pollfd wait{link.get(), static_cast<short>(rank == 0 ? POLLOUT : POLLIN), 0};
      poll(&wait, 1, 1);
    }
    return true;
  }

  bool Aborted() {
    const std::lock_guard lock(mutex);
    return aborted;
  }
  void SetState(NcclResult to) {
    const std::lock_guard lock(mutex);
    state = to;
  }

  std::mutex mutex;
  // Guarded by mutex.
  NcclResult state = kNcclInProgress;
  bool aborted = false;
  int polls_left = 0;
  std::vector<Operation> operations;  // not on the stream yet
  std::deque<Operation> waiting;      // on it; the first may be running

  FileDescriptor link;
  std::thread thread;
};

namespace {

NcclResult Enqueue(std::byte* memory, size_t bytes, int peer, NcclComm* comm, CuStream stream) {
  comm->CheckThread();
  if (peer == comm->rank) return kNcclInvalidArgument;
  if (comm->side.issue_result != 0) return static_cast<NcclResult>(comm->side.issue_result.load());
  group.push_back({comm, {memory, bytes, stream}});
  return kNcclSuccess;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) FakeNccl* FakeNcclOfThisLibrary() { return &fake; }

NcclResult ncclGetVersion(int* version) {
  *version = fake.version;
  return kNcclSuccess;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  static std::atomic<int> next = 0;
  std::memset(id->internal, 0, sizeof(id->internal));
  const std::string name = "fake-nccl-" + std::to_string(getpid()) + "-" +
                           std::to_string(reinterpret_cast<uintptr_t>(&fake)) + "-" +
                           std::to_string(next++);
  std::memcpy(id->internal, name.data(), name.size());
  return static_cast<NcclResult>(fake.unique_id_result.load());
}

NcclResult ncclCommInitRankConfig(NcclComm** comm, int ranks, NcclUniqueId id, int rank,
                                  NcclConfig* config) {
  const bool usable = ranks == 2 && rank >= 0 && rank < 2 && config->magic == 0xcafebeef &&
                      config->size == sizeof(NcclConfig) && config->blocking == 0;
  if (!usable) return kNcclInvalidArgument;
  FakeNcclSide& side = fake.sides[rank];
  ++side.create_calls;
  while (side.create_call_hangs) Pause();
  if (side.create_result != 0) return static_cast<NcclResult>(side.create_result.load());
  *comm = new NcclComm(rank, id);
  return kNcclInProgress;
}

NcclResult ncclCommGetAsyncError(NcclComm* comm, NcclResult* error) {
  comm->CheckThread();
  *error = comm->State();
  return kNcclSuccess;
}

NcclResult ncclCommAbort(NcclComm* comm) {
  comm->CheckThread();
  comm->Abort();
  delete comm;
  return kNcclSuccess;
}

NcclResult ncclGroupStart() {
  group.clear();
  return kNcclSuccess;
}

NcclResult ncclGroupEnd() {
  NcclResult result = kNcclSuccess;
  for (const auto& [comm, operation] : group) result = comm->Add(operation);
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

// ---- the CUDA driver ----------------------------------------------------------------------------

CuResult cuInit(unsigned int) { return kCuSuccess; }

CuResult cuDriverGetVersion(int* version) {
  *version = 13000;
  return kCuSuccess;
}

CuResult cuGetErrorName(CuResult, const char** name) {
  *name = "FAKE_ERROR";
  return kCuSuccess;
}

CuResult cuGetErrorString(CuResult, const char** text) {
  *text = "fake CUDA error";
  return kCuSuccess;
}

CuResult cuDeviceGetCount(int* count) {
  *count = fake.devices;
  return kCuSuccess;
}

CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  *device = ordinal;
  return kCuSuccess;
}

CuResult cuDeviceGetName(char* name, int, CuDevice) {
  std::strcpy(name, "fake GPU");
  return kCuSuccess;
}

CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute, CuDevice) {
  *value = 1;
  return kCuSuccess;
}

CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice) {
  *context = reinterpret_cast<CuContext>(&fake);
  return kCuSuccess;
}

CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) { return kCuSuccess; }
CuResult cuCtxSetCurrent(CuContext) { return kCuSuccess; }

CuResult cuMemAlloc_v2(CuDevicePointer* memory, size_t bytes) {
  *memory = reinterpret_cast<CuDevicePointer>(::operator new(bytes));
  fake.allocated += static_cast<int64_t>(bytes);
  return kCuSuccess;
}

CuResult cuMemFree_v2(CuDevicePointer memory) {
  ::operator delete(reinterpret_cast<void*>(memory));
  return kCuSuccess;
}

CuResult cuMemcpyAsync(CuDevicePointer to, CuDevicePointer from, size_t bytes, CuStream) {
  if (fake.copy_result != 0) return static_cast<CuResult>(fake.copy_result.load());
  std::memcpy(Reachable(reinterpret_cast<void*>(to)), Reachable(reinterpret_cast<void*>(from)),
              bytes);
  return kCuSuccess;
}

CuResult cuStreamCreate(CuStream* stream, unsigned int) {
  *stream = new CuStreamTag;
  return kCuSuccess;
}

CuResult cuStreamDestroy_v2(CuStream stream) {
  delete stream;
  return kCuSuccess;
}

CuResult cuStreamQuery(CuStream stream) {
  return stream->ended >= stream->put ? kCuSuccess : kCuNotReady;
}

CuResult cuStreamSynchronize(CuStream) { return kCuSuccess; }

CuResult cuEventCreate(CuEvent* event, unsigned int) {
  *event = new CuEventTag;
  return kCuSuccess;
}

CuResult cuEventDestroy_v2(CuEvent event) {
  delete event;
  return kCuSuccess;
}

CuResult cuEventRecord(CuEvent event, CuStream stream) {
  event->stream = stream;
  event->behind = stream->put;
  return kCuSuccess;
}

CuResult cuEventQuery(CuEvent event) {
  return event->stream->ended >= event->behind ? kCuSuccess : kCuNotReady;
}

// Functions that the table needs and transfers do not call.
#define BATON_UNUSED(name) \
  CuResult name() { return kCuUnknown; }
BATON_UNUSED(cuMemGetInfo_v2)
BATON_UNUSED(cuMemHostAlloc)
BATON_UNUSED(cuMemFreeHost)
BATON_UNUSED(cuMemAddressReserve)
BATON_UNUSED(cuMemAddressFree)
BATON_UNUSED(cuMemGetAllocationGranularity)
BATON_UNUSED(cuMemCreate)
BATON_UNUSED(cuMemRelease)
BATON_UNUSED(cuMemMap)
BATON_UNUSED(cuMemUnmap)
BATON_UNUSED(cuMemSetAccess)
BATON_UNUSED(cuMemsetD8Async)
BATON_UNUSED(cuStreamBeginCapture_v2)
BATON_UNUSED(cuStreamEndCapture)
BATON_UNUSED(cuEventSynchronize)
BATON_UNUSED(cuGraphInstantiateWithFlags)
BATON_UNUSED(cuGraphUpload)
BATON_UNUSED(cuGraphLaunch)
BATON_UNUSED(cuGraphExecDestroy)
BATON_UNUSED(cuGraphDestroy)
BATON_UNUSED(cuModuleLoadData)
BATON_UNUSED(cuModuleUnload)
BATON_UNUSED(cuModuleGetFunction)
BATON_UNUSED(cuFuncSetAttribute)
BATON_UNUSED(cuLaunchKernel)
#undef BATON_UNUSED

}  // extern "C"
}  // namespace baton
