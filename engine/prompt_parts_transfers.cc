// Parts of PromptParts that come from a peer, or go to one.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "engine/live_part.h"
#include "engine/prompt_parts.h"

namespace baton {

std::vector<PromptParts::CreatedPart> PromptParts::CreatedFor(SequenceId id) const {
  const Main& main = mains_.at(id);
  std::vector<CreatedPart> created;
  for (size_t i = 0; i < main.parts.size(); ++i) {
    const LivePart& part = *main.parts[i];
    if (part.done || part.created_by != id || part.wakes) continue;
    created.push_back(
        {.part = static_cast<int32_t>(i), .sequence = *part.sequence, .tokens = part.length});
  }
  return created;
}

void PromptParts::OnArrived(SequenceId id, int32_t committed, const TransferEvent* transfer) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  LivePart& part = *found->second;
  const auto main = mains_.find(part.created_by);
  if (transfer != nullptr && main != mains_.end()) {
    main->second.costs.received.Add(*transfer, clock_->NowUs());
  }
  part.received = committed - cache_->committed(id);
  scheduler_->PartArrived(id, committed);
  if (committed == part.length) Done(part);
}

bool PromptParts::Ready(SequenceId id) const {
  const Main& main = mains_.at(id);
  return main.waits_for == 0 && !main.parts.empty();
}

std::span<const BlockId> PromptParts::BlocksIfDone(SequenceId id, int32_t part) const {
  const Main& main = mains_.at(id);
  const auto framed = main.framed.lock();
  const std::vector<PartPointer>& parts = framed != nullptr ? framed->parts : main.parts;
  if (parts.empty() || !parts[part]->done) return {};
  return parts[part]->blocks;
}

bool PromptParts::HasOrAwaits(const ChunkLayout::Part& part) const {
  return FindLive(part) != nullptr || chunks_.Peek(part.key, part.tokens).has_value() ||
         Sleeps(part);
}

std::vector<SequenceId> PromptParts::TakeProgress() {
  std::vector<SequenceId> progress = std::exchange(progress_, {});
  std::sort(progress.begin(), progress.end());
  progress.erase(std::unique(progress.begin(), progress.end()), progress.end());
  return progress;
}

}  // namespace baton
