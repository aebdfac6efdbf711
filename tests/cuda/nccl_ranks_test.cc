// Two NCCL ranks on one GPU, in a process each. NCCL refuses two ranks of one host on one GPU, so
// each process names a host of its own (NCCL_HOSTID). The bytes then go through the sockets of this
// machine: the test proves the calls, and says nothing about bandwidth.
//
// The device is that of BATON_TEST_DEVICE; without it, the emulated one with NCCL's stand-in. On a
// GPU the test needs a program run of its own, because a process with a CUDA context cannot fork.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/create_device.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/nccl_api.h"
#include "kvtransfer/nccl/nccl_communicators.h"
#include "tests/cuda/chosen_launcher.h"
#include "tests/gpu_emulator/sanitizers.h"

namespace baton {
namespace {

constexpr int64_t kSlotBytes = 1 << 20;
constexpr std::array<int64_t, 4> kSizes = {1, 4099, kSlotBytes, 70001};
constexpr std::chrono::seconds kPatience{20};
constexpr NcclCommId kComm = {.peer = PeerId(1), .attempt = 1};

std::string DeviceName() {
  return ChosenDeviceName().empty() ? "cuda-emulated" : ChosenDeviceName();
}
DeviceLibraries LibrariesOfDevice() { return DeviceLibrariesOf(DeviceName()); }

std::vector<std::byte> BytesOf(int operation) {
  std::mt19937 random(static_cast<unsigned>(operation) + 16);
  std::vector<std::byte> bytes(kSizes[operation]);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// One end of the pair of ranks. Unavailable: NCCL or the device refuses. Other errors are faults.
class Rank {
 public:
  // `link`: a socket to the other rank, for the unique id and the end.
  Rank(int rank, int link) : rank_(rank), link_(link) {}

  absl::Status Run() {
    setenv("NCCL_HOSTID", rank_ == kNcclSenderRank ? "baton-rank-0" : "baton-rank-1", 1);
    const DeviceLibraries libraries = LibrariesOfDevice();
    ASSIGN_OR_RETURN(const CudaDriver driver, LoadCudaDriver(libraries.driver));
    ASSIGN_OR_RETURN(context_, CudaContext::Open(driver, CudaIndexOf(DeviceName()).value_or(0)));
    ASSIGN_OR_RETURN(const NcclApi nccl, LoadNccl(libraries.nccl));
    RETURN_IF_ERROR(
        Checked("cuStreamCreate", context_->Enter().StreamCreate(&copies_, kCuStreamNonBlocking)));
    NcclCommunicators communicators(nccl, context_, {.slots = 2, .slot_bytes = kSlotBytes});
    RETURN_IF_ERROR(Connect(communicators));
    for (int i = 0; i < static_cast<int>(kSizes.size()); ++i) {
      RETURN_IF_ERROR(Move(communicators, i));
    }
    return End();
  }

 private:
  // The sender's communicator must outlive the receiver's last operation.
  absl::Status End() {
    char got_all = 0;
    const ssize_t bytes =
        rank_ == kNcclSenderRank ? read(link_, &got_all, 1) : write(link_, &got_all, 1);
    return bytes == 1 ? absl::OkStatus() : absl::InternalError("the other rank ended early");
  }

  absl::Status Connect(NcclCommunicators& communicators) {
    std::string unique_id(kNcclUniqueIdBytes, '\0');
    if (rank_ == kNcclReceiverRank &&
        read(link_, unique_id.data(), unique_id.size()) != kNcclUniqueIdBytes) {
      return absl::UnavailableError("rank 0 has no unique id");
    }
    communicators.Create(kComm, rank_, rank_ == kNcclSenderRank ? "" : unique_id);
    ASSIGN_OR_RETURN(const NcclReport ready, Await(communicators, NcclReport::Kind::kReady));
    slots_ = ready.slots;
    return absl::OkStatus();
  }

  absl::Status Move(NcclCommunicators& communicators, int operation) {
    const int32_t slot = operation % 2;
    const auto memory = reinterpret_cast<CuDevicePointer>(slots_[slot]);
    std::vector<std::byte> bytes = BytesOf(operation);
    if (rank_ == kNcclSenderRank) {
      RETURN_IF_ERROR(Copy(memory, reinterpret_cast<CuDevicePointer>(bytes.data()), bytes.size()));
    }
    communicators.Post(kComm, slot, kSizes[operation]);
    if (absl::Status done = Await(communicators, NcclReport::Kind::kDone).status(); !done.ok()) {
      return absl::InternalError(absl::StrCat("operation ", operation, ": ", done.message()));
    }
    if (rank_ == kNcclSenderRank) return absl::OkStatus();
    std::vector<std::byte> got(bytes.size());
    RETURN_IF_ERROR(Copy(reinterpret_cast<CuDevicePointer>(got.data()), memory, got.size()));
    if (got == bytes) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("operation ", operation, " has other bytes"));
  }

  absl::StatusOr<NcclReport> Await(NcclCommunicators& communicators, NcclReport::Kind kind) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      for (const NcclReport& report : communicators.Poll()) {
        if (report.kind == NcclReport::Kind::kFailed) {
          return absl::UnavailableError(report.status.message());
        }
        if (report.kind == NcclReport::Kind::kUniqueId &&
            write(link_, report.unique_id.data(), report.unique_id.size()) != kNcclUniqueIdBytes) {
          return absl::InternalError("the socket does not take the unique id");
        }
        if (report.kind == kind) return report;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return absl::UnavailableError(absl::StrCat("no answer in ", kPatience.count(), " seconds"));
  }

  absl::Status Copy(CuDevicePointer to, CuDevicePointer from, size_t bytes) {
    const CudaDriver& cuda = context_->Enter();
    RETURN_IF_ERROR(Checked("cuMemcpyAsync", cuda.MemcpyAsync(to, from, bytes, copies_)));
    return Checked("cuStreamSynchronize", cuda.StreamSynchronize(copies_));
  }
  absl::Status Checked(const char* call, CuResult result) { return context_->Check(call, result); }

  const int rank_;
  const int link_;
  std::shared_ptr<CudaContext> context_;
  CuStream copies_ = nullptr;
  std::vector<std::byte*> slots_;
};

struct Process {
  pid_t pid = -1;
  int outcome = -1;  // a pipe with the status code and the message
};

// `links`: the rank's end of the link, and the other end.
Process StartRank(int rank, std::array<int, 2> links) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid != 0) {
    close(ends[1]);
    return {pid, ends[0]};
  }
  close(links[1]);
  const absl::Status status = Rank(rank, links[0]).Run();
  std::string text =
      absl::StrCat(static_cast<int>(status.code()), " ", std::string(status.message()));
  _exit(write(ends[1], text.data(), text.size()) < 0 ? 2 : 0);
}

