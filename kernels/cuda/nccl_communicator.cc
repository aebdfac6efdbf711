#include "kernels/cuda/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/launch_copies.h"

namespace baton {
namespace {

constexpr std::chrono::seconds kConnectTimeout{60};
constexpr std::chrono::microseconds kPollPause{20};
// NCCL puts most work on the stream within microseconds.
constexpr int kPollsAtOnce = 64;
constexpr int kPollsWithoutPause = 1000;
constexpr int64_t kFloat = sizeof(float);

bool Accepted(NcclResult result) { return result == kNcclSuccess || result == kNcclInProgress; }

// What the ranks of a group share.
class NcclGroup {
 public:
  NcclGroup(const NcclApi& nccl, std::vector<std::shared_ptr<CudaContext>> contexts)
      : nccl_(nccl), contexts_(std::move(contexts)), members_(contexts_.size()) {}
  ~NcclGroup() { AbortMembers(); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  const NcclApi& nccl() const { return nccl_; }
  int32_t degree() const { return static_cast<int32_t>(members_.size()); }

  absl::Status Connect();
  // Makes calls of NCCL for `rank` as one group, and waits until their work is on the stream. An
  // error aborts the group. Does nothing after an abort.
  void Call(int32_t rank, const char* name, absl::FunctionRef<NcclResult(NcclComm*)> call);
  void Abort(absl::Status why);
  absl::Status Health();

 private:
  struct Member {
    std::mutex mutex;
    NcclComm* comm = nullptr;  // guarded by mutex; null: aborted
  };

  void AbortMembers();
  // Returns the state of a communicator, kNcclInProgress included. Success if it was aborted.
  NcclResult StateOf(size_t rank);

  const NcclApi nccl_;
  const std::vector<std::shared_ptr<CudaContext>> contexts_;
  std::vector<Member> members_;
  std::mutex mutex_;
  absl::Status health_;  // guarded by mutex_
};

NcclResult NcclGroup::StateOf(size_t rank) {
  Member& member = members_[rank];
  const std::lock_guard lock(member.mutex);
  if (member.comm == nullptr) return kNcclSuccess;
  NcclResult state = kNcclSuccess;
  const NcclResult asked = nccl_.CommGetAsyncError(member.comm, &state);
  return Accepted(asked) ? state : asked;
}

absl::Status NcclGroup::Connect() {
  NcclUniqueId id;
  if (const NcclResult result = nccl_.GetUniqueId(&id); result != kNcclSuccess) {
    return NcclError(nccl_, "ncclGetUniqueId", result);
  }
  NcclConfig config;
  config.blocking = 0;
  config.comm_name = "baton-tensor-parallel";
  NcclResult result = nccl_.GroupStart();
  for (size_t rank = 0; rank < members_.size() && Accepted(result); ++rank) {
    contexts_[rank]->Enter();
    const std::lock_guard lock(members_[rank].mutex);
    result = nccl_.CommInitRankConfig(&members_[rank].comm, degree(), id, static_cast<int>(rank),
                                      &config);
  }
  const NcclResult ended = nccl_.GroupEnd();
  if (!Accepted(result)) return NcclError(nccl_, "ncclCommInitRankConfig", result);
  if (!Accepted(ended)) return NcclError(nccl_, "ncclGroupEnd", ended);
  const auto deadline = std::chrono::steady_clock::now() + kConnectTimeout;
  for (;;) {
    bool connected = true;
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      const NcclResult state = StateOf(rank);
      if (!Accepted(state)) return NcclError(nccl_, "communicator creation", state);
      connected = connected && state == kNcclSuccess;
    }
    if (connected) return absl::OkStatus();
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::UnavailableError(StrCat("NCCL has not connected ", degree(), " GPUs in ",
                                           kConnectTimeout.count(), " seconds"));
    }
    std::this_thread::sleep_for(kPollPause);
  }
}

void NcclGroup::Call(int32_t rank, const char* name,
                     absl::FunctionRef<NcclResult(NcclComm*)> call) {
  const auto at = static_cast<size_t>(rank);
  contexts_[at]->Enter();
  NcclResult result = kNcclSuccess;
  {
    Member& member = members_[at];
    const std::lock_guard lock(member.mutex);
    if (member.comm == nullptr) return;
    result = nccl_.GroupStart();
    if (Accepted(result)) result = call(member.comm);
    // Also after an error, because a group belongs to the thread.
    const NcclResult ended = nccl_.GroupEnd();
    if (Accepted(result)) result = ended;
  }
  for (int polls = 0; result == kNcclInProgress; ++polls) {
    if (polls >= kPollsWithoutPause) {
      std::this_thread::sleep_for(kPollPause);
    } else if (polls >= kPollsAtOnce) {
      std::this_thread::yield();
    }
    result = StateOf(at);
  }
  if (result != kNcclSuccess) Abort(NcclError(nccl_, name, result));
}

void NcclGroup::Abort(absl::Status why) {
  {
    const std::lock_guard lock(mutex_);
    if (!health_.ok()) return;
    health_ = std::move(why);  // visible before any rank goes on
  }
  AbortMembers();
}

void NcclGroup::AbortMembers() {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const std::lock_guard lock(members_[rank].mutex);
    if (members_[rank].comm == nullptr) continue;
    contexts_[rank]->Enter();
    // Even if this fails, the handle is no longer ours.
    nccl_.CommAbort(std::exchange(members_[rank].comm, nullptr));
  }
}

