#include "model/draw_buffers.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "model/sampler.h"

namespace baton {
namespace {

constexpr char kPurpose[] = "draws";
constexpr int64_t kAdditionsPerDraw = 16;  // for which there is always room
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
void AddCopy(InputCopies& copies, T* device, const StagedArray<T>& host) {
  copies.Add(device, host.data(), host.bytes());
}

int64_t CountDraws(const StepInput& input) {
  int64_t draws = 0;
  for (const StepChunk& chunk : input.chunks) draws += static_cast<int64_t>(chunk.draws.size());
  return draws;
}

int64_t CountAdditions(const StepInput& input) {
  int64_t additions = 0;
  for (const StepChunk& chunk : input.chunks) {
    for (const TokenDraw& draw : chunk.draws) {
      additions += static_cast<int64_t>(draw.additions.size());
    }
  }
  return additions;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DrawBuffers>> DrawBuffers::Create(int64_t max_draws,
                                                                 int64_t max_tokens,
                                                                 Device& device) {
  std::unique_ptr<DrawBuffers> buffers(new DrawBuffers(device));
  const int64_t additions = max_draws * kAdditionsPerDraw;
  for (Slot& slot : buffers->slots_) {
    RETURN_IF_ERROR(slot.draws.Resize(max_draws, device, kPurpose));
    RETURN_IF_ERROR(slot.no_draws.Resize(max_draws, device, kPurpose));
    std::ranges::fill(slot.no_draws.values(), RowDraw());
    RETURN_IF_ERROR(slot.skipped.Resize(max_draws, device, kPurpose));
    RETURN_IF_ERROR(slot.drawn.Resize(max_draws, device, kPurpose));
    RETURN_IF_ERROR(slot.additions.Resize(additions, device, kPurpose));
    RETURN_IF_ERROR(slot.first_addition.Resize(max_draws + 1, device, kPurpose));
    RETURN_IF_ERROR(slot.source.Resize(max_tokens, device, kPurpose));
    RETURN_IF_ERROR(slot.first_token.Resize(1, device, kPurpose));
    RETURN_IF_ERROR(slot.drawn.Resize(0, device, kPurpose));  // no step is in the slot
  }
  const size_t bytes = 2 * (Aligned<RowDraw>(max_draws) + Aligned<LogitAddition>(additions) +
                            Aligned<int32_t>(max_draws + 1)) +
                       Aligned<int32_t>(max_tokens) + Aligned<int32_t>(1) +
                       Aligned<TokenId>(kStepSlots * max_draws);
  ASSIGN_OR_RETURN(buffers->memory_, device.Allocate(bytes, kPurpose));
  std::byte* next = buffers->memory_->data();
  for (DeviceDraws* draws : {&buffers->in_graphs_, &buffers->outside_graphs_}) {
    Take(draws->draws, max_draws, next);
    Take(draws->additions, additions, next);
    Take(draws->first_addition, max_draws + 1, next);
  }
  Take(buffers->source_, max_tokens, next);
  Take(buffers->first_token_, 1, next);
  Take(buffers->drawn_, kStepSlots * max_draws, next);
  buffers->max_draws_ = max_draws;
  buffers->max_additions_ = additions;
  return buffers;
}

void DrawBuffers::EnqueueAllShapes(const float* logits, int64_t vocabulary, int32_t* token_ids,
                                   Stream& stream) const {
  EnqueueFeed(/*rows=*/1, token_ids, stream);
  device_.ops().Sample(stream, ArgsOf(outside_graphs_, logits, vocabulary, max_draws_));
}

void DrawBuffers::EnqueueFeed(int64_t rows, int32_t* token_ids, Stream& stream) const {
  device_.ops().FeedDrawnTokens(
      stream, {.drawn = drawn_, .source = source_, .token_ids = token_ids, .tokens = rows});
}

SampleArgs DrawBuffers::ArgsOf(const DeviceDraws& draws, const float* logits, int64_t vocabulary,
                               int64_t count) const {
  return {.logits = logits,
          .vocabulary = vocabulary,
          .draws = draws.draws,
          .additions = draws.additions,
          .first_addition = draws.first_addition,
          .tokens = drawn_,
          .first_token = first_token_,
          .count = count};
}

void DrawBuffers::EnqueueGraphDraws(int64_t rows, const float* logits, int64_t vocabulary,
                                    Stream& stream) const {
  device_.ops().Sample(stream, ArgsOf(in_graphs_, logits, vocabulary, rows));
}

DrawBuffers::DeviceDraws DrawBuffers::DrawsOf(const Slot& slot) const {
  if (slot.in_graph) return in_graphs_;
  DeviceDraws draws = outside_graphs_;
  if (slot.additions.size() > max_additions_) {
    draws.additions = many_additions_->as<LogitAddition>();
  }
  return draws;
}

absl::Status DrawBuffers::Fill(const StepInput& input, int slot_index, int64_t graph_rows,
                               Stream& stream) {
  Slot& slot = slots_[slot_index];
  const int64_t draws = CountDraws(input);
  const int64_t additions = CountAdditions(input);
  CHECK_LE(draws, max_draws_);
  slot.in_graph = graph_rows > 0 && draws <= graph_rows && additions <= max_additions_;
  RETURN_IF_ERROR(GrowAdditions(additions, stream));
  RETURN_IF_ERROR(FillSources(input, graph_rows, slot_index));
  RETURN_IF_ERROR(FillDraws(input, slot.in_graph ? graph_rows : draws, slot));
  RETURN_IF_ERROR(slot.no_draws.Resize(slot.in_graph ? 0 : graph_rows, device_, kPurpose));
  RETURN_IF_ERROR(slot.skipped.Resize(draws, device_, kPurpose));
  std::ranges::fill(slot.skipped.values(), kDrawSkipped);
  slot.first_token[0] = static_cast<int32_t>(slot_index * max_draws_);
  return slot.drawn.Resize(draws, device_, kPurpose);
}

absl::Status DrawBuffers::FillSources(const StepInput& input, int64_t rows, int slot_index) {
  static_assert(kStepSlots == 2, "the other slot is that of the step before");
  const int64_t before = (1 - slot_index) * max_draws_;
  Slot& slot = slots_[slot_index];
  int64_t tokens = 0;
  bool fed = rows > 0;  // a graph reads the sources of all its rows
  for (const StepChunk& chunk : input.chunks) {
    tokens += static_cast<int64_t>(chunk.tokens.size());
    fed = fed || chunk.token_from.has_value();
  }
  RETURN_IF_ERROR(slot.source.Resize(fed ? std::max(tokens, rows) : 0, device_, kPurpose));
  if (!fed) return absl::OkStatus();
  std::ranges::fill(slot.source.values(), -1);
  int64_t row = 0;
  for (const StepChunk& chunk : input.chunks) {
    if (chunk.token_from.has_value()) {
      slot.source[row] = static_cast<int32_t>(before + chunk.token_from->draw);
    }
    row += static_cast<int64_t>(chunk.tokens.size());
  }
  return absl::OkStatus();
}

// Draws behind those of the step have no row.
absl::Status DrawBuffers::FillDraws(const StepInput& input, int64_t draws, Slot& slot) {
  RETURN_IF_ERROR(slot.draws.Resize(draws, device_, kPurpose));
  RETURN_IF_ERROR(slot.additions.Resize(CountAdditions(input), device_, kPurpose));
  RETURN_IF_ERROR(slot.first_addition.Resize(draws + 1, device_, kPurpose));
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
  for (; next < draws; ++next) {
    slot.draws[next] = {};
    slot.first_addition[next + 1] = next_addition;
  }
  return absl::OkStatus();
}

absl::Status DrawBuffers::GrowAdditions(int64_t additions, Stream& stream) {
  const size_t bytes = static_cast<size_t>(additions) * sizeof(LogitAddition);
  const size_t before = many_additions_ == nullptr ? 0 : many_additions_->size();
  if (additions <= max_additions_ || bytes <= before) return absl::OkStatus();
  // At least twice the last size, so that growth costs few allocations.
  ASSIGN_OR_RETURN(std::unique_ptr<DeviceBuffer> more,
                   device_.Allocate(std::max(bytes, 2 * before), kPurpose));
  stream.Synchronize();  // earlier steps use the old memory
  many_additions_ = std::move(more);
  return absl::OkStatus();
}

void DrawBuffers::Upload(int slot_index, InputCopies& copies) const {
  const Slot& slot = slots_[slot_index];
  const DeviceDraws draws = DrawsOf(slot);
  AddCopy(copies, source_, slot.source);
  AddCopy(copies, in_graphs_.draws, slot.no_draws);
  AddCopy(copies, draws.draws, slot.draws);
  AddCopy(copies, draws.additions, slot.additions);
  if (slot.draws.size() + slot.no_draws.size() == 0) return;
  AddCopy(copies, draws.first_addition, slot.first_addition);
  AddCopy(copies, first_token_, slot.first_token);
  AddCopy(copies, DrawnIn(slot_index), slot.skipped);
}

void DrawBuffers::Feed(int slot_index, int32_t* token_ids, Stream& stream) const {
  const int64_t tokens = slots_[slot_index].source.size();
  if (tokens > 0) EnqueueFeed(tokens, token_ids, stream);
}

void DrawBuffers::Sample(const float* logits, int64_t vocabulary, int slot_index, StepRows& wanted,
                         Stream& stream) const {
  const Slot& slot = slots_[slot_index];
  if (slot.in_graph || slot.draws.size() == 0) return;
  SampleArgs args = ArgsOf(DrawsOf(slot), logits, vocabulary, slot.draws.size());
  if (slot.additions.size() == 0) args.first_addition = nullptr;
  stream.LimitRows(&wanted);
  device_.ops().Sample(stream, args);
  stream.LimitRows(nullptr);
}

void DrawBuffers::Fetch(int slot_index, Stream& stream) const {
  const Slot& slot = slots_[slot_index];
  if (slot.drawn.size() == 0) return;
  stream.Copy(slot.drawn.data(), DrawnIn(slot_index), slot.drawn.bytes());
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
