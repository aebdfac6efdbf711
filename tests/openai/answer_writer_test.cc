#include "openai/answer_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace baton {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr OpenAiEndpoint kChat = OpenAiEndpoint::kChatCompletions;
constexpr OpenAiEndpoint kCompletions = OpenAiEndpoint::kCompletions;

// Token b is byte b.
const TokenText kByteText = [](TokenId token) -> std::string_view {
  static const std::string bytes = [] {
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
    return all;
  }();
  return token >= 0 && token < 256 ? std::string_view(bytes).substr(token, 1) : std::string_view();
};

AnswerHead Head(OpenAiEndpoint endpoint) {
  return {.id = AnswerId(endpoint, "r"), .created = 12, .model = "m", .system_fingerprint = "f"};
}

AnswerTokens TokensOf(int32_t choice, const std::string& text, std::vector<TokenId> ids) {
  return {.choice = choice, .token_ids = std::move(ids), .text = text, .logprobs = {}};
}

AnswerFinished End(int32_t choice, const std::string& text = "", int32_t completion_tokens = 2) {
  return {.choice = choice,
          .text = text,
          .finish_reason = "stop",
          .prompt_tokens = 10,
          .cached_tokens = 8,
          .completion_tokens = completion_tokens,
          .ledger = {{"total_us", 5}},
          .decode_worker = "d"};
}

// Returns the JSON of each event; "[DONE]" as it is.
std::vector<std::string> EventsOf(const std::string& stream) {
  std::vector<std::string> events;
  size_t at = 0;
  while (at < stream.size()) {
    EXPECT_EQ(stream.substr(at, 6), "data: ");
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    events.push_back(stream.substr(at + 6, end - at - 6));
    EXPECT_EQ(events.back().find('\n'), std::string::npos);
    at = end + 2;
  }
  return events;
}

TEST(AnswerWriter, AChatStreamIsOpenAis) {
  AnswerWriter writer({.endpoint = kChat, .stream = true}, Head(kChat), nullptr);
  EXPECT_EQ(writer.Started(0, {.prompt_tokens = 10}), "");
  const std::string head =
      R"({"id":"chatcmpl-r","object":"chat.completion.chunk","created":12,"model":"m",)"
      R"("system_fingerprint":"f","choices":[{"index":0,)";
  EXPECT_THAT(
      EventsOf(writer.Tokens(0, TokensOf(0, "Hel", {1}))),
      ElementsAre(
          head +
              R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})",
          head + R"("delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}]})"));
  EXPECT_EQ(writer.Tokens(0, TokensOf(0, "", {2})), "") << "text that is held back gives no event";
  EXPECT_FALSE(writer.AllFinished());
  EXPECT_THAT(
      EventsOf(writer.Finished(0, End(0, "lo"))),
      ElementsAre(head + R"("delta":{"content":"lo"},"logprobs":null,"finish_reason":null}]})",
                  head + R"("delta":{},"logprobs":null,"finish_reason":"stop"}]})"));
  EXPECT_TRUE(writer.AllFinished());
  EXPECT_EQ(writer.Done(), "data: [DONE]\n\n");
}

TEST(AnswerWriter, AChatBodyIsOpenAis) {
  AnswerWriter writer({.endpoint = kChat}, Head(kChat), nullptr);
  EXPECT_EQ(writer.Started(0, {.prompt_tokens = 10}), "");
  EXPECT_EQ(writer.Tokens(0, TokensOf(0, "Hel", {1})), "");
  EXPECT_EQ(writer.Finished(0, End(0, "lo")), "");
  EXPECT_EQ(writer.Done(),
            R"({"id":"chatcmpl-r","object":"chat.completion","created":12,"model":"m",)"
            R"("system_fingerprint":"f","choices":[{"index":0,"message":{"role":"assistant",)"
            R"("content":"Hello","refusal":null},"logprobs":null,"finish_reason":"stop"}],)"
            R"("usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,)"
            R"("prompt_tokens_details":{"cached_tokens":8}}})");
}