absl::Status NcclGroup::Health() {
  {
    const std::lock_guard lock(mutex_);
    if (!health_.ok()) return health_;
  }
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const NcclResult state = StateOf(rank);
    if (!Accepted(state)) Abort(NcclError(nccl_, "communicator", state));
  }
  const std::lock_guard lock(mutex_);
  return health_;
}

// One rank's memory for a collective has a slot for each rank: its columns of all rows, side by
// side. All slots have the size of the largest share.
class NcclRank final : public Communicator {
 public:
  NcclRank(TensorRank rank, std::shared_ptr<NcclGroup> group)
      : Communicator(rank), group_(std::move(group)) {}

  void AllGather(Stream& stream, const GatherArgs& args) override {
    if (args.tokens == 0 || args.cols == 0) return;
    auto& cuda = static_cast<CudaStream&>(stream);
    const int64_t own_bytes = rank().Share(args.cols) * kFloat;
    if (args.tokens == 1 && args.cols % rank().degree == 0) {
      CopyOwn(cuda, args);
      return Exchange(cuda, reinterpret_cast<std::byte*>(args.out), own_bytes);
    }
    std::byte* const slots = SlotsOf(cuda, args);
    if (slots == nullptr) return;
    Pack(cuda, args, slots + rank().rank * SlotBytes(args));
    Exchange(cuda, slots, SlotBytes(args));
    Unpack(cuda, args, slots);
    CopyOwn(cuda, args);
  }

  void Gather(Stream& stream, const GatherArgs& args) override {
    if (args.tokens == 0 || args.cols == 0) return;
    auto& cuda = static_cast<CudaStream&>(stream);
    const bool one_row = args.tokens == 1;  // whose columns are contiguous where they are
    std::byte* slots = nullptr;
    if (!one_row) slots = SlotsOf(cuda, args);
    if (!one_row && slots == nullptr) return;
    if (rank().rank == 0) {
      cuda.CallLibrary([this, args, slots, one_row](CuStream on) {
        group_->Call(0, "ncclRecv", [&](NcclComm* comm) {
          NcclResult result = kNcclSuccess;
          for (int32_t from = 1; from < rank().degree && Accepted(result); ++from) {
            const TensorRank other{.rank = from, .degree = rank().degree};
            void* const to = one_row ? static_cast<void*>(args.out + other.Begin(args.cols))
                                     : slots + from * SlotBytes(args);
            result = group_->nccl().Recv(to, SentBytes(other, args), kNcclUint8, from, comm, on);
          }
          return result;
        });
      });
      if (!one_row) Unpack(cuda, args, slots);
      CopyOwn(cuda, args);
      return;
    }
    const void* own = args.x;
    if (!one_row) {
      Pack(cuda, args, slots);
      own = slots;
    }
    cuda.CallLibrary([this, own, args](CuStream on) {
      group_->Call(rank().rank, "ncclSend", [&](NcclComm* comm) {
        return group_->nccl().Send(own, SentBytes(rank(), args), kNcclUint8, 0, comm, on);
      });
    });
  }

