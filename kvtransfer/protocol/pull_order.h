// In which order the blocks of a transfer are asked for and travel: whole blocks in sequence order,
// and, where a sender has announced them so, the blocks that are left in slices of some layers.
//
// Slices are for a prompt's last chunk: while its later layers are computed, the earlier ones of
// all its blocks travel. So a slice always spans every block up to the transfer's end, and once one
// was asked for, the rest follows in slices too. A block is whole when its last layer has come.
//
//   blocks     0 1 2 3 | 4 5 6      0–3 whole, in pulls of any length
//   layers             | 0–7        then slices of 4–6, as their layers are announced
//                      | 8–15
//                      | …
//
// Both ends of a transfer keep one: the receiver to ask and to know which part comes next, the
// sender to check what is asked and to know what goes next. Where pulls are implied
// (receive_session.h), both take what Next says of every announcement.
//
// Blocks are counted from the transfer's first.
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

// What a sender has: blocks [0, blocks), and of all behind them the first `layers` layers.
struct AnnouncedBlocks {
  int32_t blocks = 0;
  int32_t layers = 0;
};

// Blocks that are asked for at once, or these layers of them.
struct BlockRun {
  int32_t first = 0;
  int32_t count = 0;
  LayerRange layers = {};
  bool operator==(const BlockRun&) const = default;
};

// What travels at once.
struct BlockPart {
  int32_t block = 0;
  LayerRange layers = {};
  bool operator==(const BlockPart&) const = default;
};

class PullOrder {
 public:
  // A transfer of so many blocks, of a model with so many layers.
  PullOrder(int32_t blocks, int32_t layers) : blocks_(blocks), layers_(layers) {}

  // What can be asked for next, whole blocks before block `end` alone; nothing where there is none.
  std::optional<BlockRun> Next(const AnnouncedBlocks& announced,
                               int32_t end = std::numeric_limits<int32_t>::max()) const;
  // OutOfRange where a peer asks for what is not next, or not announced.
  absl::Status Check(const BlockRun& run, const AnnouncedBlocks& announced) const;
  // It is asked for. REQUIRES: it came from Next, or Check found it right.
  void Ask(const BlockRun& run);

  // Of what is asked for, what has not gone yet.
  bool empty() const { return gone_runs_ == runs_.size(); }
  // REQUIRES: !empty().
  BlockPart Front() const;
  // It went. True: with it its block is whole.
  bool Pop();

 private:
  // Layers that can be asked for of the blocks behind those that are asked for as a whole.
  int32_t ReadyLayers(const AnnouncedBlocks& announced) const;

  int32_t blocks_;
  int32_t layers_;
  int32_t asked_blocks_ = 0;
  int32_t asked_layers_ = 0;    // of all blocks behind them
  std::vector<BlockRun> runs_;  // asked for
  size_t gone_runs_ = 0;        // of them, as a whole; 0 when all are
  int32_t gone_ = 0;            // blocks of the next one
};

}  // namespace baton