TEST(AnswerWriter, ACompletionStreamIsOpenAis) {
  AnswerWriter writer({.endpoint = kCompletions, .stream = true}, Head(kCompletions), nullptr);
  const std::string head = R"({"id":"cmpl-r","object":"text_completion","created":12,"model":"m",)"
                           R"("system_fingerprint":"f","choices":[{"index":0,)";
  EXPECT_THAT(EventsOf(writer.Tokens(0, TokensOf(0, "Hi", {1}))),
              ElementsAre(head + R"("text":"Hi","logprobs":null,"finish_reason":null}]})"));
  EXPECT_THAT(EventsOf(writer.Finished(0, End(0))),
              ElementsAre(head + R"("text":"","logprobs":null,"finish_reason":"stop"}]})"));
}

TEST(AnswerWriter, ACompletionBodyHasTheChoicesOfEveryPrompt) {
  AnswerForm form = {.endpoint = kCompletions, .prompts = 2, .n = 2};
  form.echo = {PromptPart("P"), PromptPart(std::vector<TokenId>{0xC3, 0xA9})};
  AnswerWriter writer(form, Head(kCompletions), kByteText);
  for (int32_t prompt = 0; prompt < 2; ++prompt) {
    for (int32_t choice = 0; choice < 2; ++choice) {
      const std::string text = std::to_string(prompt) + std::to_string(choice);
      writer.Tokens(prompt, TokensOf(choice, text, {1}));
      EXPECT_FALSE(writer.AllFinished());
      writer.Finished(prompt, End(choice));
    }
  }
  const Json body = Json::parse(writer.Done());
  ASSERT_EQ(body["choices"].size(), 4u);
  const char* const texts[] = {"P00", "P01", "é10", "é11"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 20);
  EXPECT_EQ(body["usage"]["completion_tokens"], 8);
  EXPECT_EQ(body["usage"]["total_tokens"], 28);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
}

TEST(AnswerWriter, AnEchoComesBeforeTheFirstTextOfAChoice) {
  AnswerForm form = {.endpoint = kCompletions, .stream = true};
  form.echo = {PromptPart("P")};
  AnswerWriter writer(form, Head(kCompletions), nullptr);
  const std::vector<std::string> events = EventsOf(writer.Tokens(0, TokensOf(0, "x", {1})));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(events[0], HasSubstr("\"text\":\"P\""));
  EXPECT_THAT(events[1], HasSubstr("\"text\":\"x\""));
}

TEST(AnswerWriter, UsageComesAloneOrInEveryChunk) {
  AnswerWriter without({.endpoint = kChat, .stream = true}, Head(kChat), nullptr);
  EXPECT_THAT(without.Finished(0, End(0)) + without.Done(), Not(HasSubstr("usage")));

  AnswerWriter last({.endpoint = kChat, .stream = true, .include_usage = true}, Head(kChat),
                    nullptr);
  for (const std::string& event : EventsOf(last.Finished(0, End(0, "x")))) {
    EXPECT_TRUE(Json::parse(event).at("usage").is_null());
  }
  const std::vector<std::string> end = EventsOf(last.Done());
  ASSERT_EQ(end.size(), 2u);
  EXPECT_EQ(Json::parse(end[0])["choices"], Json::array());
  EXPECT_EQ(Json::parse(end[0])["usage"]["total_tokens"], 12);
  EXPECT_EQ(end[1], "[DONE]");

  AnswerForm form = {
      .endpoint = kChat, .stream = true, .include_usage = true, .continuous_usage = true};
  AnswerWriter every(form, Head(kChat), nullptr);
  every.Started(0, {.prompt_tokens = 10});
  const std::vector<std::string> events = EventsOf(every.Tokens(0, TokensOf(0, "x", {1})));
  EXPECT_EQ(Json::parse(events.back())["usage"],
            Json::parse(R"({"prompt_tokens":10,"completion_tokens":1,"total_tokens":11})"));
}

