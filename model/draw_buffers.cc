#include "model/draw_buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/status_macros.h"
#include "model/sampler.h"

namespace baton {
namespace {

constexpr char kPurpose[] = "draws";
constexpr int64_t kLeastDraws = 64;
constexpr int64_t kLeastAdditions = 256;
constexpr int64_t kAdditionsPerDraw = 16;  // for which WarmUp makes room
constexpr size_t kDrawAlignment = 64;

template <typename T>
size_t Aligned(int64_t count) {
  return (static_cast<size_t>(count) * sizeof(T) + kDrawAlignment - 1) / kDrawAlignment *
         kDrawAlignment;
}

// Assigns the next `count` values of a buffer to `pointer`.
template <typename T>
void Take(T*& pointer, int64_t count, std::byte*& next) {
  pointer = reinterpret_cast<T*>(next);
  next += Aligned<T>(count);
}

template <typename T>
void CopyUp(Stream& stream, T* device, const StagedArray<T>& host) {
  stream.Copy(device, host.data(), host.bytes());
}

}  // namespace

absl::Status DrawBuffers::WarmUp(int64_t draws, int64_t tokens, const float* logits,
                                 int64_t vocabulary, int32_t* token_ids, Stream& stream) {
  const int64_t additions = draws * kAdditionsPerDraw;
  for (Slot& slot : slots_) {
    RETURN_IF_ERROR(slot.draws.Resize(draws, device_, kPurpose));
    RETURN_IF_ERROR(slot.forgotten.Resize(draws, device_, kPurpose));
    RETURN_IF_ERROR(slot.drawn.Resize(draws, device_, kPurpose));
    RETURN_IF_ERROR(slot.additions.Resize(additions, device_, kPurpose));
    RETURN_IF_ERROR(slot.first_addition.Resize(draws + 1, device_, kPurpose));
    RETURN_IF_ERROR(slot.source.Resize(tokens, device_, kPurpose));
    RETURN_IF_ERROR(slot.draws.Resize(0, device_, kPurpose));  // no step is in the slot
  }
  RETURN_IF_ERROR(Grow(draws, additions, tokens, stream));
  return stream.Prepare([&] {
    device_.ops().FeedDrawnTokens(stream, {.drawn = on_device_.drawn,
                                           .source = on_device_.source,
                                           .token_ids = token_ids,
                                           .tokens = tokens});
    device_.ops().Sample(stream, {.logits = logits,
                                  .vocabulary = vocabulary,
                                  .draws = on_device_.draws,
                                  .additions = on_device_.additions,
                                  .first_addition = on_device_.first_addition,
                                  .tokens = on_device_.drawn,
                                  .count = draws});
  });
}

absl::Status DrawBuffers::Upload(const StepInput& input, int slot_index, int32_t* token_ids,
                                 Stream& stream) {
  Slot& slot = slots_[slot_index];
  RETURN_IF_ERROR(Fill(input, slot));
  RETURN_IF_ERROR(Grow(slot.draws.size(), slot.additions.size(), slot.source.size(), stream));
  if (slot.source.size() > 0) {
    CopyUp(stream, on_device_.source, slot.source);
    device_.ops().FeedDrawnTokens(stream, {.drawn = on_device_.drawn,
                                           .source = on_device_.source,
                                           .token_ids = token_ids,
                                           .tokens = slot.source.size()});
  }
  if (slot.draws.size() == 0) return absl::OkStatus();
  CopyUp(stream, on_device_.drawn, slot.forgotten);
  CopyUp(stream, on_device_.draws, slot.draws);
  CopyUp(stream, on_device_.additions, slot.additions);
  CopyUp(stream, on_device_.first_addition, slot.first_addition);
  return absl::OkStatus();
}

absl::Status DrawBuffers::Fill(const StepInput& input, Slot& slot) {
  int64_t tokens = 0;
  int64_t draws = 0;
  int64_t additions = 0;
  bool fed = false;
  for (const StepChunk& chunk : input.chunks) {
    tokens += static_cast<int64_t>(chunk.tokens.size());
    draws += static_cast<int64_t>(chunk.draws.size());
    for (const TokenDraw& draw : chunk.draws) {
      additions += static_cast<int64_t>(draw.additions.size());
    }
    fed = fed || chunk.token_from.has_value();
  }
  RETURN_IF_ERROR(FillSources(input, fed ? tokens : 0, slot));
  RETURN_IF_ERROR(slot.draws.Resize(draws, device_, kPurpose));
  RETURN_IF_ERROR(slot.forgotten.Resize(draws, device_, kPurpose));
  RETURN_IF_ERROR(slot.drawn.Resize(draws, device_, kPurpose));
  RETURN_IF_ERROR(slot.additions.Resize(additions, device_, kPurpose));
  RETURN_IF_ERROR(slot.first_addition.Resize(draws + 1, device_, kPurpose));
  std::ranges::fill(slot.forgotten.values(), kDrawSkipped);
  int64_t next = 0;
  int32_t next_addition = 0;
  int32_t first_row = 0;
  slot.first_addition[0] = 0;
  for (const StepChunk& chunk : input.chunks) {
    for (const TokenDraw& draw : chunk.draws) {
      slot.draws[next] = {.row = first_row + draw.row, .rule = draw.rule(), .key = draw.key};
      for (const LogitAddition& addition : draw.additions) {
        slot.additions[next_addition++] = addition;
      }
      slot.first_addition[++next] = next_addition;
    }
    first_row += chunk.logit_rows;
  }
  return absl::OkStatus();
}

absl::Status DrawBuffers::FillSources(const StepInput& input, int64_t tokens, Slot& slot) {
  RETURN_IF_ERROR(slot.source.Resize(tokens, device_, kPurpose));
  if (tokens == 0) return absl::OkStatus();
  std::ranges::fill(slot.source.values(), -1);
  int64_t row = 0;
  for (const StepChunk& chunk : input.chunks) {
    if (chunk.token_from.has_value()) slot.source[row] = chunk.token_from->draw;
    row += static_cast<int64_t>(chunk.tokens.size());
  }
  return absl::OkStatus();
}

absl::Status DrawBuffers::Grow(int64_t draws, int64_t additions, int64_t tokens, Stream& stream) {
  DeviceSide& now = on_device_;
  if (draws <= now.max_draws && additions <= now.max_additions && tokens <= now.max_tokens) {
    return absl::OkStatus();
  }
  // At least twice the last size, so that growth costs few allocations.
  const auto grown = [](int64_t least, int64_t before, int64_t wanted) {
    return wanted <= before ? before : std::max({least, 2 * before, wanted});
  };
  DeviceSide more;
  more.max_draws = grown(kLeastDraws, now.max_draws, draws);
  more.max_additions = grown(kLeastAdditions, now.max_additions, additions);
  more.max_tokens = grown(kLeastDraws, now.max_tokens, tokens);
  const size_t bytes = Aligned<RowDraw>(more.max_draws) +
                       Aligned<LogitAddition>(more.max_additions) +
                       Aligned<int32_t>(more.max_draws + 1) + Aligned<int32_t>(more.max_tokens) +
                       Aligned<TokenId>(more.max_draws);
  ASSIGN_OR_RETURN(more.memory, device_.Allocate(bytes, kPurpose));
  std::byte* next = more.memory->data();
  Take(more.draws, more.max_draws, next);
  Take(more.additions, more.max_additions, next);
  Take(more.first_addition, more.max_draws + 1, next);
  Take(more.source, more.max_tokens, next);
  Take(more.drawn, more.max_draws, next);
  // The next step's feed reads the previous step's tokens from the new memory.
  stream.Copy(more.drawn, now.drawn, static_cast<size_t>(now.max_draws) * sizeof(TokenId));
  stream.Synchronize();
  on_device_ = std::move(more);
  return absl::OkStatus();
}

void DrawBuffers::Sample(const float* logits, int64_t vocabulary, int slot_index, StepRows& wanted,
                         Stream& stream) {
  Slot& slot = slots_[slot_index];
  if (slot.draws.size() == 0) return;
  stream.LimitRows(&wanted);
  device_.ops().Sample(
      stream, {.logits = logits,
               .vocabulary = vocabulary,
               .draws = on_device_.draws,
               .additions = on_device_.additions,
               .first_addition = slot.additions.size() == 0 ? nullptr : on_device_.first_addition,
               .tokens = on_device_.drawn,
               .count = slot.draws.size()});
  stream.LimitRows(nullptr);
  stream.Copy(slot.drawn.data(), on_device_.drawn, slot.drawn.bytes());
}

std::vector<absl::StatusOr<TokenId>> DrawBuffers::Drawn(
    int slot_index, const std::function<std::span<const float>(int32_t row)>& row) const {
  const Slot& slot = slots_[slot_index];
  std::vector<absl::StatusOr<TokenId>> drawn;
  drawn.reserve(slot.drawn.size());
  for (int64_t i = 0; i < slot.drawn.size(); ++i) {
    const TokenId token = slot.drawn[i];
    if (token >= 0) {
      drawn.push_back(token);
    } else if (token == kDrawSkipped) {
      drawn.push_back(absl::CancelledError("the chunk is no longer needed"));
    } else {
      drawn.push_back(DrawError(token, row(slot.draws[i].row)));
    }
  }
  return drawn;
}

}  // namespace baton
