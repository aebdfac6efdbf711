#include "model/submitted_step.h"

#include "common/check.h"

namespace baton {

SubmittedStep::SubmittedStep(Device& device, int32_t layers)
    : device_(device), layers_(layers), end_(device.CreateEvent()) {
  for (Layer& layer : layers_) layer.written = device.CreateEvent();
}

void SubmittedStep::Begin(StepId id, const StepInput& input) {
  CHECK(Done()) << "step " << id_ << " is still running";
  id_ = id;
  wanted_ = input.wanted;
  kv_written_ = input.kv_written;
  tokens_ = StepRows::Tokens(input, wanted_);
  compared_rows_ = 0;
  for (const StepChunk& chunk : input.chunks) {
    if (chunk.compares) compared_rows_ += static_cast<int32_t>(chunk.tokens.size());
  }
  if (compared_rows_ > 0) {
    stored_tokens_ = StepRows::StoredTokens(input, wanted_);
    stored_shifted_queries_ = StepRows::StoredShiftedQueries(input, wanted_);
  }
  logits_ = StepRows::Logits(input, wanted_);
  draws_ = StepRows::Draws(input, wanted_);
  shifted_queries_ = StepRows::ShiftedQueries(input, wanted_);
  recorded_ = told_ = 0;
  abandoned_ = false;
}

std::function<bool()> SubmittedStep::Unwanted() {
  return [this] { return wanted_ && wanted_() == 0; };
}

void SubmittedStep::RecordLayer(Stream& stream, const std::function<void()>& waker) {
  if (!kv_written_) return;
  Layer& layer = layers_[recorded_++];
  stream.CallBetweenLimits(
      [this, &layer] { layer.chunks = tokens_.Count() > 0 ? tokens_.chunks() : 0; });
  stream.Record(*layer.written);
  if (waker) stream.Call(waker);
}

void SubmittedStep::RecordEnd(Stream& stream, const std::function<void()>& waker) {
  stream.CallBetweenLimits([this] { abandoned_ = wanted_ && wanted_() == 0; });
  stream.Record(*end_);
  if (waker) stream.Call(waker);
}

void SubmittedStep::TellLayers() {
  for (; told_ < recorded_ && layers_[told_].written->Done(); ++told_) {
    if (!device_.Health().ok()) return;  // events are done, but nothing was written
    if (layers_[told_].chunks == 0) continue;
    kv_written_(static_cast<int32_t>(told_) + 1, layers_[told_].chunks);
  }
}

}  // namespace baton
