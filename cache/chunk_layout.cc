#include "cache/chunk_layout.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/check.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// Pieces begin at a segment of attention, so that a run over several pieces has the same segments
// as a run over the whole chunk.
constexpr int32_t kPieceAlignment = 256;

int32_t BlocksOf(int64_t tokens, int32_t block_size) {
  return static_cast<int32_t>((tokens + block_size - 1) / block_size);
}

// Adds parts, each key once.
class PartList {
 public:
  explicit PartList(ChunkLayout* layout) : layout_(layout) {}

  int32_t Add(ChunkKind kind, const std::optional<ChunkKey>& before, std::vector<int32_t> sees,
              std::span<const TokenId> tokens, int32_t position) {
    const ChunkKey key = MakeChunkKey(layout_->cache_namespace, kind, before, tokens);
    const auto next = static_cast<int32_t>(layout_->parts.size());
    const auto [at, is_new] = index_.emplace(key, next);
    if (is_new) {
      layout_->parts.push_back({.key = key,
                                .kind = kind,
                                .tokens = {tokens.begin(), tokens.end()},
                                .position = position,
                                .sees = std::move(sees)});
    }
    return at->second;
  }

 private:
  ChunkLayout* const layout_;
  absl::flat_hash_map<ChunkKey, int32_t> index_;
};

template <typename T>
void AppendBytes(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A client chooses only the tenant and the salt of an ordinary namespace. So it cannot name a
// derived one, whose other two fields are not empty or not a model's.
CacheNamespace Derived(const ChunkLayout& layout, const ChunkOptions& options) {
  std::string base;
  AppendBytes(base, layout.cache_namespace.low());
  AppendBytes(base, layout.cache_namespace.high());
  const std::string names = StrCat("prompt chunks ", ChunkPositionsName(options.positions), " ",
                                   ChunkScopeName(options.scope), " ", layout.question_position);
  std::string keys;
  for (const ChunkLayout::Place& place : layout.places) {
    AppendBytes(keys, layout.parts[place.part].key.hash.low);
    AppendBytes(keys, layout.parts[place.part].key.hash.high);
    AppendBytes(keys, place.shift);
  }
  return MakeNamespace({.tenant = base, .cache_salt = {}, .lora = names, .model_revision = keys});
}

}  // namespace

int32_t ChunkLayout::shifts() const {
  std::vector<int32_t> shifts;
  for (const Place& place : places) {
    if (place.shift != 0) shifts.push_back(place.shift);
  }
  std::sort(shifts.begin(), shifts.end());
  return static_cast<int32_t>(std::unique(shifts.begin(), shifts.end()) - shifts.begin());
}

int32_t ChunkLayout::BlocksOfParts(int32_t block_size) const {
  int32_t blocks = 0;
  for (const Part& part : parts) {
    blocks += BlocksOf(static_cast<int64_t>(part.tokens.size()), block_size);
  }
  return blocks;
}

int64_t ChunkLayout::SlotsOfFrame(int32_t block_size) const {
  int64_t slots = 0;
  for (const Place& place : places) {
    const auto tokens = static_cast<int64_t>(parts[place.part].tokens.size());
    slots += int64_t{BlocksOf(tokens, block_size)} * block_size;
  }
  return slots;
}

absl::Status CheckPieceTokens(int32_t piece_tokens) {
  if (piece_tokens > 0 && piece_tokens % kPieceAlignment == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("pieces of prompt chunks have ", piece_tokens,
                                           " tokens; they must have a positive multiple of ",
                                           kPieceAlignment));
}

ChunkLayout MakeChunkLayout(const ChunkedPrompt& prompt, CacheNamespace cache_namespace,
                            int32_t piece_tokens) {
  CHECK(CheckPieceTokens(piece_tokens).ok()) << piece_tokens;
  ChunkLayout layout;
  layout.cache_namespace = cache_namespace;
  PartList list(&layout);
  const PartPositions positions = PositionsOf(prompt);
  layout.question_position = static_cast<int32_t>(positions.question);
  std::optional<ChunkKey> system_key;
  std::vector<int32_t> system;  // the system part, if it has tokens
  if (!prompt.system.empty()) {
    system.push_back(list.Add(ChunkKind::kSystem, std::nullopt, {}, prompt.system, 0));
    system_key = layout.parts[system.front()].key;
    layout.places.push_back({.part = system.front()});
  }
  const bool alone = prompt.options.scope == ChunkScope::kAlone;
  const int32_t first = alone ? 0 : static_cast<int32_t>(prompt.system.size());
  for (size_t i = 0; i < prompt.chunks.size(); ++i) {
    const auto tokens = std::span<const TokenId>(prompt.chunks[i]);
    const int32_t shift = static_cast<int32_t>(positions.chunks[i]) - first;
    std::vector<int32_t>& pieces = layout.chunks.emplace_back();
    std::vector<int32_t> sees = alone ? std::vector<int32_t>() : system;
    std::optional<ChunkKey> before = alone ? std::nullopt : system_key;
    for (size_t begin = 0; begin < tokens.size(); begin += piece_tokens) {
      const auto piece =
          tokens.subspan(begin, std::min<size_t>(piece_tokens, tokens.size() - begin));
      const int32_t part = list.Add(begin == 0 ? ChunkKind::kChunk : ChunkKind::kPiece, before,
                                    sees, piece, first + static_cast<int32_t>(begin));
      pieces.push_back(part);
      layout.places.push_back({.part = part, .shift = shift});
      sees.push_back(part);
      before = layout.parts[part].key;
    }
  }
  layout.derived_namespace = Derived(layout, prompt.options);
  return layout;
}

SequenceFrame MakeFrame(std::span<const FramePart> parts, int32_t begin_position,
                        int32_t block_size) {
  SequenceFrame frame;
  frame.begin_position = begin_position;
  for (const FramePart& part : parts) {
    CHECK_EQ(static_cast<int32_t>(part.blocks.size()), BlocksOf(part.tokens, block_size));
    const int32_t begin = frame.slots(block_size);
    frame.blocks.insert(frame.blocks.end(), part.blocks.begin(), part.blocks.end());
    if (part.continues) {
      FrameRun& run = frame.runs.back();
      CHECK(run.end == begin && run.position_shift == part.shift) << "a piece leaves a gap";
      run.end = begin + part.tokens;
      continue;
    }
    frame.runs.push_back(
        {.begin = begin, .end = begin + part.tokens, .position_shift = part.shift});
  }
  return frame;
}

}  // namespace baton
