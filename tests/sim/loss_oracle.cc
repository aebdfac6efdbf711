#include "tests/sim/loss_oracle.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kOnTheWayUs = 30'000;  // for messages on their way, and for rounds

}  // namespace

void LossOracle::OnLateStream(int64_t until_us) {
  streams_late_until_us_ = std::max(streams_late_until_us_, until_us);
}

bool LossOracle::Runs(int32_t node) {
  return network_.node(node).up() && !network_.node(node).paused();
}

bool LossOracle::Reaches(int32_t from, int32_t to) {
  return Runs(to) && !network_.blocked(from, to) && !network_.blocked(to, from);
}

int64_t LossOracle::ChangedUs(int32_t one, int32_t other) {
  return std::max({network_.node(one).changed_us(), network_.node(other).changed_us(),
                   network_.changed_us(one, other), network_.changed_us(other, one)});
}

std::optional<Violation> LossOracle::Check() {
  for (const auto& worker : workers_) {
    const int32_t node = worker->node().id();
    if (worker->engine() == nullptr || !Runs(node)) continue;
    if (auto broken = CheckTransfers(*worker, node)) return broken;
  }
  return Runs(router_.node().id()) ? CheckRouter() : std::nullopt;
}

std::optional<Violation> LossOracle::CheckTransfers(const SimWorker& worker, int32_t node) {
  const int64_t now_us = network_.queue().now_us();
  for (const SimTransport::Busy& busy : worker.engine()->transport().BusyConnections()) {
    if (Reaches(node, busy.peer_node)) continue;
    const int64_t since_us =
        std::max({ChangedUs(node, busy.peer_node), busy.since_us, streams_late_until_us_});
    if (now_us - since_us <= kPeerLossUs + kOnTheWayUs) continue;
    return Violation{"detection",
                     absl::StrCat("a connection to node ", busy.peer_node, " still has transfers ",
                                  now_us - since_us, " us after that node was lost"),
                     0, node};
  }
  return std::nullopt;
}

std::optional<Violation> LossOracle::CheckRouter() {
  for (const WorkerRecord& record : router_.workers()) {
    for (const auto& worker : workers_) {
      if (worker->address() != record.report.address) continue;
      if (auto broken = CheckProbed(record, *worker)) return broken;
    }
  }
  return std::nullopt;
}

std::optional<Violation> LossOracle::CheckProbed(const WorkerRecord& record, SimWorker& worker) {
  const int64_t now_us = network_.queue().now_us();
  const int32_t here = router_.node().id();
  const int32_t node = worker.node().id();
  const int64_t registered_us =
      registered_us_.try_emplace({router_.node().incarnation(), record.number}, now_us)
          .first->second;
  const int64_t since_us = std::max(ChangedUs(here, node), registered_us);
  const bool answers = Reaches(here, node) && worker.epoch() == record.report.epoch;
  if (!answers && now_us - since_us > router_.silence_us() + kOnTheWayUs &&
      !router_.FoundSilent(record.number)) {
    return Violation{"detection",
                     absl::StrCat("the router has not noticed for ", now_us - since_us, " us that ",
                                  record.report.id, " is lost"),
                     0, here};
  }
  if (answers && now_us - since_us > 2 * router_.probe_interval_us() + kOnTheWayUs &&
      (record.silent || router_.FoundSilent(record.number))) {
    return Violation{"detection",
                     absl::StrCat("to the router, ", record.report.id, " is still silent ",
                                  now_us - since_us, " us after it could answer again"),
                     0, here};
  }
  return std::nullopt;
}

}  // namespace baton
