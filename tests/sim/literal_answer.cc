#include "tests/sim/literal_answer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "engine/generation.h"

namespace baton {
namespace {

using LiteralSlot = std::array<SimRows, kSimLayers>;

// Slots that later tokens see as a whole.
struct LiteralRun {
  std::vector<LiteralSlot> slots;
  int32_t shift = 0;  // place in the prompt, less the position of the keys
};

void AddSegments(int32_t layer, std::span<const LiteralSlot> slots, size_t begin, int32_t query,
                 SimSegments& seen) {
  while (begin < slots.size()) {
    const size_t end = std::min(slots.size(), (begin / kSimSegment + 1) * kSimSegment);
    uint64_t fold = 0;
    for (; begin < end; ++begin) fold = SimFold(fold, slots[begin][static_cast<size_t>(layer)]);
    seen.Add(query, fold);
  }
}

// Returns the hidden state after a layer of a token at `place` in the prompt. It sees the runs
// before its own, and its own slots from `begin` on.
uint64_t Attend(int32_t layer, std::span<const LiteralRun> before, std::span<const LiteralSlot> own,
                size_t begin, int32_t own_shift, int32_t place) {
  SimSegments seen;
  for (const LiteralRun& run : before) {
    AddSegments(layer, run.slots, 0, place - run.shift, seen);
  }
  AddSegments(layer, own, begin, place - own_shift, seen);
  return seen.Result();
}

// Tokens that follow each other behind some runs.
class LiteralSequence {
 public:
  LiteralSequence(const SimModel& model, std::vector<LiteralRun> before, int32_t first_position)
      : model_(model), before_(std::move(before)), first_position_(first_position) {}

  // Returns the hidden state after the last layer.
  uint64_t Append(TokenId token) {
    const int32_t position = first_position_ + static_cast<int32_t>(own_.size());
    uint64_t hidden = SimEmbedding(token, position);
    own_.emplace_back();
    for (int32_t layer = 0; layer < kSimLayers; ++layer) {
      own_.back()[static_cast<size_t>(layer)] = SimRowsOf(layer, hidden);
      const auto window = static_cast<size_t>(model_.WindowOf(layer));
      const size_t begin = window == 0 || own_.size() < window ? 0 : own_.size() - window;
      hidden = Attend(layer, before_, own_, begin, 0, position);
    }
    return hidden;
  }
  uint64_t Append(std::span<const TokenId> tokens) {
    uint64_t hidden = 0;
    for (const TokenId token : tokens) hidden = Append(token);
    return hidden;
  }
  std::vector<LiteralSlot> TakeSlots() { return std::move(own_); }

 private:
  const SimModel model_;
  const std::vector<LiteralRun> before_;
  const int32_t first_position_;
  std::vector<LiteralSlot> own_;
};

// A token of a chunk that is computed again.
struct RepairedRow {
  TokenId token = 0;
  size_t run = 0;        // of the frame
  size_t slot = 0;       // in the run
  int32_t position = 0;  // of its key
  uint64_t hidden = 0;
};

// The runs that a question sees, and their tokens.
class LiteralFrame {
 public:
  LiteralFrame(const SimModel& model, const ChunkedPrompt& prompt)
      : prompt_(prompt), has_system_(!prompt.system.empty()) {
    const auto system = static_cast<int32_t>(prompt.system.size());
    const bool alone = prompt.options.scope == ChunkScope::kAlone;
    const bool overlap = prompt.options.positions == ChunkPositions::kOverlap;
    std::vector<LiteralRun> system_run;
    if (has_system_) {
      LiteralSequence sequence(model, {}, 0);
      sequence.Append(prompt.system);
      system_run.push_back({.slots = sequence.TakeSlots()});
    }
    runs_ = system_run;
    int32_t place = system;
    int32_t end = system;
    for (const std::vector<TokenId>& chunk : prompt.chunks) {
      const int32_t first = alone ? 0 : system;
      LiteralSequence sequence(model, alone ? std::vector<LiteralRun>() : system_run, first);
      sequence.Append(chunk);
      runs_.push_back({.slots = sequence.TakeSlots(), .shift = place - first});
      end = std::max(end, place + static_cast<int32_t>(chunk.size()));
      if (!overlap) place = end;
    }
    question_position_ = end;
  }

  int32_t question_position() const { return question_position_; }
  std::vector<LiteralRun> TakeRuns() { return std::move(runs_); }

  std::vector<RepairedRow> Candidates() const {
    const ChunkRepair& repair = prompt_.options.repair;
    const bool leaves_first_out = prompt_.options.scope == ChunkScope::kSystem;
    std::vector<RepairedRow> rows;
    if (repair.RepairsNothing()) return rows;
    for (size_t chunk = leaves_first_out ? 1 : 0; chunk < prompt_.chunks.size(); ++chunk) {
      const std::vector<TokenId>& tokens = prompt_.chunks[chunk];
      size_t count = tokens.size();
      if (repair.kind == ChunkRepair::Kind::kFirst) {
        count = std::min(count, static_cast<size_t>(repair.first_tokens));
      }
      const int32_t first = prompt_.options.scope == ChunkScope::kAlone
                                ? 0
                                : static_cast<int32_t>(prompt_.system.size());
      for (size_t slot = 0; slot < count; ++slot) {
        rows.push_back({.token = tokens[slot],
                        .run = chunk + (has_system_ ? 1 : 0),
                        .slot = slot,
                        .position = first + static_cast<int32_t>(slot)});
      }
    }
    return rows;
  }

