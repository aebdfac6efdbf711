#include "engine/layer_pieces.h"

#include <algorithm>

namespace baton {
namespace {

// A smaller transfer measures per-transfer overhead, not bandwidth.
constexpr int64_t kTellingBytes = 1 << 20;
constexpr double kNewest = 0.25;  // weight of the latest transfer
// Upper bound of the estimate. A sender over shared memory does not see how long the receiver's
// copy takes, so its figure can be too high. No copy is faster than this.
constexpr double kFastestBytesPerUs = 16'000;

}  // namespace

int32_t LayerPieces::PiecesFor(int64_t tokens) const {
  if (options_.pieces > 0) return std::min(options_.pieces, options_.layers);
  const double send_us = static_cast<double>(tokens * options_.bytes_per_token) / bytes_per_us_;
  const double pieces = std::min<double>(send_us / kLeastPieceUs, options_.layers);
  return std::max(1, static_cast<int32_t>(pieces));
}

bool LayerPieces::EndsPiece(int32_t layers, int32_t pieces) const {
  const auto ended = [&](int64_t at) { return at * pieces / options_.layers; };
  return ended(layers) > ended(layers - 1);
}

void LayerPieces::OnSent(int64_t bytes, int64_t busy_us) {
  if (bytes < kTellingBytes || busy_us <= 0) return;
  const double rate =
      std::min(static_cast<double>(bytes) / static_cast<double>(busy_us), kFastestBytesPerUs);
  bytes_per_us_ += kNewest * (rate - bytes_per_us_);
}

}  // namespace baton
