#include "cache/index/reserved_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "common/check.h"

namespace baton {

ReservedMemory::ReservedMemory(size_t bytes) : bytes_(bytes) {
  CHECK_GE(bytes, 1u);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED) << "cannot reserve " << bytes << " bytes of address space";
  words_ = static_cast<uint64_t*>(memory);
  // Random accesses over many MiB miss the TLB with small pages. Only advice: errors do not matter.
  constexpr size_t kWorthHugePages = size_t{16} << 20;
  if (bytes >= kWorthHugePages) (void)madvise(words_, bytes_, MADV_HUGEPAGE);
}

ReservedMemory::~ReservedMemory() { munmap(words_, bytes_); }

void ReservedMemory::Populate(size_t begin, size_t end) {
  constexpr size_t kPage = 4096;
  begin = begin / kPage * kPage;
  end = std::min(bytes_, (end + kPage - 1) / kPage * kPage);
  if (begin >= end) return;
  // Since Linux 5.14; without it the pages come one by one.
  (void)madvise(reinterpret_cast<std::byte*>(words_) + begin, end - begin, MADV_POPULATE_WRITE);
}

void ReservedMemory::Discard() {
  CHECK_EQ(madvise(words_, bytes_, MADV_DONTNEED), 0) << "cannot give back " << bytes_ << " bytes";
}

}  // namespace baton
