#include "kvtransfer/nccl/nccl_thread.h"

#include <chrono>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "common/check.h"

namespace baton {
namespace {

constexpr auto kBusyPause = std::chrono::microseconds(20);
constexpr auto kIdlePause = std::chrono::milliseconds(100);

}  // namespace

struct NcclThread::Shared {
  NcclApi nccl;
  std::shared_ptr<CudaContext> context;
  NcclCommunicators::Limits limits;

  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::function<void()> wake;
  std::vector<std::function<void(NcclCommunicators&)>> commands;
  std::vector<NcclReport> reports;
  bool stop = false;
  bool ended = false;

  std::thread thread;  // used by the owner only
};

NcclThread::NcclThread(const NcclApi& nccl, std::shared_ptr<CudaContext> context,
                       const NcclCommunicators::Limits& limits, std::function<void()> wake)
    : shared_(std::make_shared<Shared>()) {
  shared_->nccl = nccl;
  shared_->context = std::move(context);
  shared_->limits = limits;
  shared_->wake = std::move(wake);
  shared_->thread = std::thread([shared = shared_] { Run(shared); });
}

NcclThread::~NcclThread() {
  std::thread thread;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->stop = true;
    shared_->wake = nullptr;
    shared_->changed.notify_all();
    thread = std::move(shared_->thread);
    if (!shared_->changed.wait_for(lock, std::chrono::milliseconds(kNcclShutdownMs),
                                   [this] { return shared_->ended; })) {
      LOG(ERROR) << "an NCCL call does not return; its thread is abandoned";
      thread.detach();
      return;
    }
  }
  thread.join();
}

void NcclThread::Command(std::function<void(NcclCommunicators&)> command) {
  const std::lock_guard lock(shared_->mutex);
  shared_->commands.push_back(std::move(command));
  shared_->changed.notify_all();
}

void NcclThread::Create(NcclCommId comm, int rank, std::string unique_id) {
  Command([comm, rank, unique_id = std::move(unique_id)](NcclCommunicators& all) {
    all.Create(comm, rank, unique_id);
  });
}

void NcclThread::Post(NcclCommId comm, int32_t slot, int64_t bytes) {
  Command([comm, slot, bytes](NcclCommunicators& all) { all.Post(comm, slot, bytes); });
}

void NcclThread::Abort(NcclCommId comm) {
  Command([comm](NcclCommunicators& all) { all.Abort(comm); });
}

std::vector<NcclReport> NcclThread::TakeReports() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->reports, {});
}

void NcclThread::Run(std::shared_ptr<Shared> shared) {
  shared->context->Enter();  // NCCL uses the thread's context
  {
    NcclCommunicators communicators(shared->nccl, shared->context, shared->limits);
    std::unique_lock lock(shared->mutex);
    while (!shared->stop) {
      const auto commands = std::exchange(shared->commands, {});
      lock.unlock();
      for (const auto& command : commands) command(communicators);
      std::vector<NcclReport> reports = communicators.Poll();
      const bool busy = communicators.busy();
      lock.lock();
      if (!reports.empty()) {
        shared->reports.insert(shared->reports.end(), std::make_move_iterator(reports.begin()),
                               std::make_move_iterator(reports.end()));
        if (shared->wake) shared->wake();
      }
      const auto woken = [&] { return shared->stop || !shared->commands.empty(); };
      if (busy) {
        shared->changed.wait_for(lock, kBusyPause, woken);
      } else {
        shared->changed.wait_for(lock, kIdlePause, woken);
      }
    }
    lock.unlock();
  }
  const std::lock_guard lock(shared->mutex);
  shared->ended = true;
  shared->changed.notify_all();
}

}  // namespace baton
