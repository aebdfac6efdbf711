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
      block_size_(cache->options().block_size),
      windows_(WindowSizes(*cache)) {}

PrefixPulls::~PrefixPulls() { CHECK(idle()) << "destroyed with live transfers or leases"; }

// ---- receiving ----------------------------------------------------------------------------------

void PrefixPulls::Pull(RequestHandle handle, PullRequest request,
                       const std::shared_ptr<PullSink>& sink, int32_t spare_blocks) {
  request.tokens.resize(request.tokens.size() / block_size_ * block_size_);
  const absl::Status status = Begin(handle, request, sink, spare_blocks);
  if (!status.ok()) sink->OnDone(status);
}

// On error, nothing was reserved and the sink was not called.
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
    return absl::ResourceExhaustedError(StrCat(
        imports_.size(), " prefixes are being pulled; the limit is ", options_.max_transfers));
  }
  RETURN_IF_ERROR(MakeRoom(static_cast<int32_t>(units.size()), request.priority));
  const SequenceId id(handle);
  ASSIGN_OR_RETURN(const int32_t matched,
                   cache_->BeginImport(id, request.cache_namespace, units, spare_blocks,
                                       request.priority, request.cache_owner));
  if (matched == static_cast<int32_t>(units.size())) {
    LeaseOut(id, matched, request.priority);
    cache_->Release(id, /*keep=*/true);
    sink->OnDone(PullResult{.tokens = matched});
    return absl::OkStatus();
  }
  const size_t asked = units.size();
  Import import{.priority = request.priority,
                .sequence = id,
                .cache_namespace = request.cache_namespace,
                .units = std::move(units),
                .rows = {},
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
  spec.tokens = static_cast<int32_t>(import.units.size());
  spec.window_first_blocks = WindowFirstBlocks(*cache_, spec.first_block, spec.tokens);
  const SequenceBlocks missing = {.first = spec.first_block,
                                  .count = spec.tokens / block_size_ - spec.first_block};
  AppendRows(
      *cache_, import.sequence,
      MovedTokens(spec.first_block, spec.window_first_blocks, spec.tokens, block_size_, windows_),
      missing, import.rows);
  spec.blocks = import.rows;
  spec.timeout_ms =
      timeout_ms > 0 ? std::min(timeout_ms, options_.longest_ms) : options_.longest_ms;
  spec.may_end_early = true;
  const TransferTicket ticket{.transfer_id = spec.transfer_id,
                              .receiver_epoch = transport_->epoch(),
                              .address = transport_->address(),
                              .first_block = spec.first_block,
                              .block_count = missing.count,
                              .block_size = block_size_,
                              .window_first_blocks = spec.window_first_blocks,
                              .timeout_ms = spec.timeout_ms};
  RETURN_IF_ERROR(transport_->Expect(std::move(spec)));
  HoldRows(*cache_, import.rows);
  pulled_ += CountBlocks(import.rows, cache_->groups());
  import.ticket = ticket;
  const Waiter first = import.waiters.front();
  transfer_of_.emplace(first.handle, ticket.transfer_id);
  imports_.emplace(ticket.transfer_id, std::move(import));
  first.sink->OnTicket(ticket);
  return absl::OkStatus();
}

// Returns the transfer that brings all of `units`, if there is one.
std::optional<uint64_t> PrefixPulls::OnItsWay(CacheNamespace cache_namespace,
                                              std::span<const CacheUnit> units) const {
  for (const auto& [id, import] : imports_) {
    if (import.waiters.empty() || import.cache_namespace != cache_namespace) continue;
    if (import.units.size() < units.size() || units.empty()) continue;
    // An import brings window blocks for its own end only.
    if (!windows_.empty() && import.units.size() != units.size()) continue;
    if (std::equal(units.begin(), units.end(), import.units.begin())) return id;
  }
  return std::nullopt;
}

BlockCounts PrefixPulls::BlocksOf(int32_t tokens) const {
  BlockCounts counts(tokens / block_size_);
  int32_t group = 1;
  for (const int32_t first : WindowFirstBlocks(*cache_, 0, tokens)) {
    counts[group++] = tokens / block_size_ - first;
  }
  return counts;
}

