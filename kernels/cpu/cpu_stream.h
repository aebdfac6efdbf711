// The CPU's stream: an op runs when it is enqueued, or is recorded while capturing.
//
// A graph is the recorded list. Launching a graph while capturing records its ops: graphs nest. A
// graph may be launched on any stream of its device.
//
// Thread safety: a stream and its graphs belong to one thread at a time; streams of one device may
// run at the same time (ThreadPool says who gets the workers). The device outlives its streams.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/paged_attention.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace baton {

class CpuStream final : public Stream {
 public:
  // What an op does; it gets the stream that runs it. Owns copies of its arguments.
  using Operation = std::function<void(CpuStream&)>;

  explicit CpuStream(ThreadPool& pool) : pool_(pool) {}

  void BeginCapture() override;
  std::unique_ptr<OpGraph> EndCapture() override;
  bool capturing() const override { return capturing_; }
  void Launch(const OpGraph& graph) override;
  void LaunchUntil(const OpGraph& graph, const std::function<bool()>& stop) override;
  void Copy(void* destination, const void* source, size_t bytes) override;
  void Synchronize() override {}

  // Runs `operation` (a callable as Operation) now, without allocating, or records it.
  template <typename Callable>
  void Enqueue(Callable&& operation) {
    if (capturing_) {
      recorded_.emplace_back(std::forward<Callable>(operation));
    } else {
      operation(*this);
    }
  }

  // For operations that run on this stream.
  ThreadPool& pool() { return pool_; }
  AttentionScratch& attention_scratch() { return attention_scratch_; }
  SampleScratch& sample_scratch() { return sample_scratch_; }

 private:
  ThreadPool& pool_;
  AttentionScratch attention_scratch_;
  SampleScratch sample_scratch_;
  bool capturing_ = false;
  std::vector<Operation> recorded_;
};

}  // namespace baton
