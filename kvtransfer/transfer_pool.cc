#include "kvtransfer/transfer_pool.h"

namespace baton {

PoolLease::PoolLease(PoolLease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      buffer_(other.buffer_),
      bytes_(std::move(other.bytes_)) {}

PoolLease& PoolLease::operator=(PoolLease&& other) noexcept {
  if (this == &other) return *this;
  LetGo();
  pool_ = std::exchange(other.pool_, nullptr);
  buffer_ = other.buffer_;
  bytes_ = std::move(other.bytes_);
  return *this;
}

void PoolLease::LetGo() {
  if (pool_ != nullptr) std::exchange(pool_, nullptr)->ReturnBuffer(buffer_);
}

absl::StatusOr<bool> PoolLease::Ready() {
  if (pool_ == nullptr) return true;
  return pool_->BufferReady(buffer_);
}

void PoolLease::Store() {
  if (pool_ != nullptr) pool_->StoreBuffer(buffer_);
}

}  // namespace baton
