#include "routing/worker_throughput.h"

#include <algorithm>

namespace baton {
namespace {

constexpr double kTellingTokens = 256;       // a prefill of this size has full weight
constexpr double kTellingBytes = 256 << 10;  // a transfer of this size has full weight

// Measured on two cores with a model of 135 million parameters. Prefill: 0.24 ms for each token,
// plus 0.32 us for each token before it. Step: 2 ms, plus 0.7 ms for each sequence.
constexpr LineFitOptions kPrefill{
    .intercept = 240, .slope = 0.32, .typical_x = 1024, .floor = 0.1, .ceiling = 1e6};
constexpr LineFitOptions kTransfer{
    .intercept = 500, .slope = 0.001, .typical_x = 8 << 20, .floor = 1, .ceiling = 3.6e9};
constexpr LineFitOptions kStep{
    .intercept = 2000, .slope = 700, .typical_x = 8, .floor = 10, .ceiling = 60e6};
// The ceiling keeps temporary slowness from sending every prompt to decode workers.
constexpr LineFitOptions kHandOff{
    .intercept = 4000, .slope = 0, .typical_x = 1, .floor = 100, .ceiling = 20'000};
// Same here: a pull that is never tried would never be measured again.
constexpr LineFitOptions kPull{
    .intercept = 4000, .slope = 0, .typical_x = 1, .floor = 100, .ceiling = 20'000};

}  // namespace

WorkerThroughput::WorkerThroughput()
    : prefill_(kPrefill), transfer_(kTransfer), step_(kStep), hand_off_(kHandOff), pull_(kPull) {}

void WorkerThroughput::ObservePrefill(int64_t cached, int64_t computed, int64_t prefill_us) {
  if (cached < 0 || computed <= 0) return;
  const auto tokens = static_cast<double>(computed);
  const double position = static_cast<double>(cached) + tokens / 2;
  // Squared, because the fixed cost of a step distorts short pieces more.
  const double share = tokens / kTellingTokens;
  prefill_.Observe(position, static_cast<double>(prefill_us) / tokens, share * share);
}

void WorkerThroughput::ObserveTransfer(int64_t bytes, int64_t transfer_us) {
  if (bytes <= 0) return;
  const auto size = static_cast<double>(bytes);
  transfer_.Observe(size, static_cast<double>(transfer_us), size / kTellingBytes);
}

void WorkerThroughput::ObserveStep(int64_t batch, int64_t step_us) {
  if (batch <= 0) return;
  step_.Observe(static_cast<double>(batch), static_cast<double>(step_us));
}

void WorkerThroughput::ObserveHandOff(int64_t hand_off_us) {
  hand_off_.Observe(0, static_cast<double>(std::max<int64_t>(1, hand_off_us)));
}

void WorkerThroughput::ObservePull(int64_t pull_us) {
  pull_.Observe(0, static_cast<double>(std::max<int64_t>(1, pull_us)));
}

double WorkerThroughput::PrefillUs(int64_t cached, int64_t total) const {
  if (total <= cached) return 0;
  const auto tokens = static_cast<double>(total - cached);
  return tokens * prefill_.At(static_cast<double>(cached) + tokens / 2);
}

double WorkerThroughput::TransferUs(int64_t bytes) const {
  return bytes <= 0 ? 0 : transfer_.At(static_cast<double>(bytes));
}

double WorkerThroughput::StepUs(int64_t batch) const {
  return step_.At(static_cast<double>(std::max<int64_t>(1, batch)));
}

double WorkerThroughput::HandOffUs() const { return hand_off_.At(0); }

double WorkerThroughput::PullUs() const { return pull_.At(0); }

void WorkerThroughput::SetPrior(const WorkerThroughput& fleet) {
  prefill_.SetPrior(fleet.prefill_);
  transfer_.SetPrior(fleet.transfer_);
  step_.SetPrior(fleet.step_);
  hand_off_.SetPrior(fleet.hand_off_);
  pull_.SetPrior(fleet.pull_);
}

}  // namespace baton