// Drops older leases of equal or lower priority until the pull fits into half of each pool.
absl::Status PrefixPulls::MakeRoom(int32_t tokens, int32_t priority) {
  const BlockCounts more = BlocksOf(tokens);
  BlockCounts most = cache_->PoolBlocks();
  for (int32_t group = 0; group < cache_->groups(); ++group) most[group] /= 2;
  const auto full_group = [&] { return (most - pulled_ - more).FirstBelowZero(); };
  for (auto lease = leases_.begin(); lease != leases_.end() && full_group() >= 0;) {
    lease = lease->priority <= priority ? EndLease(lease) : std::next(lease);
  }
  const int32_t group = full_group();
  if (group < 0) return absl::OkStatus();
  const std::string of_group = group == 0 ? "" : StrCat("KV group ", group, ": ");
  return absl::ResourceExhaustedError(
      StrCat(of_group, "a prefix of ", more[group], " blocks does not fit: ", pulled_[group],
             " blocks are being pulled or leased, the limit is ", most[group]));
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
      ReleaseRows(*cache_, node.mapped().rows);
      return true;
    }
  }
  return false;
}

// Landed blocks are verified, even if the transfer failed.
void PrefixPulls::Finish(Import import, const TransferEvent& event) {
  ReleaseRows(*cache_, import.rows);
  pulled_ -= CountBlocks(import.rows, cache_->groups());
  const SequenceId id = import.sequence;
  const int32_t matched = cache_->matched(id);
  const auto asked = static_cast<int32_t>(import.units.size());
  const int32_t end = matched + event.blocks_done * block_size_;
  const int32_t landed = cache_->WholeBoundary(id, end, asked) - matched;
  if (landed > 0) {
    cache_->Commit(id, std::span(import.units).subspan(matched, landed));
    cache_->InsertCommitted(id);
  }
  const int32_t tokens = cache_->committed(id);
  if (!import.waiters.empty()) LeaseOut(id, tokens, import.priority);
  cache_->Release(id, /*keep=*/true);
  const bool came = landed > 0 || event.kind == TransferEvent::Kind::kReceived;
  // UNAVAILABLE would mean this worker, but the source is the one that is gone.
  const absl::Status why =
      absl::IsUnavailable(event.status)
          ? absl::AbortedError(StrCat("the source failed: ", event.status.message()))
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
    // The source may never have received the ticket. A second sender is harmless: the transport
    // refuses it.
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

// Leases the sequence's first `tokens` tokens, in whole blocks.
void PrefixPulls::LeaseOut(SequenceId id, int32_t tokens, int32_t priority) {
  if (options_.lease_ms == 0 || tokens == 0) return;
  const std::vector<int32_t> from_begin(windows_.size(), 0);
  Lease lease{
      .until_us = clock_->NowUs() + options_.lease_ms * 1000, .priority = priority, .rows = {}};
  AppendRows(*cache_, id, MovedTokens(0, from_begin, tokens, block_size_, windows_),
             {.first = 0, .count = tokens / block_size_}, lease.rows);
  HoldRows(*cache_, lease.rows);
  pulled_ += CountBlocks(lease.rows, cache_->groups());
  leases_.push_back(std::move(lease));
}

PrefixPulls::Leases::iterator PrefixPulls::EndLease(const Leases::iterator& lease) {
  const std::vector<BlockId> rows = std::move(lease->rows);
  const auto next = leases_.erase(lease);
  pulled_ -= CountBlocks(rows, cache_->groups());
  ReleaseRows(*cache_, rows);
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
    ReleaseRows(*cache_, sent.rows);
    return started;
  }
  if (displaced.has_value()) CancelExport(*displaced);
  transport_->Announce(handle, sent.rows, /*final=*/true, {});
  exports_.emplace(handle, Export{.priority = request.priority, .rows = std::move(sent.rows)});
  return sent.tokens;
}

absl::StatusOr<std::optional<RequestHandle>> PrefixPulls::ToDisplace(int32_t priority) const {
  int32_t under_way = 0;
  auto least = exports_.end();
  for (auto it = exports_.begin(); it != exports_.end(); ++it) {
    if (it->second.cancelled) continue;
    ++under_way;
    const bool less = least == exports_.end() ||
                      it->second.priority <= least->second.priority;  // ties: the most recent one
    if (less) least = it;
  }
  if (under_way < options_.max_transfers) return std::nullopt;
  const int64_t ending = static_cast<int64_t>(exports_.size()) - under_way;
  if (least->second.priority < priority && ending < options_.max_transfers) return least->first;
  return absl::ResourceExhaustedError(StrCat(
      under_way, " prefixes are being sent and ", ending, " are ending; the limit for each is ",
      options_.max_transfers, ". The lowest priority that is being sent is ",
      least->second.priority, ", and the priority of this prefix is ", priority));
}

