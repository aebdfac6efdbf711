#include "kvtransfer/pool/lease_request.h"

#include "common/check.h"

namespace baton {

absl::StatusOr<bool> LeaseRequest::Ask(TransferPool& pool) {
  if (!lease_) lease_ = pool.Acquire(access_, parts_, layers_);
  if (!lease_) return false;
  return lease_->Ready();
}

PoolLease LeaseRequest::Take() {
  CHECK(lease_.has_value());
  return *std::exchange(lease_, std::nullopt);
}

}  // namespace baton