TEST(AnswerWriter, TokenIdsAreSentWhereOtherServersSendThem) {
  const AnswerForm chat = {.endpoint = kChat, .stream = true, .return_token_ids = true};
  AnswerWriter stream(chat, Head(kChat), nullptr);
  stream.Started(0, {.prompt_tokens = 2, .prompt_token_ids = {7, 8}});
  const std::vector<std::string> events = EventsOf(stream.Tokens(0, TokensOf(0, "", {1, 2})));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(Json::parse(events[0])["prompt_token_ids"], Json({7, 8}));
  EXPECT_EQ(Json::parse(events[1])["choices"][0]["token_ids"], Json({1, 2}));
  EXPECT_FALSE(Json::parse(events[1]).contains("prompt_token_ids"));

  AnswerWriter body({.endpoint = kCompletions, .return_token_ids = true}, Head(kCompletions),
                    nullptr);
  body.Started(0, {.prompt_tokens = 2, .prompt_token_ids = {7, 8}});
  body.Tokens(0, TokensOf(0, "", {1, 2}));
  body.Finished(0, End(0));
  const Json json = Json::parse(body.Done());
  EXPECT_EQ(json["choices"][0]["prompt_token_ids"], Json({7, 8}));
  EXPECT_EQ(json["choices"][0]["token_ids"], Json({1, 2}));
}

TEST(AnswerWriter, ALedgerEndsItsChoice) {
  AnswerWriter stream({.endpoint = kChat, .stream = true, .return_ledger = true}, Head(kChat),
                      nullptr);
  const Json end = Json::parse(EventsOf(stream.Finished(0, End(0))).back());
  EXPECT_EQ(end["choices"][0]["ledger"], Json::parse(R"({"total_us":5})"));
  EXPECT_EQ(end["choices"][0]["decode_worker"], "d");
  EXPECT_FALSE(end["choices"][0].contains("pull_source"));
  AnswerWriter without({.endpoint = kChat, .stream = true}, Head(kChat), nullptr);
  EXPECT_THAT(without.Finished(0, End(0)), Not(HasSubstr("ledger")));
}

TEST(AnswerWriter, EventsThatDoNotBelongToTheAnswerAreIgnored) {
  AnswerWriter writer({.endpoint = kChat, .n = 2, .stream = true}, Head(kChat), nullptr);
  for (const int32_t wrong : {-1, 2, 1 << 30}) {
    EXPECT_EQ(writer.Tokens(0, TokensOf(wrong, "x", {1})), "");
    EXPECT_EQ(writer.Finished(0, End(wrong)), "");
    EXPECT_EQ(writer.Tokens(wrong == 2 ? 1 : wrong, TokensOf(0, "x", {1})), "");
    EXPECT_EQ(writer.Started(wrong == 2 ? 1 : wrong, {}), "");
  }
  EXPECT_NE(writer.Finished(0, End(1)), "");
  EXPECT_EQ(writer.Finished(0, End(1)), "");
  EXPECT_EQ(writer.Tokens(0, TokensOf(1, "x", {1})), "");
  EXPECT_FALSE(writer.AllFinished());
  EXPECT_NE(writer.Finished(0, End(0)), "");
  EXPECT_TRUE(writer.AllFinished());
}

TEST(AnswerWriter, AnErrorEndsAStreamWithoutDone) {
  EXPECT_EQ(
      AnswerWriter::StreamError({.status = 504, .message = "late", .type = "t", .code = "timeout"}),
      "data: {\"error\":{\"message\":\"late\",\"type\":\"t\",\"param\":null,\"code\":"
      "\"timeout\"}}\n\n");
}

// What a client puts together from a stream.
struct Joined {
  std::map<int, std::string> text;
  std::map<int, Json> logprobs;
  std::map<int, Json> token_ids;
  std::map<int, std::string> finish_reason;
  Json usage;

  bool operator==(const Joined&) const = default;
};

void AppendLists(const Json& from, Json& to) {
  for (const auto& [key, value] : from.items()) {
    if (!value.is_array()) continue;
    Json& list = to[key];
    for (const Json& element : value) list.push_back(element);
  }
}

void Join(const Json& event, Joined& out) {
  if (event.contains("usage") && !event["usage"].is_null()) out.usage = event["usage"];
  for (const Json& choice : event["choices"]) {
    const int index = choice["index"];
    const bool ended = !choice["finish_reason"].is_null();
    EXPECT_FALSE(out.finish_reason.contains(index)) << "nothing comes after a choice's end";
    if (choice.contains("delta")) {
      EXPECT_EQ(choice["delta"].contains("role"), !out.text.contains(index));
      EXPECT_TRUE(!ended || choice["delta"] == Json::object());
      out.text[index] += choice["delta"].value("content", "");
    } else {
      out.text[index] += choice["text"].get<std::string>();
    }
    if (!choice["logprobs"].is_null()) AppendLists(choice["logprobs"], out.logprobs[index]);
    if (choice.contains("token_ids")) {
      for (const Json& id : choice["token_ids"]) out.token_ids[index].push_back(id);
    }
    if (ended) out.finish_reason[index] = choice["finish_reason"];
  }
}

