// Recording NcclDriver for the tests of both channels. The tests send the reports and set the time.
#pragma once

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvtransfer/nccl/nccl_driver.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/protocol/transfer_frame.h"
#include "kvtransfer/transport.h"

namespace baton {

class NotedDriver final : public NcclDriver {
 public:
  void Create(NcclCommId comm, int rank, std::string unique_id) override {
    notes.push_back("create " + std::to_string(comm.attempt) + " as " + std::to_string(rank) +
                    (unique_id.empty() ? "" : " with an id"));
    last = comm;
  }
  void Post(NcclCommId comm, int32_t slot, int64_t bytes) override {
    notes.push_back("post " + std::to_string(bytes) + " in " + std::to_string(slot) + " of " +
                    std::to_string(comm.attempt));
  }
  void Abort(NcclCommId comm) override { notes.push_back("abort " + std::to_string(comm.attempt)); }

  NcclReport Report(NcclReport::Kind kind, absl::Status status = {}) {
    return {.kind = kind,
            .comm = last,
            .unique_id =
                kind == NcclReport::Kind::kUniqueId ? std::string(kNcclUniqueIdBytes, 'u') : "",
            .slots = kind == NcclReport::Kind::kReady
                         ? std::vector<std::byte*>{&memory[0], &memory[1]}
                         : std::vector<std::byte*>{},
            .status = std::move(status)};
  }
  std::vector<std::string> Take() { return std::exchange(notes, {}); }

  std::byte memory[2];  // two slots with distinct addresses
  NcclCommId last;
  std::vector<std::string> notes;
};

inline constexpr uint32_t kScriptedVersion = 22809;
inline constexpr int64_t kScriptedBlockBytes = 100;

inline NcclOptions ScriptedNccl() {
  NcclOptions options;
  options.window = 2;
  options.batch_bytes = 250;
  options.patience_ms = 1000;
  options.create_timeout_ms = 10'000;
  options.batch_timeout_ms = 2000;
  options.retry_ms = 30'000;
  return options;
}

// Takes the frames and returns their names.
template <typename Channel>
std::vector<std::string> TakeNames(Channel& channel) {
  std::vector<std::string> names;
  for (const Frame& frame : channel.TakeFrames()) names.push_back(FrameName(frame));
  return names;
}

}  // namespace baton
