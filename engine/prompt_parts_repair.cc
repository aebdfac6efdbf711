// Repairs of chunked prompts in PromptParts: the part of a request that computes chosen tokens of
// its chunks again.
#include <utility>

#include "common/check.h"
#include "common/str_cat.h"
#include "engine/chunk_repair.h"
#include "engine/prompt_parts.h"

namespace baton {

// The repair of one main sequence, from its admission until the frame of that admission is dropped.
class PromptParts::Repair {
 public:
  Repair(PromptParts* parts, SequenceId main, SequenceId id) : main(main), id(id), parts_(parts) {}
  ~Repair() { parts_->DropRepair(*this); }
  Repair(const Repair&) = delete;
  Repair& operator=(const Repair&) = delete;

  const SequenceId main;
  const SequenceId id;
  RepairRows rows;  // that it computes now: of share:R first all candidates
  bool compares = false;
  std::vector<double> changes;  // of the candidates so far
  SequenceFrame frame;          // what the question will see; empty until the parts are done
  int64_t begun_us = 0;
  int32_t computed = 0;  // of the rows
  bool done = false;

 private:
  PromptParts* const parts_;
};

absl::Status PromptParts::CheckHandOff(const ChunkOptions& options) {
  if (options.repair.RepairsNothing()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat(
      "chunk_repair ", ChunkRepairName(options.repair),
      " is not possible on a worker that prefills for another one; prefill on the decode worker"));
}

PartSpec PromptParts::AddRepair(SequenceId id, Main& main) {
  main.repair = std::make_shared<Repair>(this, id, NewId());
  Repair& repair = *main.repair;
  repairs_.emplace(repair.id, &repair);
  repair.rows = CandidateRows(*main.layout, cache_->options().block_size);
  repair.compares = main.layout->options.repair.kind == ChunkRepair::Kind::kShare;
  PartSpec spec;
  spec.id = repair.id;
  spec.repair_blocks = main.repair_blocks;
  if (main.waits_for == 0) spec.tokens = repair.rows.tokens;
  return spec;
}

std::optional<SequenceId> PromptParts::MainOfRepair(SequenceId repair) const {
  const auto found = repairs_.find(repair);
  if (found == repairs_.end()) return std::nullopt;
  return found->second->main;
}

bool PromptParts::IsRepaired(const Main& main) {
  return main.repair == nullptr || main.repair->done;
}

std::shared_ptr<const SequenceFrame> PromptParts::FrameOfRepairIfReady(SequenceId id) {
  Repair& repair = *repairs_.at(id);
  if (mains_.at(repair.main).waits_for > 0) return nullptr;
  return FrameOfRepair(repair);
}

std::shared_ptr<const SequenceFrame> PromptParts::FrameOfRepair(Repair& repair) {
  if (repair.begun_us == 0) repair.begun_us = clock_->NowUs();
  repair.frame = UnrepairedFrame(mains_.at(repair.main));
  if (repair.compares) {
    repair.frame.rows = repair.rows.rows;
    repair.frame.compares = true;
    return std::make_shared<const SequenceFrame>(std::move(repair.frame));
  }
  for (const BlockCopy& copy : MakePrivate(repair.rows.rows, cache_->BlockTable(repair.id),
                                           cache_->options().block_size, repair.frame)) {
    cache_->AddCopy(copy);
  }
  return std::make_shared<const SequenceFrame>(repair.frame);
}

void PromptParts::BeginRepair(const Main& main) {
  Repair& repair = *main.repair;
  scheduler_->BeginRows(repair.id, repair.rows.tokens, FrameOfRepair(repair));
  if (!repair.compares) begun_repairs_.push_back(repair.main);
}

void PromptParts::OnRowsComputed(Repair& repair, const ScheduledChunk& chunk,
                                 std::span<const float> changes) {
  Main& main = mains_.at(repair.main);
  main.costs.slices += 1;
  main.costs.ledger.repair_us = clock_->NowUs() - repair.begun_us;
  repair.computed += chunk.count;
  if (repair.compares) {
    OnCompared(repair, chunk, changes);
  } else {
    OnRepaired(repair, chunk);
  }
}

void PromptParts::OnCompared(Repair& repair, const ScheduledChunk& chunk,
                             std::span<const float> changes) {
  CHECK_EQ(static_cast<int32_t>(changes.size()), chunk.count) << "repair " << repair.id;
  repair.changes.insert(repair.changes.end(), changes.begin(), changes.end());
  if (repair.computed < repair.rows.size()) return;
  const Main& main = mains_.at(repair.main);
  repair.rows = LargestChanges(repair.rows, repair.changes,
                               RowsToRepair(main.layout->options.repair, repair.rows.size()));
  repair.compares = false;
  repair.computed = 0;
  repair.changes.clear();
  BeginRepair(main);
}

void PromptParts::OnRepaired(Repair& repair, const ScheduledChunk& chunk) {
  Main& main = mains_.at(repair.main);
  main.costs.computed_tokens += chunk.count;
  main.costs.ledger.repaired_tokens += chunk.count;
  if (repair.computed < repair.rows.size()) return;
  repair.done = true;
  scheduler_->PartsReady(repair.main);
}

SequenceFrame PromptParts::TakeRepairedFrame(const Main& main) {
  main.repair->frame.rows.clear();
  return std::move(main.repair->frame);
}

void PromptParts::DropRepair(const Repair& repair) {
  repairs_.erase(repair.id);
  // A repair whose admission was abandoned never was in the scheduler.
  if (scheduler_->Contains(repair.id)) scheduler_->Finish(repair.id, /*keep_cached=*/false);
}

}  // namespace baton
