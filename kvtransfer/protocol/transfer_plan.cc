#include "kvtransfer/protocol/transfer_plan.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"

namespace baton {

int32_t BlocksForTokens(int32_t block_size, int32_t tokens) {
  return static_cast<int32_t>((int64_t{tokens} + block_size - 1) / block_size);
}

int32_t ValidTokens(int32_t block_size, int32_t tokens, int32_t block) {
  const int64_t left = int64_t{tokens} - int64_t{block} * block_size;
  return static_cast<int32_t>(std::min<int64_t>(left, block_size));
}

SequenceBlocks BlocksHolding(int64_t first_token, int32_t tokens, int32_t block_size) {
  const int32_t end = BlocksForTokens(block_size, tokens);
  if (first_token >= tokens) return {.first = end, .count = 0};
  const auto first = static_cast<int32_t>(first_token / block_size);
  return {.first = first, .count = end - first};
}

SequenceBlocks SenderBlocks(const TransferTicket& ticket, int32_t tokens, int32_t block_size) {
  const int32_t theirs = ticket.block_size == 0 ? block_size : ticket.block_size;
  return BlocksHolding(int64_t{ticket.first_block} * theirs, tokens, block_size);
}

std::vector<int32_t> WindowSizesOf(const KvPoolLayout& layout) {
  std::vector<int32_t> windows;
  for (int32_t group = 1; group < layout.groups(); ++group) {
    windows.push_back(layout.group(group).group().window);
  }
  return windows;
}

std::vector<int32_t> WindowSizesOf(const KvCacheSpec& spec) {
  std::vector<int32_t> windows;
  for (size_t group = 1; group < spec.groups.size(); ++group) {
    windows.push_back(spec.groups[group].window);
  }
  return windows;
}

MovedTokens::MovedTokens(int32_t first_block, std::span<const int32_t> window_first_blocks,
                         int32_t tokens, int32_t block_size, std::span<const int32_t> windows)
    : tokens_(tokens), groups_(1 + static_cast<int32_t>(windows.size())) {
  const auto begin = [&](int32_t block) {
    return static_cast<int32_t>(std::min<int64_t>(int64_t{block} * block_size, tokens));
  };
  begin_[0] = begin(first_block);
  for (size_t at = 0; at < windows.size(); ++at) {
    const auto seen = static_cast<int32_t>(std::max<int64_t>(0, int64_t{tokens} - windows[at] + 1));
    begin_[at + 1] = std::max(begin(window_first_blocks[at]), std::min(seen, tokens));
  }
}

MovedTokens::MovedTokens(const TransferTicket& ticket, int32_t tokens, int32_t block_size,
                         std::span<const int32_t> windows)
    : MovedTokens(ticket.first_block, ticket.window_first_blocks, tokens,
                  ticket.block_size == 0 ? block_size : ticket.block_size, windows) {}

GroupSet MovedTokens::GroupsOf(int32_t block, int32_t block_size) const {
  GroupSet groups;
  groups.Add(0);
  const int64_t end = std::min<int64_t>((int64_t{block} + 1) * block_size, tokens_);
  for (int32_t group = 1; group < groups_; ++group) {
    if (begin(group) < end) groups.Add(group);
  }
  return groups;
}

absl::Status CheckWindowBlocks(std::string_view what, std::span<const int32_t> window_first_blocks,
                               int32_t groups, int32_t first_block, int32_t end_block) {
  if (std::ssize(window_first_blocks) != groups - 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s window_first_blocks has %d entries, the pool has %d KV groups", what,
                        window_first_blocks.size(), groups));
  }
  int32_t group = 1;
  for (const int32_t first : window_first_blocks) {
    if (first < first_block || first > end_block) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s window_first_blocks of KV group %d is %d, outside [%d, %d]", what,
                          group, first, first_block, end_block));
    }
    ++group;
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const KvPoolLayout& layout, std::span<const BlockId> rows,
                       const MovedTokens& moved, int32_t first) {
  const auto groups = static_cast<size_t>(layout.groups());
  if (rows.size() % groups != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%d block ids cannot be divided into rows of %d KV groups", rows.size(), groups));
  }
  for (size_t at = 0; at < rows.size(); ++at) {
    const int32_t block = first + static_cast<int32_t>(at / groups);
    const auto group = static_cast<int32_t>(at % groups);
    const int32_t id = rows[at].value();
    if (!moved.GroupsOf(block, layout.block_size()).Has(group)) {
      if (rows[at] == kNoBlock) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "block %d of the sequence has block %d of KV group %d, which does not travel with it",
          block, id, group));
    }
    const int64_t limit = layout.group(group).num_blocks();
    if (id >= 0 && id < limit) continue;
    if (layout.groups() == 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("block %d is outside the pool of %d blocks", id, limit));
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "block %d of the sequence has block %d of KV group %d, outside its pool of %d blocks",
        block, id, group, limit));
  }
  return absl::OkStatus();
}

LandingParts PlaceTokens(int32_t begin, int32_t tokens, int32_t first_token, int32_t block_size,
                         int32_t groups, std::span<const BlockId> rows, GroupSet meant) {
  LandingParts parts;
  const int32_t end = begin + tokens;
  for (int32_t at = std::max(begin, first_token); at < end;) {
    const int32_t index = (at - first_token) / block_size;
    const int32_t slot = (at - first_token) % block_size;
    const int32_t count = std::min(end - at, block_size - slot);
    GroupBlocks blocks;
    for (int32_t group = 0; group < groups; ++group) {
      const size_t place = static_cast<size_t>(index) * static_cast<size_t>(groups);
      if (meant.Has(group)) blocks.Set(group, rows[place + static_cast<size_t>(group)]);
    }
    parts.push_back(
        {.blocks = blocks, .block_token = slot, .payload_token = at - begin, .tokens = count});
    at += count;
  }
  return parts;
}

}  // namespace baton
