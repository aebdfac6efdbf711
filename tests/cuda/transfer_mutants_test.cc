// Faults planted in the host code of collectives, of copies between pools and memory of NCCL, and
// of transfers over NCCL (tests/cuda/driver_mutants.h).
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "kvtransfer/pool/device_copies.h"
#include "kvtransfer/sockets/create_socket_transport.h"
#include "tests/cuda/driver_mutants.h"
#include "tests/cuda/emulator_library.h"
#include "tests/kvtransfer/transfer_test_worker.h"

namespace baton {
namespace {

absl::Status Expect(bool right) {
  return right ? absl::OkStatus() : absl::DataLossError("the result is wrong");
}

// Five rows of 13 columns, gathered by two ranks. An earlier gather has connected the ranks and
// left other values in their memory.
absl::Status Collective(const Start& start) {
  constexpr int64_t kTokens = 5, kCols = 13;
  const DeviceGroup group = *CreateEmulatedGroup(2);
  const auto rows_of = [&](int32_t rank, float add) {
    const TensorRank of{.rank = rank, .degree = 2};
    std::vector<float> rows;
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t column = of.Begin(kCols); column < of.End(kCols); ++column) {
        rows.push_back(add + static_cast<float>(100 * token + column));
      }
    }
    return rows;
  };
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<DeviceBuffer>> before, now, out;
  for (int32_t rank = 0; rank < 2; ++rank) {
    Device& device = *group.devices[rank];
    streams.push_back(device.CreateStream());
    before.push_back(ToDevice(device, rows_of(rank, 5000)));
    now.push_back(ToDevice(device, rows_of(rank, 0)));
    out.push_back(ToDevice(device, std::vector<float>(kTokens * kCols, -1.0f)));
  }
  const auto gather = [&](int32_t rank, const DeviceBuffer& x) {
    const TensorRank of{.rank = rank, .degree = 2};
    group.communicators[rank]->AllGather(*streams[rank], {.x = x.as<float>(),
                                                          .x_stride = of.Share(kCols),
                                                          .out = out[rank]->as<float>(),
                                                          .out_stride = kCols,
                                                          .tokens = kTokens,
                                                          .cols = kCols});
  };
  std::thread other([&] { gather(1, *before[1]); });  // the first call waits for all ranks
  gather(0, *before[0]);
  other.join();
  for (const auto& stream : streams) stream->Synchronize();
  start();
  for (int32_t rank = 0; rank < 2; ++rank) gather(rank, *now[rank]);
  for (const auto& stream : streams) stream->Synchronize();
  std::vector<float> expected;
  for (int64_t i = 0; i < kTokens * kCols; ++i) {
    expected.push_back(static_cast<float>(100 * (i / kCols) + i % kCols));
  }
  for (int32_t rank = 0; rank < 2; ++rank) {
    RETURN_IF_ERROR(
        Expect(FromDevice<float>(*streams[rank], out[rank]->data(), kTokens * kCols) == expected));
  }
  return absl::OkStatus();
}

absl::Status WaitFor(DeviceCopies& copies, const absl::StatusOr<uint64_t>& id) {
  RETURN_IF_ERROR(id.status());
  for (;;) {
    ASSIGN_OR_RETURN(const bool ended, copies.Ended(*id));
    if (ended) return absl::OkStatus();
    std::this_thread::yield();
  }
}

