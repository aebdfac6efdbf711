#include "common/shared_page_buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "common/huge_page_buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(SharedPageBuffer, IsZeroFilledAlignedAndSeenThroughAView) {
  for (const size_t bytes : {size_t{1}, size_t{5000}, kHugePageBytes + 5, 3 * kHugePageBytes}) {
    SCOPED_TRACE(bytes);
    absl::StatusOr<SharedPageBuffer> buffer = SharedPageBuffer::Allocate(bytes, "test");
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_GE(buffer->mapped_bytes(), bytes);
    const size_t page = bytes >= kHugePageBytes ? kHugePageBytes : 4096;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % page, 0u);
    for (size_t i = 0; i < bytes; i += 997) ASSERT_EQ(buffer->data()[i], std::byte{0});
    const absl::StatusOr<SharedPageView> view = SharedPageView::Map(buffer->fd(), bytes);
    ASSERT_TRUE(view.ok()) << view.status();
    buffer->data()[bytes - 1] = std::byte{42};
    EXPECT_EQ(view->data()[bytes - 1], std::byte{42});
  }
}

TEST(SharedPageBuffer, AViewOutlivesTheBuffer) {
  SharedPageView view;
  {
    SharedPageBuffer buffer = *SharedPageBuffer::Allocate(1000, "test");
    buffer.data()[999] = std::byte{7};
    view = *SharedPageView::Map(buffer.fd(), 1000);
  }
  EXPECT_EQ(view.data()[999], std::byte{7});
}

TEST(SharedPageBuffer, ABufferCanNeitherBeResizedNorWrittenThroughItsFile) {
  SharedPageBuffer buffer = *SharedPageBuffer::Allocate(3 * kHugePageBytes, "test");
  EXPECT_NE(ftruncate(buffer.fd(), 4096), 0);
  EXPECT_NE(ftruncate(buffer.fd(), static_cast<off_t>(8 * kHugePageBytes)), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, buffer.fd(), 0), MAP_FAILED);
  EXPECT_LT(write(buffer.fd(), "x", 1), 0);
  EXPECT_NE(fallocate(buffer.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  buffer.data()[5] = std::byte{1};  // the owner can still write
  EXPECT_EQ(buffer.data()[5], std::byte{1});
}

int64_t FileBytes(const SharedPageBuffer& buffer) {
  struct stat info = {};
  EXPECT_EQ(fstat(buffer.fd(), &info), 0);
  return int64_t{info.st_blocks} * 512;
}

TEST(SharedPageBuffer, AReservedBufferCanNeitherBeResizedNorWrittenThroughItsFile) {
  SharedPageBuffer buffer = *SharedPageBuffer::Reserve(3 * kHugePageBytes, "test");
  EXPECT_NE(ftruncate(buffer.fd(), 4096), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, buffer.fd(), 0), MAP_FAILED);
  EXPECT_LT(write(buffer.fd(), "x", 1), 0);
  EXPECT_NE(fallocate(buffer.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  void* const view = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, buffer.fd(), 0);
  ASSERT_NE(view, MAP_FAILED);
  EXPECT_NE(mprotect(view, 4096, PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(madvise(view, 4096, MADV_REMOVE), 0);
  munmap(view, 4096);
  struct stat info = {};
  ASSERT_EQ(fstat(buffer.fd(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0400u) << "no other user can open it";
}

TEST(SharedPageBuffer, AReservedOneCostsWhatIsPopulatedAndGivesItBack) {
  const size_t size = 8 * kHugePageBytes;
  SharedPageBuffer buffer = *SharedPageBuffer::Reserve(size, "test");
  const SharedPageView view = *SharedPageView::Map(buffer.fd(), size);
  EXPECT_EQ(FileBytes(buffer), 0);
  buffer.Populate(0, 2 * kHugePageBytes);
  EXPECT_LE(FileBytes(buffer), int64_t{2 * kHugePageBytes});
  std::memset(buffer.data(), 5, 4 * kHugePageBytes);
  EXPECT_GE(FileBytes(buffer), int64_t{4 * kHugePageBytes});
  buffer.Populate(kHugePageBytes / 2, 5 * kHugePageBytes);
  EXPECT_EQ(view.data()[kHugePageBytes - 1], std::byte{5}) << "populating keeps existing data";
  EXPECT_EQ(view.data()[kHugePageBytes], std::byte{5});

  buffer.Discard(kHugePageBytes, size - kHugePageBytes);
  EXPECT_LE(FileBytes(buffer), int64_t{kHugePageBytes});
  EXPECT_EQ(view.data()[kHugePageBytes - 1], std::byte{5});
  EXPECT_EQ(view.data()[kHugePageBytes], std::byte{0});
}

TEST(SharedPageBuffer, AnAbsurdSizeIsRefusedByName) {
  const absl::Status status = SharedPageBuffer::Allocate(size_t{1} << 62, "a whale").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a whale"));
}

TEST(SharedPageView, RefusesFilesThatCouldShrinkOrAreShortOrAreNoMemfd) {
  const auto refusal = [](int file, size_t bytes) {
    const absl::Status status = SharedPageView::Map(file, bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const FileDescriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 8192), 0);
  EXPECT_THAT(refusal(unsealed.get(), 8192), HasSubstr("shrinking"));
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  // The file's owner could punch holes.
  EXPECT_THAT(refusal(unsealed.get(), 8192), HasSubstr("new writers"));
  ASSERT_EQ(fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_TRUE(SharedPageView::Map(unsealed.get(), 8192).ok());
  EXPECT_THAT(refusal(unsealed.get(), 8193), HasSubstr("8193 are needed"));
  const FileDescriptor device(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(refusal(device.get(), 1), HasSubstr("memfd"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor out(ends[0]), in(ends[1]);
  EXPECT_THAT(refusal(out.get(), 1), HasSubstr("memfd"));
  refusal(-1, 1);
}

}  // namespace
}  // namespace baton
