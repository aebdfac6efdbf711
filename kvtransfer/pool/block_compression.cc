#include "kvtransfer/pool/block_compression.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace baton {
namespace {

constexpr int kLevel = 1;

// Bytes behind the last whole number stay where they are.
template <size_t kBytes>
void Sort(std::span<const std::byte> from, std::byte* to) {
  const size_t numbers = from.size() / kBytes;
  for (size_t i = 0; i < numbers; ++i) {
    for (size_t at = 0; at < kBytes; ++at) to[at * numbers + i] = from[i * kBytes + at];
  }
  const size_t sorted = numbers * kBytes;
  std::copy(from.begin() + sorted, from.end(), to + sorted);
}

template <size_t kBytes>
void Unsort(std::span<const std::byte> from, std::byte* to) {
  const size_t numbers = from.size() / kBytes;
  for (size_t i = 0; i < numbers; ++i) {
    for (size_t at = 0; at < kBytes; ++at) to[i * kBytes + at] = from[at * numbers + i];
  }
  const size_t sorted = numbers * kBytes;
  std::copy(from.begin() + sorted, from.end(), to + sorted);
}

}  // namespace

struct BlockCompression::Contexts {
  ZSTD_CCtx* const compress = ZSTD_createCCtx();
  ZSTD_DCtx* const decompress = ZSTD_createDCtx();
  ~Contexts() {
    ZSTD_freeCCtx(compress);
    ZSTD_freeDCtx(decompress);
  }
};

BlockCompression::BlockCompression(int32_t number_bytes)
    : number_bytes_(number_bytes), contexts_(std::make_unique<Contexts>()) {
  CHECK(number_bytes == 1 || number_bytes == 2 || number_bytes == 4);
  CHECK(contexts_->compress != nullptr && contexts_->decompress != nullptr);
}

BlockCompression::~BlockCompression() = default;

bool BlockCompression::Compress(std::span<const std::byte> bytes, std::vector<std::byte>& out) {
  out.clear();
  std::span<const std::byte> source = bytes;
  if (number_bytes_ > 1) {
    sorted_.resize(bytes.size());
    number_bytes_ == 2 ? Sort<2>(bytes, sorted_.data()) : Sort<4>(bytes, sorted_.data());
    source = sorted_;
  }
  packed_.resize(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compressCCtx(contexts_->compress, packed_.data(), packed_.size(),
                                        source.data(), source.size(), kLevel);
  if (ZSTD_isError(size) != 0 || size >= bytes.size()) return false;
  out.reserve(size);
  out.assign(packed_.begin(), packed_.begin() + static_cast<std::ptrdiff_t>(size));
  return true;
}

bool BlockCompression::Decompress(std::span<const std::byte> compressed, std::span<std::byte> out) {
  std::byte* target = out.data();
  if (number_bytes_ > 1) {
    sorted_.resize(out.size());
    target = sorted_.data();
  }
  const size_t size = ZSTD_decompressDCtx(contexts_->decompress, target, out.size(),
                                          compressed.data(), compressed.size());
  if (ZSTD_isError(size) != 0 || size != out.size()) return false;
  if (number_bytes_ == 2) Unsort<2>(sorted_, out.data());
  if (number_bytes_ == 4) Unsort<4>(sorted_, out.data());
  return true;
}

}  // namespace baton
