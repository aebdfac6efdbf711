// Faults of a run: which, and when: at a message, at a ticket (both counted over the whole run), or
// at a time.
//
// As a MessageJudge the plan sees every message; faults of the message itself are its verdict,
// faults of processes and paths are carried out by the cluster, as events of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/sim_network.h"
#include "tests/sim/sim_random.h"

namespace baton {

enum class FaultKind : uint8_t {
  // Of the message at hand, or of the next one that it can happen to.
  kReset,
  kDelay,
  kDuplicate,
  kFlip,
  kTruncate,
  // Of a process.
  kKill,  // and start again after `duration_us`
  kPause,
  kTerminate,
  kClockJump,
  // Of the path between `node` and `other`.
  kPartition,
  kOneWayPartition,  // from `node` to `other`
  // The process is cut off from all others, dies, lives again, and hears what was meant for the one
  // before.
  kUnnoticedRestart,
};
inline constexpr int kFaultKinds = 12;
const char* FaultName(FaultKind kind);

struct Fault {
  static constexpr int32_t kSender = -1;
  static constexpr int32_t kReceiver = -2;

  FaultKind kind = FaultKind::kReset;
  int64_t at_message = -1;  // or
  int64_t at_ticket = -1;   // or
  int64_t at_us = 0;
  int64_t wait_us = 0;  // behind the message or ticket; faults of processes and paths only
  int32_t node = kSender;
  int32_t other = kReceiver;
  int64_t duration_us = 0;
  uint64_t random = 0;
};

class FaultPlan final : public MessageJudge {
 public:
  // `carry_out` gets faults of processes and paths, with their nodes named; `struck` is told of
  // those of messages.
  FaultPlan(std::vector<Fault> faults, EventQueue& queue,
            std::function<void(const Fault&)> carry_out,
            std::function<void(const Fault&, MessageKind, int32_t from, int32_t to)> struck);

  Verdict OnMessage(MessageKind kind, int32_t from, int32_t to) override;
  int64_t messages() const { return messages_; }
  // From now on nothing happens to messages.
  void Stop() { stopped_ = true; }

 private:
  void Trigger(Fault fault, int32_t from, int32_t to);
  static bool CanHappenTo(FaultKind fault, MessageKind message);
  static Verdict VerdictOf(const Fault& fault);

  std::vector<Fault> at_messages_;  // not yet due, by at_message
  std::vector<Fault> at_tickets_;
  std::vector<Fault> due_;  // wait for a message of their kind
  EventQueue& queue_;
  const std::function<void(const Fault&)> carry_out_;
  const std::function<void(const Fault&, MessageKind, int32_t, int32_t)> struck_;
  int64_t messages_ = 0;
  int64_t tickets_ = 0;
  bool stopped_ = false;
};

}  // namespace baton