  void Broadcast(Stream& stream, const BroadcastArgs& args) override {
    const auto bytes = static_cast<size_t>(args.tokens * args.cols * kFloat);
    if (bytes == 0) return;
    static_cast<CudaStream&>(stream).CallLibrary([this, x = args.x, bytes](CuStream on) {
      group_->Call(rank().rank, "ncclBroadcast", [&](NcclComm* comm) {
        return group_->nccl().Broadcast(x, x, bytes, kNcclUint8, 0, comm, on);
      });
    });
  }

  void Abort(absl::Status why) override { group_->Abort(std::move(why)); }
  absl::Status Health() const override { return group_->Health(); }

 private:
  int64_t SlotBytes(const GatherArgs& args) const {
    const int64_t width = (args.cols + rank().degree - 1) / rank().degree;
    return args.tokens * width * kFloat;
  }
  static size_t SentBytes(TensorRank from, const GatherArgs& args) {
    return static_cast<size_t>(args.tokens * from.Share(args.cols) * kFloat);
  }
  std::byte* SlotsOf(CudaStream& stream, const GatherArgs& args) const {
    return stream.Workspace("columns of all ranks",
                            static_cast<size_t>(rank().degree * SlotBytes(args)));
  }

  void Pack(CudaStream& stream, const GatherArgs& args, std::byte* slot) const {
    const int64_t bytes = rank().Share(args.cols) * kFloat;
    const ByteRows rows{.bytes = bytes,
                        .rows = args.tokens,
                        .from_stride = args.x_stride * kFloat,
                        .to_stride = bytes};
    LaunchCopyRows(
        stream,
        {.from = reinterpret_cast<const std::byte*>(args.x), .to = slot, .runs = {&rows, 1}});
  }

  // Copies the columns of the other ranks to their place.
  void Unpack(CudaStream& stream, const GatherArgs& args, const std::byte* slots) const {
    std::vector<ByteRows> runs;
    for (int32_t from = 0; from < rank().degree; ++from) {
      if (from == rank().rank) continue;
      const TensorRank other{.rank = from, .degree = rank().degree};
      const int64_t bytes = other.Share(args.cols) * kFloat;
      runs.push_back({.from = from * SlotBytes(args),
                      .to = other.Begin(args.cols) * kFloat,
                      .bytes = bytes,
                      .rows = args.tokens,
                      .from_stride = bytes,
                      .to_stride = args.out_stride * kFloat});
    }
    LaunchCopyRows(stream,
                   {.from = slots, .to = reinterpret_cast<std::byte*>(args.out), .runs = runs});
  }

  // Copies this rank's columns to their place, unless they are there.
  void CopyOwn(CudaStream& stream, const GatherArgs& args) const {
    float* const own = args.out + rank().Begin(args.cols);
    if (args.x == own) return;
    const ByteRows rows{.bytes = rank().Share(args.cols) * kFloat,
                        .rows = args.tokens,
                        .from_stride = args.x_stride * kFloat,
                        .to_stride = args.out_stride * kFloat};
    LaunchCopyRows(stream, {.from = reinterpret_cast<const std::byte*>(args.x),
                            .to = reinterpret_cast<std::byte*>(own),
                            .runs = {&rows, 1}});
  }

  // All-gather in place: this rank's part is `bytes` long, at its rank in `all`.
  void Exchange(CudaStream& stream, std::byte* all, int64_t bytes) {
    stream.CallLibrary([this, all, bytes](CuStream on) {
      group_->Call(rank().rank, "ncclAllGather", [&](NcclComm* comm) {
        return group_->nccl().AllGather(all + rank().rank * bytes, all, static_cast<size_t>(bytes),
                                        kNcclUint8, comm, on);
      });
    });
  }

  const std::shared_ptr<NcclGroup> group_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> CreateNcclCommunicators(
    const NcclApi& nccl, const std::vector<std::shared_ptr<CudaContext>>& contexts) {
  auto group = std::make_shared<NcclGroup>(nccl, contexts);
  RETURN_IF_ERROR(group->Connect());
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int32_t rank = 0; rank < group->degree(); ++rank) {
    communicators.push_back(
        std::make_unique<NcclRank>(TensorRank{.rank = rank, .degree = group->degree()}, group));
  }
  return communicators;
}

}  // namespace baton
