#include "kvtransfer/pool/pieces.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

// Counts the layers of the range that belong to the group.
int32_t LayersOf(const KvPoolLayout& layout, int32_t group, LayerRange layers) {
  if (layers.all()) return layout.group(group).group().layers;
  if (layout.groups() == 1) return layers.count;
  int32_t count = 0;
  for (int32_t layer = layers.first; layer < layers.end(); ++layer) {
    count += layout.IsOf(group, layer) ? 1 : 0;
  }
  return count;
}

int64_t TokenBytes(const KvLayout& layout, int32_t plane) {
  return layout.token_stride(plane) * KvTypeBytes(layout.group().type);
}

}  // namespace

LayerRange Counted(const KvPoolLayout& layout, LayerRange layers) {
  return layers.all() ? LayerRange{.first = 0, .count = layout.layers()} : layers;
}

int32_t PieceCount(const KvPoolLayout& layout, LayerRange layers, GroupSet groups) {
  int32_t count = 0;
  for (int32_t group = 0; group < layout.groups(); ++group) {
    if (groups.Has(group)) count += LayersOf(layout, group, layers) * layout.group(group).planes();
  }
  return count;
}

int64_t PieceValidBytes(const KvPoolLayout& layout, const Piece& piece, int32_t valid_tokens) {
  return TokenBytes(layout.layout_of(piece.layer), piece.plane) * valid_tokens;
}

int64_t BlockValidBytes(const KvPoolLayout& layout, int32_t valid_tokens, LayerRange layers,
                        GroupSet groups) {
  int64_t bytes = 0;
  for (int32_t group = 0; group < layout.groups(); ++group) {
    if (!groups.Has(group)) continue;
    int64_t token_bytes = 0;
    for (int32_t plane = 0; plane < layout.group(group).planes(); ++plane) {
      token_bytes += TokenBytes(layout.group(group), plane);
    }
    bytes += token_bytes * LayersOf(layout, group, layers);
  }
  return bytes * valid_tokens;
}

std::string PieceName(const KvPoolLayout& layout, const Piece& piece) {
  const std::string layer = absl::StrCat("layer ", piece.layer);
  if (layout.layout_of(piece.layer).planes() != 2) {
    return absl::StrCat(layer, " plane ", piece.plane);
  }
  return absl::StrCat(layer, piece.plane == 0 ? " K" : " V");
}

}  // namespace baton
