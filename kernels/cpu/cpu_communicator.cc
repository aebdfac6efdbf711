#include "kernels/cpu/cpu_communicator.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/rendezvous.h"
#include "kernels/cpu/usable_processors.h"

namespace baton {
namespace {

// A thread that waits for another one on the same processor must not spin.
constexpr int kMeetingSpins = 1000;
int SpinsFor(int32_t degree) { return degree <= UsableProcessors() ? kMeetingSpins : 0; }

// What a rank gives and wants. A rank writes it before it arrives; the last rank reads it.
struct RankRows {
  // The columns that it gives. None if `cols` is 0.
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t column = 0;  // in the output
  int64_t cols = 0;
  // Where it wants the columns of all. Null: nowhere.
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t tokens = 0;
};

void CopyColumns(const RankRows& from, const RankRows& to) {
  float* const out = to.out + from.column;
  if (from.x == out) return;
  for (int64_t token = 0; token < to.tokens; ++token) {
    std::copy_n(from.x + token * from.x_stride, from.cols, out + token * to.out_stride);
  }
}

// What the ranks of a group share.
class RankGroup {
 public:
  explicit RankGroup(int32_t degree)
      : rows_(static_cast<size_t>(degree)), meeting_(degree, SpinsFor(degree)) {}

  void Exchange(int32_t rank, const RankRows& rows) {
    rows_[static_cast<size_t>(rank)] = rows;
    meeting_.Arrive([this] {
      for (const RankRows& to : rows_) {
        if (to.out == nullptr) continue;
        for (const RankRows& from : rows_) CopyColumns(from, to);
      }
    });
  }

  void Abort(absl::Status why) {
    {
      const std::lock_guard lock(mutex_);
      if (health_.ok()) health_ = std::move(why);
    }
    meeting_.Break();  // the health is visible before any rank goes on
  }
  absl::Status Health() const {
    const std::lock_guard lock(mutex_);
    return health_;
  }

 private:
  std::vector<RankRows> rows_;
  Rendezvous meeting_;
  mutable std::mutex mutex_;
  absl::Status health_;  // guarded by mutex_
};

class CpuCommunicator final : public Communicator {
 public:
  CpuCommunicator(TensorRank rank, std::shared_ptr<RankGroup> group)
      : Communicator(rank), group_(std::move(group)) {}

  void AllGather(Stream& stream, const GatherArgs& args) override {
    Enqueue(stream, RowsOf(args, args.out));
  }
  void Gather(Stream& stream, const GatherArgs& args) override {
    Enqueue(stream, RowsOf(args, rank().rank == 0 ? args.out : nullptr));
  }
  void Broadcast(Stream& stream, const BroadcastArgs& args) override {
    const bool gives = rank().rank == 0;
    Enqueue(stream, {.x = args.x,
                     .x_stride = args.cols,
                     .cols = gives ? args.cols : 0,
                     .out = gives ? nullptr : args.x,
                     .out_stride = args.cols,
                     .tokens = args.tokens});
  }

  void Abort(absl::Status why) override { group_->Abort(std::move(why)); }
  absl::Status Health() const override { return group_->Health(); }

 private:
  RankRows RowsOf(const GatherArgs& args, float* out) const {
    return {.x = args.x,
            .x_stride = args.x_stride,
            .column = rank().Begin(args.cols),
            .cols = rank().Share(args.cols),
            .out = out,
            .out_stride = args.out_stride,
            .tokens = args.tokens};
  }

  void Enqueue(Stream& stream, const RankRows& rows) {
    auto& cpu = static_cast<CpuStream&>(stream);
    RowLimit* const limit = cpu.capturing() ? nullptr : cpu.row_limit();
    cpu.Enqueue([group = group_, rank = rank().rank, rows, limit](CpuStream&) {
      RankRows wanted = rows;
      if (limit != nullptr) wanted.tokens = std::min(wanted.tokens, limit->Rows());
      group->Exchange(rank, wanted);
    });
  }

  const std::shared_ptr<RankGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> CreateCpuCommunicators(int32_t degree) {
  auto group = std::make_shared<RankGroup>(degree);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int32_t rank = 0; rank < degree; ++rank) {
    communicators.push_back(
        std::make_unique<CpuCommunicator>(TensorRank{.rank = rank, .degree = degree}, group));
  }
  return communicators;
}

}  // namespace baton
