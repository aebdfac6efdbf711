// Decides into how many pieces a prompt's last chunk is cut. A piece is a group of layers. The
// first layers then travel while later ones are computed (KvTransport::AnnounceLayers).
//
// More pieces leave less data to send after the prompt is computed, but cost frames, wake-ups and
// shorter copies. So a piece should take at least kLeastPieceUs to send, at the bandwidth measured
// so far (bench/results/transfer_2026-11-22.md). For example, a chunk of a hundred tokens of a
// small model stays whole and is sent when its last layer's KV is written.
//
// Thread safety: engine thread only.
#pragma once

#include <cstdint>

namespace baton {

class LayerPieces {
 public:
  static constexpr int64_t kLeastPieceUs = 200;

  struct Options {
    int32_t layers = 1;
    int64_t bytes_per_token = 1;  // of all layers
    int32_t pieces = 0;           // 0: automatic; 1: off, blocks are announced whole
  };
  explicit LayerPieces(const Options& options) : options_(options) {}

  bool on() const { return options_.pieces != 1; }
  // Number of pieces, in [1, layers], for a last chunk with `tokens` tokens to send.
  int32_t PiecesFor(int64_t tokens) const;
  // True if one of `pieces` pieces ends when `layers` layers are written.
  bool EndsPiece(int32_t layers, int32_t pieces) const;

  // Updates the bandwidth estimate after a transfer of `bytes` bytes in `busy_us`.
  void OnSent(int64_t bytes, int64_t busy_us);

 private:
  const Options options_;
  double bytes_per_us_ = 2'000;
};

}  // namespace baton
