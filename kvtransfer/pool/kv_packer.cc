#include "kvtransfer/pool/kv_packer.h"

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "common/crc32c.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

// How long to sleep while a copy of the pool runs.
constexpr std::chrono::microseconds kPollInterval{20};

int32_t NumberBytes(KvType type) {
  switch (type) {
    case KvType::kF32:
      return 4;
    case KvType::kF16:
    case KvType::kBF16:
      return 2;
    case KvType::kInt8:
    case KvType::kFp8:
      return 1;
  }
  return 1;
}

absl::Status WaitUntilReady(PoolLease& lease) {
  while (true) {
    ASSIGN_OR_RETURN(const bool ready, lease.Ready());
    if (ready) return absl::OkStatus();
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace

KvPacker::KvPacker(TransferPool* pool, bool compress)
    : pool_(pool),
      compression_(NumberBytes(pool->layout().group(0).group().type)),
      compress_(compress) {}

absl::StatusOr<PoolLease> KvPacker::Lease(PoolAccess access, BlockId block, int32_t tokens) {
  while (true) {
    std::optional<PoolLease> lease =
        pool_->Acquire(access, LeadingTokens(block, tokens), LayerRange());
    if (lease.has_value()) {
      RETURN_IF_ERROR(WaitUntilReady(*lease));
      return std::move(*lease);
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

absl::StatusOr<PackedBlock> KvPacker::Pack(BlockId block, int32_t tokens) {
  bytes_.resize(static_cast<size_t>(BlockValidBytes(pool_->layout(), tokens)));
  {
    ASSIGN_OR_RETURN(const PoolLease lease, Lease(PoolAccess::kRead, block, tokens));
    std::byte* to = bytes_.data();
    for (const iovec& run : lease.bytes().Runs()) {
      std::memcpy(to, run.iov_base, run.iov_len);
      to += run.iov_len;
    }
  }
  PackedBlock packed;
  packed.crc = Crc32c(bytes_);
  packed.compressed = compress_ && compression_.Compress(bytes_, packed.bytes);
  if (!packed.compressed) packed.bytes = std::vector<std::byte>(bytes_.begin(), bytes_.end());
  return packed;
}

absl::Status KvPacker::Unpack(const PackedBlock& packed, BlockId block, int32_t tokens) {
  const auto size = static_cast<size_t>(BlockValidBytes(pool_->layout(), tokens));
  std::span<const std::byte> bytes = packed.bytes;
  if (packed.compressed) {
    bytes_.resize(size);
    if (!compression_.Decompress(packed.bytes, bytes_)) {
      return absl::DataLossError(StrCat("the compressed KV of ", tokens, " tokens is damaged"));
    }
    bytes = bytes_;
  }
  if (bytes.size() != size || Crc32c(bytes) != packed.crc) {
    return absl::DataLossError(StrCat("the KV of ", tokens,
                                      " tokens was damaged in host memory: it has ", bytes.size(),
                                      " of ", size, " bytes, or its checksum is not ", packed.crc));
  }
  ASSIGN_OR_RETURN(PoolLease lease, Lease(PoolAccess::kLand, block, tokens));
  const std::byte* from = bytes.data();
  for (const iovec& run : lease.bytes().Runs()) {
    std::memcpy(run.iov_base, from, run.iov_len);
    from += run.iov_len;
  }
  lease.Store();
  return WaitUntilReady(lease);
}

}  // namespace baton
