// A simulated process: incarnations that start and die, a pause (SIGSTOP), and its own clock.
//
// Everything that happens in a process is an event posted to it. An event for a dead incarnation
// never runs. Events of a paused process wait, in order, until it resumes. Its kernel (the
// network's buffers) continues meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/history.h"

namespace baton {

class SimNode {
 public:
  static constexpr int64_t kKeepaliveUs = 15'000'000;

  SimNode(EventQueue& queue, History& history, int32_t id, std::string name)
      : queue_(queue), history_(history), id_(id), clock_(queue) {
    history.NameNode(id, std::move(name));
  }
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  int32_t id() const { return id_; }
  bool up() const { return up_; }
  bool paused() const { return paused_; }
  uint64_t incarnation() const { return incarnation_; }
  // Time of the queue at which the process last started, died, was paused or resumed.
  int64_t changed_us() const { return changed_us_; }
  const Clock& clock() const { return clock_; }
  // Time without a reply after which this node, as a server, closes a connection.
  int64_t keepalive_us() const { return keepalive_us_; }
  void set_keepalive_us(int64_t keepalive_us) { keepalive_us_ = keepalive_us; }
  EventQueue& queue() { return queue_; }

  // Runs `event` in this process after `delay_us`. Never runs it if the process is down or was
  // restarted.
  void Post(int64_t delay_us, std::function<void()> event) {
    queue_.In(delay_us, [this, incarnation = incarnation_, event = std::move(event)]() mutable {
      Arrive(incarnation, std::move(event));
    });
  }

  void Start() {
    up_ = true;
    ++incarnation_;
    changed_us_ = queue_.now_us();
  }
  void Die() {
    up_ = false;
    paused_ = false;
    ++incarnation_;
    changed_us_ = queue_.now_us();
    deferred_.clear();
  }
  void Pause() {
    paused_ = up_;
    changed_us_ = queue_.now_us();
  }
  void Resume() {
    if (!paused_) return;
    paused_ = false;
    changed_us_ = queue_.now_us();
    for (auto& event : std::exchange(deferred_, {})) Post(0, std::move(event));
  }
  // Moves the clock ahead, as on a machine that was suspended or migrated. A steady clock never
  // goes back.
  void JumpClock(int64_t ahead_us) { clock_.ahead_us += ahead_us; }

  void Note(uint64_t request, const char* what, int64_t a = 0, int64_t b = 0,
            std::string detail = {}) {
    history_.Note(queue_.now_us(), id_, request, what, a, b, std::move(detail));
  }

 private:
  class NodeClock final : public Clock {
   public:
    explicit NodeClock(const EventQueue& queue) : queue_(queue) {}
    int64_t NowUs() const override { return kStartUs + queue_.now_us() + ahead_us; }
    int64_t ahead_us = 0;

   private:
    static constexpr int64_t kStartUs = 1'000'000;
    const EventQueue& queue_;
  };

  void Arrive(uint64_t incarnation, std::function<void()> event) {
    if (!up_ || incarnation != incarnation_) return;
    if (paused_) {
      deferred_.push_back(std::move(event));
    } else {
      event();
    }
  }

  EventQueue& queue_;
  History& history_;
  const int32_t id_;
  int64_t keepalive_us_ = kKeepaliveUs;
  NodeClock clock_;
  bool up_ = false;
  bool paused_ = false;
  uint64_t incarnation_ = 0;
  int64_t changed_us_ = 0;
  std::deque<std::function<void()>> deferred_;
};

}  // namespace baton
