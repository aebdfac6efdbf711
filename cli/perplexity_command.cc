// `baton perplexity`: measures how well the model predicts a text.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/input_file.h"
#include "cli/outcome.h"
#include "common/command_line.h"
#include "common/exit_code.h"
#include "common/settings.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "engine/perplexity.h"

namespace baton {
namespace {

struct PerplexityOptions {
  EngineOptions engine;
  SettingList settings;
  std::string tokens_path;
  std::string text_path;
  bool json = false;
};

constexpr size_t kMaxTextBytes = size_t{1} << 30;

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  return file.ReadAll(kMaxTextBytes);
}

absl::StatusOr<std::vector<TokenId>> ReadTokens(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return absl::InvalidArgumentError(StrCat(path, " must hold a JSON array of token ids"));
  }
  std::vector<TokenId> tokens;
  for (const auto& entry : json) {
    if (!entry.is_number_integer() || entry > INT32_MAX || entry < 0) {
      return absl::InvalidArgumentError(
          StrCat(path, ": entry ", tokens.size(), " is not a token id"));
    }
    tokens.push_back(entry.get<TokenId>());
  }
  return tokens;
}

absl::StatusOr<PerplexityResult> Measure(const PerplexityOptions& options) {
  std::vector<TokenId> tokens;
  std::string text;
  if (!options.tokens_path.empty()) {
    ASSIGN_OR_RETURN(tokens, ReadTokens(options.tokens_path));
  } else {
    ASSIGN_OR_RETURN(text, ReadFile(options.text_path));
  }
  ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.engine));
  if (options.tokens_path.empty()) tokens = model.tokenizer->Encode(text);
  const bool shows_progress = isatty(STDERR_FILENO) == 1;
  absl::StatusOr<PerplexityResult> result =
      MeasurePerplexity(model, options.engine, tokens, [shows_progress](double share) {
        if (shows_progress) std::fprintf(stderr, "\r%3.0f %%", share * 100);
      });
  if (shows_progress) std::fprintf(stderr, "\r     \r");
  return result;
}

int Run(const PerplexityOptions& options) {
  if (options.tokens_path.empty() && options.text_path.empty()) {
    std::fprintf(stderr,
                 "baton: no text is named: give --text FILE or --tokens FILE (see baton perplexity "
                 "--help)\n");
    return kExitUsage;
  }
  const absl::StatusOr<PerplexityResult> result = Measure(options);
  if (!result.ok()) return ReportError(result.status());
  if (options.json) {
    const nlohmann::json line = {
        {"tokens", result->tokens}, {"nll", result->nll}, {"perplexity", result->perplexity}};
    std::printf("%s\n", line.dump().c_str());
  } else {
    std::printf("tokens %lld  nll %.6f nats  perplexity %.6f\n",
                static_cast<long long>(result->tokens), result->nll, result->perplexity);
  }
  return 0;
}

}  // namespace

void AddPerplexityCommand(CommandLine& line) {
  CommandLine& command =
      line.AddCommand("perplexity", "Measure how well the model predicts a text");
  auto options = std::make_shared<PerplexityOptions>();
  CommandLine::Option tokens =
      command.Add("--tokens", &options->tokens_path, "File with a JSON array of token ids")
          .Value("FILE");
  tokens.Excludes(command.Add("--text", &options->text_path, "Text file").Value("FILE"));
  command.AddFlag("--json", &options->json, "Print one JSON object");
  RegisterSettings(options->engine, options->settings);
  command.AddSettings(options->settings, "Engine");
  command.OnRun([options] { return Run(*options); });
}

}  // namespace baton