  // Computes the rows again. Each sees everything before it.
  void Repair() {
    std::vector<RepairedRow> rows = Candidates();
    if (prompt_.options.repair.kind == ChunkRepair::Kind::kShare) rows = LargestChanges(rows);
    for (RepairedRow& row : rows) row.hidden = SimEmbedding(row.token, row.position);
    for (int32_t layer = 0; layer < kSimLayers; ++layer) {
      for (const RepairedRow& row : rows) {
        runs_[row.run].slots[row.slot][static_cast<size_t>(layer)] = SimRowsOf(layer, row.hidden);
      }
      for (RepairedRow& row : rows) row.hidden = See(layer, row);
    }
  }

 private:
  uint64_t See(int32_t layer, const RepairedRow& row) const {
    const LiteralRun& own = runs_[row.run];
    return Attend(layer, std::span(runs_).first(row.run), std::span(own.slots).first(row.slot + 1),
                  0, own.shift, row.position + own.shift);
  }

  std::vector<RepairedRow> LargestChanges(std::vector<RepairedRow> rows) const {
    std::vector<std::pair<float, size_t>> order;  // the largest change first, then the earlier row
    for (size_t i = 0; i < rows.size(); ++i) {
      const LiteralSlot& stored = runs_[rows[i].run].slots[rows[i].slot];
      const float change = SimChange(stored[1], SimRowsOf(1, See(0, rows[i])));
      order.emplace_back(-change, i);
    }
    std::sort(order.begin(), order.end());
    order.resize(ShareOf(prompt_.options.repair, rows.size()));
    std::vector<bool> chosen(rows.size());
    for (const auto& [change, row] : order) chosen[row] = true;
    size_t next = 0;
    std::erase_if(rows, [&](const RepairedRow&) { return !chosen[next++]; });
    return rows;
  }

 public:
  static size_t ShareOf(const ChunkRepair& repair, size_t rows) {
    const size_t millionths = static_cast<size_t>(repair.share_millionths) * rows;
    return (millionths + ChunkRepair::kWhole - 1) / ChunkRepair::kWhole;
  }

 private:
  const ChunkedPrompt& prompt_;
  const bool has_system_;
  std::vector<LiteralRun> runs_;
  int32_t question_position_ = 0;
};

// Draws the answer behind `sequence`, whose last token gave `hidden`. `position`: of the first
// token of the answer.
SimAnswer DrawAnswer(LiteralSequence& sequence, uint64_t hidden, std::span<const TokenId> prompt,
                     int32_t position, const SamplingParams& sampling, int32_t context_length,
                     int32_t choice) {
  const int32_t most =
      std::min(sampling.max_tokens.value_or(context_length), context_length - position);
  Sampler sampler({kSimEndToken});
  TokenSource source(sampling, prompt, SimTokenizer().end_of_generation(),
                     /*hash_logits=*/true, choice);
  SimAnswer answer;
  std::array<float, kSimVocabulary> logits;
  while (static_cast<int32_t>(answer.tokens.size()) < most) {
    SimLogits(hidden, logits);
    const absl::StatusOr<DrawnToken> drawn =
        source.Draw(logits, position + static_cast<int32_t>(answer.tokens.size()), sampler);
    CHECK(drawn.ok()) << drawn.status();
    source.Accept(*drawn);
    answer.tokens.push_back(drawn->token);
    if (drawn->token == kSimEndToken) {
      answer.reason = FinishReason::kStop;
      break;
    }
    answer.text += static_cast<char>('0' + drawn->token);
    hidden = sequence.Append(drawn->token);
  }
  answer.logits_hash = source.logits_hash();
  return answer;
}

}  // namespace

SimAnswer LiteralAnswer(const SimModel& model, std::span<const TokenId> prompt,
                        const SamplingParams& sampling, int32_t context_length, int32_t choice) {
  LiteralSequence sequence(model, {}, 0);
  const uint64_t hidden = sequence.Append(prompt);
  return DrawAnswer(sequence, hidden, prompt, static_cast<int32_t>(prompt.size()), sampling,
                    context_length, choice);
}

SimAnswer LiteralAnswer(const SimModel& model, const ChunkedPrompt& prompt,
                        const SamplingParams& sampling, int32_t context_length, int32_t choice) {
  CHECK_EQ(model.window, 0);
  LiteralFrame frame(model, prompt);
  frame.Repair();
  const int32_t question = frame.question_position();
  LiteralSequence sequence(model, frame.TakeRuns(), question);
  const uint64_t hidden = sequence.Append(prompt.question);
  return DrawAnswer(sequence, hidden, FlatTokens(prompt),
                    question + static_cast<int32_t>(prompt.question.size()), sampling,
                    context_length, choice);
}

int32_t LiteralRepairedTokens(const ChunkedPrompt& prompt) {
  const ChunkRepair& repair = prompt.options.repair;
  size_t tokens = 0;
  for (size_t i = prompt.options.scope == ChunkScope::kSystem ? 1 : 0; i < prompt.chunks.size();
       ++i) {
    const size_t all = prompt.chunks[i].size();
    tokens += repair.kind == ChunkRepair::Kind::kFirst
                  ? std::min(all, static_cast<size_t>(repair.first_tokens))
                  : all;
  }
  if (repair.kind == ChunkRepair::Kind::kNone) return 0;
  if (repair.kind == ChunkRepair::Kind::kShare) tokens = LiteralFrame::ShareOf(repair, tokens);
  return static_cast<int32_t>(tokens);
}

}  // namespace baton
