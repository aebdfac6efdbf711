// Memory in a file without a name (memfd), so that another process can map it: what a KV pool lies
// in when its blocks are lent over shared memory.
//
// Zero-filled. Sizes from 2 MiB start on a 2 MiB boundary. The kernel gives such a file huge pages
// only when they are collapsed (MADV_COLLAPSE), which also populates it: unlike a HugePageBuffer a
// large one costs its whole size at once. Where collapsing fails, small pages serve as well.
//
// The file is sealed: it neither grows nor shrinks, so that no reader meets SIGBUS, and nobody who
// is given the descriptor can write to it or map it writable. Only this mapping writes.
//
// A reserved buffer is sealed against growing and shrinking alone, because the kernel takes no page
// out of a file that is sealed against writers. Its descriptor is open for reading only and its
// mode lets no other user open it anew, so that only a process of the same user (who could as well
// change this process) is trusted not to write. Pages behind what is populated cost nothing.
//
// A SharedPageView is such a file as another process sees it: read-only, and trusted with nothing.
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
  // An address range of which Populate and Discard decide what costs memory. Errors as Allocate;
  // also where /proc is not mounted.
  static absl::StatusOr<SharedPageBuffer> Reserve(size_t bytes, std::string_view purpose);

  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }            // bytes, as asked for
  size_t mapped_bytes() const { return memory_.mapped(); }  // the file's size
  int fd() const { return file_.get(); }                    // stays this buffer's
  // Has huge pages made for [offset, offset + bytes) and what shares a huge page with it, where the
  // kernel can. What was written there stays. REQUIRES: reserved; in the buffer.
  void Populate(size_t offset, size_t bytes);
  // As HugePageBuffer's. REQUIRES: reserved. Other mappings read zeros there too.
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
  // The first `bytes` bytes of a file that came from elsewhere. InvalidArgument says what is wrong
  // with it: not a memfd, sealed too little (it could shrink under us, or we could write to it), or
  // too short.
  // ResourceExhausted when it cannot be mapped. `file` may be closed afterwards.
  static absl::StatusOr<SharedPageView> Map(int file, size_t bytes);

  // Whoever owns the file may write to it at any time.
  const std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }

 private:
  explicit SharedPageView(MappedMemory memory) : memory_(std::move(memory)) {}

  MappedMemory memory_;
};

}  // namespace baton
