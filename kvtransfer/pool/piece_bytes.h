// The bytes of pieces, in a pool or in a staging buffer that is laid out like one.
//
// Parts and Runs only compute addresses. Checksum and Checksums read.
//
// Pieces that lie side by side become one run, so a full block of a block-major pool is one.
//
// Thread safety: values; BlockCursor belongs to one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_pool_layout.h"
#include "kvtransfer/pool/pieces.h"

namespace baton {

class PieceBytes {
 public:
  PieceBytes() = default;
  // `layout` outlives this. REQUIRES: the parts lie in its blocks.
  PieceBytes(std::byte* base, const KvPoolLayout& layout, LandingParts parts, LayerRange layers);
  PieceBytes(std::byte* base, KvPoolLayout&& layout, LandingParts parts, LayerRange) = delete;

  const KvPoolLayout& layout() const { return *layout_; }
  const LandingParts& parts() const { return parts_; }
  // Groups of which a part has a block.
  GroupSet groups() const { return groups_; }
  Pieces pieces() const { return Pieces(*layout_, groups_, layers_); }

  // Where a part's tokens lie in a piece; empty where the part has no block of its group.
  std::span<std::byte> Part(const Piece& piece, size_t part) const;
  // Bytes of the tokens before the first part that has a block of the piece's group.
  int64_t DroppedBytes(const Piece& piece) const;
  int64_t DroppedBytes() const;  // of all pieces
  // All of it in the payload's order: of each piece, what `dropped` has for it, then the parts.
  // REQUIRES: `dropped` has DroppedBytes(), or nothing.
  std::vector<iovec> Runs(std::span<std::byte> dropped = {}) const;

  // CRC32C of a piece's parts, behind bytes that have the CRC `crc`.
  uint32_t Checksum(const Piece& piece, uint32_t crc = 0) const;
  // Of every piece, in canonical order.
  std::vector<uint32_t> Checksums() const;

 private:
  std::byte* base_ = nullptr;
  const KvPoolLayout* layout_ = nullptr;
  LandingParts parts_;
  LayerRange layers_;  // with a count
  GroupSet groups_;
};

// Walks over the bytes of one payload for scatter/gather I/O.
class BlockCursor {
 public:
  explicit BlockCursor(std::vector<iovec> runs);

  int64_t remaining() const { return remaining_; }
  bool done() const { return remaining_ == 0; }
  // Describes the next bytes; returns how many entries were filled (at most out.size()).
  int Fill(std::span<iovec> out) const;
  // `bytes` of them were moved. REQUIRES: bytes <= remaining().
  void Advance(int64_t bytes);

 private:
  std::vector<iovec> runs_;
  size_t run_ = 0;
  size_t run_done_ = 0;
  int64_t remaining_ = 0;
};

}  // namespace baton
