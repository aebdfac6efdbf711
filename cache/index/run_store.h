// Where the index keeps hashes: runs of up to 254 blocks that were stored one after the other, each
// with a word that says its state. Memory is cut into chunks of whole cache lines from one arena.
//
// A chunk, in 64-bit words:
//   0      head: version (32 bits) | class (8) | length (8) | entries (8)
//   1–3    a run: up to six holder entries of 32 bits, or where its wide holders are
//          (run_holders.h); a free chunk: the next free one
//   4…     a run: its hashes, two words each
//
// Invariants:
//  1. A line that begins a chunk does so for ever, with the same class: a stale location leads to a
//     head, never into the middle of hashes that look like one.
//  2. A head's version grows with every change of its chunk, also when it is freed; it is odd while
//     the chunk is being changed. A hash below the length never changes. So what a reader read
//     between two equal even heads was all there at one moment.
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
  static constexpr int kWide = 255;  // `entries` of a run whose holders are in a chunk of their own
  static constexpr int kMaxInline = 6;

  uint64_t word = 0;
  bool being_changed() const { return (word & 1) != 0; }
  int chunk_class() const { return static_cast<uint8_t>(word >> 32); }
  uint32_t length() const { return static_cast<uint8_t>(word >> 40); }  // 0: no run
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

  // Has memory ready for `expected_lines` from the beginning. REQUIRES: 1 <= lines <= kMaxLines,
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
  // A chunk with room for as many blocks as it can get of `blocks` (1 to kMaxRun), length 0;
  // nothing when memory is full. Write hashes and holders, then Publish.
  std::optional<uint32_t> NewRun(uint32_t blocks);
  // A chunk of at least `words` words after the head; nothing when memory is full.
  std::optional<uint32_t> NewChunk(size_t words);
  // The class with room for that many blocks; a larger class has more room.
  static int ClassForBlocks(uint32_t blocks);
  uint32_t Capacity(uint32_t line) const;  // blocks
  size_t ChunkWords(uint32_t line) const;  // after the head
  void Free(uint32_t line);

  uint64_t* MutableWords(uint32_t line) { return arena_.words() + uint64_t{line} * kWordsPerLine; }
  RunHashes HashesOf(uint32_t line) { return RunHashes(MutableWords(line) + kHashesAt); }
  // Readers wait from BeginChange to Publish, which nothing may come between but stores.
  void BeginChange(uint32_t line) {
    uint64_t* const head = MutableWords(line);
    __atomic_store_n(head, NextVersion(*head), __ATOMIC_RELAXED);
  }
  void Publish(uint32_t line, uint32_t length, int entries);

  // The first line of the chunk after this one, or `end_line()`. Chunks begin at line 0.
  uint32_t NextChunk(uint32_t line) const;
  uint32_t end_line() const { return static_cast<uint32_t>(end_line_); }
  // Of chunks in use or free, and what was made ready at the beginning.
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
  uint64_t ready_line_ = 0;  // pages are there up to here
  uint64_t free_lines_ = 0;
  std::array<uint32_t, kClasses> free_;  // first free chunk of each class, kNone without one
  static constexpr uint32_t kNone = UINT32_MAX;
};

}  // namespace baton
