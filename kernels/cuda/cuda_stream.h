// Stream of a CUDA device. Ops, copies and graphs run on the device in the order of enqueueing.
//
// While capturing, the stream only records commands. EndCapture issues them into a capture of the
// driver and instantiates a CUDA Graph. So graphs can contain graphs, and the driver's own capture
// lasts only for the call of EndCapture.
//
// Errors: the functions have no status. The first error becomes the device's health
// (kernels/cuda/cuda_context.h), and afterwards nothing is enqueued any more.
//
// Scratch memory of kernels belongs to the stream (KernelLauncher::Workspace). So a graph must be
// launched on the stream that captured it.
//
// Preparing: a launch looks up its kernel and takes its workspaces, but enqueues nothing. An error
// becomes the result of Prepare, not the device's health.
//
// A kernel behind another one of the same stream, or of the same graph, may begin before that one
// has ended (kernels/cuda/kernel_order.cuh). A kernel behind anything else begins when all of that
// has ended: the first one of a graph, or one behind a copy, an event, a graph or a library's call.
//
// Row limits: they are read when an op is enqueued, because the launch fixes the number of rows.
//
// Thread safety: a stream and its graphs belong to one thread at a time. The device outlives its
// streams. Destroying a stream blocks until everything enqueued has run.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/cuda_call_thread.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cuda_launch.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/device.h"

namespace baton {

// A recorded launch, copy or call of a library.
struct CudaCommand {
  CuFunction function = nullptr;  // null: a copy or a call
  LaunchShape shape = {};
  std::vector<std::byte> params = {};
  void* destination = nullptr;
  const void* source = nullptr;
  size_t bytes = 0;
  std::function<void(CuStream)> call = nullptr;
};

class CudaStream final : public Stream, public KernelLauncher {
 public:
  // `kernels` and `memory` outlive the stream.
  CudaStream(std::shared_ptr<CudaContext> context, CudaKernels& kernels, CudaMemory& memory);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void BeginCapture() override;
  std::unique_ptr<OpGraph> EndCapture() override;
  bool capturing() const override { return capturing_; }
  void Launch(const OpGraph& graph) override;
  // Asks `stop` once, before the graph.
  void LaunchUntil(const OpGraph& graph, const std::function<bool()>& stop) override;
  void Copy(void* destination, const void* source, size_t bytes) override;
  void Synchronize() override;
  void Record(Event& event) override;
  void Call(std::function<void()> function) override;
  void CallBetweenLimits(std::function<void()> function) override;
  absl::Status Prepare(const std::function<void()>& enqueue) override;

  // Enqueues the work that `call` puts on the driver's stream, such as a collective of NCCL. `call`
  // is called now, or while capturing once for each graph, inside EndCapture. It is not called if
  // the device has failed, nor while preparing. Everything that it refers to outlives the stream.
  void CallLibrary(std::function<void(CuStream)> call);

  void Launch(std::string_view kernel, const LaunchShape& shape, const void* params,
              size_t bytes) override;
  int multiprocessors() const override { return context_->multiprocessors(); }
  uint32_t max_shared_bytes() const override {
    return static_cast<uint32_t>(context_->max_shared_bytes());
  }
  std::byte* Workspace(std::string_view purpose, size_t bytes) override;
  // REQUIRES: elements of 2 bytes.
  bool EncodeTiles(const TiledTensor& tensor, TensorMap& map) override;

 private:
  void IssueCall(const std::function<void(CuStream)>& call);
  void IssueCopy(void* destination, const void* source, size_t bytes);
  void IssueLaunch(CuFunction function, const LaunchShape& shape, const void* params);
  void Issue(const CudaCommand& command);
  // Keeps the error of a launch: as Prepare's result, or as the device's health.
  void Fail(const absl::Status& error);
  CuGraphExec Instantiate(const std::vector<CudaCommand>& commands);

  const std::shared_ptr<CudaContext> context_;
  CudaKernels& kernels_;
  CudaMemory& memory_;
  CuStream stream_ = nullptr;
  bool behind_kernel_ = false;  // the last command that the driver got is a kernel of this stream
  bool capturing_ = false;
  bool preparing_ = false;
  absl::Status prepared_;  // first error while preparing
  std::vector<CudaCommand> recorded_;
  // Memory of each purpose; the last buffer is the current one, the others may still be in use.
  std::map<std::string, std::vector<std::unique_ptr<DeviceBuffer>>, std::less<>> workspaces_;
  std::unique_ptr<CudaCallThread> calls_;  // null until the first Call
};

}  // namespace baton
