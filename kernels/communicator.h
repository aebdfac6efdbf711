// Collective operations of a tensor-parallel group: ranks that compute one model together.
//
// Each rank has its own stream and one Communicator. All ranks enqueue the same collectives in the
// same order. A collective is an op: it runs in stream order, may be captured, and starts when all
// ranks have reached it. When it has run on a rank, that rank may overwrite its input. Collectives
// only move values, so they cannot change a bit.
//
// A row limit of the stream (Stream::LimitRows) may lower the number of rows that this rank
// receives. It never lets a rank leave out a collective.
//
// Failure: after Abort, collectives return without moving values, also those that wait for a rank.
// Streams therefore never hang, but their results are undefined. Health reports why. The group
// never recovers.
//
// Thread safety: Abort and Health are safe from any thread. A collective follows the thread rule of
// its stream.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kernels/device.h"

namespace baton {

inline constexpr int32_t kMaxTensorParallel = 64;

// A rank, and its share of anything that the ranks divide: consecutive parts, in the order of the
// ranks, whose sizes differ by 1 at most.
struct TensorRank {
  int32_t rank = 0;
  int32_t degree = 1;  // number of ranks

  int64_t Begin(int64_t total) const { return total * rank / degree; }
  int64_t End(int64_t total) const { return total * (rank + 1) / degree; }
  int64_t Share(int64_t total) const { return End(total) - Begin(total); }
};

// Every rank passes the same `tokens` and `cols`.
struct GatherArgs {
  // This rank's columns, [tokens, x_stride]: the first Share(cols) values of each row.
  const float* x = nullptr;
  int64_t x_stride = 0;
  // [tokens, out_stride]: columns [0, cols) of all ranks. `x` may be this rank's part of it; then
  // the other columns are written only.
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t tokens = 0;
  int64_t cols = 0;
};

struct BroadcastArgs {
  float* x = nullptr;  // [tokens, cols]; rank 0's values replace those of the others
  int64_t tokens = 0;
  int64_t cols = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  TensorRank rank() const { return rank_; }

  // Gives the columns of all ranks to every rank.
  virtual void AllGather(Stream& stream, const GatherArgs& args) = 0;
  // Gives them to rank 0 only. Other ranks do not use `out`.
  virtual void Gather(Stream& stream, const GatherArgs& args) = 0;
  virtual void Broadcast(Stream& stream, const BroadcastArgs& args) = 0;

  // Ends the group because of `why`, which is not OK. Later calls have no effect.
  virtual void Abort(absl::Status why) = 0;
  // OK, or the reason of the first Abort.
  virtual absl::Status Health() const = 0;

 protected:
  explicit Communicator(TensorRank rank) : rank_(rank) {}

 private:
  const TensorRank rank_;
};

}  // namespace baton