void PrefixPulls::CancelExport(RequestHandle handle) {
  exports_.at(handle).cancelled = true;
  transport_->CancelSend(handle);
}

// Holds the cached blocks that fill whole blocks of the receiver.
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
  RETURN_IF_ERROR(CheckWindowBlocks("ticket", ticket.window_first_blocks, cache_->groups(),
                                    ticket.first_block, length / theirs));
  RETURN_IF_ERROR(CheckWindowsLandWhole(*cache_, ticket));
  const int32_t have = ticket.first_block * theirs;
  HeldPrefix sent{.asked_tokens = length / theirs * theirs, .tokens = have, .rows = {}};
  const SequenceBlocks range = SenderBlocks(ticket, sent.asked_tokens, block_size_);
  const int32_t end = std::min(range.first + range.count, length / block_size_);
  HeldBlocks held;
  if (end > range.first) {
    const std::vector<CacheUnit> units = UnitsFromTokens(request.tokens);
    held = cache_->HoldPrefix(request.cache_namespace,
                              std::span(units).first(static_cast<size_t>(end) * block_size_),
                              range.first);
    const int32_t cached = (range.first + static_cast<int32_t>(held.blocks.size())) * block_size_;
    sent.tokens = std::max(have, std::min(cached, sent.asked_tokens) / theirs * theirs);
    if (!windows_.empty() && sent.tokens < sent.asked_tokens) sent.tokens = have;
  }
  // Tokens that do not fill another block of the receiver are not sent.
  SequenceBlocks wanted = range;
  wanted.count = sent.tokens > have ? BlocksForTokens(block_size_, sent.tokens) - range.first : 0;
  sent.rows = KeepRows(held, MovedTokens(ticket, sent.asked_tokens, block_size_, windows_), wanted);
  if (!sent.rows.empty()) return sent;
  return absl::NotFoundError(
      StrCat("the prefix is not cached here from token ", have, " on",
             windows_.empty() ? "" : StrCat(", up to its end at token ", sent.asked_tokens)));
}

// Returns rows of the wanted blocks, which start where the held ones do. Releases the other held
// blocks.
std::vector<BlockId> PrefixPulls::KeepRows(const HeldBlocks& held, const MovedTokens& moved,
                                           SequenceBlocks wanted) {
  const auto count = static_cast<size_t>(wanted.count);
  const auto groups = static_cast<size_t>(cache_->groups());
  std::vector<BlockId> rows(count * groups, kNoBlock);
  for (size_t i = 0; i < count; ++i) rows[i * groups] = held.blocks[i];
  cache_->ReleaseTransferHold(std::span(held.blocks).subspan(count));
  for (size_t group = 1; group <= held.windows.size(); ++group) {
    const HeldBlocks::Window& window = held.windows[group - 1];
    std::vector<BlockId> unwanted;
    for (size_t i = 0; i < window.blocks.size(); ++i) {
      const int32_t block = window.first + static_cast<int32_t>(i);
      const bool moves = block < wanted.first + wanted.count &&
                         moved.GroupsOf(block, block_size_).Has(static_cast<int32_t>(group));
      if (moves) {
        rows[static_cast<size_t>(block - wanted.first) * groups + group] = window.blocks[i];
      } else {
        unwanted.push_back(window.blocks[i]);
      }
    }
    cache_->ReleaseTransferHold(unwanted, static_cast<int32_t>(group));
  }
  return rows;
}

void PrefixPulls::AppendHeld(int32_t group, std::vector<BlockId>& held) const {
  const int32_t groups = cache_->groups();
  for (const auto& [id, import] : imports_) AppendGroup(import.rows, groups, group, held);
  for (const auto& [handle, sent] : exports_) AppendGroup(sent.rows, groups, group, held);
  for (const Lease& lease : leases_) AppendGroup(lease.rows, groups, group, held);
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
