// Times at which the emulated GPU runs the work of a stream. CUDA allows more than any one machine
// shows: a stream may run at once, or only when a call waits for it.
//
// Thread safety: plain data. The exported function is safe from any thread.
#pragma once

#include <cstdint>

namespace baton::gpu_emulator {

enum class StreamOrder : uint8_t {
  kLate,   // when a call waits for it
  kEarly,  // before the call that enqueues it returns; work of other libraries runs soon after
  // As kLate, but the wait of one thread does not start the work at once. Work begins when no
  // thread has called the driver for 2 ms, or when a call has waited for 50 ms.
  kHostFirst,
};

struct StreamTimes {
  StreamOrder order = StreamOrder::kLate;
  int only = -1;  // number of the only stream that `order` is for, in the order of creation; the
                  // others are late. -1: all streams
};

// For dlsym. Takes effect for later calls of the driver. A new context begins with kLate.
inline constexpr char kOrderStreamsSymbol[] = "baton_emulator_order_streams";
using OrderStreamsFunction = void (*)(const StreamTimes*);

}  // namespace baton::gpu_emulator
