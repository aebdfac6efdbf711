// Runs a session against workers that answer, refuse, fall silent and die in random orders. Checks
// that the client gets each token once and in order, and that no count stays on a worker.
#include "router/generate_session.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/router/worker_reports.h"

namespace baton {
namespace {

constexpr int32_t kAnswerTokens = 6;

class RandomFleet final : public SilenceListener,
                          public std::enable_shared_from_this<RandomFleet>,
                          public GenerateCalls {
 public:
  explicit RandomFleet(uint64_t seed)
      : random_(seed),
        core_(RouterOptions(), &clock_),
        n_(1 + static_cast<int32_t>(random_() % 2)) {
    for (const char* id : {"d1", "d2", "d3"}) {
      EXPECT_TRUE(core_.Heartbeat(Report(id, WorkerRole::kDecode)).ok());
    }
    for (const char* id : {"p1", "p2"}) {
      EXPECT_TRUE(core_.Heartbeat(Report(id, WorkerRole::kPrefill)).ok());
    }
    session_ = std::make_unique<GenerateSession>(&core_, &failure_detector_, this, 0);
    answer_.resize(static_cast<size_t>(n_));
    ends_.resize(static_cast<size_t>(n_));
  }

  void Run() {
    session_->Start({.prompt = std::vector<TokenId>(1000, 7),
                     .prompt_hashes = {},
                     .choices = AnswerChoices(n_)},
                    shared_from_this());
    for (int event = 0; event < 60; ++event) RandomEvent();
    session_->OnClientGone(absl::DeadlineExceededError("late"));
    while (!calls_.empty()) EndCall(0, absl::CancelledError("cancelled"));
  }

  void Check() {
    EXPECT_EQ(ends_told_, 1);
    EXPECT_EQ(core_.counters().active_requests, 0);
    for (const WorkerRecord& worker : core_.Workers()) {
      EXPECT_EQ(worker.active, 0) << worker.report.id;
      EXPECT_TRUE(worker.prompts.empty()) << worker.report.id;
      EXPECT_TRUE(failure_detector_.ListenersOf(worker.number).empty()) << worker.report.id;
    }
  }
  bool succeeded() const { return succeeded_; }
  int32_t resumes() const { return session_->lost_workers(); }

  void OnWorkerSilent(WorkerNumber worker) override { session_->OnWorkerSilent(worker); }

 private:
  enum class Kind { kPull, kDecode, kPrefill, kLocally };
  struct Call {
    Kind kind;
    int32_t attempt;
    WorkerNumber worker;
    bool ticket_due = false;
    bool cancelled = false;
    std::vector<int32_t> next = {};  // next token of each choice
  };

  void RandomEvent() {
    if (session_->ended() && calls_.empty()) return;
    const std::vector<WorkerRecord> workers = core_.Workers();
    const WorkerNumber worker = workers[random_() % workers.size()].number;
    if (random_() % 3 == 0) core_.MarkReachable(worker);
    if (random_() % 16 == 0) return session_->OnWorkerSilent(worker);
    if (random_() % 40 == 0) return session_->OnClientGone(absl::CancelledError("bye"));
    if (report_awaited_ && random_() % 4 == 0) return session_->OnReportOverdue();
    if (calls_.empty()) return;
    const size_t which = random_() % calls_.size();
    Call& call = calls_[which];
    if (call.cancelled) return EndCall(which, absl::CancelledError("cancelled"));
    if (call.kind != Kind::kDecode || random_() % 12 == 0) return EndCall(which, RandomStatus());
    if (call.ticket_due) {
      call.ticket_due = false;
      return session_->OnTicket(call.attempt);
    }
    Answer(call);
  }

  // Sends the next event of a correct decode worker.
  void Answer(Call& call) {
    const auto choice = static_cast<size_t>(random_() % call.next.size());
    const int32_t attempt = call.attempt;
    choice_ = static_cast<int32_t>(choice);
    int32_t& next = call.next[choice];
    if (next > kAnswerTokens) return;  // the choice has ended
    if (next < kAnswerTokens) {
      const TokenId token = token_ = next++;
      session_->OnTokens(attempt, choice_, {&token, 1}, 0);
    } else {
      ++next;
      session_->OnChoiceFinished(attempt, choice_);
    }
  }

  void EndCall(size_t which, absl::Status status) {
    const Call call = calls_[which];
    calls_.erase(calls_.begin() + static_cast<ptrdiff_t>(which));
    switch (call.kind) {
      case Kind::kPull:
        return session_->OnPullEnd(call.attempt, random_() % 8 == 0, random_() % 8 == 0);
      case Kind::kDecode:
        return session_->OnDecodeEnd(call.attempt, call.worker, std::move(status));
      case Kind::kPrefill:
        return session_->OnPrefillEnd(call.attempt, call.worker, std::move(status));
      case Kind::kLocally:
        return session_->OnPrefillLocallyEnd(call.attempt, call.worker, std::move(status));
    }
  }

  absl::Status RandomStatus() {
    switch (random_() % 6) {
      case 0:
        return absl::UnavailableError("u");
      case 1:
        return absl::ResourceExhaustedError("r");
      case 2:
        return absl::InternalError("i");
      default:
        return absl::OkStatus();
    }
  }

  Call* Find(Kind kind, int32_t attempt) {
    for (Call& call : calls_) {
      if (call.kind == kind && call.attempt == attempt) return &call;
    }
    return nullptr;
  }
  void Cancel(Kind kind) {
    if (Call* const call = Find(kind, session_->attempt())) call->cancelled = true;
  }

  void OnRouted(Route& route) override {
    if (random_() % 3 != 0) return;
    for (const WorkerRecord& worker : core_.Workers()) {
      if (worker.number == route.plan.prefiller()) continue;
      route.plan.pull = PrefixPull{.from = worker.number, .tokens = 16};
    }
  }
  void StartPull(int32_t attempt) override {
    calls_.push_back({.kind = Kind::kPull, .attempt = attempt, .worker = WorkerNumber(0)});
  }
  void OpenDecode(const FlowAction& action) override {
    std::vector<int32_t> next(static_cast<size_t>(n_), 0);
    for (size_t i = 0; i < session_->DecodeGoesOnBehind().size(); ++i) {
      const AnswerChoices::Choice& choice = session_->DecodeGoesOnBehind()[i];
      next[i] = static_cast<int32_t>(choice.tokens.size()) + (choice.finished ? 1 : 0);
      EXPECT_EQ(choice.tokens, answer_[i]);
    }
    calls_.push_back({.kind = Kind::kDecode,
                      .attempt = action.attempt,
                      .worker = action.worker,
                      .ticket_due = action.remote_prefill,
                      .next = std::move(next)});
  }
  void SendPrefill(const FlowAction& action) override {
    EXPECT_LE(session_->PrefillGoesOnBehind().size(), 1u);
    calls_.push_back({.kind = Kind::kPrefill, .attempt = action.attempt, .worker = action.worker});
  }
  void PrefillLocally(const FlowAction& action) override {
    calls_.push_back({.kind = Kind::kLocally, .attempt = action.attempt, .worker = action.worker});
  }
  void CancelPull() override { Cancel(Kind::kPull); }
  void CancelDecode() override { Cancel(Kind::kDecode); }
  void CancelPrefill() override { Cancel(Kind::kPrefill); }
  void AwaitReport() override { report_awaited_ = true; }

  void SendStarted() override { EXPECT_EQ(started_++, 0); }
  bool SendTokens() override {
    EXPECT_EQ(ends_told_, 0);
    std::vector<TokenId>& answer = answer_[static_cast<size_t>(choice_)];
    EXPECT_EQ(token_, static_cast<TokenId>(answer.size()));
    answer.push_back(token_);
    return random_() % 200 != 0;
  }
  void KeepEnd() override { kept_.push_back(choice_); }
  void SendEnds() override {
    for (const int32_t choice : std::exchange(kept_, {})) {
      EXPECT_EQ(ends_told_, 0);
      EXPECT_EQ(answer_[static_cast<size_t>(choice)].size(), static_cast<size_t>(kAnswerTokens));
      EXPECT_EQ(ends_[static_cast<size_t>(choice)]++, 0);
    }
  }
  void End(const absl::Status& status) override {
    ++ends_told_;
    succeeded_ = status.ok();
    if (!succeeded_) return;
    for (const int ends : ends_) EXPECT_EQ(ends, 1);
  }

  std::mt19937_64 random_;
  const SystemClock clock_;
  RouterCore core_;
  FailureDetector failure_detector_;
  const int32_t n_;
  std::unique_ptr<GenerateSession> session_;
  std::vector<Call> calls_;
  TokenId token_ = 0;
  int32_t choice_ = 0;
  std::vector<std::vector<TokenId>> answer_;  // per choice, as the client received it
  std::vector<int32_t> kept_;
  std::vector<int> ends_;  // ends of each choice, as the client received them
  int started_ = 0;
  int ends_told_ = 0;
  bool report_awaited_ = false;
  bool succeeded_ = false;
};

TEST(GenerateSession, LeavesNoStateBehindAfterAnyEvents) {
  const uint64_t first_seed = std::random_device{}();
  int succeeded = 0;
  int resumed = 0;
  for (uint64_t seed = first_seed; seed < first_seed + 1000; ++seed) {
    SCOPED_TRACE(seed);
    const auto fleet = std::make_shared<RandomFleet>(seed);
    fleet->Run();
    fleet->Check();
    succeeded += fleet->succeeded() ? 1 : 0;
    resumed += fleet->succeeded() && fleet->resumes() > 0 ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(succeeded, 100) << "seeds from " << first_seed;
  EXPECT_GT(resumed, 10) << "seeds from " << first_seed;
}

class IdleCalls final : public GenerateCalls, public SilenceListener {
 public:
  void OnWorkerSilent(WorkerNumber) override {}
  void OnRouted(Route& route) override {
    if (pulled == 0) return;
    route.plan.pull = PrefixPull{.from = WorkerNumber(9), .tokens = pulled};
  }
  void StartPull(int32_t) override {}
  void OpenDecode(const FlowAction&) override {}
  void SendPrefill(const FlowAction&) override {}
  void PrefillLocally(const FlowAction&) override {}
  void CancelPull() override {}
  void CancelDecode() override {}
  void CancelPrefill() override {}
  void AwaitReport() override {}
  void SendStarted() override {}
  bool SendTokens() override { return true; }
  void KeepEnd() override {}
  void SendEnds() override {}
  void End(const absl::Status&) override {}
  int32_t pulled = 1;
};

class GenerateSessionTest : public ::testing::Test {
 protected:
  GenerateSession& Start(std::vector<TokenId> prompt, bool open_ended, int32_t context_length) {
    WorkerReport worker = Report("d", WorkerRole::kDecode);
    worker.context_length = context_length;
    EXPECT_TRUE(core_.Heartbeat(worker).ok());
    session_.Start({.prompt = std::move(prompt),
                    .prompt_hashes = {},
                    .choices = AnswerChoices(1),
                    .new_tokens = 1000,
                    .open_ended = open_ended},
                   calls_);
    return session_;
  }

  const SystemClock clock_;
  RouterCore core_{RouterOptions(), &clock_};
  FailureDetector failure_detector_;
  std::shared_ptr<IdleCalls> calls_ = std::make_shared<IdleCalls>();
  GenerateSession session_{&core_, &failure_detector_, calls_.get(), 0};
};

TEST_F(GenerateSessionTest, AnAnswerWithoutALimitEndsWhereItsFirstWorkerWouldEndIt) {
  EXPECT_EQ(Start({1, 2, 3}, /*open_ended=*/true, 50).MostNewTokens(), 47);
}

TEST_F(GenerateSessionTest, AClientsLimitIsLeftAsItIs) {
  EXPECT_EQ(Start({1, 2, 3}, /*open_ended=*/false, 50).MostNewTokens(), std::nullopt);
}

TEST_F(GenerateSessionTest, APullBringsThePromptsBeginning) {
  calls_->pulled = 2;
  EXPECT_EQ(Start({4, 5, 6}, /*open_ended=*/true, 50).PulledTokens(), (std::vector<TokenId>{4, 5}));
}

TEST_F(GenerateSessionTest, WhileARequestWaitsForRoomNoPrefillWorkerCountsIt) {
  calls_->pulled = 0;
  ASSERT_TRUE(core_.Heartbeat(Report("p", WorkerRole::kPrefill)).ok());
  Start(std::vector<TokenId>(1000, 7), /*open_ended=*/false, 0);
  const WorkerNumber prefill(1);
  const WorkerNumber decode(2);
  const auto count = [&](WorkerNumber number, int32_t active, size_t prompts) {
    const WorkerRecord worker = core_.Workers()[number.value() - 1];
    EXPECT_EQ(worker.active, active) << worker.report.id;
    EXPECT_EQ(worker.prompts.size(), prompts) << worker.report.id;
  };
  count(prefill, 1, 1);
  session_.OnDecodeEnd(1, decode, absl::ResourceExhaustedError("no room"));
  ASSERT_EQ(session_.attempt(), 2);
  count(prefill, 0, 0);
  count(decode, 1, 0);
  session_.OnTicket(2);
  count(prefill, 1, 1);
  session_.OnPrefillEnd(2, prefill, absl::InternalError("it failed"));
  count(prefill, 0, 0);
  count(decode, 1, 1);  // it computes the prompt itself
  const TokenId token = 7;
  session_.OnTokens(2, 0, {&token, 1}, 0);
  count(decode, 1, 0);
  session_.OnClientGone(absl::CancelledError("bye"));
  session_.OnDecodeEnd(2, decode, absl::CancelledError("cancelled"));
  count(decode, 0, 0);
  count(prefill, 0, 0);
}

}  // namespace
}  // namespace baton
