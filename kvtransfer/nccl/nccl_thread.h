// Thread that makes NCCL's calls. A call that takes long, or never returns, blocks no other thread.
// Code that waits for a report has its own timeout.
//
// The thread polls its communicators every 20 µs while one is being created or has an operation in
// flight. Otherwise it polls every 100 ms, to notice errors that occur on their own.
//
// The destructor makes the thread abort its communicators and end. If an NCCL call does not return,
// the thread cannot end. After kNcclShutdownMs, the destructor then abandons the thread, with all
// memory that the thread can still access.
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
  // The thread calls `wake` when TakeReports has something, and not after this object was
  // destroyed.
  NcclThread(const NcclApi& nccl, std::shared_ptr<CudaContext> context,
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

  const std::shared_ptr<Shared> shared_;  // also held by the thread
};

}  // namespace baton
