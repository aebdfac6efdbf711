#include "cache/index/run_holders.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace baton {
namespace {

bool IsWide(RunHead head) { return head.entries() == RunHead::kWide; }

uint32_t Overlap(const HolderEntry& a, uint32_t begin, uint32_t end) {
  const uint32_t from = std::max(a.begin, begin);
  const uint32_t to = std::min(a.end, end);
  return from < to ? to - from : 0;
}

template <typename Function>
void ForEachBit(std::span<const uint64_t> words, const Function& fn) {
  for (size_t w = 0; w < words.size(); ++w) {
    for (uint64_t bits = words[w]; bits != 0; bits &= bits - 1) {
      fn(static_cast<HolderId>(w * 64 + std::countr_zero(bits)));
    }
  }
}

}  // namespace

void RunHolders::Image::AddWhole(HolderId holder) {
  if (whole.size() <= holder / 64) whole.resize(holder / 64 + 1);
  whole[holder / 64] |= uint64_t{1} << holder % 64;
}

RunHolders::Image RunHolders::Image::Cut(uint32_t length, uint32_t begin, uint32_t end) const {
  CHECK_LE(end, length);
  Image cut{.whole = whole, .parts = {}};
  for (const HolderEntry& entry : parts) {
    if (Overlap(entry, begin, end) == 0) continue;
    const HolderEntry part{.holder = entry.holder,
                           .begin = std::max(entry.begin, begin) - begin,
                           .end = std::min(entry.end, end) - begin};
    if (part.begin == 0 && part.end == end - begin) {
      cut.AddWhole(part.holder);
    } else {
      cut.parts.push_back(part);
    }
  }
  return cut;
}

void RunHolders::SetInlineEntry(uint32_t line, int i, HolderEntry entry) {
  uint64_t* const word = store_->MutableWords(line) + 1 + i / 2;
  const int shift = 32 * (i % 2);
  StoreWord(word, (*word & ~(uint64_t{0xffffffff} << shift)) | uint64_t{entry.Pack()} << shift);
}

uint32_t RunHolders::Add(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                         uint64_t* refused) {
  const RunHead head = store_->LoadHead(line);
  if (IsWide(head)) {
    const WideView wide = WideOf(line);
    if (holder / 64 < wide.bit_words && (wide.bits[holder / 64] >> holder % 64 & 1) != 0) return 0;
    return AddAnyhow(line, holder, begin, end, refused);
  }
  for (int i = 0; i < head.entries(); ++i) {
    const HolderEntry entry = InlineEntry(store_->Words(line), i);
    if (entry.holder != holder) continue;
    if (entry.begin <= begin && end <= entry.end) return 0;
    return AddAnyhow(line, holder, begin, end, refused);
  }
  if (head.entries() == RunHead::kMaxInline) return AddAnyhow(line, holder, begin, end, refused);
  store_->BeginChange(line);
  SetInlineEntry(line, head.entries(), {.holder = holder, .begin = begin, .end = end});
  store_->Publish(line, head.length(), head.entries() + 1);
  return end - begin;
}

uint32_t RunHolders::Remove(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                            uint64_t* refused) {
  const RunHead head = store_->LoadHead(line);
  if (IsWide(head)) return RemoveAnyhow(line, holder, begin, end, refused);
  int mine = -1;
  for (int i = 0; i < head.entries(); ++i) {
    if (InlineEntry(store_->Words(line), i).holder != holder) continue;
    if (mine >= 0) return RemoveAnyhow(line, holder, begin, end, refused);
    mine = i;
  }
  if (mine < 0) return 0;
  HolderEntry entry = InlineEntry(store_->Words(line), mine);
  const uint32_t removed = Overlap(entry, begin, end);
  if (removed == 0) return 0;
  if (begin > entry.begin && end < entry.end) {
    return RemoveAnyhow(line, holder, begin, end, refused);
  }
  store_->BeginChange(line);
  if (removed == entry.end - entry.begin) {
    const int last = head.entries() - 1;
    if (mine != last) SetInlineEntry(line, mine, InlineEntry(store_->Words(line), last));
    store_->Publish(line, head.length(), last);
    return removed;
  }
  (begin <= entry.begin ? entry.begin : entry.end) = begin <= entry.begin ? end : begin;
  SetInlineEntry(line, mine, entry);
  store_->Publish(line, head.length(), head.entries());
  return removed;
}

