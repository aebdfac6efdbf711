// A reserved range of address space. Its pages are allocated, zeroed, when they are first touched.
// So a structure in it grows up to a limit without moving, and concurrent readers keep their
// pointers.
//
// Thread safety: Discard is safe while other threads read the memory. They see old bytes or zeros.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton {

class ReservedMemory {
 public:
  // CHECKs that the system reserves the address space. Reserving uses no memory.
  explicit ReservedMemory(size_t bytes);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  // Aligned to a page, and to a huge page if the memory is that large.
  uint64_t* words() const { return words_; }
  // Allocates the pages of bytes [begin, end) for writing, if the system supports it. This is much
  // cheaper than one page fault for each.
  void Populate(size_t begin, size_t end);
  // Releases the pages. The memory reads as zeros again.
  void Discard();

 private:
  const size_t bytes_;
  void* mapped_;
  size_t mapped_bytes_;
  uint64_t* words_;
};

// Access to words that a writer changes while readers read them. On x86 both compile to plain
// moves.
inline uint64_t LoadWord(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void StoreWord(uint64_t* word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

}  // namespace baton
