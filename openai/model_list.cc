#include "openai/model_list.h"

#include "openai/json_output.h"

namespace baton {
namespace {

void WriteModel(const ListedModel& model, JsonOutput& out) {
  out.BeginObject();
  out.Key("id").Text(model.id);
  out.Key("object").Text("model");
  out.Key("created").Integer(model.created);
  out.Key("owned_by").Text("baton");
  if (model.context_length > 0) out.Key("max_model_len").Integer(model.context_length);
  out.EndObject();
}

}  // namespace

std::string ModelBody(const ListedModel& model) {
  JsonOutput out;
  WriteModel(model, out);
  return out.Take();
}

std::string ModelListBody(std::span<const ListedModel> models) {
  JsonOutput out;
  out.BeginObject().Key("object").Text("list").Key("data").BeginArray();
  for (const ListedModel& model : models) WriteModel(model, out);
  out.EndArray().EndObject();
  return out.Take();
}

}  // namespace baton
