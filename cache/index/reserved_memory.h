// Address space reserved once, whose pages come, zeroed, when they are first touched: a structure
// in it grows up to its limit without moving, so that concurrent readers keep their pointers.
//
// Thread safety: Discard while others read the same memory is allowed: they see old bytes or zeros.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

class ReservedMemory {
 public:
  // CHECKs that the system grants the address space, which costs no memory by itself.
  explicit ReservedMemory(size_t bytes);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  // Aligned to a page, and to a huge one when it is as large.
  uint64_t* words() const { return words_; }
  // Has the pages of [begin, end) bytes ready for writing, where the system can: much cheaper than
  // one fault for each.
  void Populate(size_t begin, size_t end);
  // Gives the pages back; the memory reads as zeros again.
  void Discard();

 private:
  const size_t bytes_;
  void* mapped_;
  size_t mapped_bytes_;
  uint64_t* words_;
};

// Words that a writer changes while readers look. On x86 both compile to plain moves.
inline uint64_t LoadWord(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void StoreWord(uint64_t* word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

}  // namespace baton
