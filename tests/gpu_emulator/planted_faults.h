// Faults of virtual memory management that a test plants into the emulated driver.
//
// Thread safety: safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace baton::gpu_emulator {

class PlantedFaults {
 public:
  static PlantedFaults& Get();

  // Calls of cuMemMap wait until hold is false again. A driver may take long for each of them.
  void HoldMaps(bool hold);
  void WaitToMap();
  int64_t maps_waiting();

  // The next `count` calls of cuMemUnmap fail.
  void FailUnmaps(int64_t count);
  bool NextUnmapFails();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool hold_maps_ = false;
  int64_t maps_waiting_ = 0;
  int64_t unmaps_to_fail_ = 0;
};

}  // namespace baton::gpu_emulator
