// Memory for the index's hashes: runs of up to 254 blocks that were stored one after the other.
// Each run has a header word with its state. Memory is divided into chunks of whole cache lines in
// one arena.
//
// A chunk, in 64-bit words:
//   0      header: version (32 bits) | class (8) | length (8) | entries (8)
//   1–3    run: up to six holder entries of 32 bits, or the place of its wide holders
//          (run_holders.h); free chunk: the next free chunk
//   4…     run: its hashes, two words each
//
// Invariants:
//  1. A line that begins a chunk does so for ever, with the same class. So a stale location leads
//     to a header, never into the middle of hashes that look like one.
//  2. A header's version grows with every change of its chunk, and when it is freed. It is odd
//     during a change. A hash below the length never changes. So data read between two equal even
//     headers is a consistent state.
//
// Thread safety: one writer; Load* on any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cache/cache_key.h"
#include "cache/index/reserved_memory.h"

namespace baton {

// The first word of a chunk.
struct RunHead {
  static constexpr int kWide = 255;  // `entries` of a run whose holders have a separate chunk
  static constexpr int kMaxInline = 6;

  uint64_t word = 0;
  bool being_changed() const { return (word & 1) != 0; }
  int chunk_class() const { return static_cast<uint8_t>(word >> 32); }
  uint32_t length() const { return static_cast<uint8_t>(word >> 40); }  // 0: not a run
  int entries() const { return static_cast<uint8_t>(word >> 48); }
  bool operator==(const RunHead&) const = default;
};

// The hashes of a run.
class RunHashes {
 public:
  explicit RunHashes(uint64_t* words) : words_(words) {}
  Hash128 Get(uint32_t offset) const {
    return {.low = LoadWord(words_ + 2 * offset), .high = LoadWord(words_ + 2 * offset + 1)};
  }
  void Set(uint32_t offset, const Hash128& hash) {
    StoreWord(words_ + 2 * offset, hash.low);
    StoreWord(words_ + 2 * offset + 1, hash.high);
  }

 private:
  uint64_t* const words_;
};

class RunStore {
 public:
  static constexpr uint32_t kMaxRun = 254;  // blocks
  static constexpr uint64_t kMaxLines = uint64_t{1} << 27;

  // Allocates memory for `expected_lines` at once. REQUIRES: 1 <= lines <= kMaxLines,
  // expected_lines <= lines.
  explicit RunStore(uint64_t lines, uint64_t expected_lines = 0);

  // ---- any thread ----
  const uint64_t* Words(uint32_t line) const {
    return arena_.words() + uint64_t{line} * kWordsPerLine;
  }
  RunHead LoadHead(uint32_t line) const { return {LoadWord(Words(line))}; }
  Hash128 LoadHash(uint32_t line, uint32_t offset) const {
    const uint64_t* const word = Words(line) + kHashesAt + 2 * offset;
    return {.low = LoadWord(word), .high = LoadWord(word + 1)};
  }
  void Prefetch(uint32_t line, uint32_t offset) const {
    __builtin_prefetch(Words(line));
    __builtin_prefetch(Words(line) + kHashesAt + 2 * offset);
  }

  // ---- the writer ----
  // Allocates a chunk of length 0 for `blocks` blocks (1 to kMaxRun). If memory is short, it may
  // have less room. nullopt if memory is full. Write hashes and holders, then call Publish.
  std::optional<uint32_t> NewRun(uint32_t blocks);
  // Allocates a chunk of at least `words` words after the header. nullopt if memory is full.
  std::optional<uint32_t> NewChunk(size_t words);
  // The smallest class with room for that many blocks; higher classes have more room.
  static int ClassForBlocks(uint32_t blocks);
  uint32_t Capacity(uint32_t line) const;  // blocks
  size_t ChunkWords(uint32_t line) const;  // after the header
  void Free(uint32_t line);

  uint64_t* MutableWords(uint32_t line) { return arena_.words() + uint64_t{line} * kWordsPerLine; }
  RunHashes HashesOf(uint32_t line) { return RunHashes(MutableWords(line) + kHashesAt); }
  // Readers wait from BeginChange to Publish. Between the two, only store.
  void BeginChange(uint32_t line) {
    uint64_t* const head = MutableWords(line);
    __atomic_store_n(head, NextVersion(*head), __ATOMIC_RELAXED);
  }
  void Publish(uint32_t line, uint32_t length, int entries);

  // The first line of the chunk after this one, or `end_line()`. Chunks begin at line 0.
  uint32_t NextChunk(uint32_t line) const;
  uint32_t end_line() const { return static_cast<uint32_t>(end_line_); }
  // Chunks in use or free, including memory allocated at the start.
  size_t bytes() const { return std::max(end_line_, expected_lines_) * kWordsPerLine * 8; }
  size_t free_bytes() const { return free_lines_ * kWordsPerLine * 8; }

 private:
  static constexpr int kWordsPerLine = 8;
  static constexpr int kHashesAt = 4;
  static constexpr int kClasses = 25;
  static const std::array<uint16_t, kClasses> kClassLines;

  static uint64_t NextVersion(uint64_t head) {
    return (head & ~uint64_t{0xffffffff}) | static_cast<uint32_t>(head + 1);
  }
  static int ClassForLines(size_t lines);
  std::optional<uint32_t> Take(int chunk_class);

  const uint64_t lines_;
  const uint64_t expected_lines_;
  ReservedMemory arena_;
  uint64_t end_line_ = 0;
  uint64_t ready_line_ = 0;  // pages are allocated up to here
  uint64_t free_lines_ = 0;
  std::array<uint32_t, kClasses> free_;  // first free chunk of each class, or kNone
  static constexpr uint32_t kNone = UINT32_MAX;
};

}  // namespace baton
