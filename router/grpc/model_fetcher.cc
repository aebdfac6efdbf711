#include "router/grpc/model_fetcher.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/printable_text.h"
#include "router/grpc/router_wire.h"
#include "rpc/channel.h"

namespace baton {
namespace {

constexpr int64_t kFetchTimeoutMs = 5'000;
constexpr int64_t kFirstDelayMs = 100;
constexpr int64_t kLongestDelayMs = 1'000;
constexpr auto kLogInterval = std::chrono::seconds(30);

}  // namespace

ModelFetcher::ModelFetcher(RouterCore* core, WorkerChannels* channels)
    : core_(core),
      channels_(channels),
      builder_(/*threads=*/1, /*max_queued=*/1, "tokenizers to be built") {}

ModelFetcher::~ModelFetcher() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (call_ != nullptr) call_->Cancel();
  idle_.wait(lock, [this] { return !fetching_; });
}

void ModelFetcher::MaybeFetch() {
  std::lock_guard lock(mutex_);
  if (fetching_ || stopping_ || std::chrono::steady_clock::now() < not_before_) return;
  const std::optional<WorkerRecord> source = core_->ModelSource(failures_);
  if (!source) return;
  fetching_ = true;
  const auto begin = [](v1::Worker::Stub& stub, grpc::ClientContext* context,
                        const v1::GetTokenizerRequest* request, v1::TokenizerDescription* response,
                        std::function<void(grpc::Status)> done) {
    stub.async()->GetTokenizer(context, request, response, std::move(done));
  };
  call_ =
      Call::Start(v1::Worker::NewStub(channels_->Get(source->report.address, source->report.epoch)),
                  v1::GetTokenizerRequest(), DeadlineIn(kFetchTimeoutMs), begin,
                  [this](const absl::Status& status, v1::TokenizerDescription description) {
                    OnDescription(status, std::move(description));
                  });
}

void ModelFetcher::OnDescription(const absl::Status& status, v1::TokenizerDescription description) {
  if (!status.ok()) return Done(status);
  auto wire = std::make_shared<v1::TokenizerDescription>(std::move(description));
  const auto build = [this, wire] {
    absl::StatusOr<std::shared_ptr<const ServedModel>> model =
        ServedModel::Create(ModelFromWire(std::move(*wire)));
    Done(model.ok() ? core_->SetModel(*std::move(model)) : model.status());
  };
  if (const absl::Status posted = builder_.Post(build); !posted.ok()) Done(posted);
}

void ModelFetcher::Done(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (status.ok()) {
    delay_ms_ = 0;
  } else {
    ++failures_;
    delay_ms_ = std::clamp(2 * delay_ms_, kFirstDelayMs, kLongestDelayMs);
    const auto now = std::chrono::steady_clock::now();
    not_before_ = now + std::chrono::milliseconds(delay_ms_);
    if (status.message() != logged_ || now - logged_at_ >= kLogInterval) {
      logged_ = std::string(status.message());
      logged_at_ = now;
      LOG(WARNING) << "no tokenizer from the fleet: " << Printable(logged_);
    }
  }
  fetching_ = false;
  call_ = nullptr;
  idle_.notify_all();
}

}  // namespace baton
