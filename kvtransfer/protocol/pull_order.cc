#include "kvtransfer/protocol/pull_order.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {

int32_t PullOrder::ReadyLayers(const AnnouncedBlocks& announced) const {
  if (announced.blocks == blocks_) return layers_;
  return announced.blocks == asked_blocks_ ? announced.layers : 0;
}

std::optional<BlockRun> PullOrder::Next(const AnnouncedBlocks& announced, int32_t end) const {
  if (asked_layers_ == 0 && asked_blocks_ < announced.blocks) {
    const int32_t count = std::min(announced.blocks, end) - asked_blocks_;
    if (count <= 0) return std::nullopt;
    return BlockRun{.first = asked_blocks_, .count = count, .layers = {}};
  }
  const int32_t left = blocks_ - asked_blocks_;
  const int32_t count = ReadyLayers(announced) - asked_layers_;
  if (left == 0 || count <= 0) return std::nullopt;
  return BlockRun{
      .first = asked_blocks_, .count = left, .layers = {.first = asked_layers_, .count = count}};
}

absl::Status PullOrder::Check(const BlockRun& run, const AnnouncedBlocks& announced) const {
  if (run.layers.all()) {
    const bool next = asked_layers_ == 0 && run.first == asked_blocks_;
    if (next && run.count >= 1 && int64_t{run.first} + run.count <= announced.blocks) {
      return absl::OkStatus();
    }
  } else if (run.first == asked_blocks_ && run.count == blocks_ - asked_blocks_ && run.count >= 1 &&
             run.layers.first == asked_layers_ && run.layers.end() <= ReadyLayers(announced)) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrFormat(
      "pull of blocks [%d, +%d), layers [%d, +%d) refused: next is block %d, layer %d; announced "
      "are %d blocks and %d layers of the blocks after them",
      run.first, run.count, run.layers.first, run.layers.count, asked_blocks_, asked_layers_,
      announced.blocks, announced.layers));
}

void PullOrder::Ask(const BlockRun& run) {
  runs_.push_back(run);
  if (run.layers.all()) {
    asked_blocks_ += run.count;
    return;
  }
  asked_layers_ = run.layers.end();
  if (asked_layers_ < layers_) return;
  asked_blocks_ = blocks_;
  asked_layers_ = 0;
}

BlockPart PullOrder::Front() const {
  CHECK(!empty());
  const BlockRun& run = runs_[gone_runs_];
  return {.block = run.first + gone_, .layers = run.layers};
}

bool PullOrder::Pop() {
  const BlockRun& run = runs_[gone_runs_];
  const bool whole = run.layers.all() || run.layers.end() == layers_;
  if (++gone_ < run.count) return whole;
  gone_ = 0;
  if (++gone_runs_ == runs_.size()) {
    runs_.clear();
    gone_runs_ = 0;
  }
  return whole;
}

}  // namespace baton
