#include "cache/index/run_store.h"

#include <algorithm>

#include "common/check.h"

namespace baton {

// Rounding up loses a quarter at most. The last five classes are only for chunks of holders.
constexpr std::array<uint16_t, RunStore::kClasses> RunStore::kClassLines = {
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 192, 1100};

RunStore::RunStore(uint64_t lines, uint64_t expected_lines)
    : lines_(lines),
      expected_lines_(expected_lines),
      arena_(lines * kWordsPerLine * 8),
      ready_line_(expected_lines) {
  CHECK_GE(lines, 1u);
  CHECK_LE(lines, kMaxLines);
  CHECK_LE(expected_lines, lines);
  free_.fill(kNone);
  arena_.Populate(0, expected_lines * kWordsPerLine * 8);
}

int RunStore::ClassForLines(size_t lines) {
  const auto it = std::lower_bound(kClassLines.begin(), kClassLines.end(), lines);
  CHECK(it != kClassLines.end()) << lines << " cache lines in one chunk";
  return static_cast<int>(it - kClassLines.begin());
}

int RunStore::ClassForBlocks(uint32_t blocks) {
  return ClassForLines((kHashesAt + 2 * size_t{blocks} + kWordsPerLine - 1) / kWordsPerLine);
}

size_t RunStore::ChunkWords(uint32_t line) const {
  return size_t{kClassLines[LoadHead(line).chunk_class()]} * kWordsPerLine - 1;
}

uint32_t RunStore::Capacity(uint32_t line) const {
  return std::min(kMaxRun, static_cast<uint32_t>((ChunkWords(line) + 1 - kHashesAt) / 2));
}

std::optional<uint32_t> RunStore::Take(int chunk_class) {
  if (const uint32_t line = free_[chunk_class]; line != kNone) {
    free_[chunk_class] = static_cast<uint32_t>(Words(line)[1]);
    free_lines_ -= kClassLines[chunk_class];
    if (free_[chunk_class] != kNone) __builtin_prefetch(Words(free_[chunk_class]), 1);
    return line;
  }
  if (lines_ - end_line_ < kClassLines[chunk_class]) return std::nullopt;
  const auto line = static_cast<uint32_t>(end_line_);
  end_line_ += kClassLines[chunk_class];
  if (end_line_ > ready_line_) {
    constexpr uint32_t kLinesAtOnce = 4096;
    ready_line_ = end_line_ + kLinesAtOnce;
    arena_.Populate(size_t{line} * kWordsPerLine * 8, size_t{ready_line_} * kWordsPerLine * 8);
  }
  StoreWord(MutableWords(line), static_cast<uint64_t>(chunk_class) << 32);
  return line;
}

std::optional<uint32_t> RunStore::NewChunk(size_t words) {
  for (int c = ClassForLines((1 + words + kWordsPerLine - 1) / kWordsPerLine); c < kClasses; ++c) {
    if (const auto line = Take(c)) return line;
  }
  return std::nullopt;
}

std::optional<uint32_t> RunStore::NewRun(uint32_t blocks) {
  const int fitting = ClassForBlocks(blocks);
  for (int c = fitting; c < kClasses; ++c) {
    if (const auto line = Take(c)) return line;
  }
  for (int c = fitting; c-- > 0;) {
    if (const auto line = Take(c)) return line;
  }
  return std::nullopt;
}

void RunStore::Free(uint32_t line) {
  const int chunk_class = LoadHead(line).chunk_class();
  BeginChange(line);
  StoreWord(MutableWords(line) + 1, free_[chunk_class]);
  free_[chunk_class] = line;
  free_lines_ += kClassLines[chunk_class];
  Publish(line, 0, 0);
}

void RunStore::Publish(uint32_t line, uint32_t length, int entries) {
  uint64_t* const head = MutableWords(line);
  const uint32_t version = (static_cast<uint32_t>(*head) + 2) & ~1u;
  StoreWord(head, uint64_t{version} | (*head & uint64_t{0xff} << 32) | uint64_t{length} << 40 |
                      static_cast<uint64_t>(entries) << 48);
}

uint32_t RunStore::NextChunk(uint32_t line) const {
  return line + kClassLines[LoadHead(line).chunk_class()];
}

}  // namespace baton
