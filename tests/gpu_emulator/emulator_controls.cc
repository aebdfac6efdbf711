// The functions with which tests and other libraries control the emulated GPU (emulated_driver.h):
// settings, counters, faults and work of other libraries.
#include "kernels/cuda/cuda_driver.h"
#include "tests/gpu_emulator/driver_faults.h"
#include "tests/gpu_emulator/emulated_driver.h"
#include "tests/gpu_emulator/emulated_gpu.h"
#include "tests/gpu_emulator/planted_faults.h"
#include "tests/gpu_emulator/stream_order.h"

namespace baton::gpu_emulator {
namespace {

// The GPU of the current context.
EmulatedGpu& Gpu() { return EmulatedGpu::Current(); }

EmulatedGpu& FaultyGpu() { return EmulatedGpu::Of(Gpu().settings().faulty_device); }

}  // namespace

extern "C" {

void baton_emulator_configure(const EmulatorSettings* settings) {
  for (int device = 0; device < kMostDevices; ++device) {
    EmulatedGpu::Of(device).Configure(*settings);
  }
}
void baton_emulator_counters(EmulatorCounters* counters) {
  *counters = EmulatedGpu::Of(0).counters();
}
void baton_emulator_fail_after(int64_t launches) { FaultyGpu().FailAfter(launches); }
void baton_emulator_hang_after(int64_t launches) { FaultyGpu().HangAfter(launches); }
void baton_emulator_hold_maps(bool hold) { PlantedFaults::Get().HoldMaps(hold); }
int64_t baton_emulator_maps_waiting() { return PlantedFaults::Get().maps_waiting(); }
void baton_emulator_fail_unmaps(int64_t count) { PlantedFaults::Get().FailUnmaps(count); }
void baton_emulator_order_streams(const StreamTimes* times) {
  EmulatedGpu::Of(0).OrderStreams(*times);
}
void baton_emulator_plant(const DriverFault* fault) { DriverFaults::Get().Plant(*fault); }
int64_t baton_emulator_calls(DriverCall call) { return DriverFaults::Get().calls(call); }
EmulatedCallFaults* baton_emulator_call_faults() { return &EmulatedGpu::Of(0).call_faults(); }

CuResult baton_emulator_enqueue(CuStream stream, const ExternalWork& work) {
  if (const CuResult usable = Gpu().Usable(); usable != kCuSuccess) return usable;
  Residence residence = Residence::kPageable;
  const CuResult located = Gpu().memory().Locate(work.memory, work.bytes, &residence);
  if (located != kCuSuccess || residence != Residence::kDevice) return kCuInvalidValue;
  const CallFault fault = DriverFaults::Get().FaultOf(DriverCall::kExternal);
  if (fault == CallFault::kLeftOut) return kCuSuccess;
  return Gpu().Enqueue(stream, {.kind = Work::Kind::kExternal,
                                .to = work.memory,
                                .bytes = work.bytes,
                                .external = work.poll,
                                .late = fault == CallFault::kLate});
}

void baton_emulator_want(CuStream stream, bool news) { EmulatedGpu::Want(stream, news); }

CuResult baton_emulator_adopt(void* memory, size_t bytes) {
  return Gpu().memory().Adopt(reinterpret_cast<CuDevicePointer>(memory), bytes);
}
CuResult baton_emulator_disown(void* memory) {
  return Gpu().memory().Disown(reinterpret_cast<CuDevicePointer>(memory));
}

}  // extern "C"

}  // namespace baton::gpu_emulator
