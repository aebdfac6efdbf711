// Order in which a transfer's blocks are requested and sent. Whole blocks go in sequence order. If
// the sender announced layers, the remaining blocks go in slices (layer ranges).
//
// Slices are for a prompt's last chunk. While its later layers are computed, the earlier layers of
// all its blocks travel. So a slice always spans every block up to the transfer's end. After the
// first request for a slice, everything else is requested in slices too. A block is whole when its
// last layer has arrived.
//
//   blocks     0 1 2 3 | 4 5 6      0–3 whole, in pulls of any length
//   layers             | 0–7        then slices of 4–6, as their layers are announced
//                      | 8–15
//                      | …
//
// Both ends of a transfer keep a PullOrder. The receiver uses it to request parts and to know which
// part arrives next. The sender uses it to check requests and to know which part to send next. With
// implied pulls (receive_session.h), both ends request everything that Next returns after each
// announcement.
//
// Blocks are counted from the transfer's first block.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {

// Blocks that a sender has announced: blocks [0, blocks), and the first `layers` layers of all
// later blocks.
struct AnnouncedBlocks {
  int32_t blocks = 0;
  int32_t layers = 0;
};

// Blocks that one pull requests, or these layers of them.
struct BlockRun {
  int32_t first = 0;
  int32_t count = 0;
  LayerRange layers = {};
  bool operator==(const BlockRun&) const = default;
};

// Block, or layer range of one, that one Block frame carries.
struct BlockPart {
  int32_t block = 0;
  LayerRange layers = {};
  bool operator==(const BlockPart&) const = default;
};

class PullOrder {
 public:
  // For a transfer of `blocks` blocks of a model with `layers` layers.
  PullOrder(int32_t blocks, int32_t layers) : blocks_(blocks), layers_(layers) {}

  // Returns what can be requested next, or nothing. Whole blocks stop before block `end`.
  std::optional<BlockRun> Next(const AnnouncedBlocks& announced,
                               int32_t end = std::numeric_limits<int32_t>::max()) const;
  // OutOfRange if a peer requests a part that is not next or not announced.
  absl::Status Check(const BlockRun& run, const AnnouncedBlocks& announced) const;
  // Records the request. REQUIRES: `run` came from Next, or Check accepted it.
  void Ask(const BlockRun& run);

  // True if everything requested has been sent or has landed.
  bool empty() const { return gone_runs_ == runs_.size(); }
  // Returns the next requested part. REQUIRES: !empty().
  BlockPart Front() const;
  // Removes the front part. Returns true if it completes its block.
  bool Pop();

 private:
  // Layers that can be requested of the blocks behind `asked_blocks_`.
  int32_t ReadyLayers(const AnnouncedBlocks& announced) const;

  int32_t blocks_;
  int32_t layers_;
  int32_t asked_blocks_ = 0;
  int32_t asked_layers_ = 0;    // requested of all blocks behind them
  std::vector<BlockRun> runs_;  // requested
  size_t gone_runs_ = 0;        // completed entries of runs_; 0 when all are completed
  int32_t gone_ = 0;            // completed blocks of the next run
};

}  // namespace baton
