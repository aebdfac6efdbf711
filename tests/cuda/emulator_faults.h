// Plants faults of driver calls into the emulator's library, counts the calls, and chooses when
// streams run. emulator_library.h has the other functions for tests.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>

#include "common/check.h"
#include "common/shared_library.h"
#include "tests/cuda/emulator_library.h"
#include "tests/gpu_emulator/driver_faults.h"
#include "tests/gpu_emulator/stream_order.h"

namespace baton {

class EmulatorFaults {
 public:
  EmulatorFaults() : library_({EmulatorLibrary::Path()}) {
    library_.Find(gpu_emulator::kPlantSymbol, plant_);
    library_.Find(gpu_emulator::kCallsSymbol, calls_);
    library_.Find(gpu_emulator::kOrderStreamsSymbol, order_);
    CHECK(library_.status().ok()) << library_.status();
  }
  // Starts to count calls anew.
  void Plant(const gpu_emulator::DriverFault& fault) const { plant_(&fault); }
  int64_t calls(gpu_emulator::DriverCall call) const { return calls_(call); }
  void OrderStreams(const gpu_emulator::StreamTimes& times) const { order_(&times); }

 private:
  SharedLibrary library_;
  gpu_emulator::PlantFunction plant_ = nullptr;
  gpu_emulator::CallsFunction calls_ = nullptr;
  gpu_emulator::OrderStreamsFunction order_ = nullptr;
};

}  // namespace baton
