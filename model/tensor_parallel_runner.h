// Runs every step on all ranks of a tensor-parallel group, and shows one runner to the engine.
//
// All ranks get the same chunks. Only rank 0 draws tokens, keeps logits, reports written KV and
// asks which chunks are still wanted; the others use its latest answer. So they compute at least
// what rank 0 computes. A rank may leave out rows, but never a collective.
//
// Ranks on GPUs get their steps at the same time, each from its own thread (rank_threads.h). A GPU
// asks which rows are wanted when an op is enqueued, and one rank may enqueue it later than rank 0.
// So the other ranks compute all rows there.
//
// If one rank fails, the group fails: its collectives are aborted, so every rank ends its steps,
// and every later call returns Internal. No token and no KV of a step that was running leaves the
// group.
//
// Thread safety: as ModelRunner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "model/model_runner.h"
#include "model/rank_threads.h"

namespace baton {

class TensorParallelRunner final : public ModelRunner {
 public:
  struct Rank {
    std::unique_ptr<ModelRunner> runner;
    const Device* device = nullptr;
  };
  // REQUIRES: `ranks` has one entry for each rank of `communicator`, rank 0 first; it and the
  // devices outlive this object; the devices are asynchronous. `threads` has one thread for each
  // rank; null: the calling thread may enqueue for all ranks, one after another.
  TensorParallelRunner(std::vector<Rank> ranks, Communicator& communicator,
                       std::unique_ptr<RankThreads> threads = nullptr);
  // Blocks until the steps in flight have ended.
  ~TensorParallelRunner() override = default;

  int32_t max_in_flight() const override;
  bool compares_rows() const override { return lead().compares_rows(); }
  bool shares_prefixes() const override { return lead().shares_prefixes(); }
  absl::StatusOr<StepId> Submit(const StepInput& input) override;
  absl::StatusOr<StepResult> Collect(StepId step) override;
  bool Done(StepId step) const override;
  void Poll() override;
  void set_waker(std::function<void()> waker) override;
  absl::Status CopyBlocks(std::span<const BlockCopy> copies) override;
  std::span<const float> Logits(StepId step, int32_t row) const override {
    return lead().Logits(step, row);
  }
  RunnerCounters counters() const override { return lead().counters(); }
  // The first error of a rank.
  absl::Status Health() const override;

 private:
  ModelRunner& lead() const { return *ranks_.front().runner; }
  // Aborts the group if a device or a collective has failed.
  void CheckDevices() const;
  // Submits to all ranks. Returns their results, for each rank up to the first that failed.
  using Submitted = std::vector<absl::StatusOr<StepId>>;
  Submitted SubmitInOrder(const StepInput& input);
  Submitted SubmitAtOnce(const StepInput& input);
  // Aborts the group and waits until no step is in flight, because the caller will not collect the
  // step that some ranks have and others lack. Returns the group's error.
  absl::Status Fail(const Submitted& submitted);

  Communicator& communicator_;
  StepId submitted_{0};  // last step that all ranks have
  StepId collected_{0};
  const std::unique_ptr<RankThreads> threads_;
  std::vector<Rank> ranks_;  // last member: the streams end before the rest
};

}  // namespace baton
