#include "tests/sim/fault_plan.h"

#include <algorithm>

namespace baton {

const char* FaultName(FaultKind kind) {
  static constexpr const char* kNames[kFaultKinds] = {
      "reset", "delay",     "duplicate",  "flip",      "truncate",          "kill",
      "pause", "terminate", "clock-jump", "partition", "one-way-partition", "unnoticed-restart"};
  return kNames[static_cast<int>(kind)];
}

FaultPlan::FaultPlan(std::vector<Fault> faults, EventQueue& queue,
                     std::function<void(const Fault&)> carry_out,
                     std::function<void(const Fault&, MessageKind, int32_t, int32_t)> struck)
    : queue_(queue), carry_out_(std::move(carry_out)), struck_(std::move(struck)) {
  for (const Fault& fault : faults) {
    if (fault.at_message >= 0) {
      at_messages_.push_back(fault);
    } else if (fault.at_ticket >= 0) {
      at_tickets_.push_back(fault);
    } else {
      queue_.At(fault.at_us, [this, fault] {
        if (fault.kind <= FaultKind::kTruncate) {
          due_.push_back(fault);
        } else {
          carry_out_(fault);
        }
      });
    }
  }
  std::stable_sort(at_messages_.begin(), at_messages_.end(), [](const Fault& a, const Fault& b) {
    return a.at_message > b.at_message;  // the next fault is the last element
  });
}

bool FaultPlan::CanHappenTo(FaultKind fault, MessageKind message) {
  switch (fault) {
    case FaultKind::kDuplicate:
      return message == MessageKind::kHeartbeat;
    case FaultKind::kFlip:
    case FaultKind::kTruncate:
      return message == MessageKind::kStream;
    default:
      return true;
  }
}

Verdict FaultPlan::VerdictOf(const Fault& fault) {
  Verdict verdict{.random = fault.random};
  switch (fault.kind) {
    case FaultKind::kDelay:
      verdict.delay_us = fault.duration_us;
      break;
    case FaultKind::kDuplicate:
      verdict.action = Verdict::Action::kDuplicate;
      break;
    case FaultKind::kFlip:
      verdict.action = Verdict::Action::kFlip;
      break;
    case FaultKind::kTruncate:
      verdict.action = Verdict::Action::kTruncate;
      break;
    default:
      verdict.action = Verdict::Action::kReset;
  }
  return verdict;
}

void FaultPlan::Trigger(Fault fault, int32_t from, int32_t to) {
  if (fault.kind <= FaultKind::kTruncate) {
    due_.push_back(fault);
    return;
  }
  if (fault.node == Fault::kSender) fault.node = from;
  if (fault.node == Fault::kReceiver) fault.node = to;
  if (fault.other == Fault::kReceiver) fault.other = fault.node == to ? from : to;
  queue_.In(fault.wait_us, [this, fault] { carry_out_(fault); });
}

Verdict FaultPlan::OnMessage(MessageKind kind, int32_t from, int32_t to) {
  const int64_t message = messages_++;
  if (stopped_) return {};
  while (!at_messages_.empty() && at_messages_.back().at_message <= message) {
    const Fault fault = at_messages_.back();
    at_messages_.pop_back();
    Trigger(fault, from, to);
  }
  if (kind == MessageKind::kTicket) {
    const int64_t ticket = tickets_++;
    for (const Fault& fault : at_tickets_) {
      if (fault.at_ticket == ticket) Trigger(fault, from, to);
    }
  }
  for (auto it = due_.begin(); it != due_.end(); ++it) {
    if (!CanHappenTo(it->kind, kind)) continue;
    const Fault fault = *it;
    due_.erase(it);
    struck_(fault, kind, from, to);
    return VerdictOf(fault);
  }
  return {};
}

}  // namespace baton
