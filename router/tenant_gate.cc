#include "router/tenant_gate.h"

#include <algorithm>

#include "cache/cache_key.h"
#include "common/check.h"
#include "common/error_details.h"
#include "common/printable_text.h"
#include "common/request_bounds.h"
#include "common/status_macros.h"
#include "common/str_cat.h"

namespace baton {
namespace {

constexpr int64_t kUsPerMs = 1000;
constexpr int64_t kShortestWaitMs = 50;
constexpr int64_t kForgetUs = 120'000'000;  // a bucket is full again after a minute
constexpr double kMeanShare = 0.1;          // of the newest request in the mean

}  // namespace

void TenantGate::SetTable(TenantTable table) {
  std::lock_guard lock(mutex_);
  table_ = std::move(table);
}

void TenantGate::SetWindow(size_t requests) {
  Starts starts;
  {
    std::lock_guard lock(mutex_);
    const auto routers = static_cast<size_t>(routers_);
    window_ = std::max<size_t>(1, requests / routers + (requests % routers == 0 ? 0 : 1));
    starts = TakeStarts();
  }
  for (const auto& start : starts) start();
}

void TenantGate::Tick() {
  std::lock_guard lock(mutex_);
  queue_.ForgetIdle();
  const int64_t before_us = clock_->NowUs() - kForgetUs;
  std::erase_if(tenants_, [&](const auto& entry) {
    const Tenant& tenant = *entry.second;
    return tenant.use.running == 0 && tenant.last_seen_us < before_us &&
           !table_.IsListed(tenant.name);
  });
}

TenantGate::Tenant& TenantGate::FindTenant(std::string_view name) {
  auto it = tenants_.find(name);
  if (it == tenants_.end()) {
    const bool too_many = tenants_.size() >= kMaxTenants + table_.size();
    const bool too_long = name.size() > static_cast<size_t>(kMaxTenantBytes);
    if (!table_.IsListed(name) && (too_many || too_long)) name = kFurtherTenants;
    it = tenants_.try_emplace(std::string(name), nullptr).first;
    if (it->second == nullptr) {
      it->second = std::make_unique<Tenant>();
      it->second->name = std::string(name);
      it->second->use.tenant = it->second->name;
    }
  }
  Tenant& tenant = *it->second;
  tenant.use.limits = table_.LimitsOf(tenant.name);
  return tenant;
}

double TenantGate::Part(int64_t limit) const {
  return static_cast<double>(limit / routers_ + (limit % routers_ == 0 ? 0 : 1));
}

absl::Status TenantGate::Refuse(Tenant& tenant, std::string_view limit, int64_t value,
                                int64_t wait_us) const {
  ++tenant.use.refused;
  const int64_t wait_ms = std::max(kShortestWaitMs, (wait_us + kUsPerMs - 1) / kUsPerMs);
  absl::Status status = absl::ResourceExhaustedError(
      StrCat("tenant \"", Printable(tenant.name), "\" has reached its ", limit, " of ", value,
             routers_ == 1 ? "" : StrCat(", shared by ", routers_, " routers"), "; try again in ",
             wait_ms, " ms"));
  SetTenantLimit(status);
  SetRetryAfterMs(status, wait_ms);
  return status;
}

absl::StatusOr<std::unique_ptr<TenantVisit>> TenantGate::Enter(std::string_view name,
                                                               int32_t priority) {
  ASSIGN_OR_RETURN(std::vector<std::unique_ptr<TenantVisit>> visits, EnterAll(name, priority, 1));
  return std::move(visits.front());
}

absl::StatusOr<std::vector<std::unique_ptr<TenantVisit>>> TenantGate::EnterAll(
    std::string_view name, int32_t priority, int32_t requests) {
  std::lock_guard lock(mutex_);
  const int64_t now_us = clock_->NowUs();
  Tenant& tenant = FindTenant(name);
  tenant.last_seen_us = now_us;
  tenant.use.requests += requests;
  const TenantLimits& limits = tenant.use.limits;
  const auto most = static_cast<int32_t>(Part(limits.concurrent_requests));
  if (most > 0 && requests > most) {
    return absl::InvalidArgumentError(StrCat("there are ", requests, " prompts; tenant \"",
                                             Printable(tenant.name), "\" may have ", most,
                                             " requests at once (concurrent_requests)"));
  }
  if (most > 0 && tenant.use.running + requests > most) {
    return Refuse(tenant, "concurrent_requests", limits.concurrent_requests,
                  static_cast<int64_t>(tenant.mean_request_us / most));
  }
  if (limits.requests_per_minute > 0) {
    const double part = Part(limits.requests_per_minute);
    if (const int64_t wait_us = tenant.requests.WaitUs(requests, part, now_us); wait_us > 0) {
      return Refuse(tenant, "requests_per_minute", limits.requests_per_minute, wait_us);
    }
    tenant.requests.Take(requests);
  }
  std::vector<std::unique_ptr<TenantVisit>> visits;
  for (int32_t i = 0; i < requests; ++i) visits.push_back(NewVisit(tenant, priority, now_us));
  return visits;
}

std::unique_ptr<TenantVisit> TenantGate::NewVisit(Tenant& tenant, int32_t priority,
                                                  int64_t now_us) {
  ++tenant.use.running;
  ++tenant.entered;
  const TenantLimits& limits = tenant.use.limits;
  std::unique_ptr<TenantVisit> visit(
      new TenantVisit(this, &tenant, next_id_++, std::min(priority, limits.max_priority), now_us));
  if (limits.kv_share > 0) {
    visit->cache_owner_ = {
        .id = MakeNamespace(
                  {.tenant = tenant.name, .cache_salt = "", .lora = "", .model_revision = ""})
                  .low(),
        .share = limits.kv_share};
  }
  return visit;
}

TenantGate::Starts TenantGate::TakeStarts() {
  Starts out;
  while (started_ < window_) {
    const std::optional<uint64_t> id = queue_.Pop();
    if (!id) break;
    const auto it = waiting_.find(*id);
    CHECK(it != waiting_.end()) << *id;
    TenantVisit& visit = *it->second;
    waiting_.erase(it);
    visit.stage_ = TenantVisit::Stage::kStarted;
    --visit.tenant_->use.waiting;
    ++started_;
    out.push_back(std::move(visit.start_));
    visit.start_ = nullptr;
  }
  return out;
}

std::vector<TenantUse> TenantGate::Uses(size_t most) const {
  std::vector<TenantUse> out;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, tenant] : tenants_) {
      out.push_back(tenant->use);
      out.back().limits = table_.LimitsOf(name);
    }
  }
  std::sort(out.begin(), out.end(), [](const TenantUse& a, const TenantUse& b) {
    return a.tokens != b.tokens ? a.tokens > b.tokens : a.tenant < b.tenant;
  });
  if (out.size() > most) out.resize(most);
  return out;
}

