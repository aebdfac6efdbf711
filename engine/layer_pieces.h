// Into how many pieces, each of some layers, a prompt's last chunk is cut, so that its first layers
// travel while later ones are computed (KvTransport::AnnounceLayers).
//
// More pieces leave less to send when the prompt is computed, and cost frames, wakes and shorter
// copies. As many as pay are those whose sending takes at least kLeastPieceUs, by the bandwidth
// that transfers had here (bench/results/transfer_2026-11-22.md): a chunk of a hundred tokens of a
// small model stays whole, and leaves when its last layer's KV is written.
//
// Thread safety: belongs to the engine thread.
#pragma once

#include <cstdint>

namespace baton {

class LayerPieces {
 public:
  static constexpr int64_t kLeastPieceUs = 200;

  struct Options {
    int32_t layers = 1;
    int64_t bytes_per_token = 1;  // of all layers
    int32_t pieces = 0;           // 0: as many as pay; 1: none, blocks are announced when whole
  };
  explicit LayerPieces(const Options& options) : options_(options) {}

  bool on() const { return options_.pieces != 1; }
  // For a last chunk of which so many tokens travel: in [1, layers].
  int32_t PiecesFor(int64_t tokens) const;
  // Whether one of so many pieces ends when `layers` layers are written.
  bool EndsPiece(int32_t layers, int32_t pieces) const;

  // A transfer has ended that moved so much in so much time.
  void OnSent(int64_t bytes, int64_t busy_us);

 private:
  const Options options_;
  double bytes_per_us_ = 2'000;
};

}  // namespace baton
