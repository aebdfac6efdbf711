// Stream of a CPU device. It runs an op when the op is enqueued, or records it while capturing. The
// stream of an asynchronous device runs ops on its own thread, in the order of enqueueing.
//
// A graph is the recorded list of ops. Graphs nest: launching a graph while capturing records its
// ops. A graph may be launched on any stream of its device, and may be destroyed before it has run.
//
// Thread safety: a stream and its graphs belong to one thread at a time, the one that enqueues.
// Streams of one device may run at the same time; ThreadPool defines which of them gets the
// workers. The device outlives its streams. Destroying a stream blocks until everything enqueued
// has run.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/paged_attention.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/stream_thread.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace baton {

class CpuStream final : public Stream {
 public:
  // The work of an op. It gets the stream that runs it, and owns copies of its arguments.
  using Operation = std::function<void(CpuStream&)>;

  enum class Runs { kInline, kOnItsThread };
  explicit CpuStream(ThreadPool& pool, Runs runs = Runs::kInline) : pool_(pool) {
    if (runs == Runs::kOnItsThread) thread_ = std::make_unique<StreamThread>();
  }

  void BeginCapture() override;
  std::unique_ptr<OpGraph> EndCapture() override;
  bool capturing() const override { return capturing_; }
  void Launch(const OpGraph& graph) override;
  void LaunchUntil(const OpGraph& graph, const std::function<bool()>& stop) override;
  void Copy(void* destination, const void* source, size_t bytes) override;
  void Synchronize() override {
    if (thread_ != nullptr) thread_->Drain();
  }
  void Record(Event& event) override;
  void Call(std::function<void()> function) override;

  // Records `operation` (a callable like Operation) while capturing. Otherwise passes it to the
  // stream's thread, or on an inline stream runs it now, without allocating.
  template <typename Callable>
  void Enqueue(Callable&& operation) {
    if (capturing_) {
      recorded_.emplace_back(std::forward<Callable>(operation));
    } else if (thread_ != nullptr) {
      thread_->Push(
          [this, operation = std::forward<Callable>(operation)]() mutable { operation(*this); });
    } else {
      operation(*this);
    }
  }

  // For operations that run on this stream:
  ThreadPool& pool() { return pool_; }
  AttentionScratch& attention_scratch() { return attention_scratch_; }
  SampleScratch& sample_scratch() { return sample_scratch_; }

 private:
  ThreadPool& pool_;
  AttentionScratch attention_scratch_;
  SampleScratch sample_scratch_;
  bool capturing_ = false;
  std::vector<Operation> recorded_;
  std::unique_ptr<StreamThread> thread_;  // null: inline. Last member: its tasks use the others.
};

}  // namespace baton
