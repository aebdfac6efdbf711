#include "router/failure_detector.h"

#include <algorithm>
#include <utility>

namespace baton {

std::vector<FailureDetector::Target> FailureDetector::Round(
    const std::vector<WorkerRecord>& workers) {
  std::lock_guard lock(mutex_);
  for (auto& [number, watched] : watched_) watched.registered = false;
  for (const WorkerRecord& worker : workers) {
    Watched& watched = watched_[worker.number];
    watched.registered = true;
    watched.target = {worker.number, worker.report.epoch, worker.report.address};
  }
  std::erase_if(watched_, [](const auto& entry) {
    return !entry.second.registered && entry.second.listeners.empty();
  });
  std::vector<Target> to_probe;
  to_probe.reserve(watched_.size());
  for (auto& [number, watched] : watched_) {
    if (watched.answered) {
      watched.missed = 0;
    } else if (watched.probed) {
      ++watched.missed;
    }
    watched.answered = false;
    watched.probed = true;
    to_probe.push_back(watched.target);
  }
  return to_probe;
}

void FailureDetector::OnAnswer(WorkerNumber number) {
  std::lock_guard lock(mutex_);
  const auto found = watched_.find(number);
  if (found != watched_.end()) found->second.answered = true;
}

absl::flat_hash_set<WorkerNumber> FailureDetector::Silent() const {
  std::lock_guard lock(mutex_);
  absl::flat_hash_set<WorkerNumber> silent;
  for (const auto& [number, watched] : watched_) {
    if (watched.missed >= kMissedProbes) silent.insert(number);
  }
  return silent;
}

void FailureDetector::Attach(const Target& target,
                             const std::shared_ptr<SilenceListener>& listener) {
  std::lock_guard lock(mutex_);
  Watched& watched = watched_[target.number];
  watched.target = target;
  Listener& attached = watched.listeners[listener.get()];
  attached.listener = listener;
  if (attached.times++ == 0) attached.turn = next_turn_++;
}

void FailureDetector::Detach(WorkerNumber number, const SilenceListener* listener) {
  std::lock_guard lock(mutex_);
  const auto watched = watched_.find(number);
  if (watched == watched_.end()) return;
  const auto found = watched->second.listeners.find(listener);
  if (found == watched->second.listeners.end()) return;
  if (--found->second.times == 0) watched->second.listeners.erase(found);
}

std::vector<std::shared_ptr<SilenceListener>> FailureDetector::ListenersOf(
    WorkerNumber number) const {
  std::lock_guard lock(mutex_);
  const auto watched = watched_.find(number);
  if (watched == watched_.end()) return {};
  std::vector<const Listener*> attached;
  for (const auto& [address, one] : watched->second.listeners) attached.push_back(&one);
  std::sort(attached.begin(), attached.end(),
            [](const Listener* a, const Listener* b) { return a->turn < b->turn; });
  std::vector<std::shared_ptr<SilenceListener>> out;
  for (const Listener* one : attached) {
    if (auto live = one->listener.lock()) out.push_back(std::move(live));
  }
  return out;
}

}  // namespace baton
