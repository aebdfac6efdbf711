#include "model/tensor_parallel_runner.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int kPollsWithoutPause = 100;
constexpr std::chrono::microseconds kPollPause{20};

absl::Status RankError(size_t rank, const absl::Status& why) {
  return absl::InternalError(
      StrCat("rank ", rank, " of the tensor-parallel group failed: ", why.message()));
}

// The step of rank 0. It records its answers to "how many chunks are wanted?" for the other ranks.
StepInput LeadInput(const StepInput& input, const std::shared_ptr<std::atomic<int32_t>>& wanted,
                    const Communicator& communicator) {
  StepInput lead = input;
  if (input.wanted) {
    lead.wanted = [ask = input.wanted, wanted] {
      const int32_t chunks = ask();
      wanted->store(chunks, std::memory_order_relaxed);
      return chunks;
    };
  }
  if (input.kv_written) {
    lead.kv_written = [tell = input.kv_written, &communicator](int32_t layers, int32_t chunks) {
      if (communicator.Health().ok()) tell(layers, chunks);  // else another rank wrote nothing
    };
  }
  return lead;
}

// The same step for the other ranks, which draw nothing and never see a token.
StepInput OtherInput(const StepInput& input, const std::shared_ptr<std::atomic<int32_t>>& wanted) {
  StepInput other{.chunks = input.chunks};
  for (StepChunk& chunk : other.chunks) {
    chunk.draws = {};
    chunk.keeps_logits = false;
    chunk.token_from.reset();
  }
  if (input.wanted) other.wanted = [wanted] { return wanted->load(std::memory_order_relaxed); };
  return other;
}

}  // namespace

TensorParallelRunner::TensorParallelRunner(std::vector<Rank> ranks, Communicator& communicator,
                                           std::unique_ptr<RankThreads> threads)
    : communicator_(communicator), threads_(std::move(threads)), ranks_(std::move(ranks)) {
  CHECK_EQ(static_cast<int32_t>(ranks_.size()), communicator.rank().degree);
}

int32_t TensorParallelRunner::max_in_flight() const { return lead().max_in_flight(); }

absl::StatusOr<StepId> TensorParallelRunner::Submit(const StepInput& input) {
  CheckDevices();
  RETURN_IF_ERROR(communicator_.Health());
  const Submitted submitted = threads_ == nullptr ? SubmitInOrder(input) : SubmitAtOnce(input);
  if (std::ranges::none_of(submitted, [](const auto& id) { return id.ok(); })) {
    // Nothing was enqueued anywhere, so the group goes on unless it was aborted.
    RETURN_IF_ERROR(communicator_.Health());
    return submitted.front().status();
  }
  for (size_t rank = 0; rank < submitted.size(); ++rank) {
    if (!submitted[rank].ok()) return Fail(submitted);
    CHECK(*submitted[rank] == *submitted.front())
        << "rank " << rank << " counts its steps differently";
  }
  submitted_ = *submitted.front();
  return submitted_;
}

TensorParallelRunner::Submitted TensorParallelRunner::SubmitInOrder(const StepInput& input) {
  const auto wanted =
      std::make_shared<std::atomic<int32_t>>(static_cast<int32_t>(input.chunks.size()));
  Submitted submitted{lead().Submit(LeadInput(input, wanted, communicator_))};
  const StepInput other = OtherInput(input, wanted);
  while (submitted.back().ok() && submitted.size() < ranks_.size()) {
    submitted.push_back(ranks_[submitted.size()].runner->Submit(other));
  }
  return submitted;
}

TensorParallelRunner::Submitted TensorParallelRunner::SubmitAtOnce(const StepInput& input) {
  const auto wanted =
      std::make_shared<std::atomic<int32_t>>(static_cast<int32_t>(input.chunks.size()));
  const StepInput lead_input = LeadInput(input, wanted, communicator_);
  StepInput other = OtherInput(input, wanted);
  other.wanted = nullptr;
  Submitted submitted(ranks_.size(), absl::UnknownError("not submitted"));
  threads_->Run([&](size_t rank) {
    submitted[rank] = ranks_[rank].runner->Submit(rank == 0 ? lead_input : other);
    const absl::Status& status = submitted[rank].status();
    // The others may be waiting for this rank. All ranks refuse an invalid step, so it keeps the
    // group.
    if (!status.ok() && !absl::IsInvalidArgument(status)) {
      communicator_.Abort(RankError(rank, status));
    }
  });
  return submitted;
}

absl::Status TensorParallelRunner::Fail(const Submitted& submitted) {
  for (size_t rank = 0; rank < submitted.size(); ++rank) {
    if (!submitted[rank].ok()) communicator_.Abort(RankError(rank, submitted[rank].status()));
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool has_step = rank < submitted.size() && submitted[rank].ok();
    const int64_t last = submitted_.value() + (has_step ? 1 : 0);
    for (int64_t step = collected_.value() + 1; step <= last; ++step) {
      ranks_[rank].runner->Collect(StepId(step)).IgnoreError();
    }
  }
  collected_ = submitted_;
  return communicator_.Health();
}

absl::StatusOr<StepResult> TensorParallelRunner::Collect(StepId step) {
  if (step.value() <= collected_.value()) return communicator_.Health();  // Fail has collected it
  // A rank waits for the others inside a collective. So a device that fails must end the group
  // before this thread waits for one of them.
  for (int polls = 0; threads_ != nullptr && !Done(step); ++polls) {
    if (polls < kPollsWithoutPause) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPollPause);
    }
  }
  CheckDevices();
  absl::StatusOr<StepResult> result = lead().Collect(step);
  CheckDevices();
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    const absl::Status status = ranks_[rank].runner->Collect(step).status();
    if (!status.ok() && !absl::IsCancelled(status)) communicator_.Abort(RankError(rank, status));
  }
  collected_ = step;
  RETURN_IF_ERROR(communicator_.Health());
  return result;
}

void TensorParallelRunner::CheckDevices() const {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const absl::Status health = ranks_[rank].device->Health();
    if (!health.ok()) communicator_.Abort(RankError(rank, health));
  }
  communicator_.Health().IgnoreError();  // NCCL reports its errors only when it is asked
}

bool TensorParallelRunner::Done(StepId step) const {
  if (step.value() <= collected_.value()) return true;
  CheckDevices();
  for (const Rank& rank : ranks_) {
    if (!rank.runner->Done(step)) return false;
  }
  return true;
}

void TensorParallelRunner::Poll() {
  CheckDevices();
  if (submitted_ != collected_) lead().Poll();
}

void TensorParallelRunner::set_waker(std::function<void()> waker) {
  for (const Rank& rank : ranks_) rank.runner->set_waker(waker);
}

absl::Status TensorParallelRunner::CopyBlocks(std::span<const BlockCopy> copies) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const absl::Status copied = ranks_[rank].runner->CopyBlocks(copies);
    if (!copied.ok()) communicator_.Abort(RankError(rank, copied));
  }
  return communicator_.Health();
}

absl::Status TensorParallelRunner::Health() const {
  for (const Rank& rank : ranks_) RETURN_IF_ERROR(rank.runner->Health());
  return communicator_.Health();  // a group that was aborted never recovers
}

}  // namespace baton
