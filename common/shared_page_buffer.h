// Memory that another process can map: a file without a name (memfd). KV pools that
// lend their blocks over shared memory lie in such buffers.
//
// The memory reads as zeros. Buffers of at least 2 MiB start on a 2 MiB boundary. The kernel gives
// such a file huge pages only by collapsing pages (MADV_COLLAPSE), which also populates them. So a
// large buffer costs its whole size at once, unlike a HugePageBuffer. If collapsing fails, the
// buffer has small pages.
//
// Allocate() seals the file. It can neither grow nor shrink, so no reader meets SIGBUS. A process
// that receives the descriptor cannot write to the file or map it writable. Only this mapping
// writes.
//
// Reserve() seals the file only against growing and shrinking, because the kernel cannot remove
// pages from a file that is sealed against writes. Its descriptor is open for reading only, and its
// mode lets no other user open the file again. So this buffer trusts only processes of the same
// user not to write, and those could change this process as well. Pages that are not populated cost
// nothing.
//
// A SharedPageView is the file as another process sees it: read-only and untrusted.
//
// Thread safety: as a std::vector's.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "common/file_descriptor.h"
#include "common/mapped_memory.h"

namespace baton {

class SharedPageBuffer {
 public:
  SharedPageBuffer() = default;
  // ResourceExhausted names `purpose` and the size.
  static absl::StatusOr<SharedPageBuffer> Allocate(size_t bytes, std::string_view purpose);
  // Reserves an address range. Populate() and Discard() decide which parts of it cost memory.
  // Errors as Allocate; it also fails if /proc is not mounted.
  static absl::StatusOr<SharedPageBuffer> Reserve(size_t bytes, std::string_view purpose);

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }            // bytes, as requested
  size_t mapped_bytes() const { return memory_.mapped(); }  // the file's size
  int fd() const { return file_.get(); }                    // the buffer keeps ownership
  // Asks the kernel for huge pages in [offset, offset + bytes) and in the rest of the huge pages
  // that this range touches. Existing data stays. REQUIRES: reserved; the range lies in the buffer.
  void Populate(size_t offset, size_t bytes);
  // As HugePageBuffer::Discard. Other mappings of the file read zeros there too. REQUIRES:
  // reserved.
  void Discard(size_t offset, size_t bytes);

 private:
  static absl::StatusOr<SharedPageBuffer> Create(size_t bytes, std::string_view purpose, int seals);
  SharedPageBuffer(FileDescriptor file, MappedMemory memory)
      : file_(std::move(file)), memory_(std::move(memory)) {}

  FileDescriptor file_;
  MappedMemory memory_;
};

class SharedPageView {
 public:
  SharedPageView() = default;
  // Maps the first `bytes` bytes of a file from another process. `file` may be closed afterwards.
  // InvalidArgument names the file's fault: it is not a memfd, it is too short, it could shrink, or
  // this process could write to it. ResourceExhausted: it cannot be mapped.
  static absl::StatusOr<SharedPageView> Map(int file, size_t bytes);

  // The owner of the file may write to it at any time.
  const std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }

 private:
  explicit SharedPageView(MappedMemory memory) : memory_(std::move(memory)) {}

  MappedMemory memory_;
};

}  // namespace baton
