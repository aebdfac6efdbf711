#include "engine/chunk_repair.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/check.h"

namespace baton {
namespace {

// Appends the first `count` tokens of a part that begins at `slot` of the frame.
void AppendRows(const ChunkLayout::Part& part, int32_t count, int32_t slot, int32_t run,
                RepairRows& rows) {
  for (int32_t i = 0; i < count; ++i) {
    rows.tokens.push_back(part.tokens[i]);
    rows.rows.push_back({.slot = slot + i, .run = run, .position = part.position + i});
  }
}

int32_t TouchedBlocks(std::span<const FrameRow> rows, int32_t block_size) {
  int32_t blocks = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool new_block = i == 0 || rows[i].slot / block_size != rows[i - 1].slot / block_size;
    blocks += new_block ? 1 : 0;
  }
  return blocks;
}

}  // namespace

RepairRows CandidateRows(const ChunkLayout& layout, int32_t block_size) {
  RepairRows candidates;
  const ChunkRepair& repair = layout.options.repair;
  if (repair.RepairsNothing()) return candidates;
  const int32_t most = repair.kind == ChunkRepair::Kind::kFirst
                           ? repair.first_tokens
                           : std::numeric_limits<int32_t>::max();
  const bool leaves_first_out = layout.options.scope == ChunkScope::kSystem;
  int32_t slot = 0;
  int32_t run = -1;
  size_t chunk_end = 0;  // number of places up to the end of the chunk
  int32_t chunk = -1;    // -1: the system part
  int32_t left = 0;      // tokens of the chunk that may still be repaired
  if (layout.places.size() > 0 && layout.parts[layout.places[0].part].kind == ChunkKind::kSystem) {
    chunk_end = 1;
  }
  for (size_t place = 0; place < layout.places.size(); ++place) {
    const ChunkLayout::Part& part = layout.parts[layout.places[place].part];
    if (place == chunk_end) {
      chunk_end += layout.chunks[++chunk].size();
      left = leaves_first_out && chunk == 0 ? 0 : most;
    }
    if (part.kind != ChunkKind::kPiece) ++run;
    const auto tokens = static_cast<int32_t>(part.tokens.size());
    const int32_t count = std::min(tokens, left);
    AppendRows(part, count, slot, run, candidates);
    left -= count;
    slot += (tokens + block_size - 1) / block_size * block_size;
  }
  return candidates;
}

int32_t RowsToRepair(const ChunkRepair& repair, int32_t candidates) {
  if (repair.RepairsNothing()) return 0;
  if (repair.kind == ChunkRepair::Kind::kFirst) return candidates;
  const int64_t millionths = int64_t{repair.share_millionths} * candidates;
  return static_cast<int32_t>((millionths + ChunkRepair::kWhole - 1) / ChunkRepair::kWhole);
}

int32_t BlocksOfRepair(const ChunkLayout& layout, int32_t block_size) {
  const RepairRows candidates = CandidateRows(layout, block_size);
  return std::min(TouchedBlocks(candidates.rows, block_size),
                  RowsToRepair(layout.options.repair, candidates.size()));
}

RepairRows LargestChanges(const RepairRows& candidates, std::span<const double> changes,
                          int32_t count) {
  CHECK_EQ(changes.size(), candidates.rows.size());
  CHECK_LE(count, candidates.size());
  std::vector<int32_t> order(changes.size());
  std::iota(order.begin(), order.end(), 0);
  const auto change = [&](int32_t row) { return std::isnan(changes[row]) ? -1.0 : changes[row]; };
  std::nth_element(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return change(a) != change(b) ? change(a) > change(b) : a < b;
  });
  order.resize(count);
  std::sort(order.begin(), order.end());
  RepairRows chosen;
  for (const int32_t row : order) {
    chosen.tokens.push_back(candidates.tokens[row]);
    chosen.rows.push_back(candidates.rows[row]);
  }
  return chosen;
}

std::vector<BlockCopy> MakePrivate(std::span<const FrameRow> rows, std::span<const BlockId> own,
                                   int32_t block_size, SequenceFrame& frame) {
  std::vector<BlockCopy> copies;
  frame.rows.assign(rows.begin(), rows.end());
  size_t taken = 0;
  for (size_t first = 0; first < rows.size();) {
    const int32_t block = rows[first].slot / block_size;
    size_t end = first + 1;
    while (end < rows.size() && rows[end].slot / block_size == block) ++end;
    CHECK_LT(taken, own.size()) << "a repair touches more blocks than it has";
    BlockId& at = frame.blocks[block];
    const int32_t filled =
        std::min(frame.runs[rows[first].run].end - block * block_size, block_size);
    if (static_cast<int32_t>(end - first) < filled) {
      copies.push_back({.from = at, .to = own[taken], .tokens = filled});
    }
    at = own[taken++];
    first = end;
  }
  return copies;
}

}  // namespace baton
