// Prints answers in OpenAI's form for openai_models_test.py: one JSON object a line,
// {"kind": NAME, "body": TEXT}. The texts come from the code that serves clients.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "openai/answer_writer.h"
#include "openai/model_list.h"

namespace baton {
namespace {

void Print(const char* kind, const std::string& body) {
  const nlohmann::json line = {{"kind", kind}, {"body", body}};
  std::printf("%s\n", line.dump().c_str());
}

// Answers two choices for each prompt: "Hé" in two tokens, and its end.
std::string Answer(const AnswerForm& form) {
  const TokenText text = [](TokenId token) -> std::string_view {
    return token == 1 ? "H" : token == 2 ? "\xC3" : "\xC3\xA9";
  };
  AnswerWriter writer(form,
                      {.id = AnswerId(form.endpoint, "sample"),
                       .created = 1'700'000'000,
                       .model = "smol",
                       .system_fingerprint = "0123abcd"},
                      text);
  std::string out;
  for (int32_t prompt = 0; prompt < form.prompts; ++prompt) {
    out += writer.Started(prompt, {.request_id = "sample",
                                   .prompt_tokens = 5,
                                   .seed = 3,
                                   .prompt_token_ids = {1, 2, 3, 4, 5}});
    for (int32_t choice = 0; choice < form.n; ++choice) {
      out +=
          writer.Tokens(prompt, {.choice = choice,
                                 .token_ids = {1, 2},
                                 .text = "H",
                                 .logprobs = {{.logprob = -0.5f, .top = {{1, -0.5f}, {3, -1.25f}}},
                                              {.logprob = -2, .top = {{2, -2}, {1, -1e30f}}}}});
      out += writer.Finished(prompt, {.choice = choice,
                                      .text = "\xC3\xA9",
                                      .finish_reason = choice == 0 ? "stop" : "length",
                                      .prompt_tokens = 5,
                                      .cached_tokens = 4,
                                      .completion_tokens = 2,
                                      .ledger = {{"queue_us", 1}, {"total_us", 9}},
                                      .prefill_worker = "p",
                                      .decode_worker = "d"});
    }
  }
  return out + writer.Done();
}

void PrintAnswers(OpenAiEndpoint endpoint, bool rich) {
  AnswerForm form = {.endpoint = endpoint};
  const bool chat = endpoint == OpenAiEndpoint::kChatCompletions;
  if (rich) {
    form.n = 2;
    form.prompts = chat ? 1 : 2;
    form.include_usage = form.continuous_usage = true;
    form.logprobs = form.return_token_ids = form.return_ledger = true;
  }
  Print(chat ? "chat.completion" : "text_completion", Answer(form));
  form.stream = true;
  Print(chat ? "chat.completion stream" : "text_completion stream", Answer(form));
  form.continuous_usage = false;
  Print(chat ? "chat.completion stream" : "text_completion stream", Answer(form));
}

void PrintAll() {
  for (const bool rich : {false, true}) {
    PrintAnswers(OpenAiEndpoint::kChatCompletions, rich);
    PrintAnswers(OpenAiEndpoint::kCompletions, rich);
  }
  const ApiError error = ApiErrorOf(absl::InvalidArgumentError("n is 17; [1, 16] is allowed"));
  Print("error", ErrorBody(error));
  Print("chat.completion stream error", AnswerWriter::StreamError(error));
  const ListedModel model = {.id = "smol", .created = 1'700'000'000, .context_length = 8192};
  Print("model", ModelBody(model));
  Print("model list", ModelListBody(std::vector<ListedModel>{model, model}));
}

}  // namespace
}  // namespace baton

int main() { baton::PrintAll(); }
