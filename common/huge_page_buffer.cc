#include "common/huge_page_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr size_t kPageBytes = 4096;

absl::Status Exhausted(size_t bytes, std::string_view purpose, std::string_view why) {
  return absl::ResourceExhaustedError(
      absl::StrFormat("cannot allocate %d bytes (%.1f MiB) for %s: %s", bytes,
                      static_cast<double>(bytes) / (1 << 20), purpose, why));
}

}  // namespace

absl::StatusOr<HugePageBuffer> HugePageBuffer::Allocate(size_t bytes, std::string_view purpose) {
  return Map(bytes, purpose, 0);
}

absl::StatusOr<HugePageBuffer> HugePageBuffer::Reserve(size_t bytes, std::string_view purpose) {
  return Map(bytes, purpose, MAP_NORESERVE);
}

absl::StatusOr<HugePageBuffer> HugePageBuffer::Map(size_t bytes, std::string_view purpose,
                                                   int flags) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) {
    return Exhausted(bytes, purpose, "more than the address space");
  }
  const size_t page = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  const size_t size = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
  const size_t reserved = page == kPageBytes ? size : size + page;  // room for alignment
  void* mapping =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (mapping == MAP_FAILED) return Exhausted(bytes, purpose, std::strerror(errno));

  auto* begin = static_cast<std::byte*>(mapping);
  const size_t skip = (page - reinterpret_cast<uintptr_t>(begin) % page) % page;
  const size_t tail = reserved - skip - size;
  if (skip > 0) munmap(begin, skip);
  if (tail > 0) munmap(begin + skip + size, tail);
  // This is advice. A kernel without huge pages refuses it, and small pages work too.
  if (page == kHugePageBytes) madvise(begin + skip, size, MADV_HUGEPAGE);
  return HugePageBuffer(MappedMemory(begin + skip, bytes, size));
}

void HugePageBuffer::Discard(size_t offset, size_t bytes) {
  const PageRange pages = WholePagesIn(offset, bytes);
  if (pages.bytes > 0) madvise(data() + pages.offset, pages.bytes, MADV_DONTNEED);
}

PageRange WholePagesIn(size_t offset, size_t bytes) {
  const size_t begin = (offset + kPageBytes - 1) / kPageBytes * kPageBytes;
  const size_t end = (offset + bytes) / kPageBytes * kPageBytes;
  return {.offset = begin, .bytes = end > begin ? end - begin : 0};
}

std::string TransparentHugePageMode() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string word;
  while (file >> word) {
    if (word.size() > 2 && word.front() == '[') return word.substr(1, word.size() - 2);
  }
  return "unknown";
}

}  // namespace baton