Joined OfBody(const Json& body) {
  Joined out;
  out.usage = body["usage"];
  for (const Json& choice : body["choices"]) {
    const int index = choice["index"];
    out.text[index] = choice.contains("message") ? choice["message"]["content"] : choice["text"];
    if (!choice["logprobs"].is_null()) AppendLists(choice["logprobs"], out.logprobs[index]);
    if (choice.contains("token_ids") && !choice["token_ids"].empty()) {
      out.token_ids[index] = choice["token_ids"];
    }
    out.finish_reason[index] = choice["finish_reason"];
  }
  return out;
}

using Script = std::vector<std::pair<int32_t, AnswerEvent>>;

// Random events of all choices in any order, each choice with its end last.
Script RandomScript(std::mt19937& random, const AnswerForm& form) {
  Script script;
  for (int32_t prompt = 0; prompt < form.prompts; ++prompt) {
    script.emplace_back(prompt, AnswerStarted{.request_id = {}, .prompt_tokens = 3});
  }
  std::vector<std::pair<int32_t, int32_t>> open;
  for (int32_t i = 0; i < form.prompts * form.n; ++i) open.emplace_back(i / form.n, i % form.n);
  std::map<std::pair<int32_t, int32_t>, int32_t> tokens;
  while (!open.empty()) {
    const size_t at = random() % open.size();
    const auto [prompt, choice] = open[at];
    const char* const texts[] = {"", "a", "é", "\"\n", "\xF0\x9F\x98\x80"};
    const std::string text = texts[random() % 5];
    if (random() % 4 == 0) {
      script.emplace_back(prompt, End(choice, text, tokens[open[at]]));
      open.erase(open.begin() + static_cast<int64_t>(at));
      continue;
    }
    AnswerTokens event = TokensOf(choice, text, {static_cast<TokenId>(random() % 256)});
    if (form.logprobs) {
      event.logprobs.push_back(
          {.logprob = -1, .top = {{.token = static_cast<TokenId>(random() % 256), .logprob = -2}}});
    }
    ++tokens[open[at]];
    script.emplace_back(prompt, std::move(event));
  }
  return script;
}

TEST(AnswerWriter, AStreamAndABodySayTheSame) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 500; ++i) {
    AnswerForm form = {.endpoint = random() % 2 == 0 ? kChat : kCompletions};
    form.prompts = form.endpoint == kChat ? 1 : 1 + static_cast<int32_t>(random() % 3);
    form.n = 1 + static_cast<int32_t>(random() % 3);
    form.include_usage = true;
    form.continuous_usage = random() % 2 == 0;
    form.logprobs = random() % 2 == 0;
    form.return_token_ids = random() % 2 == 0;
    form.return_ledger = random() % 2 == 0;
    if (form.endpoint == kCompletions && !form.logprobs && random() % 2 == 0) {
      form.echo.assign(static_cast<size_t>(form.prompts), PromptPart("echo"));
    }
    const Script script = RandomScript(random, form);
    AnswerWriter whole(form, Head(form.endpoint), kByteText);
    form.stream = true;
    AnswerWriter stream(form, Head(form.endpoint), kByteText);
    std::string sent;
    for (const auto& [prompt, event] : script) {
      EXPECT_EQ(whole.Event(prompt, event), "");
      sent += stream.Event(prompt, event);
    }
    ASSERT_TRUE(whole.AllFinished() && stream.AllFinished());
    sent += stream.Done();
    std::vector<std::string> events = EventsOf(sent);
    ASSERT_EQ(events.back(), "[DONE]");
    events.pop_back();
    Joined joined;
    for (const std::string& event : events) Join(Json::parse(event), joined);
    ASSERT_EQ(joined, OfBody(Json::parse(whole.Done())));
  }
}

}  // namespace
}  // namespace baton
