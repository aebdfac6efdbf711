#include "cache/index/prefix_walk.h"

#include <algorithm>

namespace baton {
namespace {

bool Has(const std::vector<uint64_t>& words, HolderId holder) {
  return holder / 64 < words.size() && (words[holder / 64] >> holder % 64 & 1) != 0;
}

void Set(std::vector<uint64_t>& words, HolderId holder) {
  words[holder / 64] |= uint64_t{1} << holder % 64;
}

void Clear(std::vector<uint64_t>& words, HolderId holder) {
  words[holder / 64] &= ~(uint64_t{1} << holder % 64);
}

}  // namespace

PrefixWalk::PrefixWalk(const HolderTable& holders, PrefixMatch& match)
    : holders_(holders), match_(match) {
  match_.singles_.clear();
  match_.groups_.clear();
  match_.words_.clear();
}

bool PrefixWalk::IsLeft(HolderId holder) const {
  switch (left_) {
    case Left::kEverybody:
      return (holders_.LiveWord(holder / 64) >> holder % 64 & 1) != 0;
    case Left::kBits:
      return Has(match_.alive_, holder);
    case Left::kList:
      break;
  }
  return std::find(list_.begin(), list_.begin() + list_size_, holder) != list_.begin() + list_size_;
}

void PrefixWalk::Stop(HolderId holder, int64_t units) {
  if (units > 0) match_.singles_.push_back({holder, static_cast<int32_t>(units)});
}

void PrefixWalk::StopAll(const std::vector<uint64_t>& words) {
  if (at_ == 0) return;
  uint64_t any = 0;
  for (const uint64_t word : words) any |= word;
  if (any == 0) return;
  match_.groups_.push_back({.units = static_cast<int32_t>(at_),
                            .first_word = static_cast<uint32_t>(match_.words_.size()),
                            .words = static_cast<uint32_t>(words.size())});
  match_.words_.insert(match_.words_.end(), words.begin(), words.end());
}

bool PrefixWalk::StepInline(const uint64_t* run, int entries, uint32_t offset, uint32_t count) {
  std::array<HolderId, RunHead::kMaxInline> next;
  std::array<HolderId, RunHead::kMaxInline> covered;
  int next_size = 0;
  int covered_size = 0;
  for (int i = 0; i < entries; ++i) {
    const HolderEntry entry = RunHolders::InlineEntry(run, i);
    if (offset < entry.begin || entry.end <= offset || !IsLeft(entry.holder)) continue;
    covered[covered_size++] = entry.holder;
    if (entry.end - offset >= count) {
      next[next_size++] = entry.holder;
    } else {
      Stop(entry.holder, at_ + entry.end - offset);
    }
  }
  if (left_ == Left::kBits) {
    for (int i = 0; i < covered_size; ++i) Clear(match_.alive_, covered[i]);
    StopAll(match_.alive_);
  } else if (left_ == Left::kList) {
    for (int i = 0; i < list_size_; ++i) {
      const auto end = covered.begin() + covered_size;
      if (std::find(covered.begin(), end, list_[i]) == end) Stop(list_[i], at_);
    }
  }
  left_ = Left::kList;
  list_ = next;
  list_size_ = next_size;
  at_ += count;
  return list_size_ > 0;
}

bool PrefixWalk::StepWide(const RunHolders::WideView& wide, uint32_t offset, uint32_t count) {
  if (left_ == Left::kList) return StepListWide(wide, offset, count);
  std::vector<uint64_t>& alive = match_.alive_;
  if (left_ == Left::kEverybody) {
    alive.resize(holders_.live_words());
    for (size_t w = 0; w < alive.size(); ++w) alive[w] = holders_.LiveWord(w);
    left_ = Left::kBits;
  }
  std::vector<uint64_t>& covering = match_.covering_;
  covering.resize(alive.size());
  for (size_t w = 0; w < alive.size(); ++w) {
    covering[w] = w < wide.bit_words ? LoadWord(wide.bits + w) & alive[w] : 0;
    alive[w] &= ~covering[w];
  }
  for (int i = 0; i < wide.entries; ++i) {
    const HolderEntry entry = wide.entry(i);
    if (offset < entry.begin || entry.end <= offset || !Has(alive, entry.holder)) continue;
    Clear(alive, entry.holder);
    if (entry.end - offset >= count) {
      Set(covering, entry.holder);
    } else {
      Stop(entry.holder, at_ + entry.end - offset);
    }
  }
  StopAll(alive);
  std::swap(alive, covering);
  at_ += count;
  return std::any_of(alive.begin(), alive.end(), [](uint64_t word) { return word != 0; });
}

bool PrefixWalk::StepListWide(const RunHolders::WideView& wide, uint32_t offset, uint32_t count) {
  int kept = 0;
  for (int i = 0; i < list_size_; ++i) {
    const HolderId holder = list_[i];
    uint32_t reach = 0;
    if (holder / 64 < wide.bit_words &&
        (LoadWord(wide.bits + holder / 64) >> holder % 64 & 1) != 0) {
      reach = count;
    }
    for (int e = 0; reach == 0 && e < wide.entries; ++e) {
      const HolderEntry entry = wide.entry(e);
      if (entry.holder != holder || offset < entry.begin || entry.end <= offset) continue;
      reach = std::min(entry.end - offset, count);
    }
    if (reach == count) {
      list_[kept++] = holder;
    } else {
      Stop(holder, at_ + reach);
    }
  }
  list_size_ = kept;
  at_ += count;
  return kept > 0;
}

void PrefixWalk::End() {
  if (left_ == Left::kBits) {
    StopAll(match_.alive_);
  } else if (left_ == Left::kList) {
    for (int i = 0; i < list_size_; ++i) Stop(list_[i], at_);
  }
}

}  // namespace baton
