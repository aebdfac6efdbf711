// Fixtures that run the tests of the KvTransport contract (kvtransfer/transport.h) with every
// transport.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/loopback/loopback_transport.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "kvtransfer/transport.h"
#include "tests/kvtransfer/fake_nccl_script.h"
#include "tests/kvtransfer/patient_tcp.h"
#include "tests/kvtransfer/transfer_test_worker.h"
#include "tests/security/trial_set.h"

namespace baton {

enum class Medium { kLoopback, kTcp, kTls, kShm, kShmOrTcp, kNccl };

// Certificates for TCP with TLS, the same for all workers of this process.
inline TlsFiles ContractTls() {
  static const TrialSet set;
  return set.Files("worker");
}

struct ContractCase {
  Medium medium;
  PoolMemory memory = PoolMemory::kHost;  // for all workers
};

class TransportContract : public ::testing::TestWithParam<ContractCase> {
 protected:
  static Medium medium() { return GetParam().medium; }
  TransportSource Factory() { return Factory(GetParam().memory); }
  TransportSource Factory(PoolMemory memory) {
    if (medium() == Medium::kLoopback) {
      return {[this](TransportOptions options) {
                return CreateLoopbackTransport(network_, "worker" + std::to_string(next_name_++),
                                               std::move(options));
              },
              memory};
    }
    if (medium() != Medium::kNccl) {
      TransportSource source(CreateOverSockets, memory);
      source.shared = medium() == Medium::kShm;
      return source;
    }
    TransportSource source(Nccl(PatientNccl()), memory);
    if (memory == PoolMemory::kDevice) source.introduce = IntroduceToTheFakeDevice;
    return source;
  }

  // Without usable shared memory, TCP is enough, as in an engine.
  static absl::StatusOr<std::unique_ptr<KvTransport>> CreateOverSockets(TransportOptions options) {
    const bool tcp = medium() != Medium::kShm;
    const bool shm = medium() != Medium::kTcp && medium() != Medium::kTls;
    SocketEndpoints endpoints{.tcp_listen = tcp ? "127.0.0.1:0" : "",
                              .tcp_advertise_host = "",
                              .shm_name = shm ? UniqueShmName() : ""};
    if (medium() == Medium::kTls) endpoints.tls = ContractTls();
    if (shm && tcp && options.pool->memory() == PoolMemory::kDevice) {
      EXPECT_EQ(CreateSocketTransport(endpoints, options).status().code(),
                absl::StatusCode::kInvalidArgument);
      endpoints.shm_name.clear();
    }
    return CreateSocketTransport(endpoints, std::move(options), kPatient);
  }

  // Runs one complete transfer and announces `chunk` blocks at a time.
  void Transfer(TestWorker& from, TestWorker& to, uint64_t id, int32_t tokens, int32_t first_block,
                int32_t chunk) {
    const int32_t count = BlocksForTokens(to.layout().block_size(), tokens) - first_block;
    const std::vector<BlockId> source =
        MakeBlocks(from.layout().group(0).num_blocks() - 1, count, -1);
    const int64_t by_nccl = medium() == Medium::kNccl ? TheFakeNccl().sides[1].bytes.load() : 0;
    const int64_t by_host = BytesThroughHost(from, to);
    const int64_t received_before = to.transport().moved_bytes().received[Counted()];
    const int64_t sent_before = from.transport().moved_bytes().sent[Counted()];
    const ReceiveSpec spec{.transfer_id = id,
                           .first_block = first_block,
                           .blocks = MakeBlocks(1, count, 1),
                           .tokens = tokens};
    ASSERT_TRUE(to.transport().Expect(spec).ok());
    for (int32_t i = 0; i < count; ++i) {
      from.FillBlock(source[i], id * 100 + i);
      to.FillRaw(spec.blocks[i], std::byte{0xEE});
    }
    ASSERT_TRUE(
        from.transport()
            .StartSend({.sender_transfer = id + 7000, .ticket = to.Ticket(spec), .tokens = tokens})
            .ok());
    const std::string manifest = "manifest of " + std::to_string(id);
    for (int32_t at = 0; at < count || at == 0; at += chunk) {
      const int32_t n = std::min(chunk, count - at);
      const bool final = at + n == count;
      from.transport().Announce(id + 7000, std::span(source).subspan(at, n), final,
                                final ? manifest : "");
      if (!final) to.WaitFor(id, TransferEvent::Kind::kReceiving);
      if (final) break;
    }
    const TransferEvent received = to.WaitReceived(id);
    ASSERT_EQ(received.kind, TransferEvent::Kind::kReceived) << received.status;
    EXPECT_EQ(received.manifest, manifest);
    EXPECT_EQ(received.blocks_done, count);
    int64_t bytes = 0;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t valid = ValidTokens(to.layout().block_size(), tokens, first_block + i);
      EXPECT_EQ(to.Differences(spec.blocks[i], id * 100 + i, valid), 0) << "block " << i;
      bytes += BlockValidBytes(to.layout(), valid);
    }
    EXPECT_EQ(received.bytes, bytes);
    const TransferEvent sent = from.WaitSent(id + 7000);
    EXPECT_EQ(sent.kind, TransferEvent::Kind::kSent) << sent.status;
    EXPECT_EQ(sent.bytes, bytes);
    EXPECT_EQ(to.TerminalEvents(id, true), 1);
    EXPECT_EQ(from.TerminalEvents(id + 7000, false), 1);
    const int64_t received_bytes =
        to.transport().moved_bytes().received[Counted()] - received_before;
    const int64_t sent_bytes = from.transport().moved_bytes().sent[Counted()] - sent_before;
    if (medium() == Medium::kNccl) {
      // Blocks of a cancelled transfer may still be on their way: NCCL cannot call them back.
      EXPECT_GE(received_bytes, bytes);
      EXPECT_GE(sent_bytes, bytes);
      EXPECT_GE(TheFakeNccl().sides[1].bytes, by_nccl + bytes);
      EXPECT_EQ(BytesThroughHost(from, to), by_host);
      if (GetParam().memory == PoolMemory::kDevice && bytes > 0) {
        EXPECT_GT(CopiesOfTheDevice(), 0);
      }
    } else {
      EXPECT_EQ(received_bytes, bytes);
      EXPECT_EQ(sent_bytes, bytes);
      int64_t device_pools = 0;
      for (TestWorker* const worker : {&from, &to}) {
        device_pools += worker->pool().lender().memory() == PoolMemory::kDevice ? 1 : 0;
      }
      EXPECT_EQ(BytesThroughHost(from, to), by_host + device_pools * bytes);
    }
  }

