// A step between Submit and Collect: which of its rows are still wanted, and how far the device has
// come. Two of them take turns in a runner.
//
// What the stream's thread computes, `wanted` of it all, is written by functions that run in stream
// order, and read by the engine thread when an event says that they have run.
//
// Thread safety: belongs to the engine thread, but for the rows, which the stream's ops ask.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "model/model_runner.h"
#include "model/step_rows.h"

namespace baton {

class SubmittedStep {
 public:
  // The device outlives this.
  SubmittedStep(Device& device, int32_t layers);
  // Functions on the stream hold its address.
  SubmittedStep(const SubmittedStep&) = delete;
  SubmittedStep& operator=(const SubmittedStep&) = delete;

  // Becomes step `id`. REQUIRES: the step that it was is done.
  void Begin(StepId id, const StepInput& input);

  StepId id() const { return id_; }
  StepRows& tokens() { return tokens_; }
  StepRows& logits() { return logits_; }
  StepRows& draws() { return draws_; }
  StepRows& shifted_queries() { return shifted_queries_; }
  // Whether no chunk is wanted any more. For the stream's thread.
  std::function<bool()> Unwanted();

  // Enqueues that the KV of one layer more, the next one, is written. `waker` may be empty.
  void RecordLayer(Stream& stream, const std::function<void()>& waker);
  // Enqueues that the step ends here.
  void RecordEnd(Stream& stream, const std::function<void()>& waker);

  // Calls kv_written for the layers that were recorded and have run since the last call. Nothing is
  // told of a layer at which no chunk was wanted.
  void TellLayers();
  bool Done() const { return end_->Done(); }
  void Wait() const { end_->Wait(); }
  // Whether no chunk was wanted at its end. REQUIRES: Done.
  bool abandoned() const { return abandoned_; }

 private:
  StepId id_{0};
  std::function<int32_t()> wanted_;
  std::function<void(int32_t layers, int32_t chunks)> kv_written_;
  StepRows tokens_;
  StepRows logits_;
  StepRows draws_;
  StepRows shifted_queries_;
  struct Layer {
    std::unique_ptr<Event> written;
    int32_t chunks = 0;  // that were wanted then; the stream's thread sets it
  };
  std::vector<Layer> layers_;
  size_t recorded_ = 0;  // layers
  size_t told_ = 0;
  std::unique_ptr<Event> end_;
  bool abandoned_ = false;  // the stream's thread sets it
};

}  // namespace baton
