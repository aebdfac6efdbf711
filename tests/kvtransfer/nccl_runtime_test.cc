#include "kvtransfer/nccl/nccl_runtime.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "kvtransfer/nccl/nccl_options.h"
#include "tests/kvtransfer/fake_nccl_script.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class NcclRuntimeTest : public ::testing::Test {
 protected:
  NcclRuntimeTest() { ResetFakeNccl(); }
  ~NcclRuntimeTest() override { ResetFakeNccl(); }

  absl::Status Open(const NcclOptions& options) {
    return NcclRuntime::Open(options, worker_.pool().lender()).status();
  }

  TestWorker worker_{[](TransportOptions options) {
                       return CreateLoopbackTransport(CreateLoopbackNetwork(), "worker",
                                                      std::move(options));
                     },
                     {.layout = KvLayoutKind::kLayerMajor},
                     1};
};

TEST_F(NcclRuntimeTest, NamesTheMissingLibraryOrDevice) {
  NcclOptions options = PatientNccl();
  options.cuda_libraries = {"libcuda-that-nobody-has.so"};
  EXPECT_THAT(std::string(Open(options).message()), HasSubstr("libcuda-that-nobody-has.so"));
  options = PatientNccl();
  options.device = 1;
  EXPECT_EQ(Open(options),
            absl::UnavailableError("no GPU: there is no CUDA device 1; this machine has 1"));
  TheCallFaults().devices = 0;
  EXPECT_EQ(Open(PatientNccl()),
            absl::UnavailableError("no GPU: there is no CUDA device 0; this machine has 0"));
}

TEST_F(NcclRuntimeTest, NamesTheOptionThatIsOutOfRange) {
  const auto refused = [&](const char* name, const std::function<void(NcclOptions&)>& change) {
    NcclOptions options = PatientNccl();
    change(options);
    const absl::Status status = Open(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  };
  refused("window 0", [](NcclOptions& o) { o.window = 0; });
  refused("window 17", [](NcclOptions& o) { o.window = 17; });
  refused("batch_bytes 0", [](NcclOptions& o) { o.batch_bytes = 0; });
  refused("max_communicators 0", [](NcclOptions& o) { o.max_communicators = 0; });
  refused("patience_ms -1", [](NcclOptions& o) { o.patience_ms = -1; });
  refused("create_timeout_ms 0", [](NcclOptions& o) { o.create_timeout_ms = 0; });
  refused("batch_timeout_ms 0", [](NcclOptions& o) { o.batch_timeout_ms = 0; });
  refused("retry_ms 0", [](NcclOptions& o) { o.retry_ms = 0; });
}

TEST_F(NcclRuntimeTest, ABatchHoldsAtLeastOneBlock) {
  NcclOptions options = PatientNccl();
  options.batch_bytes = 1;
  const auto runtime = NcclRuntime::Open(options, worker_.pool().lender());
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_EQ((*runtime)->options().batch_bytes, worker_.layout().bytes_per_block());
  EXPECT_EQ((*runtime)->version(), 22809u);
}

TEST_F(NcclRuntimeTest, GathersPieceBehindPieceAndScattersIntoAnotherBlock) {
  const auto runtime = NcclRuntime::Open(PatientNccl(), worker_.pool().lender());
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  for (const int32_t tokens : {16, 5}) {
    worker_.FillBlock(BlockId(3), 77);
    worker_.FillRaw(BlockId(9), std::byte{0xEE});
    std::vector<std::byte> staged(BlockValidBytes(worker_.layout(), tokens));
    ASSERT_TRUE((*runtime)->Gather(BlockId(3), tokens, LayerRange{}, staged.data()).ok());
    worker_.FillRaw(BlockId(3), std::byte{0});
    ASSERT_TRUE((*runtime)->Scatter(staged.data(), BlockId(9), tokens, LayerRange{}).ok());
    EXPECT_EQ(worker_.Differences(BlockId(9), 77, tokens), 0);
    if (tokens < 16) {
      EXPECT_NE(worker_.Differences(BlockId(9), 77, 16), 0);
    }
  }
  TheCallFaults().copy_result = kCuInvalidValue;
  std::vector<std::byte> staged(worker_.layout().bytes_per_block());
  EXPECT_EQ((*runtime)->Gather(BlockId(3), 16, LayerRange{}, staged.data()).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(NcclRuntimeTest, ReportsEachKindOfReasonOnce) {
  std::vector<absl::Status> told;
  NcclOptions options = PatientNccl();
  options.on_fallback = [&](const absl::Status& why) { told.push_back(why); };
  const auto runtime = NcclRuntime::Open(options, worker_.pool().lender());
  for (int i = 0; i < 3; ++i) {
    (*runtime)->ReportFallback(absl::UnavailableError("u" + std::to_string(i)));
    (*runtime)->ReportFallback(absl::DeadlineExceededError("d"));
  }
  EXPECT_THAT(
      told, ::testing::ElementsAre(absl::UnavailableError("u0"), absl::DeadlineExceededError("d")));
}

}  // namespace
}  // namespace baton
