// The thread that makes NCCL's calls, so that one which takes long, or never returns, stops nobody
// else: whoever waits for a report has its own time limit.
//
// It looks at communicators without pause while something is under way in one, and now and then
// otherwise, for errors that come by themselves.
//
// When this object ends, the thread aborts its communicators and ends. If it does not within
// kNcclShutdownMs, because it is inside a call that does not return, it is left behind, with all
// that it can still reach.
//
// Thread safety: posts and TakeReports are called from one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/nccl/nccl_communicators.h"
#include "kvtransfer/nccl/nccl_driver.h"

namespace baton {

inline constexpr int64_t kNcclShutdownMs = 2000;

class NcclThread final : public NcclDriver {
 public:
  // `wake` is called from the thread when TakeReports has something; not after this has ended.
  NcclThread(const NcclApi& nccl, const CudaApi& cuda, int device,
             const NcclCommunicators::Limits& limits, std::function<void()> wake);
  ~NcclThread() override;

  void Create(NcclCommId comm, int rank, std::string unique_id) override;
  void Post(NcclCommId comm, int32_t slot, int64_t bytes) override;
  void Abort(NcclCommId comm) override;

  std::vector<NcclReport> TakeReports();

 private:
  struct Shared;
  static void Run(std::shared_ptr<Shared> shared);
  void Command(std::function<void(NcclCommunicators&)> command);

  const std::shared_ptr<Shared> shared_;  // the thread's too
};

}  // namespace baton
