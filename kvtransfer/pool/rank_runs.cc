#include "kvtransfer/pool/rank_runs.h"

#include <algorithm>
#include <cstddef>

#include "common/check.h"

namespace baton {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);

// Bytes of the parts of a token's row.
struct Row {
  Row(const KvLayout& group, int32_t plane)
      : all(group.token_stride(plane) * KvTypeBytes(group.group().type)),
        values(int64_t{group.group().kv_heads} * group.head_stride(plane) *
               KvTypeBytes(group.group().type)),
        scales(HasScales(group.group().type) ? group.group().kv_heads * kScaleBytes : 0) {}

  int64_t all, values, scales;
};

}  // namespace

int32_t RanksOf(const KvPoolLayout& whole, const KvPoolLayout& rank) {
  const int32_t all = whole.group(0).group().kv_heads;
  const int32_t own = rank.group(0).group().kv_heads;
  CHECK(own > 0 && all % own == 0) << all << " heads, " << own << " of each rank";
  return all / own;
}

void AppendRankRuns(const KvPoolLayout& whole, const KvPoolLayout& rank, const Piece& piece,
                    BlockId block, int32_t first_token, int32_t tokens, std::byte* rows,
                    std::vector<PoolCopies::Run>& runs) {
  const int32_t ranks = RanksOf(whole, rank);
  const KvLayerPlace place = rank.place(piece.layer);
  const Row row(whole.group(place.group), piece.plane);
  const Row own(rank.group(place.group), piece.plane);
  const int64_t pool =
      rank.PieceOffset(piece.layer, piece.plane, block.value()) + first_token * own.all;
  for (int32_t of = 0; of < ranks; ++of) {
    PoolCopies::Run run{.pool_offset = pool,
                        .staging = rows + of * own.values,
                        .bytes = own.values,
                        .rank = of,
                        .rows = tokens,
                        .pool_stride = own.all,
                        .staging_stride = row.all};
    runs.push_back(run);
    if (own.scales == 0) continue;
    run.pool_offset += own.values;
    run.staging = rows + row.values + of * own.scales;
    run.bytes = own.scales;
    runs.push_back(run);
  }
}

void AppendRankRuns(const KvPoolLayout& rank, const LandingParts& parts, const PieceBytes& staged,
                    std::vector<PoolCopies::Run>& runs) {
  for (const Piece piece : staged.pieces()) {
    for (size_t part = 0; part < parts.size(); ++part) {
      const std::span<std::byte> rows = staged.Part(piece, part);
      if (rows.empty()) continue;
      AppendRankRuns(staged.layout(), rank, piece,
                     parts[part].blocks[rank.place(piece.layer).group], parts[part].block_token,
                     parts[part].tokens, rows.data(), runs);
    }
  }
}

std::optional<ByteRows> PaddingOf(const KvPoolLayout& whole, const Piece& piece, int64_t at,
                                  int32_t tokens) {
  const Row row(whole.layout_of(piece.layer), piece.plane);
  const int64_t used = row.values + row.scales;
  if (used == row.all) return std::nullopt;
  return ByteRows{.to = at + used,
                  .bytes = row.all - used,
                  .rows = tokens,
                  .from_stride = 0,
                  .to_stride = row.all};
}

void ClearPadding(const PieceBytes& staged) {
  for (const Piece piece : staged.pieces()) {
    const Row row(staged.layout().layout_of(piece.layer), piece.plane);
    const int64_t used = row.values + row.scales;
    if (used == row.all) continue;
    for (size_t part = 0; part < staged.parts().size(); ++part) {
      const std::span<std::byte> rows = staged.Part(piece, part);
      for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(row.all)) {
        std::fill_n(rows.data() + at + used, row.all - used, std::byte{0});
      }
    }
  }
}

}  // namespace baton
