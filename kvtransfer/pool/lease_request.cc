#include "kvtransfer/pool/lease_request.h"

#include "common/check.h"

namespace baton {

bool LeaseRequest::Begin(TransferPool& pool) {
  if (!lease_) lease_ = pool.Acquire(access_, parts_, layers_);
  return lease_.has_value();
}

absl::StatusOr<bool> LeaseRequest::Ask(TransferPool& pool) {
  if (!Begin(pool)) return false;
  return lease_->Ready();
}

PoolLease LeaseRequest::Take() {
  CHECK(lease_.has_value());
  return *std::exchange(lease_, std::nullopt);
}

}  // namespace baton
