#include "router/refused_workers.h"

#include <algorithm>
#include <utility>

#include "common/printable_text.h"

namespace baton {
namespace {

constexpr size_t kMostNameBytes = 256;

}  // namespace

std::vector<RefusedWorkers::Entry>::iterator RefusedWorkers::Find(std::string_view worker_id,
                                                                  Epoch epoch) {
  worker_id = worker_id.substr(0, kMostNameBytes);
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.refusal.worker_id == worker_id && entry.epoch == epoch;
  });
}

void RefusedWorkers::ForgetOld() {
  const int64_t oldest_us = clock_->NowUs() - kLateUs;
  std::erase_if(entries_, [oldest_us](const Entry& entry) { return entry.heard_us < oldest_us; });
}

bool RefusedWorkers::Put(std::string_view worker_id, Epoch epoch, std::string_view address,
                         std::string_view reason) {
  std::lock_guard lock(mutex_);
  ForgetOld();
  auto entry = Find(worker_id, epoch);
  bool news = false;
  if (entry == entries_.end()) {
    news = true;
    if (entries_.size() == kMost) {
      entries_.erase(
          std::min_element(entries_.begin(), entries_.end(),
                           [](const Entry& a, const Entry& b) { return a.heard_us < b.heard_us; }));
    }
    entry = entries_.insert(entries_.end(), Entry{});
  }
  reason = reason.substr(0, kMostShownBytes);
  news = news || !SameButForNumbers(entry->refusal.reason, reason);
  entry->refusal = {.worker_id = std::string(worker_id.substr(0, kMostNameBytes)),
                    .address = std::string(address.substr(0, kMostNameBytes)),
                    .reason = std::string(reason)};
  entry->epoch = epoch;
  entry->heard_us = clock_->NowUs();
  return news;
}

void RefusedWorkers::Remove(std::string_view worker_id, Epoch epoch) {
  std::lock_guard lock(mutex_);
  if (const auto entry = Find(worker_id, epoch); entry != entries_.end()) entries_.erase(entry);
}

std::vector<RefusedWorkers::Refusal> RefusedWorkers::Late() const {
  std::lock_guard lock(mutex_);
  const int64_t now_us = clock_->NowUs();
  std::vector<Refusal> out;
  for (const Entry& entry : entries_) {
    if (now_us - entry.heard_us > kLateUs) continue;
    out.push_back(entry.refusal);
    out.back().heard_ms = (now_us - entry.heard_us) / 1000;
  }
  return out;
}

}  // namespace baton