// Two runs go from a pool to memory of NCCL, and from there to another place of the pool.
absl::Status BlocksOfOneGpu(const Start& start) {
  constexpr int64_t kBytes = 4096;
  const auto device = CreateEmulatedDevice();
  std::vector<uint8_t> bytes(4 * kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
  const auto pool = ToDevice<uint8_t>(*device, bytes);
  const auto slot = *device->Allocate(2 * kBytes, "slot");
  const auto checksums = *device->AllocateStaging(4 * sizeof(uint32_t), "checksums");
  auto* const sums = checksums->as<uint32_t>();
  const auto reader = device->CreateStream();
  DeviceCopies copies(*device, pool->data());
  RETURN_IF_ERROR(copies.Prepare());
  const auto runs = [&](int64_t at) {
    std::vector<PoolCopies::Run> list;
    for (int64_t i = 0; i < 2; ++i) {
      list.push_back(
          {.pool_offset = at + i * kBytes, .staging = slot->data() + i * kBytes, .bytes = kBytes});
    }
    return list;
  };
  const auto right = [&](const uint32_t* got) {
    const auto all = std::as_bytes(std::span(bytes));
    return got[0] == Crc32c(all.first(kBytes)) && got[1] == Crc32c(all.subspan(kBytes, kBytes));
  };
  start();
  RETURN_IF_ERROR(
      WaitFor(copies, copies.BeginOnDevice(PoolCopies::Direction::kFromPool, runs(0), sums)));
  RETURN_IF_ERROR(Expect(right(sums)));
  RETURN_IF_ERROR(WaitFor(
      copies, copies.BeginOnDevice(PoolCopies::Direction::kToPool, runs(2 * kBytes), sums + 2)));
  RETURN_IF_ERROR(Expect(right(sums + 2)));
  std::copy_n(bytes.begin(), 2 * kBytes, bytes.begin() + 2 * kBytes);
  return Expect(FromDevice<uint8_t>(*reader, pool->data(), bytes.size()) == bytes);
}

// The same between two ranks' pools, which have a head each, and memory of the first GPU. A row has
// 48 bytes of each rank and 32 of padding.
absl::Status BlocksOfTwoRanks(const Start& start) {
  constexpr int64_t kRows = 32, kHead = 48, kRow = 128, kBytes = kRows * kRow;
  const DeviceGroup group = *CreateEmulatedGroup(2);
  if (!group.reach_first) return absl::InternalError("no peer access");
  std::vector<std::vector<uint8_t>> bytes(2, std::vector<uint8_t>(2 * kRows * kHead));
  std::vector<std::byte> whole(kBytes);
  std::vector<std::unique_ptr<DeviceBuffer>> pools;
  std::vector<DeviceCopies::Part> parts;
  for (size_t rank = 0; rank < 2; ++rank) {
    for (size_t i = 0; i < bytes[rank].size(); ++i) {
      bytes[rank][i] = static_cast<uint8_t>(i * 13 + i / 128 + rank * 77);
      if (i >= kRows * kHead) continue;
      whole[i / kHead * kRow + rank * kHead + i % kHead] = static_cast<std::byte>(bytes[rank][i]);
    }
    pools.push_back(ToDevice<uint8_t>(*group.devices[rank], bytes[rank]));
    parts.push_back({.device = group.devices[rank].get(), .pool = pools.back()->data()});
  }
  const auto slot = ToDevice<uint8_t>(*group.devices[0], std::vector<uint8_t>(kBytes, 0x77));
  const auto checksums = *group.devices[0]->AllocateStaging(2 * sizeof(uint32_t), "checksums");
  auto* const sums = checksums->as<uint32_t>();
  DeviceCopies copies(parts, group.reach_first);
  RETURN_IF_ERROR(copies.Prepare());
  const ByteRun piece{.from = 0, .to = 0, .bytes = kBytes};
  const ByteRows padding{
      .to = 2 * kHead, .bytes = kRow - 2 * kHead, .rows = kRows, .to_stride = kRow};
  const auto copy = [&](PoolCopies::Direction direction, int64_t at, uint32_t* sum) {
    std::vector<PoolCopies::Run> runs;
    for (int32_t rank = 0; rank < 2; ++rank) {
      runs.push_back({.pool_offset = at,
                      .staging = slot->data() + rank * kHead,
                      .bytes = kHead,
                      .rank = rank,
                      .rows = kRows,
                      .pool_stride = kHead,
                      .staging_stride = kRow});
    }
    return WaitFor(copies, copies.BeginOnRanks({.direction = direction,
                                                .memory = slot->data(),
                                                .runs = runs,
                                                .pieces = {&piece, 1},
                                                .padding = {&padding, 1}},
                                               sum));
  };
  start();
  RETURN_IF_ERROR(copy(PoolCopies::Direction::kFromPool, 0, sums));
  RETURN_IF_ERROR(Expect(sums[0] == Crc32c(whole)));
  RETURN_IF_ERROR(copy(PoolCopies::Direction::kToPool, kRows * kHead, sums + 1));
  RETURN_IF_ERROR(Expect(sums[1] == Crc32c(whole)));
  for (size_t rank = 0; rank < 2; ++rank) {
    std::copy_n(bytes[rank].begin(), kRows * kHead, bytes[rank].begin() + kRows * kHead);
    const auto reader = group.devices[rank]->CreateStream();
    RETURN_IF_ERROR(Expect(FromDevice<uint8_t>(*reader, pools[rank]->data(), bytes[rank].size()) ==
                           bytes[rank]));
  }
  return absl::OkStatus();
}

// A transfer between two workers with pools in host memory. Checksums cover every byte on the way,
// so the receiver reports an error.
absl::Status NcclTransfer(const Start& start) {
  EmulatorLibrary().Configure({});
  NcclOptions nccl;
  nccl.nccl_libraries = {EmulatedNcclPath()};
  nccl.cuda_libraries = {EmulatorLibrary::Path()};
  nccl.patience_ms = nccl.create_timeout_ms = nccl.batch_timeout_ms = 3'600'000;
  absl::Status fallback;
  nccl.on_fallback = [&](const absl::Status& why) { fallback.Update(why); };
  const TransportSource source([&](TransportOptions options) {
    return CreateSocketTransport(
        {.tcp_listen = "127.0.0.1:0", .tcp_advertise_host = "", .shm_name = "", .nccl = nccl},
        std::move(options));
  });
  TestWorker a(source, {}, 1), b(source, {}, 2);
  const auto transfer = [&](uint64_t id, int32_t blocks) {
    const ReceiveSpec spec{
        .transfer_id = id, .blocks = MakeBlocks(20, blocks), .tokens = 16 * blocks};
    RETURN_IF_ERROR(b.transport().Expect(spec));
    for (int32_t i = 0; i < blocks; ++i) {
      a.FillBlock(BlockId(i), id + i);
      b.FillRaw(BlockId(20 + i), std::byte{0xEE});
    }
    RETURN_IF_ERROR(a.transport().StartSend(
        {.sender_transfer = id, .ticket = b.Ticket(spec), .tokens = spec.tokens}));
    a.transport().Announce(id, MakeBlocks(0, blocks), true, "");
    const TransferEvent received = b.WaitReceived(id);
    a.WaitSent(id);
    if (received.kind != TransferEvent::Kind::kReceived) {
      return absl::InternalError(received.status.message());
    }
    for (int32_t i = 0; i < blocks; ++i) {
      RETURN_IF_ERROR(Expect(b.Differences(BlockId(20 + i), id + i, 16) == 0));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(transfer(1, 1));  // connects
  start();
  RETURN_IF_ERROR(transfer(10, 1));
  return fallback;
}

CallOracles TooLate(DriverCall call, const char* name, const char* letters) {
  return {.call = call, .name = name, .fault = CallFault::kLate, .letters = letters};
}

class TransferMutants : public testing::TestWithParam<Scenario> {};

TEST_P(TransferMutants, EachIsCaughtByItsOracle) {
#if defined(BATON_EMULATOR_TSAN) || defined(BATON_EMULATOR_ASAN)
  GTEST_SKIP() << "not run: a sanitizer ends a process in ways of its own";
#endif
  ExpectOracles(GetParam());
}

TEST_P(TransferMutants, TheRightProgramPassesWithAllTimesOfItsStreams) {
#if defined(BATON_EMULATOR_TSAN) || defined(BATON_EMULATOR_ASAN)
  GTEST_SKIP() << "not run: a sanitizer ends a process in ways of its own";
#endif
  EXPECT_EQ(FirstOracleOf(GetParam(), {}, true), '=');
}

// Launches of a rank's collective: its columns into the memory of the collective, those of the
// other rank out of it, its own columns to their place. The last two do not depend on each other.
// If one rank leaves out NCCL's operation, the other one waits for it, also if it is the first rank
// and the second begins late.
//
// Launches of a copy: the copy with the parts of its checksums, then the checksums. A late one
// still runs before the copy's record, and the second copy has the parts of the first. Between
// ranks: the rows of rank 0, the padding, the rows of rank 1, then the copy and the checksums; or
// these two first, then the rows. Both halves of rank 0 are on one stream, so nothing depends on
// the record between them.
//
// Waits of a transfer: the sender's for the copy out of its pool, and the receiver's for the copy
// into its pool. That one has ended when the call returns, because the memory is pageable.
INSTANTIATE_TEST_SUITE_P(
    Scenarios, TransferMutants,
    testing::Values(
        Scenario{.name = "collective",
                 .run = &Collective,
                 .streams = {},
                 .oracles = {LeftOut(DriverCall::kLaunch, "launches", "bbbbbb"),
                             TooLate(DriverCall::kLaunch, "launches too late", "b==b=="),
                             LeftOut(DriverCall::kExternal, "operations", "dd"),
                             TooLate(DriverCall::kExternal, "operations too late", "bd")},
                 .most_seconds = 10},
        Scenario{.name = "blocks_of_one_gpu",
                 .run = &BlocksOfOneGpu,
                 .streams = {2, 3},
                 .oracles = {LeftOut(DriverCall::kEventQuery, "queries", "b", true),
                             LeftOut(DriverCall::kEventRecord, "records", "bb"),
                             LeftOut(DriverCall::kLaunch, "launches", "bbbb"),
                             TooLate(DriverCall::kLaunch, "launches too late", "b===")}},
        Scenario{.name = "blocks_of_two_ranks",
                 .run = &BlocksOfTwoRanks,
                 .streams = {},
                 .oracles = {LeftOut(DriverCall::kEventQuery, "queries", "b", true),
                             LeftOut(DriverCall::kEventRecord, "records", "=bb=bb"),
                             LeftOut(DriverCall::kLaunch, "launches", "bbbbb=bbb"),
                             TooLate(DriverCall::kLaunch, "launches too late", "===b=====")}},
        Scenario{.name = "nccl_transfer",
                 .run = &NcclTransfer,
                 .streams = {},
                 .oracles = {LeftOut(DriverCall::kEventQuery, "queries", "e", true),
                             LeftOut(DriverCall::kEventRecord, "records", "e", true),
                             LeftOut(DriverCall::kStreamSynchronize, "waits", "e=")},
                 .most_seconds = 60}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace baton
