#include "tests/gpu_emulator/planted_faults.h"

namespace baton::gpu_emulator {

PlantedFaults& PlantedFaults::Get() {
  static PlantedFaults faults;
  return faults;
}

void PlantedFaults::HoldMaps(bool hold) {
  {
    const std::lock_guard lock(mutex_);
    hold_maps_ = hold;
  }
  changed_.notify_all();
}

void PlantedFaults::WaitToMap() {
  std::unique_lock lock(mutex_);
  ++maps_waiting_;
  changed_.wait(lock, [this] { return !hold_maps_; });
  --maps_waiting_;
}

int64_t PlantedFaults::maps_waiting() {
  const std::lock_guard lock(mutex_);
  return maps_waiting_;
}

void PlantedFaults::FailUnmaps(int64_t count) {
  const std::lock_guard lock(mutex_);
  unmaps_to_fail_ = count;
}

bool PlantedFaults::NextUnmapFails() {
  const std::lock_guard lock(mutex_);
  if (unmaps_to_fail_ == 0) return false;
  --unmaps_to_fail_;
  return true;
}

}  // namespace baton::gpu_emulator
