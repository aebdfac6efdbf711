// Plan of the faults of a run. Each fault strikes at a message, at a ticket or at a time. Messages
// and tickets are counted over the whole run.
//
// The plan is a MessageJudge, so it sees every message. It returns message faults as verdicts. The
// cluster carries out faults of processes and paths as separate events.
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
  // Faults of the current message, or of the next one to which the fault can apply.
  kReset,
  kDelay,
  kDuplicate,
  kFlip,
  kTruncate,
  // Faults of a process.
  kKill,  // restarts after `duration_us`
  kPause,
  kTerminate,
  kClockJump,
  // Faults of the path between `node` and `other`.
  kPartition,
  kOneWayPartition,  // from `node` to `other`
  // Cuts the process off from all others, kills it and restarts it. The new process then receives
  // messages that were meant for the old one.
  kUnnoticedRestart,
};
inline constexpr int kFaultKinds = 12;
const char* FaultName(FaultKind kind);

struct Fault {
  static constexpr int32_t kSender = -1;
  static constexpr int32_t kReceiver = -2;

  FaultKind kind = FaultKind::kReset;
  // The fault strikes at a message, at a ticket (−1: not set), or else at a time.
  int64_t at_message = -1;
  int64_t at_ticket = -1;
  int64_t at_us = 0;
  int64_t wait_us = 0;  // after the message or ticket; only for faults of processes and paths
  int32_t node = kSender;
  int32_t other = kReceiver;
  int64_t duration_us = 0;
  uint64_t random = 0;
};

class FaultPlan final : public MessageJudge {
 public:
  // `carry_out` gets faults of processes and paths, with their nodes resolved. `struck` gets
  // message faults that struck.
  FaultPlan(std::vector<Fault> faults, EventQueue& queue,
            std::function<void(const Fault&)> carry_out,
            std::function<void(const Fault&, MessageKind, int32_t from, int32_t to)> struck);

  Verdict OnMessage(MessageKind kind, int32_t from, int32_t to) override;
  int64_t messages() const { return messages_; }
  // Disables all further message faults.
  void Stop() { stopped_ = true; }

 private:
  void Trigger(Fault fault, int32_t from, int32_t to);
  static bool CanHappenTo(FaultKind fault, MessageKind message);
  static Verdict VerdictOf(const Fault& fault);

  std::vector<Fault> at_messages_;  // not yet due, descending by at_message
  std::vector<Fault> at_tickets_;
  std::vector<Fault> due_;  // waiting for a message to which they can apply
  EventQueue& queue_;
  const std::function<void(const Fault&)> carry_out_;
  const std::function<void(const Fault&, MessageKind, int32_t, int32_t)> struck_;
  int64_t messages_ = 0;
  int64_t tickets_ = 0;
  bool stopped_ = false;
};

}  // namespace baton
