#include "engine/prefix_pull.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "kvtransfer/protocol/transfer_plan.h"

namespace baton {

PrefixPulls::PrefixPulls(const PrefixPullOptions& options, KvCacheManager* cache,
                         KvTransport* transport, const Clock* clock,
                         std::function<uint64_t()> new_transfer_id)
    : options_(options),
      cache_(cache),
      transport_(transport),
      clock_(clock),
      new_transfer_id_(std::move(new_transfer_id)),
      block_size_(cache->options().block_size) {}

PrefixPulls::~PrefixPulls() { CHECK(idle()) << "pulls die with live transfers or leases"; }

// ---- receiving ----------------------------------------------------------------------------------

void PrefixPulls::Pull(RequestHandle handle, PullRequest request, std::shared_ptr<PullSink> sink,
                       int32_t spare_blocks) {
  request.tokens.resize(request.tokens.size() / block_size_ * block_size_);
  const absl::Status status = Begin(handle, request, sink, spare_blocks);
  if (!status.ok()) sink->OnDone(status);
}

// An error: nothing was taken, and the sink was not called.
absl::Status PrefixPulls::Begin(RequestHandle handle, const PullRequest& request,
                                const std::shared_ptr<PullSink>& sink, int32_t spare_blocks) {
  if (transport_ == nullptr) {
    return absl::FailedPreconditionError("this worker has no KV transport to receive a prefix");
  }
  std::vector<CacheUnit> units = UnitsFromTokens(request.tokens);
  if (const std::optional<uint64_t> transfer_id = OnItsWay(request.cache_namespace, units)) {
    Import& import = imports_.at(*transfer_id);
    import.priority = std::max(import.priority, request.priority);
    import.waiters.push_back({handle, sink, units.size()});
    transfer_of_.emplace(handle, *transfer_id);
    return absl::OkStatus();
  }
  if (static_cast<int64_t>(imports_.size()) >= options_.max_transfers) {
    return absl::ResourceExhaustedError(
        StrCat(imports_.size(), " prefixes are being pulled, at most ", options_.max_transfers));
  }
  RETURN_IF_ERROR(MakeRoom(static_cast<int64_t>(units.size()) / block_size_, request.priority));
  const SequenceId id(handle);
  ASSIGN_OR_RETURN(const int32_t matched, cache_->BeginImport(id, request.cache_namespace, units,
                                                              spare_blocks, request.priority));
  const std::vector<BlockId> table(cache_->BlockTable(id).begin(), cache_->BlockTable(id).end());
  if (matched == static_cast<int32_t>(units.size())) {
    LeaseOut(table, request.priority);
    cache_->Release(id, /*keep=*/true);
    sink->OnDone(PullResult{.tokens = matched});
    return absl::OkStatus();
  }
  const size_t asked = units.size();
  Import import{.priority = request.priority,
                .sequence = id,
                .cache_namespace = request.cache_namespace,
                .units = std::move(units),
                .blocks = {table.begin() + matched / block_size_, table.end()},
                .ticket = {},
                .waiters = {{handle, sink, asked}}};
  absl::Status status = Expect(std::move(import), request.timeout_ms);
  if (!status.ok()) cache_->Release(id, /*keep=*/true);
  return status;
}

absl::Status PrefixPulls::Expect(Import import, int64_t timeout_ms) {
  ReceiveSpec spec;
  spec.transfer_id = new_transfer_id_();
  spec.first_block = cache_->matched(import.sequence) / block_size_;
  spec.blocks = import.blocks;
  spec.tokens = static_cast<int32_t>(import.units.size());
  spec.timeout_ms =
      timeout_ms > 0 ? std::min(timeout_ms, options_.longest_ms) : options_.longest_ms;
  spec.may_end_early = true;
  const TransferTicket ticket{.transfer_id = spec.transfer_id,
                              .receiver_epoch = transport_->epoch(),
                              .address = transport_->address(),
                              .first_block = spec.first_block,
                              .block_count = static_cast<int32_t>(spec.blocks.size()),
                              .block_size = block_size_,
                              .timeout_ms = spec.timeout_ms};
  RETURN_IF_ERROR(transport_->Expect(std::move(spec)));
  cache_->HoldForTransfer(import.blocks);
  pulled_blocks_ += static_cast<int64_t>(import.blocks.size());
  import.ticket = ticket;
  const Waiter first = import.waiters.front();
  transfer_of_.emplace(first.handle, ticket.transfer_id);
  imports_.emplace(ticket.transfer_id, std::move(import));
  first.sink->OnTicket(ticket);
  return absl::OkStatus();
}

// The transfer that brings all of these, if there is one.
std::optional<uint64_t> PrefixPulls::OnItsWay(CacheNamespace cache_namespace,
                                              std::span<const CacheUnit> units) const {
  for (const auto& [id, import] : imports_) {
    if (import.waiters.empty() || import.cache_namespace != cache_namespace) continue;
    if (import.units.size() < units.size() || units.empty()) continue;
    if (std::equal(units.begin(), units.end(), import.units.begin())) return id;
  }
  return std::nullopt;
}

// Older leases give way to a new pull, unless they matter more.
absl::Status PrefixPulls::MakeRoom(int64_t blocks, int32_t priority) {
  const int64_t most = cache_->num_blocks() / 2;
  for (auto lease = leases_.begin(); lease != leases_.end() && pulled_blocks_ + blocks > most;) {
    lease = lease->priority <= priority ? EndLease(lease) : std::next(lease);
  }
  if (pulled_blocks_ + blocks <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("a prefix of ", blocks, " blocks; ", pulled_blocks_,
                                             " are being pulled, at most ", most));
}

bool PrefixPulls::OnEvent(const TransferEvent& event) {
  switch (event.kind) {
    case TransferEvent::Kind::kReceiving: {
      const auto import = imports_.find(event.id);
      if (import == imports_.end()) return false;
      import->second.landing = true;
      return true;
    }
    case TransferEvent::Kind::kReceived:
    case TransferEvent::Kind::kReceiveFailed: {
      auto node = imports_.extract(event.id);
      if (node.empty()) return false;
      Finish(std::move(node.mapped()), event);
      return true;
    }
    case TransferEvent::Kind::kSent:
    case TransferEvent::Kind::kSendFailed: {
      auto node = exports_.extract(event.id);
      if (node.empty()) return false;
      cache_->ReleaseTransferHold(node.mapped().blocks);
      return true;
    }
  }
  return false;
}

// The blocks that landed are verified, whatever became of the rest.
void PrefixPulls::Finish(Import import, const TransferEvent& event) {
  cache_->ReleaseTransferHold(import.blocks);
  pulled_blocks_ -= static_cast<int64_t>(import.blocks.size());
  const SequenceId id = import.sequence;
  const int32_t landed = event.blocks_done * block_size_;
  if (landed > 0) {
    cache_->Commit(id, std::span(import.units).subspan(cache_->matched(id), landed));
    cache_->InsertCommitted(id);
  }
  const int32_t tokens = cache_->committed(id);
  if (!import.waiters.empty()) {
    LeaseOut(cache_->BlockTable(id).first(tokens / block_size_), import.priority);
  }
  cache_->Release(id, /*keep=*/true);
  const bool came = landed > 0 || event.kind == TransferEvent::Kind::kReceived;
  // "Unavailable" would be said of this worker, and it is the source that is gone.
  const absl::Status why = absl::IsUnavailable(event.status)
                               ? absl::AbortedError(StrCat("the source: ", event.status.message()))
                               : event.status;
  for (const Waiter& waiter : import.waiters) {
    transfer_of_.erase(waiter.handle);
    if (came) {
      waiter.sink->OnDone(PullResult{.tokens = tokens,
                                     .pulled_tokens = landed,
                                     .kv_bytes = event.bytes,
                                     .kv_transfer_us = event.busy_us});
    } else {
      waiter.sink->OnDone(why);
    }
  }
}

void PrefixPulls::Cancel(RequestHandle handle) {
  const auto found = transfer_of_.find(handle);
  if (found == transfer_of_.end()) return;
  const uint64_t transfer_id = found->second;
  transfer_of_.erase(found);
  Import& import = imports_.at(transfer_id);
  const auto waiter = std::find_if(import.waiters.begin(), import.waiters.end(),
                                   [&](const Waiter& one) { return one.handle == handle; });
  const bool had_ticket = waiter == import.waiters.begin();
  const std::shared_ptr<PullSink> sink = std::move(waiter->sink);
  import.waiters.erase(waiter);
  if (import.waiters.empty()) {
    transport_->CancelReceive(transfer_id);
  } else if (had_ticket && !import.landing) {
    // Its source may never have heard of it. A second sender does no harm: the transport refuses
    // it.
    const auto next =
        std::find_if(import.waiters.begin(), import.waiters.end(),
                     [&](const Waiter& one) { return one.units == import.units.size(); });
    if (next != import.waiters.end()) {
      std::iter_swap(import.waiters.begin(), next);
      import.waiters.front().sink->OnTicket(import.ticket);
    }
  }
  sink->OnDone(absl::CancelledError("the pull was cancelled"));
}

// ---- leases -------------------------------------------------------------------------------------

void PrefixPulls::LeaseOut(std::span<const BlockId> blocks, int32_t priority) {
  if (options_.lease_ms == 0 || blocks.empty()) return;
  cache_->HoldForTransfer(blocks);
  pulled_blocks_ += static_cast<int64_t>(blocks.size());
  leases_.push_back({.until_us = clock_->NowUs() + options_.lease_ms * 1000,
                     .priority = priority,
                     .blocks = {blocks.begin(), blocks.end()}});
}

PrefixPulls::Leases::iterator PrefixPulls::EndLease(Leases::iterator lease) {
  const std::vector<BlockId> blocks = std::move(lease->blocks);
  const auto next = leases_.erase(lease);
  pulled_blocks_ -= static_cast<int64_t>(blocks.size());
  cache_->ReleaseTransferHold(blocks);
  return next;
}

std::optional<int64_t> PrefixPulls::EndLeases() {
  const int64_t now_us = clock_->NowUs();
  while (!leases_.empty() && leases_.front().until_us <= now_us) EndLease(leases_.begin());
  if (leases_.empty()) return std::nullopt;
  return leases_.front().until_us;
}

void PrefixPulls::DropLeases() {
  while (!leases_.empty()) EndLease(leases_.begin());
}

// ---- sending ------------------------------------------------------------------------------------

absl::StatusOr<int32_t> PrefixPulls::Send(RequestHandle handle, const SendPrefixRequest& request) {
  const TransferTicket& ticket = request.ticket;
  if (transport_ == nullptr) {
    return absl::FailedPreconditionError("this worker has no KV transport to send a prefix");
  }
  ASSIGN_OR_RETURN(const std::optional<RequestHandle> displaced, ToDisplace(request.priority));
  ASSIGN_OR_RETURN(HeldPrefix sent, HoldForTicket(request));
  const absl::Status started = transport_->StartSend({.sender_transfer = handle,
                                                      .ticket = ticket,
                                                      .tokens = sent.asked_tokens,
                                                      .timeout_ms = options_.longest_ms,
                                                      .may_end_early = true,
                                                      .priority = request.priority});
  if (!started.ok()) {
    cache_->ReleaseTransferHold(sent.blocks);
    return started;
  }
  if (displaced.has_value()) CancelExport(*displaced);
  transport_->Announce(handle, sent.blocks, /*final=*/true, {});
  exports_.emplace(handle, Export{.priority = request.priority, .blocks = std::move(sent.blocks)});
  return sent.tokens;
}

absl::StatusOr<std::optional<RequestHandle>> PrefixPulls::ToDisplace(int32_t priority) const {
  int32_t under_way = 0;
  auto least = exports_.end();
  for (auto it = exports_.begin(); it != exports_.end(); ++it) {
    if (it->second.cancelled) continue;
    ++under_way;
    const bool less =
        least == exports_.end() || it->second.priority <= least->second.priority;  // or later
    if (less) least = it;
  }
  if (under_way < options_.max_transfers) return std::nullopt;
  const int64_t ending = static_cast<int64_t>(exports_.size()) - under_way;
  if (least->second.priority < priority && ending < options_.max_transfers) return least->first;
  return absl::ResourceExhaustedError(StrCat(under_way, " prefixes are being sent and ", ending,
                                             " are ending, each at most ", options_.max_transfers,
                                             "; the lowest priority is ", least->second.priority,
                                             ", this one's ", priority));
}

void PrefixPulls::CancelExport(RequestHandle handle) {
  exports_.at(handle).cancelled = true;
  transport_->CancelSend(handle);
}

// The receiver gets whole blocks of its own, out of whole ones of ours.
absl::StatusOr<PrefixPulls::HeldPrefix> PrefixPulls::HoldForTicket(
    const SendPrefixRequest& request) {
  const TransferTicket& ticket = request.ticket;
  if (ticket.block_size != 0) {
    RETURN_IF_ERROR(CheckBlockSize("ticket.block_size", ticket.block_size));
  }
  const int32_t theirs = ticket.block_size == 0 ? block_size_ : ticket.block_size;
  const auto length = static_cast<int32_t>(request.tokens.size());
  if (ticket.first_block < 0 || ticket.block_count < 1 ||
      int64_t{ticket.first_block} + ticket.block_count != length / theirs) {
    return absl::InvalidArgumentError(
        StrCat("ticket.first_block ", ticket.first_block, " and block_count ", ticket.block_count,
               " do not end at the prefix's ", length / theirs, " blocks"));
  }
  const int32_t have = ticket.first_block * theirs;
  HeldPrefix sent{.asked_tokens = length / theirs * theirs, .tokens = have, .blocks = {}};
  const SequenceBlocks range = SenderBlocks(ticket, sent.asked_tokens, block_size_);
  const int32_t end = std::min(range.first + range.count, length / block_size_);
  if (end > range.first) {
    const std::vector<CacheUnit> units = UnitsFromTokens(request.tokens);
    sent.blocks = cache_
                      ->HoldPrefix(request.cache_namespace,
                                   std::span(units).first(static_cast<size_t>(end) * block_size_),
                                   range.first)
                      .blocks;
    const int32_t held = (range.first + static_cast<int32_t>(sent.blocks.size())) * block_size_;
    sent.tokens = std::max(have, std::min(held, sent.asked_tokens) / theirs * theirs);
  }
  // What fills no further block of the receiver stays here.
  const int32_t wanted =
      sent.tokens > have ? BlocksForTokens(block_size_, sent.tokens) - range.first : 0;
  cache_->ReleaseTransferHold(std::span(sent.blocks).subspan(static_cast<size_t>(wanted)));
  sent.blocks.resize(static_cast<size_t>(wanted));
  if (wanted > 0) return sent;
  return absl::NotFoundError(
      StrCat("nothing behind the prefix's first ", have, " tokens is cached here"));
}

std::vector<BlockId> PrefixPulls::HeldBlocks() const {
  std::vector<BlockId> held;
  const auto add = [&held](std::span<const BlockId> blocks) {
    held.insert(held.end(), blocks.begin(), blocks.end());
  };
  for (const auto& [id, import] : imports_) add(import.blocks);
  for (const auto& [handle, sent] : exports_) add(sent.blocks);
  for (const Lease& lease : leases_) add(lease.blocks);
  return held;
}

void PrefixPulls::Shutdown(const absl::Status& status) {
  DropLeases();
  transfer_of_.clear();
  for (auto& [id, import] : imports_) {
    transport_->CancelReceive(id);
    for (const Waiter& waiter : std::exchange(import.waiters, {})) waiter.sink->OnDone(status);
  }
  for (const auto& [handle, sent] : exports_) CancelExport(handle);
}

}  // namespace baton
