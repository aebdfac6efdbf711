// Event queue with simulated time. Events run in order of (time, serial number), so a run depends
// only on the posted events.
//
// Thread safety: belongs to one thread, like everything in the simulation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace baton {

class EventQueue {
 public:
  using Event = std::function<void()>;

  int64_t now_us() const { return now_us_; }
  int64_t events_run() const { return events_run_; }

  // Posts an event. If its time has passed, it runs now, after all events that are already due.
  void At(int64_t time_us, Event event) {
    heap_.push_back({std::max(time_us, now_us_), next_serial_++, std::move(event)});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  void In(int64_t delay_us, Event event) { At(now_us_ + delay_us, std::move(event)); }

  // Runs the next event if it is due by `until_us`. Otherwise sets the time to `until_us` and
  // returns false.
  bool RunNext(int64_t until_us) {
    if (heap_.empty() || heap_.front().time_us > until_us) {
      now_us_ = std::max(now_us_, until_us);
      return false;
    }
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    now_us_ = entry.time_us;
    ++events_run_;
    entry.event();
    return true;
  }

 private:
  struct Entry {
    int64_t time_us;
    uint64_t serial;
    Event event;
  };
  static bool Later(const Entry& a, const Entry& b) {
    return std::pair(a.time_us, a.serial) > std::pair(b.time_us, b.serial);
  }

  int64_t now_us_ = 0;
  uint64_t next_serial_ = 0;
  int64_t events_run_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace baton
