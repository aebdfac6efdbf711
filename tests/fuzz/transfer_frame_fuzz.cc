// Hostile bytes through the frame stream: whatever arrives, FrameReader must return frames or an
// error, in bounded memory, and what it accepts must encode to the same bytes again. The first byte
// says how the rest is cut into reads; the second, whether CRCs are repaired so that the fuzzer
// reaches the fields behind them.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "common/check.h"
#include "common/crc32c.h"
#include "kvtransfer/frame_stream.h"

namespace baton {
namespace {

void Put(std::string& bytes, size_t at, uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
}

// One frame out of `body`, with a header that is right in all but `type`.
std::string Repaired(uint8_t type, const std::string& body) {
  std::string frame = EncodeFrame(PingFrame{});
  frame[5] = static_cast<char>(type);
  Put(frame, 8, static_cast<uint32_t>(body.size()));
  Put(frame, 12, Crc32c(body));
  Put(frame, 16, Crc32c(std::string_view(frame).substr(0, 16)));
  return frame + body;
}

void Run(const std::string& stream, size_t step) {
  FrameReader reader;
  for (size_t at = 0; at < stream.size();) {
    iovec buffers[kMaxIovecs];
    reader.Fill(buffers);
    const size_t count = std::min({buffers[0].iov_len, step, stream.size() - at});
    std::memcpy(buffers[0].iov_base, stream.data() + at, count);
    at += count;
    const auto frame = reader.Advance(static_cast<int64_t>(count));
    if (!frame.ok()) return;
    if (!frame->has_value()) {
      reader.TakeLanded();
      continue;
    }
    const std::string again = EncodeFrame(**frame);
    CHECK_LE(again.size(), kFrameHeaderBytes + (2 << 20));
    if (const auto* block = std::get_if<BlockFrame>(&**frame)) {
      if (block->payload_bytes > 0) reader.StartPayload(BlockLanding(block->payload_bytes));
    }
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 3, size - 3);
  const size_t step = 1 + data[0];
  baton::Run(data[1] % 2 == 0 ? bytes : baton::Repaired(data[2], bytes), step);
  return 0;
}
