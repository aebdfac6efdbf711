// How a prompt counts against the limits of a worker. The default is an ordinary prompt: each token
// has a position and a slot of its own.
//
// Thread safety: plain data.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace baton {

struct PromptShape {
  static constexpr size_t kBlockSizes = 8;  // 1, 2, 4, … 128 tokens

  // Tokens that do not count against the context, because several chunks have the same positions.
  int64_t shared_positions = 0;
  // Slots of all parts, less their tokens, at each block size. Each part begins at a block
  // boundary. A chunk that the prompt names again takes no slots, so the sum may be negative.
  std::array<int64_t, kBlockSizes> padding = {};

  int64_t PaddingAt(int32_t block_size) const {
    const auto size = static_cast<uint32_t>(std::max(1, block_size));
    return padding[std::min<size_t>(std::bit_width(size) - 1, kBlockSizes - 1)];
  }
};

}  // namespace baton
