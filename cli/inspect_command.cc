// `baton inspect`: shows a model file's contents, the tokens of a text, and the KV blocks of a
// request.
#include <chrono>
#include <cstdio>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "cli/chat_sampling.h"
#include "cli/commands.h"
#include "cli/input_file.h"
#include "cli/inspection_table.h"
#include "cli/local_runner.h"
#include "cli/outcome.h"
#include "common/command_line.h"
#include "common/settings.h"
#include "common/status_macros.h"
#include "engine/model_loader.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// ---- inspect model
// --------------------------------------------------------------------------------

int InspectModel(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<GgufFile>> file = OpenModel(path);
  if (!file.ok()) return ReportError(file.status());
  std::printf("GGUF version %u, %llu bytes, %zu keys, %zu tensors\n", (*file)->version(),
              static_cast<unsigned long long>((*file)->file_bytes()), (*file)->keys().size(),
              (*file)->tensors().size());
  for (const std::string_view key : (*file)->keys()) {
    const GgufValue& value = *(*file)->Find(key);
    std::printf("  %-46s %-22s %s\n", PrintableName(key).c_str(),
                GgufMetadata::DescribeType(value).c_str(),
                GgufMetadata::FormatValue(value, 72).c_str());
  }
  std::map<std::string, std::pair<int, uint64_t>> types;
  for (const GgufTensor& tensor : (*file)->tensors()) {
    std::printf("  %-32s %-6s %s\n", PrintableName(tensor.name).c_str(),
                std::string(GgmlTypeName(tensor.type)).c_str(), tensor.ShapeString().c_str());
    auto& [count, bytes] = types[std::string(GgmlTypeName(tensor.type))];
    ++count;
    bytes += tensor.data.size();
  }
  for (const auto& [type, totals] : types) {
    std::printf("%s: %d tensor%s, %llu bytes\n", type.c_str(), totals.first,
                totals.first == 1 ? "" : "s", static_cast<unsigned long long>(totals.second));
  }
  const absl::StatusOr<ModelInfo> info =
      ReadModelInfo(**file, path.empty() ? DefaultModelPath() : path);
  if (!info.ok()) return ReportError(info.status());
  const ModelSpec& spec = info->spec;
  std::printf("loadable: %d layers, %s, vocabulary %d, context %d, RoPE %s\nfingerprint %s\n",
              spec.layers, spec.dimensions.c_str(), spec.vocabulary, spec.context_length,
              spec.rope.c_str(), ModelFingerprint(**file).c_str());
  const FlagIsGiven none = [](const std::string&) { return false; };
  std::fputs(ChatSamplingLine(info->sampling, none, {}).c_str(), stdout);
  return 0;
}

// ---- inspect tokens
// -------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<const Tokenizer>> LoadTokenizer(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, OpenModel(path));
  ASSIGN_OR_RETURN(const TokenizerSpec spec, ReadTokenizerSpec(*file));
  return Tokenizer::Create(spec);
}

int InspectText(const Tokenizer& tokenizer, const std::string& text) {
  for (const TokenId id : tokenizer.Encode(text)) {
    const Json shown = std::string(tokenizer.TokenBytes(id));
    std::printf("%6d  %s\n", id,
                shown.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  }
  return 0;
}

// Reads {"text"} lines and prints {"ids"} lines. A wrong line gives an {"error"} line and exit code
// 1.
int InspectLines(const Tokenizer& tokenizer, InputFile input) {
  std::string line;
  int64_t number = 0;
  int exit_code = 0;
  for (LineRead read; (read = input.ReadLine(kMaxJobLineBytes, line)) != LineRead::kEnd;) {
    if (read == LineRead::kFailed) return ReportError(input.status());
    ++number;
    if (read == LineRead::kTooLong) line.clear();  // not an object, so it gives the error below
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) {
      std::printf("{\"error\":\"line %lld: not an object with a text\"}\n",
                  static_cast<long long>(number));
      exit_code = 1;
      continue;
    }
    const std::vector<TokenId> ids = tokenizer.Encode(json["text"].get<std::string>());
    std::printf("{\"ids\":[%s]}\n", absl::StrJoin(ids, ",").c_str());
  }
  return exit_code;
}

