// `baton inspect worker`: shows block tables, pool accounting and allocation trace of a running
// worker.

#include <memory>
#include <string>

#include "baton/v1/worker.grpc.pb.h"
#include "cli/client_commands.h"
#include "cli/inspection_table.h"
#include "cli/worker_choice_client.h"
#include "rpc/channel.h"
#include "rpc/status_conversion.h"

namespace baton {
namespace {

constexpr int64_t kInspectTimeoutMs = 10'000;

AllocationEvent::Kind KindFromWire(const std::string& name) {
  using Kind = AllocationEvent::Kind;
  if (name == "match") return Kind::kMatch;
  if (name == "insert") return Kind::kInsert;
  if (name == "evict") return Kind::kEvict;
  if (name == "release") return Kind::kRelease;
  return Kind::kReserve;
}

KvGroupStatus GroupFromWire(const v1::KvGroupStatus& wire) {
  return {.kind = wire.window() > 0 ? KvGroupKind::kSlidingWindow : KvGroupKind::kFullAttention,
          .window = wire.window(),
          .layers = wire.layers(),
          .bytes_per_block = wire.bytes_per_block(),
          .size = {.before = wire.limit_blocks(),
                   .limit = wire.limit_blocks(),
                   .reserved = wire.reserved_blocks(),
                   .retiring = wire.retiring_blocks()},
          .blocks = {.total = wire.total_blocks(),
                     .free = wire.free_blocks(),
                     .in_transfer = wire.in_flight_blocks(),
                     .owned = wire.owned_blocks(),
                     .cached = wire.cached_blocks(),
                     .step = wire.step_blocks(),
                     .never_used = wire.never_used_blocks()},
          .evictable = wire.evictable_blocks(),
          .evicted_blocks = wire.evicted_blocks()};
}

EngineInspection InspectionFromWire(const v1::InspectResponse& wire) {
  EngineInspection out;
  out.op_path = wire.op_path();
  out.resident_pool_bytes = wire.resident_pool_bytes();
  out.cache_depth = wire.cache_depth();
  const v1::PoolStatus& pool = wire.pool();
  out.status.block_size = pool.block_size();
  KvCacheStats& cache = out.status.cache;
  cache.blocks.total = pool.total_blocks();
  cache.blocks.free = pool.free_blocks();
  cache.blocks.cached = pool.cached_blocks();
  cache.blocks.owned = pool.owned_blocks();
  cache.blocks.in_transfer = pool.in_flight_blocks();
  cache.blocks.step = pool.step_blocks();
  out.status.pool = {.before = pool.limit_blocks(),
                     .limit = pool.limit_blocks(),
                     .reserved = pool.reserved_blocks(),
                     .retiring = pool.retiring_blocks()};
  cache.lookups = pool.lookups();
  cache.hits = pool.hits();
  cache.lookup_tokens = pool.lookup_tokens();
  cache.hit_tokens = pool.hit_tokens();
  cache.evicted_blocks = pool.evicted_blocks();
  cache.evicted_tokens = pool.evicted_tokens();
  cache.evictable = pool.evictable_blocks();
  cache.blocks.never_used = pool.never_used_blocks();
  cache.radix_nodes = pool.radix_nodes();
  for (const v1::KvGroupStatus& group : pool.groups()) {
    out.status.groups.push_back(GroupFromWire(group));
  }
  cache.reserved_slots = wire.reserved_slots();
  cache.committed_slots = wire.committed_slots();
  for (const v1::SequenceTable& sequence : wire.sequences()) {
    out.sequences.push_back({.sequence_id = sequence.sequence_id(),
                             .request_id = sequence.request_id(),
                             .phase = sequence.phase(),
                             .tokens = sequence.tokens(),
                             .committed = sequence.committed(),
                             .matched = sequence.matched(),
                             .blocks = {sequence.blocks().begin(), sequence.blocks().end()},
                             .priority = sequence.priority()});
    for (const v1::WindowTable& window : sequence.windows()) {
      out.sequences.back().window_blocks.emplace_back(window.blocks().begin(),
                                                      window.blocks().end());
    }
  }
  for (const v1::AllocationEvent& event : wire.trace()) {
    out.trace.push_back({.time_us = 0,
                         .kind = KindFromWire(event.kind()),
                         .sequence = SequenceId(event.sequence_id()),
                         .tokens = event.tokens(),
                         .blocks = event.blocks(),
                         .free_after = event.free_after(),
                         .group = event.group()});
  }
  return out;
}

absl::StatusOr<std::string> InspectWorker(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::Worker::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(kInspectTimeoutMs));
  v1::InspectResponse response;
  const grpc::Status status = stub->Inspect(&context, v1::InspectRequest(), &response);
  if (!status.ok()) return FromGrpcStatus(status);
  return InspectionTable(InspectionFromWire(response));
}

}  // namespace

void AddInspectWorkerCommand(CommandLine& inspect) {
  CommandLine& command =
      inspect.AddCommand("worker", "Show the block tables and pools of running workers");
  auto choice = std::make_shared<WorkerChoice>();
  AddWorkerFlags(command, choice.get());
  command.OnRun([choice] { return ForEachWorker(*choice, InspectWorker); });
}

}  // namespace baton
