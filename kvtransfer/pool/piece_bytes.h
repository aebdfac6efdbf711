// Addresses and checksums of the pieces of some blocks, in a pool or in a staging buffer with a
// pool's layout.
//
// Part and Runs only compute addresses. Checksum and Checksums read the bytes.
//
// Neighbouring pieces in memory become one run, so a full block of a block-major pool is one run.
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
  // Groups of which some part has a block.
  GroupSet groups() const { return groups_; }
  Pieces pieces() const { return Pieces(*layout_, groups_, layers_); }

  // Returns where the tokens of part `part` lie in a piece. Empty if the part has no block of the
  // piece's group.
  std::span<std::byte> Part(const Piece& piece, size_t part) const;
  // Bytes of the payload tokens before the first part that has a block of the piece's group. They
  // travel but have no place here.
  int64_t DroppedBytes(const Piece& piece) const;
  int64_t DroppedBytes() const;  // over all pieces
  // Returns all bytes in payload order: for each piece its share of `dropped`, then its parts.
  // REQUIRES: `dropped` has DroppedBytes() bytes or is empty.
  std::vector<iovec> Runs(std::span<std::byte> dropped = {}) const;

  // Extends `crc`, the CRC32C of preceding bytes, by a piece's parts.
  uint32_t Checksum(const Piece& piece, uint32_t crc = 0) const;
  // Returns the checksum of every piece, in canonical order.
  std::vector<uint32_t> Checksums() const;

 private:
  std::byte* base_ = nullptr;
  const KvPoolLayout* layout_ = nullptr;
  LandingParts parts_;
  LayerRange layers_;  // never the "all" form: `count` is set
  GroupSet groups_;
};

// Cursor over the bytes of one payload, for scatter/gather I/O.
class BlockCursor {
 public:
  explicit BlockCursor(std::vector<iovec> runs);

  int64_t remaining() const { return remaining_; }
  bool done() const { return remaining_ == 0; }
  // Describes the next bytes. Returns how many entries it filled, at most out.size().
  int Fill(std::span<iovec> out) const;
  // `bytes` bytes were moved. REQUIRES: bytes <= remaining().
  void Advance(int64_t bytes);

 private:
  std::vector<iovec> runs_;
  size_t run_ = 0;
  size_t run_done_ = 0;
  int64_t remaining_ = 0;
};

}  // namespace baton
