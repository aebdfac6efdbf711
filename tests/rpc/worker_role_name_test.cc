#include "rpc/worker_role_name.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(WorkerRoleName, EveryRoleHasItsNameAndOthersAreUnknown) {
  EXPECT_STREQ(WorkerRoleName(v1::WORKER_ROLE_PREFILL), "prefill");
  EXPECT_STREQ(WorkerRoleName(v1::WORKER_ROLE_DECODE), "decode");
  EXPECT_STREQ(WorkerRoleName(v1::WORKER_ROLE_BOTH), "both");
  EXPECT_STREQ(WorkerRoleName(v1::WORKER_ROLE_UNSPECIFIED), "unknown");
  EXPECT_STREQ(WorkerRoleName(static_cast<v1::WorkerRole>(77)), "unknown");
}

}  // namespace
}  // namespace baton