  // Number of the medium over which blocks of equal size move in this case.
  static size_t Counted() {
    const bool host = GetParam().memory == PoolMemory::kHost;
    switch (medium()) {
      case Medium::kLoopback:
        return static_cast<size_t>(KvMedium::kLoopback);
      case Medium::kTcp:
      case Medium::kTls:
        return static_cast<size_t>(KvMedium::kTcp);
      case Medium::kShm:
        return static_cast<size_t>(KvMedium::kShm);
      case Medium::kShmOrTcp:
        return static_cast<size_t>(host ? KvMedium::kShm : KvMedium::kTcp);
      case Medium::kNccl:
        break;
    }
    return static_cast<size_t>(KvMedium::kNccl);
  }

  static int64_t BytesThroughHost(TestWorker& a, TestWorker& b) {
    const int64_t bytes = a.pool().lender().BytesThroughHost();
    return &a == &b ? bytes : bytes + b.pool().lender().BytesThroughHost();
  }

  std::shared_ptr<LoopbackNetwork> network_ = CreateLoopbackNetwork();
  int next_name_ = 0;
};

inline std::string MediumName(const ::testing::TestParamInfo<ContractCase>& info) {
  const std::string pool = info.param.memory == PoolMemory::kHost ? "" : "Unreadable";
  switch (info.param.medium) {
    case Medium::kLoopback:
      return "Loopback" + pool;
    case Medium::kTcp:
      return "Tcp" + pool;
    case Medium::kTls:
      return "Tls" + pool;
    case Medium::kShm:
      return "Shm" + pool;
    case Medium::kShmOrTcp:
      return "ShmOrTcp" + pool;
    case Medium::kNccl:
      break;
  }
  return "Nccl" + pool;
}

// All media with host pools, and with pools that the host cannot read.
inline auto EveryMedium() {
  return ::testing::Values(ContractCase{Medium::kLoopback}, ContractCase{Medium::kTcp},
                           ContractCase{Medium::kTls}, ContractCase{Medium::kShm},
                           ContractCase{Medium::kShmOrTcp}, ContractCase{Medium::kNccl},
                           ContractCase{Medium::kLoopback, PoolMemory::kDevice},
                           ContractCase{Medium::kTcp, PoolMemory::kDevice},
                           ContractCase{Medium::kTls, PoolMemory::kDevice},
                           ContractCase{Medium::kShm, PoolMemory::kDevice},
                           ContractCase{Medium::kShmOrTcp, PoolMemory::kDevice},
                           ContractCase{Medium::kNccl, PoolMemory::kDevice});
}
// The cases with a pool that the host cannot read.
inline auto EveryMediumWithCopies() {
  return ::testing::Values(ContractCase{Medium::kLoopback, PoolMemory::kDevice},
                           ContractCase{Medium::kTcp, PoolMemory::kDevice},
                           ContractCase{Medium::kShm, PoolMemory::kDevice},
                           ContractCase{Medium::kShmOrTcp, PoolMemory::kDevice},
                           ContractCase{Medium::kNccl, PoolMemory::kDevice});
}

}  // namespace baton