// ---- TenantVisit --------------------------------------------------------------------------------

TenantVisit::~TenantVisit() { End(0); }

absl::Status TenantVisit::Reserve(int64_t tokens) {
  std::lock_guard lock(gate_->mutex_);
  const TenantLimits& limits = tenant_->use.limits;
  if (limits.tokens_per_minute > 0) {
    const double part = gate_->Part(limits.tokens_per_minute);
    const int64_t wait_us =
        tenant_->tokens.WaitUs(static_cast<double>(tokens), part, gate_->clock_->NowUs());
    if (wait_us > 0) {
      if (limits.requests_per_minute > 0) {
        tenant_->requests.Give(1, gate_->Part(limits.requests_per_minute));
      }
      return gate_->Refuse(*tenant_, "tokens_per_minute", limits.tokens_per_minute, wait_us);
    }
    tenant_->tokens.Take(static_cast<double>(tokens));
  }
  reserved_ = tokens;
  return absl::OkStatus();
}

size_t TenantVisit::Ahead() const {
  std::lock_guard lock(gate_->mutex_);
  // Requests of this tenant that will enter the queue soon come before this one.
  return gate_->started_ + gate_->queue_.Ahead(tenant_->name, priority_) + tenant_->entered - 1;
}

bool TenantVisit::AwaitTurn(std::function<void()> start) {
  TenantGate::Starts starts;
  bool now = false;
  {
    std::lock_guard lock(gate_->mutex_);
    if (stage_ != Stage::kEntered) return false;
    stage_ = Stage::kWaits;
    --tenant_->entered;
    start_ = std::move(start);
    weight_ = tenant_->use.limits.weight;
    gate_->queue_.Push(id_, tenant_->name, priority_, weight_, static_cast<double>(reserved_));
    gate_->waiting_.emplace(id_, this);
    ++tenant_->use.waiting;
    // The queue is in order, so this request starts if anything does and it is the only one. All
    // others that may start have started before.
    starts = gate_->TakeStarts();
    now = stage_ == Stage::kStarted;
  }
  if (now) return true;
  for (const auto& other : starts) other();
  return false;
}

void TenantVisit::FirstToken() {
  TenantGate::Starts starts;
  {
    std::lock_guard lock(gate_->mutex_);
    if (stage_ != Stage::kStarted) return;
    stage_ = Stage::kHasToken;
    --gate_->started_;
    starts = gate_->TakeStarts();
  }
  for (const auto& start : starts) start();
}

void TenantVisit::End(int64_t used_tokens) {
  TenantGate::Starts starts;
  std::function<void()> dropped;  // destroyed without the lock
  {
    std::lock_guard lock(gate_->mutex_);
    if (stage_ == Stage::kEnded) return;
    const Stage stage = std::exchange(stage_, Stage::kEnded);
    TenantUse& use = tenant_->use;
    if (stage == Stage::kWaits) {
      CHECK(gate_->queue_.Remove(id_)) << id_;
      gate_->waiting_.erase(id_);
      --use.waiting;
      dropped = std::move(start_);
    } else if (stage == Stage::kEntered) {
      --tenant_->entered;
    } else {
      gate_->queue_.Correct(tenant_->name, priority_, weight_,
                            static_cast<double>(used_tokens - reserved_));
    }
    if (use.limits.tokens_per_minute > 0 && reserved_ > used_tokens) {
      tenant_->tokens.Give(static_cast<double>(reserved_ - used_tokens),
                           gate_->Part(use.limits.tokens_per_minute));
    }
    --use.running;
    use.tokens += used_tokens;
    const int64_t now_us = gate_->clock_->NowUs();
    tenant_->last_seen_us = now_us;
    const auto took_us = static_cast<double>(now_us - entered_us_);
    double& mean_us = tenant_->mean_request_us;
    mean_us += (mean_us == 0 ? 1.0 : kMeanShare) * (took_us - mean_us);
    if (stage == Stage::kStarted) --gate_->started_;
    starts = gate_->TakeStarts();
  }
  for (const auto& start : starts) start();
}

}  // namespace baton