RunHolders::Intervals RunHolders::Take(HolderId holder, uint32_t length) {
  Intervals taken;
  if (holder / 64 < image_.whole.size()) {
    uint64_t& word = image_.whole[holder / 64];
    const uint64_t bit = uint64_t{1} << holder % 64;
    if ((word & bit) != 0) {
      taken.push_back({.holder = holder, .begin = 0, .end = length});
      word &= ~bit;
    }
  }
  std::erase_if(image_.parts, [&](const HolderEntry& entry) {
    if (entry.holder != holder) return false;
    taken.push_back(entry);
    return true;
  });
  return taken;
}

void RunHolders::Put(const HolderEntry& entry, uint32_t length) {
  if (entry.begin >= entry.end) return;
  if (entry.begin == 0 && entry.end == length) {
    image_.AddWhole(entry.holder);
  } else {
    image_.parts.push_back(entry);
  }
}

uint32_t RunHolders::AddAnyhow(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                               uint64_t* refused) {
  const uint32_t length = store_->LoadHead(line).length();
  Load(line);
  HolderEntry merged{.holder = holder, .begin = begin, .end = end};
  uint32_t held = 0;
  for (const HolderEntry& entry : Take(holder, length)) {
    held += Overlap(entry, begin, end);
    if (entry.end < begin || end < entry.begin) {
      Put(entry, length);
    } else {
      merged.begin = std::min(merged.begin, entry.begin);
      merged.end = std::max(merged.end, entry.end);
    }
  }
  const uint32_t added = end - begin - held;
  if (added == 0) return 0;
  Put(merged, length);
  if (Store(line, length, image_)) return added;
  *refused += added;
  return 0;
}

uint32_t RunHolders::RemoveAnyhow(uint32_t line, HolderId holder, uint32_t begin, uint32_t end,
                                  uint64_t* refused) {
  const uint32_t length = store_->LoadHead(line).length();
  Load(line);
  const Intervals before = Take(holder, length);
  uint32_t held = 0;
  uint32_t removed = 0;
  for (const HolderEntry& entry : before) {
    held += entry.end - entry.begin;
    removed += Overlap(entry, begin, end);
    Put({.holder = holder, .begin = entry.begin, .end = std::min(entry.end, begin)}, length);
    Put({.holder = holder, .begin = std::max(entry.begin, end), .end = entry.end}, length);
  }
  if (removed == 0) return 0;
  if (Store(line, length, image_)) return removed;
  Take(holder, length);
  // It always fits in the same chunk, because it has fewer holders.
  CHECK(Store(line, length, image_));
  *refused += held - removed;
  return held;
}

void RunHolders::Start(uint32_t line, uint32_t length, HolderId holder) {
  SetInlineEntry(line, 0, {.holder = holder, .begin = 0, .end = length});
  store_->Publish(line, length, 1);
}

const RunHolders::Image& RunHolders::Load(uint32_t line) {
  const RunHead head = store_->LoadHead(line);
  image_.whole.clear();
  image_.parts.clear();
  if (IsWide(head)) {
    const WideView wide = WideOf(line);
    image_.whole.assign(wide.bits, wide.bits + wide.bit_words);
    for (int i = 0; i < wide.entries; ++i) image_.parts.push_back(wide.entry(i));
  } else {
    for (int i = 0; i < head.entries(); ++i)
      Put(InlineEntry(store_->Words(line), i), head.length());
  }
  return image_;
}

bool RunHolders::Store(uint32_t line, uint32_t length, const Image& image) {
  size_t holders = image.parts.size();
  for (const uint64_t word : image.whole) holders += std::popcount(word);
  // Hysteresis: a wide run becomes inline only when few holders are left.
  const size_t most =
      IsWide(store_->LoadHead(line)) ? RunHead::kMaxInline / 2 : RunHead::kMaxInline;
  return holders <= most ? StoreInline(line, length, image) : StoreWide(line, length, image);
}

