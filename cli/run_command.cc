// `baton run`: answers in one process. It is the reference: every other path must equal it bit for
// bit.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/chat_sampling.h"
#include "cli/commands.h"
#include "cli/job_flags.h"
#include "cli/local_runner.h"
#include "cli/outcome.h"
#include "common/command_line.h"
#include "common/exit_code.h"
#include "common/settings.h"
#include "common/termination.h"
#include "engine/model_loader.h"
#include "kernels/communicator.h"

namespace baton {
namespace {

struct RunOptions {
  EngineOptions engine;
  SettingList settings;
  JobFlags jobs;
  LocalPath path = LocalPath::kOneEngine;
  int32_t prefill_block_size = 0;                   // 0: as the other engine's
  std::optional<KvLayoutKind> prefill_layout = {};  // absent: as the other engine's
  int32_t prefill_ranks = 0;                        // 0: as the other engine's

  std::optional<KvGeometry> PrefillPool() const {
    if (prefill_block_size == 0 && !prefill_layout) return std::nullopt;
    return KvGeometry{.layout = prefill_layout.value_or(engine.layout),
                      .block_size = prefill_block_size};
  }
  bool verbose = false;
};

// Returns the line of --show-settings about conversations. It reads only the model's metadata.
std::string ModelsChatSampling(const RunOptions& options) {
  const auto line = [&jobs = options.jobs](const std::optional<SamplingDefaults>& model) {
    return ChatSamplingLine(model, jobs.flag_is_given, jobs.job.sampling);
  };
  const absl::StatusOr<std::unique_ptr<GgufFile>> file = OpenModel(options.engine.model);
  if (file.ok()) return line(ReadSamplingDefaults(**file));
  return absl::StrCat("# the model's own sampling is unknown: ",
                      std::string(file.status().message()), "\n", line(SamplingDefaults()));
}

int Run(RunOptions& options) {
  Termination termination;
  absl::StatusOr<std::unique_ptr<LocalRunner>> runner = LocalRunner::Create(
      options.engine, options.path, options.PrefillPool(), options.prefill_ranks);
  if (!runner.ok()) return ReportError(runner.status());
  if (options.verbose) {
    options.engine = (*runner)->engine().options();
    std::fprintf(stderr, "%s%s", options.settings.AllValues().c_str(),
                 (*runner)->engine().StartupReport().c_str());
  }
  std::atomic<bool> interrupted = false;
  std::thread watcher([&] {
    if (termination.Wait() > 0) {
      interrupted = true;
      (*runner)->Interrupt();
    }
  });
  const int exit_code = RunFlaggedJobs(**runner, options.jobs);
  termination.Request();
  watcher.join();
  return interrupted ? kExitInterrupted : exit_code;
}

}  // namespace

void AddRunCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("run", "Answer prompts in this process, without a service");
  auto options = std::make_shared<RunOptions>();
  AddJobFlags(command, options->jobs);
  RegisterSettings(options->engine, options->settings);
  options->settings.AddChoice<LocalPath>("transport", &options->path,
                                         {{"none", LocalPath::kOneEngine},
                                          {"loopback", LocalPath::kLoopback},
                                          {"tcp", LocalPath::kTcp},
                                          {"shm", LocalPath::kShm},
                                          {"nccl", LocalPath::kNccl}},
                                         "compute prompts on a second engine in this process and "
                                         "move the KV over this transport. With nccl, KV goes over "
                                         "TCP if NCCL refuses two engines on one GPU");
  options->settings.Add(
      "prefill-block-size", &options->prefill_block_size, 0, kMaxBlockSize,
      "with --transport: tokens in a KV block of the prefill engine. 0: as --block-size");
  options->settings.AddChoice<std::optional<KvLayoutKind>>(
      "prefill-kv-layout", &options->prefill_layout,
      {{"same", std::nullopt},
       {"block-major", KvLayoutKind::kBlockMajor},
       {"layer-major", KvLayoutKind::kLayerMajor}},
      "with --transport: layout of the prefill engine's pool. same: as --kv-layout");
  options->settings.Add(
      "prefill-tensor-parallel", &options->prefill_ranks, 0, kMaxTensorParallel,
      "with --transport: tensor-parallel ranks of the prefill engine. 0: as --tensor-parallel");
  command.AddSettings(options->settings, "Engine");
  command.ShowWithSettings([options = options.get()] { return ModelsChatSampling(*options); });
  command.AddFlag("--verbose", &options->verbose, "First print all settings, and the KV pool");
  command.OnRun([options] { return Run(*options); });
}

}  // namespace baton
