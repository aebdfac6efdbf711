#include "kvtransfer/pool/pieces.h"

#include "absl/strings/str_cat.h"

namespace baton {

LayerRange Counted(const KvLayout& layout, LayerRange layers) {
  return layers.all() ? LayerRange{.first = 0, .count = layout.group().layers} : layers;
}

int32_t TokensOf(const LandingParts& parts) {
  int32_t tokens = 0;
  for (const LandingPart& part : parts) tokens += part.tokens;
  return tokens;
}

int32_t PieceCount(const KvLayout& layout, LayerRange layers) {
  return Counted(layout, layers).count * 2;
}

int64_t PieceValidBytes(const KvLayout& layout, int32_t valid_tokens) {
  return layout.piece_bytes() / layout.block_size() * valid_tokens;
}

int64_t BlockValidBytes(const KvLayout& layout, int32_t valid_tokens, LayerRange layers) {
  return PieceValidBytes(layout, valid_tokens) * PieceCount(layout, layers);
}

std::string PieceName(int32_t piece) {
  return absl::StrCat("layer ", piece / 2, piece % 2 == 0 ? " K" : " V");
}

}  // namespace baton
