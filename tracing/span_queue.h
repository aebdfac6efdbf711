// Bounded queue of finished spans between the threads that make them and the one that exports them.
// When it is full, further spans are dropped and counted in baton_trace_spans_dropped_total.
//
// Thread safety: every function, from any thread. Only Take and Pause wait.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

#include "metrics/metric_set.h"
#include "tracing/span.h"

namespace baton {

class SpanQueue final : public SpanSink {
 public:
  // `metrics` must outlive this; null: nothing is counted.
  SpanQueue(size_t most_spans, MetricSet* metrics);

  void Add(Span span) override;
  // Waits until there are `most` spans, or `patience` has passed, or Stop. Returns at most `most`
  // spans, the oldest first.
  std::vector<Span> Take(size_t most, std::chrono::milliseconds patience);
  // Waits for `time`, or until Stop.
  void Pause(std::chrono::milliseconds time);

  // Ends all waits. Spans that come later are dropped.
  void Stop();
  bool stopped() const;

 private:
  const size_t most_spans_;
  MetricSet* const metrics_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Span> spans_;
  size_t wanted_ = 0;  // spans that Take waits for
  bool stopped_ = false;
};

}  // namespace baton
