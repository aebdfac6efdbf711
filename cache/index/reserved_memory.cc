#include "cache/index/reserved_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <memory>

#include "common/check.h"

namespace baton {

namespace {

// Size of a huge page. With small pages, scattered reads of many MiB miss the TLB. The first touch
// of each small page costs more than the index's own work on it.
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

ReservedMemory::ReservedMemory(size_t bytes) : bytes_(bytes) {
  CHECK_GE(bytes, 1u);
  const bool huge = bytes >= 2 * kHugePage;
  mapped_bytes_ = huge ? bytes + kHugePage : bytes;
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(mapped_ != MAP_FAILED) << "cannot reserve " << mapped_bytes_ << " bytes of address space";
  void* begin = mapped_;
  size_t space = mapped_bytes_;
  if (huge) {
    CHECK(std::align(kHugePage, bytes, begin, space) != nullptr);
    (void)madvise(begin, bytes, MADV_HUGEPAGE);  // only advice, so errors are ignored
  }
  words_ = static_cast<uint64_t*>(begin);
}

ReservedMemory::~ReservedMemory() { munmap(mapped_, mapped_bytes_); }

void ReservedMemory::Populate(size_t begin, size_t end) {
  constexpr size_t kPage = 4096;
  begin = begin / kPage * kPage;
  end = std::min(bytes_, (end + kPage - 1) / kPage * kPage);
  if (begin >= end) return;
  // Needs Linux 5.14. On older kernels the pages are faulted in one by one.
  (void)madvise(reinterpret_cast<std::byte*>(words_) + begin, end - begin, MADV_POPULATE_WRITE);
}

void ReservedMemory::Discard() {
  CHECK_EQ(madvise(words_, bytes_, MADV_DONTNEED), 0) << "cannot release " << bytes_ << " bytes";
}

}  // namespace baton