// Returns what the rank has reported. Each rank ends by itself, because it waits for kPatience at
// most.
absl::Status EndOf(const Process& process) {
  std::string text;
  char piece[1024];
  for (ssize_t got; (got = read(process.outcome, piece, sizeof(piece))) > 0;) {
    text.append(piece, got);
  }
  close(process.outcome);
  int status = 0;
  waitpid(process.pid, &status, 0);
  if (text.empty()) {
    return absl::InternalError(absl::StrCat("the process ended with status ", status));
  }
  return {static_cast<absl::StatusCode>(std::atoi(text.c_str())), text.substr(text.find(' ') + 1)};
}

TEST(NcclRanks, MoveBytesBetweenTwoProcessesOnOneGpu) {
#ifdef BATON_EMULATOR_TSAN
  GTEST_SKIP() << "not run: ThreadSanitizer follows no threads of a forked process";
#endif
  const DeviceLibraries libraries = LibrariesOfDevice();
  if (const absl::Status nccl = LoadNccl(libraries.nccl).status(); !nccl.ok()) {
    GTEST_SKIP() << "not run: there is no library of NCCL: " << nccl.message();
  }
  int links[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, links), 0);
  const Process sender = StartRank(kNcclSenderRank, {links[0], links[1]});
  const Process receiver = StartRank(kNcclReceiverRank, {links[1], links[0]});
  close(links[0]);
  close(links[1]);
  const absl::Status sent = EndOf(sender);
  const absl::Status received = EndOf(receiver);
  for (const absl::Status& status : {sent, received}) {
    if (!absl::IsUnavailable(status)) continue;
    GTEST_SKIP() << "not run: NCCL refuses two ranks on one GPU: " << status.message();
  }
  EXPECT_EQ(sent, absl::OkStatus());
  EXPECT_EQ(received, absl::OkStatus());
}

}  // namespace
}  // namespace baton
