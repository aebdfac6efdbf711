// Measures how much of a transfer remains when the prompt is computed: the time from the last op of
// a prefill to the receiver's kReceived. A producer writes KV at the speed of a given device.
//
//   whole    announces all blocks at the end
//   chunks   announces each chunk's blocks when the chunk is computed, while the next is computed
//   layers   as chunks, but announces the last chunk in kPieces pieces of some layers each, while
//            later layers are computed. The last piece is announced with the last op.
//   engine   as layers, but as the engine does it: announces a layer's KV when it is written, after
//            a quarter of the layer's time. The last piece moves while the last layer is computed.
//
// The same run measures the time to move the last piece alone: the whole prompt, the last chunk, or
// 1 / kPieces of it. The producer keeps one processor busy, as an engine's loop does.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/transfer_worker.h"

namespace baton {

struct OverlapShape {
  const char* name;
  KvGroupSpec group;
  double tokens_per_second;  // speed of the producer
};

class Overlap {
 public:
  static constexpr int32_t kBlock = 16;
  static constexpr int32_t kChunk = 512;  // tokens
  static constexpr int32_t kPrompt = 4 * kChunk;
  static constexpr int32_t kPieces = 8;

  enum class Mode : uint8_t { kWhole, kChunks, kLayers, kEngine };
  static constexpr std::array<std::pair<Mode, const char*>, 4> kModes = {
      {{Mode::kWhole, "whole"},
       {Mode::kChunks, "chunks"},
       {Mode::kLayers, "layers"},
       {Mode::kEngine, "engine"}}};

  Overlap(const MakeTransport& make, const OverlapShape& shape)
      : shape_(shape),
        layout_(
            *KvLayout::Create(shape.group, KvLayoutKind::kBlockMajor, kBlock, kPrompt / kBlock)),
        from_(make, layout_, 1),
        to_(make, layout_, 2),
        blocks_(from_.BlocksOf(kPrompt)) {
    Alone(Mode::kWhole);  // warm-up: opens the connection, touches pages
  }

  // Seconds from the prompt's last op until the receiver has everything.
  double Exposed(Mode mode) {
    from_.ReportFull();
    const uint64_t id = next_id_++;
    PostReceive(to_, id, kPrompt);
    StartSend(from_, to_, id, kPrompt);
    const Instant start = Now();
    for (int32_t chunk = 0; chunk < kPrompt / kChunk; ++chunk) Compute(mode, id, chunk, start);
    const auto left = mode == Mode::kWhole ? std::span(blocks_) : ChunkBlocks(kPrompt / kChunk - 1);
    const Instant computed = Now();
    from_.transport().Announce(id, left, /*final=*/true, "");
    to_.WaitForEnds(1, TransferWorker::Wait::kSleeping);
    const double seconds = Seconds(computed);
    from_.WaitForEnds(1, TransferWorker::Wait::kSleeping);
    return seconds;
  }
  // Seconds to move the mode's last piece alone.
  double Alone(Mode mode) {
    from_.ReportFull();
    const int32_t tokens = mode == Mode::kWhole    ? kPrompt
                           : mode == Mode::kChunks ? kChunk
                                                   : kChunk / kPieces;
    return MoveOnce(from_, to_, next_id_++, tokens);
  }

 private:
  std::span<const BlockId> ChunkBlocks(int32_t chunk) const {
    constexpr size_t kBlocks = kChunk / kBlock;
    return std::span(blocks_).subspan(static_cast<size_t>(chunk) * kBlocks, kBlocks);
  }

  // Waits for the chunk's compute time and announces the KV as it is written.
  void Compute(Mode mode, uint64_t id, int32_t chunk, Instant start) {
    const bool last = chunk == kPrompt / kChunk - 1;
    const int32_t layers = layout_.group().layers;
    const double layer_s = kChunk / shape_.tokens_per_second / layers;
    const auto pass_until = [&](double layer) {
      while (Seconds(start) < layer_s * (int64_t{chunk} * layers + layer)) continue;
    };
    for (int32_t layer = 1; layer <= layers; ++layer) {
      const bool ends = last && layer * kPieces / layers > (layer - 1) * kPieces / layers;
      const auto announce = [&] {
        from_.transport().AnnounceLayers(id, ChunkBlocks(chunk), layer);
      };
      pass_until(layer - 0.75);
      if (ends && mode == Mode::kEngine) announce();
      pass_until(layer);
      if (ends && layer < layers && mode == Mode::kLayers) announce();
    }
    if (!last && mode != Mode::kWhole) {
      from_.transport().Announce(id, ChunkBlocks(chunk), /*final=*/false, "");
    }
  }

  const OverlapShape shape_;
  const KvLayout layout_;
  TransferWorker from_;
  TransferWorker to_;
  const std::vector<BlockId> blocks_;
  uint64_t next_id_ = 1;
};

// Calls `add(name, exposed_us, alone_us)` for every mode.
inline void MeasureOverlap(const std::string& medium, const MakeTransport& make,
                           const OverlapShape& shape, int repeats,
                           const std::function<void(const std::string&, double, double)>& add) {
  Overlap overlap(make, shape);
  std::array<std::vector<double>, Overlap::kModes.size()> exposed, alone;
  for (int i = 0; i < repeats; ++i) {
    for (size_t m = 0; m < Overlap::kModes.size(); ++m) {
      exposed[m].push_back(overlap.Exposed(Overlap::kModes[m].first));
      alone[m].push_back(overlap.Alone(Overlap::kModes[m].first));
    }
  }
  for (size_t m = 0; m < Overlap::kModes.size(); ++m) {
    add("exposed_transfer_us." + medium + "." + shape.name + "." + Overlap::kModes[m].second,
        Median(exposed[m]) * 1e6, Median(alone[m]) * 1e6);
  }
}

}  // namespace baton
