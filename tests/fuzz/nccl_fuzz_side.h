// One end of a connection over NCCL, for a fuzzer: a worker's memory, the thread that calls the
// fake NCCL, and the rounds of its transport.
//
// Thread safety: belongs to the fuzzer's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "kvtransfer/nccl/nccl_connection.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/nccl/nccl_runtime.h"
#include "kvtransfer/pool/host_pool.h"
#include "kvtransfer/protocol/transfer_node.h"
#include "kvtransfer/sockets/tcp_options.h"

namespace baton::nccl_fuzz {

inline constexpr int32_t kBlocks = 32;
inline constexpr int32_t kBlockSize = 4;

inline KvLayout Layout() {
  return *KvLayout::Create({.layers = 2, .kv_heads = 1, .head_dim = 4}, KvLayoutKind::kBlockMajor,
                           kBlockSize, kBlocks);
}

inline KvFingerprint Fingerprint() {
  KvFingerprint fingerprint;
  fingerprint.model = "fuzzed";
  fingerprint.numerics = "r1";
  fingerprint.backend = "cpu";
  fingerprint.kv_type = "f16";
  fingerprint.layout = std::string(KvLayoutKindName(KvLayoutKind::kBlockMajor));
  fingerprint.block_size = kBlockSize;
  fingerprint.layers = 2;
  fingerprint.kv_heads = 1;
  fingerprint.head_dim = 4;
  return fingerprint;
}

// The part of a side that stays between inputs: its memory and the thread that calls NCCL.
struct Machine {
  Machine() : pool(static_cast<size_t>(Layout().pool_bytes())) {
    NcclOptions options;
    options.nccl_libraries = {BATON_FAKE_NCCL_DIR "/libfake_nccl.so"};
    options.cuda_libraries = {BATON_FAKE_NCCL_DIR "/libemulated_driver.so"};
    options.batch_bytes = 2 * Layout().bytes_per_block();
    options.max_communicators = 4;
    options.retry_ms = 50;
    options.on_fallback = [](const absl::Status&) {};
    absl::StatusOr<std::unique_ptr<NcclRuntime>> opened = NcclRuntime::Open(options, lender);
    CHECK(opened.ok()) << opened.status();
    nccl = *std::move(opened);
    nccl->Start([] {});
  }
  std::span<std::byte> Block(int32_t block) {
    const auto bytes = static_cast<size_t>(Layout().bytes_per_block());
    return std::span(pool).subspan(static_cast<size_t>(block) * bytes, bytes);
  }

  std::vector<std::byte> pool;
  HostPool lender{pool.data(), Layout()};
  std::unique_ptr<NcclRuntime> nccl;
};

inline Machine& MachineOf(int side) {
  static std::array<Machine, 2>* const machines = new std::array<Machine, 2>;
  return (*machines)[static_cast<size_t>(side)];
}

inline PeerId NextPeer() {
  static uint64_t next = 1;
  return PeerId(next++);
}

// A worker's end of the connection. Side 0 sends, side 1 receives.
class Side {
 public:
  explicit Side(int number)
      : machine_(MachineOf(number)),
        node_(machine_.lender, Fingerprint(), Epoch(static_cast<uint64_t>(number) + 1)) {}

  TransferNode& node() { return node_; }
  Machine& machine() { return machine_; }
  bool connected() const { return connection_ != nullptr; }

  void Connect(int socket, const std::string& address, int64_t now_us) {
    connection_ = std::make_unique<NcclConnection>(ConnectionParts{.node = node_,
                                                                   .options = tcp_,
                                                                   .peer = NextPeer(),
                                                                   .socket = FileDescriptor(socket),
                                                                   .address = address,
                                                                   .now_us = now_us},
                                                   *machine_.nccl);
    if (!address.empty()) Check(connection_->OnWritable(now_us));
  }

  // Runs one round, as a transport does.
  std::vector<TransferEvent> Turn(int64_t now_us) {
    for (const NcclReport& report : machine_.nccl->TakeReports()) {
      if (connected() && report.comm.peer == connection_->peer()) {
        Check(connection_->OnReport(report, now_us));
      }
    }
    if (connected()) Check(connection_->OnReadable(now_us));
    node_.OnTimer(now_us);
    if (connected()) Check(connection_->OnTimer(now_us));
    for (const auto& [peer, frame] : node_.TakeFrames(now_us)) {
      if (connected() && peer == connection_->peer()) Check(connection_->Send(frame));
    }
    if (connected()) Check(connection_->Pump(now_us));
    if (connected()) connection_->ReleaseEndedTransfers();
    return node_.TakeEvents();
  }

  void Lose(const absl::Status& why) {
    if (const auto gone = std::move(connection_)) gone->Lost(why);
  }

 private:
  void Check(const absl::Status& status) {
    if (!status.ok()) Lose(status);
  }

  const TcpOptions tcp_;
  Machine& machine_;
  TransferNode node_;
  std::unique_ptr<NcclConnection> connection_;
};

}  // namespace baton::nccl_fuzz
