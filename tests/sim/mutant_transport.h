// Transport with one known field failure built in (mutants.h), between a worker's core and its real
// transport. Without a mutant it forwards every call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kvtransfer/transport.h"
#include "tests/sim/mutants.h"

namespace baton {

class MutantTransport final : public KvTransport {
 public:
  struct Worker {
    std::function<std::span<const BlockId>(uint64_t sender_transfer)> block_table;  // of group 0
    int32_t groups;
    std::function<void()> wake;
    std::function<void(int64_t delay_us, std::function<void()>)> run_later;
  };

  MutantTransport(KvTransport& inner, Mutant mutant, Worker worker)
      : inner_(inner), mutant_(mutant), worker_(std::move(worker)) {}

  std::string address() const override { return inner_.address(); }
  Epoch epoch() const override { return inner_.epoch(); }
  absl::Status Expect(ReceiveSpec spec) override;
  void CancelReceive(uint64_t transfer_id) override;
  absl::Status StartSend(SendSpec spec) override;
  void Announce(uint64_t sender_transfer, std::span<const BlockId> blocks, bool final,
                std::string manifest) override;
  void AnnounceLayers(uint64_t sender_transfer, std::span<const BlockId> rest,
                      int32_t layers) override;
  void CancelSend(uint64_t sender_transfer) override;
  void Written(std::span<const BlockId> full, std::span<const BlockId> part,
               int32_t group) override {
    inner_.Written(full, part, group);
  }
  std::vector<TransferEvent> Poll() override;

 private:
  struct Send {
    TransferTicket ticket;
    int32_t announced = 0;
  };
  struct FinalAnnouncement {
    uint64_t sender_transfer;
    std::vector<BlockId> blocks;
  };

  // Returns the number of sequence blocks in these rows (transport.h).
  int32_t CountOf(std::span<const BlockId> rows) const {
    return static_cast<int32_t>(rows.size()) / worker_.groups;
  }
  // Both functions change only the blocks of group 0.
  std::vector<BlockId> ShiftedRows(const Send& send, uint64_t sender_transfer,
                                   std::span<const BlockId> rows) const;
  std::vector<BlockId> RememberedRows(const Send& send, std::span<const BlockId> rows);
  void EndEarly(TransferEvent::Kind kind, uint64_t id);
  static bool IsReceive(TransferEvent::Kind kind);

  KvTransport& inner_;
  const Mutant mutant_;
  const Worker worker_;
  std::map<uint64_t, Send> sends_;
  std::map<uint64_t, int32_t> pulled_blocks_;  // number of blocks that each pull asked for
  std::set<uint64_t> progressed_;              // receives that got a block
  std::set<uint64_t> ended_receives_;          // reported here, not yet by inner_
  std::set<uint64_t> ended_sends_;
  std::vector<TransferEvent> early_;
  std::string manifest_slot_;
  std::vector<FinalAnnouncement> waiting_;
  std::map<std::pair<int32_t, int32_t>, BlockId> remembered_;  // by (block count, position)
};

}  // namespace baton
