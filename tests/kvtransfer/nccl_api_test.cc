#include "kernels/cuda/nccl_api.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kvtransfer/fake_nccl_script.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

class NcclApiTest : public ::testing::Test {
 protected:
  NcclApiTest() { ResetFakeNccl(); }
  ~NcclApiTest() override { ResetFakeNccl(); }
};

TEST_F(NcclApiTest, TakesTheFirstLibraryThatIsFound) {
  const auto nccl = LoadNccl({"libnobody-has-this.so.1", FakeNcclPath()});
  ASSERT_TRUE(nccl.ok()) << nccl.status();
  EXPECT_EQ(*NcclVersionOf(*nccl), 22809);
}

TEST_F(NcclApiTest, NamesTheLibrariesOfWhichNoneIsFound) {
  const absl::Status status = LoadNccl({"libnobody-1.so", "libnobody-2.so"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no library \"libnobody-1.so\" or \"libnobody-2.so\": "));
  EXPECT_THAT(std::string(LoadNccl({}).status().message()), HasSubstr("no name was given"));
}

TEST_F(NcclApiTest, NamesTheFunctionThatALibraryLacks) {
  const absl::Status status = LoadNccl({FakeNcclPath("fake_nccl_without_recv")}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no function ncclRecv"));
}

TEST_F(NcclApiTest, RefusesUnknownVersions) {
  for (const int version : {2804, 21799, 30000}) {
    TheFakeNccl().version = version;
    EXPECT_EQ(LoadNccl({FakeNcclPath()}).status(),
              absl::FailedPreconditionError("NCCL version " + std::to_string(version) +
                                            " is outside [21800, 30000)"));
  }
  TheFakeNccl().version = 21800;
  EXPECT_TRUE(LoadNccl({FakeNcclPath()}).ok());
}

}  // namespace
}  // namespace baton
