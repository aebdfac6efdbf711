#include "loadtest/openai_requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

const char* RoleName(PieceRole role) {
  switch (role) {
    case PieceRole::kSystem:
      return "system";
    case PieceRole::kAssistant:
      return "assistant";
    default:
      return "user";
  }
}

Json PieceJson(const PromptPiece& piece, bool as_text) {
  return as_text ? Json(PieceText(piece)) : Json(piece.tokens);
}

int32_t PositiveOrZero(const Json& object, const char* name) {
  const auto at = object.is_object() ? object.find(name) : object.end();
  if (at == object.end() || !at->is_number_unsigned()) return 0;
  return static_cast<int32_t>(std::min<uint64_t>(at->get<uint64_t>(), INT32_MAX));
}

}  // namespace

OpenAiCall MakeOpenAiCall(const LoadRequest& request, const OpenAiOptions& options) {
  Json body = Json::object();
  body["model"] = options.model;
  const bool is_chat = request.conversation >= 0;
  const bool has_parts = !is_chat && request.pieces.size() > 1;
  if (is_chat) {
    Json messages = Json::array();
    for (const PromptPiece& piece : request.pieces) {
      messages.push_back({{"role", RoleName(piece.role)}, {"content", PieceText(piece)}});
    }
    body["messages"] = std::move(messages);
  } else if (has_parts) {
    Json chunks = Json::array();
    for (const PromptPiece& piece : request.pieces) {
      Json value = PieceJson(piece, options.as_text);
      if (piece.role == PieceRole::kChunk) {
        chunks.push_back(std::move(value));
      } else {
        body[piece.role == PieceRole::kSystem ? "system" : "question"] = std::move(value);
      }
    }
    body["chunks"] = std::move(chunks);
  } else {
    body["prompt"] = PieceJson(request.pieces.front(), options.as_text);
  }
  body["max_tokens"] = request.output_tokens;
  body["temperature"] = 0;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (options.ignore_eos) body["ignore_eos"] = true;
  if (options.return_ledger) body["return_ledger"] = true;
  return {.path = is_chat ? "/chat/completions" : "/completions",
          .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

absl::StatusOr<TargetModel> ParseModels(std::string_view body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  const auto data = json.is_object() ? json.find("data") : json.end();
  if (!json.is_object() || data == json.end() || !data->is_array() || data->empty() ||
      !(*data)[0].is_object() || !(*data)[0].value("id", Json()).is_string()) {
    return absl::UnavailableError("the list of models names no model");
  }
  const Json& model = (*data)[0];
  const Json meta = model.value("meta", Json());
  TargetModel out = {.name = model["id"].get<std::string>(),
                     .vocabulary = PositiveOrZero(meta, "n_vocab"),
                     .context_length = PositiveOrZero(model, "max_model_len")};
  out.is_baton = model.value("owned_by", Json()) == "baton";
  if (out.context_length == 0) out.context_length = PositiveOrZero(meta, "n_ctx_train");
  return out;
}

}  // namespace baton
