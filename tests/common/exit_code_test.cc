#include "common/exit_code.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ExitCode, TellsWhetherARetryMayHelp) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  for (const absl::Status& wrong :
       {absl::InvalidArgumentError(""), absl::NotFoundError(""), absl::OutOfRangeError(""),
        absl::PermissionDeniedError(""), absl::UnimplementedError(""), absl::DataLossError("")}) {
    EXPECT_EQ(ExitCodeOf(wrong), 2) << wrong;
  }
  for (const absl::Status& failed :
       {absl::UnavailableError(""), absl::ResourceExhaustedError(""), absl::InternalError(""),
        absl::DeadlineExceededError(""), absl::CancelledError(""), absl::AbortedError(""),
        absl::FailedPreconditionError(""), absl::UnknownError("")}) {
    EXPECT_EQ(ExitCodeOf(failed), 1) << failed;
  }
}

}  // namespace
}  // namespace baton