bool RunHolders::StoreInline(uint32_t line, uint32_t length, const Image& image) {
  const bool was_wide = IsWide(store_->LoadHead(line));
  const auto wide_line = static_cast<uint32_t>(store_->Words(line)[1]);
  int entries = 0;
  store_->BeginChange(line);
  ForEachBit(image.whole, [&](HolderId holder) {
    SetInlineEntry(line, entries++, {.holder = holder, .begin = 0, .end = length});
  });
  for (const HolderEntry& entry : image.parts) SetInlineEntry(line, entries++, entry);
  store_->Publish(line, length, entries);
  if (was_wide) store_->Free(wide_line);
  return true;
}

bool RunHolders::StoreWide(uint32_t line, uint32_t length, const Image& image) {
  size_t bit_words = image.whole.size();
  while (bit_words > 0 && image.whole[bit_words - 1] == 0) --bit_words;
  const size_t entries = image.parts.size();
  const size_t words = bit_words + (entries + 1) / 2;
  constexpr size_t kMostEntries = 8192;
  if (entries > kMostEntries) return false;

  const bool was_wide = IsWide(store_->LoadHead(line));
  const auto old = static_cast<uint32_t>(store_->Words(line)[1]);
  uint32_t chunk = old;
  if (!was_wide || store_->ChunkWords(old) < words) {
    constexpr size_t kSpareWords = 4;
    const auto fresh = store_->NewChunk(words + kSpareWords);
    if (!fresh) return false;
    chunk = *fresh;
  }
  store_->BeginChange(line);
  uint64_t* const to = store_->MutableWords(chunk) + 1;
  for (size_t w = 0; w < bit_words; ++w) StoreWord(to + w, image.whole[w]);
  for (size_t i = 0; i < entries; i += 2) {
    const uint64_t second = i + 1 < entries ? image.parts[i + 1].Pack() : 0;
    StoreWord(to + bit_words + i / 2, image.parts[i].Pack() | second << 32);
  }
  StoreWord(store_->MutableWords(line) + 1,
            uint64_t{chunk} | uint64_t{entries} << 32 | uint64_t{bit_words} << 48);
  store_->Publish(line, length, RunHead::kWide);
  if (was_wide && chunk != old) store_->Free(old);
  return true;
}

void RunHolders::FreeRun(uint32_t line) {
  const RunHead head = store_->LoadHead(line);
  const auto wide_line = static_cast<uint32_t>(store_->Words(line)[1]);
  store_->Free(line);
  if (IsWide(head)) store_->Free(wide_line);
}

uint32_t RunHolders::HeldEnd(uint32_t line) const {
  const RunHead head = store_->LoadHead(line);
  uint32_t end = 0;
  if (!IsWide(head)) {
    for (int i = 0; i < head.entries(); ++i) {
      end = std::max(end, InlineEntry(store_->Words(line), i).end);
    }
    return end;
  }
  const WideView wide = WideOf(line);
  for (size_t w = 0; w < wide.bit_words; ++w) {
    if (wide.bits[w] != 0) return head.length();
  }
  for (int i = 0; i < wide.entries; ++i) end = std::max(end, wide.entry(i).end);
  return end;
}

uint32_t RunHolders::HeldAtLeast(uint32_t line) const {
  const RunHead head = store_->LoadHead(line);
  uint32_t held = 0;
  const auto count = [&](const HolderEntry& entry) { held += entry.end - entry.begin; };
  if (!IsWide(head)) {
    for (int i = 0; i < head.entries(); ++i) count(InlineEntry(store_->Words(line), i));
    return held;
  }
  const WideView wide = WideOf(line);
  for (size_t w = 0; w < wide.bit_words; ++w) {
    if (wide.bits[w] != 0) return head.length();
  }
  for (int i = 0; i < wide.entries; ++i) count(wide.entry(i));
  return held;
}

bool RunHolders::IsCrowded(uint32_t line) const {
  return IsWide(store_->LoadHead(line)) && WideOf(line).entries > kCrowded;
}

}  // namespace baton
