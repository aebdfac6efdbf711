#include "cli/fleet.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace baton {
namespace {

constexpr int kEndMs = 20'000;  // processes drain before they end

}  // namespace

absl::Status Fleet::Start(FleetMember member) {
  members_.push_back({.plan = std::move(member),
                      .process = nullptr,
                      .started_us = 0,
                      .next_start_us = 0,
                      .backoff = {}});
  return Launch(members_.back());
}

absl::Status Fleet::Launch(Member& member) {
  const bool is_router = &member == &members_.front();
  ASSIGN_OR_RETURN(const int writer, log_->AddWriter(member.plan.name));
  absl::StatusOr<ChildProcess> process =
      ChildProcess::Start(member.plan.name, member.plan.arguments, member.plan.variables, writer,
                          /*capture=*/is_router);
  close(writer);  // the process has its own copy
  RETURN_IF_ERROR(process.status());
  member.process = std::make_unique<ChildProcess>(*std::move(process));
  member.started_us = clock_->NowUs();
  return absl::OkStatus();
}

std::optional<std::string> Fleet::RouterSays() {
  ChildProcess* const router = members_.front().process.get();
  return router == nullptr ? std::nullopt : router->ReadLine();
}

void Fleet::ReplaceRouterArguments(std::vector<std::string> arguments) {
  members_.front().plan.arguments = std::move(arguments);
}

std::optional<Fleet::End> Fleet::FirstEnd() const {
  for (const Member& member : members_) {
    if (member.process == nullptr) continue;
    const std::optional<std::string> how = member.process->Ended();
    if (how) {
      return End{.name = member.plan.name, .how = *how, .exit_code = member.process->exit_code()};
    }
  }
  return std::nullopt;
}

void Fleet::Restart(const std::function<void(const std::string&)>& say) {
  const int64_t now_us = clock_->NowUs();
  const auto wait = [now_us](Member& member) {
    const int64_t delay_ms = member.backoff.NextDelayMs((now_us - member.started_us) / 1000);
    member.next_start_us = now_us + delay_ms * 1000;
    return absl::StrFormat("starting it again in %.1f s", static_cast<double>(delay_ms) / 1000);
  };
  for (Member& member : members_) {
    if (member.process != nullptr) {
      const std::optional<std::string> how = member.process->Ended();
      if (!how) continue;
      say(absl::StrCat(member.plan.name, " ended: ", *how, "; ", wait(member)));
      member.process = nullptr;
    } else if (now_us >= member.next_start_us) {
      const absl::Status started = Launch(member);
      say(started.ok() ? absl::StrCat(member.plan.name, " is starting again")
                       : absl::StrCat(started.message(), "; ", wait(member)));
    }
  }
}

void Fleet::Shutdown() {
  // Sends only one signal to each process. A second one would end it at once, without a drain.
  const auto signal = [](const Member& member) {
    if (member.process != nullptr) member.process->Signal(SIGTERM);
  };
  const auto wait = [](const Member& member) {
    if (member.process != nullptr) member.process->WaitForEnd(kEndMs);
  };
  for (size_t i = 0; i < members_.size(); ++i) {
    signal(members_[i]);
    if (i == 0) wait(members_[i]);
  }
  for (const Member& member : members_) wait(member);
  members_.clear();  // kills the processes that still run
}

}  // namespace baton
