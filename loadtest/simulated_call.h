// A request in a simulated fleet: connects one GenerateSession to simulated workers, as the
// router's gRPC edge does in production. Internal to simulated_fleet.cc.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loadtest/request_record.h"
#include "loadtest/simulated_fleet.h"
#include "router/generate_session.h"

namespace baton {

class SimulatedFleet::Call final : public SilenceListener,
                                   public std::enable_shared_from_this<Call>,
                                   private GenerateCalls {
 public:
  Call(SimulatedFleet* fleet, Router* router, DueRequest due);

  void Start();
  // A step of `worker` computed a token of this request, or ended it.
  void OnStep(int32_t worker, const SimulatedWorker::StepEvent& event);
  // The decode worker has reserved room for the KV.
  void OnRoomForKv();
  // Nothing will happen to the request any more.
  void GiveUp();

  void OnWorkerSilent(WorkerNumber worker) override { session_.OnWorkerSilent(worker); }

  uint64_t id() const { return static_cast<uint64_t>(due_.order) + 1; }
  const DueRequest& due() const { return due_; }
  AnswerTimer& timer() { return timer_; }
  // What the answer brought, for the next turn.
  AnswerContent Content() const;
  // Of the prompt and the answer.
  std::vector<Hash128> Hashes() const;

 private:
  void OnAction(const FlowAction& action) override;
  void OnRouted(Route& route) override;
  void StartPull(int32_t attempt) override;
  void OpenDecode(const FlowAction& action) override;
  void SendPrefill(const FlowAction& action) override;
  void PrefillLocally(const FlowAction& action) override;
  void CancelPull() override {}
  void CancelDecode() override;
  void CancelPrefill() override {}  // no prefill is running when a request ends
  void AwaitReport() override;
  void SendStarted() override {}
  bool SendTokens() override { return true; }
  void KeepEnd() override {}
  void SendEnds() override {}
  void End(const absl::Status& status) override;

  // Runs `happen` after `in_us`, and keeps this alive until then.
  template <typename Function>
  void Later(int64_t in_us, Function happen) {
    fleet_->Add(in_us, [self = shared_from_this(), happen] { happen(*self); });
  }
  SimulatedWorker& Decode() { return fleet_->At(decode_worker_); }
  void PullEnded(int32_t attempt, int32_t tokens, int64_t began_us);
  void Prefilled(int32_t worker);
  void KvArrived();
  void TakeToken(bool ended);
  void Learn();

  SimulatedFleet* const fleet_;
  Router* const router_;
  const DueRequest due_;
  const std::vector<TokenId> prompt_;
  AnswerTimer timer_;
  GenerateSession session_;
  int64_t asked_us_ = 0;   // wall-clock time at which the running decision began
  int64_t routed_us_ = 0;  // the latest route
  bool decode_open_ = false;
  int32_t decode_worker_ = 0;
  WorkerNumber decode_number_{0};
  int32_t prefill_worker_ = -1;  // while it computes the prompt
  int32_t decode_cached_ = 0;    // tokens, when its room was reserved
  int64_t waited_for_room_us_ = 0;
  int64_t pull_us_ = 0;
  int64_t kv_bytes_ = 0;
  int64_t kv_transfer_us_ = 0;
  int64_t prefilled_us_ = 0;
  int64_t first_token_us_ = 0;
  int64_t last_token_us_ = 0;
  PromptProgress progress_;
  std::vector<TokenId> answer_;
};

}  // namespace baton
