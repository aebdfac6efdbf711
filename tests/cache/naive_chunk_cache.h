// The oracle of ChunkCacheTest.RandomEventsAgreeWithANaiveModel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <set>

namespace baton {

// Naive model of the cache of prompt chunks: keeps entries in a list in the order of use, and
// counts everything anew. A chunk is a number. References are counted by the caller, in the entry.
class NaiveChunkCache {
 public:
  struct Entry {
    int chunk = 0;
    int32_t blocks = 0;
    int references = 0;
    bool hidden = false;
  };

  NaiveChunkCache(double share, int32_t pool, int32_t max_entries)
      : share_(share), pool_(pool), max_entries_(max_entries) {}

  int32_t budget() const { return static_cast<int32_t>(share_ * pool_); }
  int32_t used(bool referenced_only = false) const {
    int32_t blocks = 0;
    for (const auto& entry : line_) {
      if (!referenced_only || entry->references > 0) blocks += entry->blocks;
    }
    return blocks;
  }
  int32_t visible() const {
    return static_cast<int32_t>(
        std::count_if(line_.begin(), line_.end(), [](const auto& e) { return !e->hidden; }));
  }
  std::shared_ptr<Entry> Find(int chunk) {
    for (auto it = line_.begin(); it != line_.end(); ++it) {
      if ((*it)->chunk != chunk || (*it)->hidden) continue;
      line_.splice(line_.end(), line_, it);
      return line_.back();
    }
    return nullptr;
  }
  bool Has(int chunk) const {
    return std::any_of(line_.begin(), line_.end(),
                       [&](const auto& e) { return e->chunk == chunk && !e->hidden; });
  }
  std::shared_ptr<Entry> Store(int chunk, int32_t blocks) {
    if (Has(chunk) || used(/*referenced_only=*/true) + blocks > budget()) return nullptr;
    std::list<std::shared_ptr<Entry>> left = line_;
    int32_t total = used();
    for (auto it = left.begin(); it != left.end();) {
      const bool full = static_cast<int32_t>(left.size()) >= max_entries_;
      if (total + blocks <= budget() && !full) break;
      if ((*it)->references > 0) {
        ++it;
        continue;
      }
      total -= (*it)->blocks;
      it = left.erase(it);
    }
    if (static_cast<int32_t>(left.size()) >= max_entries_) return nullptr;
    line_ = left;
    line_.push_back(std::make_shared<Entry>(Entry{.chunk = chunk, .blocks = blocks}));
    return line_.back();
  }
  void Drop(const std::shared_ptr<Entry>& entry) {
    if (--entry->references == 0 && (entry->hidden || used() > budget())) line_.remove(entry);
  }
  bool EvictOne() {
    const auto it =
        std::find_if(line_.begin(), line_.end(), [](const auto& e) { return e->references == 0; });
    if (it == line_.end()) return false;
    line_.erase(it);
    return true;
  }
  void Clear(const std::set<int>& chunks) {
    for (const auto& entry : line_) {
      if (chunks.contains(entry->chunk)) entry->hidden = true;
    }
    line_.remove_if([](const auto& e) { return e->hidden && e->references == 0; });
  }

 private:
  const double share_;
  const int32_t pool_;
  const int32_t max_entries_;
  std::list<std::shared_ptr<Entry>> line_;  // the least recently used first
};

}  // namespace baton
