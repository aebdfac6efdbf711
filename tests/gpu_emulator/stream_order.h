// When the emulated GPU runs the work of a stream. CUDA promises less than any one machine shows: a
// stream may run at once, or only when something waits for it.
//
// Thread safety: plain data. The exported function is safe from any thread.
#pragma once

#include <cstdint>

namespace baton::gpu_emulator {

enum class StreamOrder : uint8_t {
  kLate,   // when a call waits for it
  kEarly,  // before the call that enqueues it returns; work of other libraries runs soon after
  // As kLate, and a thread that waits does not hurry the work along for other threads: work begins
  // when no thread has called the driver for 2 ms, or when something has waited for 50 ms.
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
