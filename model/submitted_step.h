// A step between Submit and Collect: which of its rows are still wanted, and the progress of the
// device. A runner uses two of them in turn.
//
// Functions that run between the ops' questions for their rows write the results of `wanted`
// (Stream::CallBetweenLimits). The engine thread reads them after an event reports that those
// functions have run.
//
// Thread safety: belongs to the engine thread. The rows are used where the device asks its row
// limits: on the stream's thread, or on the engine thread.
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
  // REQUIRES: the device outlives this object.
  SubmittedStep(Device& device, int32_t layers);
  // Not copyable: functions on the stream hold its address.
  SubmittedStep(const SubmittedStep&) = delete;
  SubmittedStep& operator=(const SubmittedStep&) = delete;

  // Starts step `id` in this object. REQUIRES: the previous step in it is done.
  void Begin(StepId id, const StepInput& input);

  StepId id() const { return id_; }
  int32_t compared_rows() const { return compared_rows_; }
  StepRows& tokens() { return tokens_; }
  // Without the rows that compare. REQUIRES: the step compares.
  StepRows& stored_tokens() { return stored_tokens_; }
  StepRows& stored_shifted_queries() { return stored_shifted_queries_; }
  StepRows& logits() { return logits_; }
  StepRows& draws() { return draws_; }
  StepRows& shifted_queries() { return shifted_queries_; }
  // Returns a function that returns true when no chunk is wanted any more. It is for the stream's
  // thread.
  std::function<bool()> Unwanted();

  // Enqueues a record that the KV of the next layer is written. `waker` may be empty.
  void RecordLayer(Stream& stream, const std::function<void()>& waker);
  // Enqueues a record of the step's end.
  void RecordEnd(Stream& stream, const std::function<void()>& waker);

  // Calls kv_written for the recorded layers that have run since the last call. Skips a layer if no
  // chunk was wanted at that time. After a failure of the device, it calls nothing.
  void TellLayers();
  bool Done() const { return end_->Done(); }
  void Wait() const { end_->Wait(); }
  // Returns true if no chunk was wanted at the end of the step. REQUIRES: Done().
  bool abandoned() const { return abandoned_; }

 private:
  const Device& device_;
  StepId id_{0};
  int32_t compared_rows_ = 0;
  std::function<int32_t()> wanted_;
  std::function<void(int32_t layers, int32_t chunks)> kv_written_;
  StepRows tokens_;
  StepRows stored_tokens_;
  StepRows stored_shifted_queries_;
  StepRows logits_;
  StepRows draws_;
  StepRows shifted_queries_;
  struct Layer {
    std::unique_ptr<Event> written;
    int32_t chunks = 0;  // chunks wanted at that time
  };
  std::vector<Layer> layers_;
  size_t recorded_ = 0;  // number of recorded layers
  size_t told_ = 0;
  std::unique_ptr<Event> end_;
  bool abandoned_ = false;
};

}  // namespace baton
