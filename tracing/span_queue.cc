#include "tracing/span_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace baton {

SpanQueue::SpanQueue(size_t most_spans, MetricSet* metrics)
    : most_spans_(most_spans), metrics_(metrics) {}

void SpanQueue::Add(Span span) {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_ && spans_.size() < most_spans_) {
      spans_.push_back(std::move(span));
      if (spans_.size() == wanted_) changed_.notify_all();
      return;
    }
  }
  if (metrics_ != nullptr) metrics_->Add(Metric::kTraceSpansDropped, 1);
}

std::vector<Span> SpanQueue::Take(size_t most, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  wanted_ = most;
  changed_.wait_for(lock, patience, [&] { return stopped_ || spans_.size() >= most; });
  wanted_ = 0;
  if (spans_.size() <= most) return std::exchange(spans_, {});
  const auto end = spans_.begin() + static_cast<std::ptrdiff_t>(most);
  std::vector<Span> taken(std::make_move_iterator(spans_.begin()), std::make_move_iterator(end));
  spans_.erase(spans_.begin(), end);
  return taken;
}

void SpanQueue::Pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return stopped_; });
}

void SpanQueue::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool SpanQueue::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

}  // namespace baton