// ---- inspect blocks
// -------------------------------------------------------------------------------

// Runs one job and inspects the engine every millisecond until the job ends. The last inspection
// with the sequence has its block table. The inspection after the end has the whole trace.
int InspectBlocks(const EngineOptions& options, const Job& job) {
  const absl::StatusOr<std::unique_ptr<LocalRunner>> runner =
      LocalRunner::Create(options, LocalPath::kOneEngine);
  if (!runner.ok()) return ReportError(runner.status());
  Engine& engine = (*runner)->engine();
  std::printf("%s", engine.StartupReport().c_str());
  std::future<absl::StatusOr<std::vector<JobResult>>> running =
      std::async(std::launch::async, [&] { return (*runner)->Run(job, [](std::string_view) {}); });
  std::vector<SequenceInspection> last_seen;
  while (running.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    std::vector<SequenceInspection> sequences = engine.Inspect().sequences;
    if (!sequences.empty() && !sequences[0].blocks.empty()) last_seen = std::move(sequences);
  }
  const absl::StatusOr<std::vector<JobResult>> results = running.get();
  if (!results.ok()) return ReportError(results.status());
  EngineInspection inspection = engine.Inspect();
  inspection.sequences = std::move(last_seen);
  std::printf("%s", InspectionTable(inspection).c_str());
  return 0;
}

}  // namespace

CommandLine& AddInspectCommand(CommandLine& line) {
  CommandLine& inspect =
      line.AddCommand("inspect", "Inspect a model file, a tokenisation or a pool");

  CommandLine& model =
      inspect.AddCommand("model", "Show a model file's metadata, tensors and hyper-parameters");
  auto model_path = std::make_shared<std::string>();
  model.Add("--model", model_path.get(), "GGUF file. Without it, the default model")
      .Value("FILE")
      .FromEnvironment();
  model.OnRun([model_path] { return InspectModel(*model_path); });

  CommandLine& tokens = inspect.AddCommand(
      "tokens",
      "Show the token ids of --text, or of {\"text\"} lines on standard input as {\"ids\"} lines");
  auto tokens_path = std::make_shared<std::string>();
  auto text = std::make_shared<std::optional<std::string>>();
  tokens.Add("--model", tokens_path.get(), "GGUF file. Without it, the default model")
      .Value("FILE")
      .FromEnvironment();
  tokens.Add("--text", text.get(), "Text to show token by token");
  tokens.OnRun([tokens_path, text] {
    const auto tokenizer = LoadTokenizer(*tokens_path);
    if (!tokenizer.ok()) return ReportError(tokenizer.status());
    return text->has_value() ? InspectText(**tokenizer, **text)
                             : InspectLines(**tokenizer, InputFile::StandardInput());
  });

  CommandLine& blocks = inspect.AddCommand(
      "blocks",
      "Run a prompt in this process and show block tables, pool accounting and allocations");
  struct BlocksOptions {
    EngineOptions engine;
    SettingList settings;
    Job job;
  };
  auto options = std::make_shared<BlocksOptions>();
  options->job.id = "inspect";
  options->job.sampling.max_tokens = 64;
  options->job.sampling.temperature = 0;
  blocks.Add("--prompt", &options->job.prompt, "Text to continue").Required();
  blocks
      .Add("--max-tokens", &options->job.sampling.max_tokens,
           "Number of tokens to generate. Default: 64")
      .Range(1, std::numeric_limits<int32_t>::max());
  RegisterSettings(options->engine, options->settings);
  blocks.AddSettings(options->settings, "Engine");
  blocks.OnRun([options] { return InspectBlocks(options->engine, options->job); });
  AddMetricsCommand(inspect);
  return inspect;
}

}  // namespace baton
