#include "text/jinja/value.h"

#include <algorithm>

#include "common/status_macros.h"
#include "text/jinja/error.h"

namespace baton {
namespace {

absl::Status CheckDepth(int depth, const JinjaMeter& meter) {
  if (depth <= meter.limits().max_value_depth) return absl::OkStatus();
  return JinjaLimitReached("a value is nested ", depth, " deep; the limit is ",
                           meter.limits().max_value_depth);
}

}  // namespace

JinjaValue JinjaValue::Undefined(std::string reason) {
  return JinjaValue(Data(std::make_shared<const std::string>(std::move(reason))));
}

std::string JinjaValue::UndefinedReason() const {
  const auto& reason = std::get<std::shared_ptr<const std::string>>(data_);
  return reason == nullptr ? "the value is undefined" : *reason;
}

int64_t JinjaValue::AsInt() const {
  return Is(Type::kBool) ? static_cast<int64_t>(bool_value()) : std::get<int64_t>(data_);
}

double JinjaValue::AsDouble() const {
  return Is(Type::kFloat) ? float_value() : static_cast<double>(AsInt());
}

bool JinjaValue::Truthy() const {
  switch (type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return AsInt() != 0;
    case Type::kFloat:
      return float_value() != 0;
    case Type::kString:
      return !string().empty();
    case Type::kSequence:
      return sequence().kind == JinjaSequence::Kind::kGenerator || !sequence().items.empty();
    case Type::kDict:
      return !dict().entries.empty();
    case Type::kNamespace:
    case Type::kLoop:
    case Type::kCallable:
      return true;
  }
  return false;
}

std::string_view JinjaValue::TypeName() const {
  switch (type()) {
    case Type::kUndefined:
      return "undefined";
    case Type::kNone:
      return "None";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return "str";
    case Type::kSequence:
      switch (sequence().kind) {
        case JinjaSequence::Kind::kList:
          return "list";
        case JinjaSequence::Kind::kTuple:
          return "tuple";
        case JinjaSequence::Kind::kRange:
          return "range";
        case JinjaSequence::Kind::kView:
          return "dict view";
        case JinjaSequence::Kind::kGenerator:
          return "generator";
      }
      return "list";
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "namespace";
    case Type::kLoop:
      return "loop";
    case Type::kCallable:
      return "function";
  }
  return "value";
}

int JinjaValue::Depth() const {
  switch (type()) {
    case Type::kSequence:
      return sequence().depth;
    case Type::kDict:
      return dict().depth;
    case Type::kLoop:
      return loop().depth;
    case Type::kCallable:
      return callable().depth;
    default:
      return 0;
  }
}

absl::StatusOr<const JinjaValue*> JinjaNamespace::Find(std::string_view name,
                                                       JinjaMeter& meter) const {
  for (const auto& [key, value] : attributes) {
    RETURN_IF_ERROR(meter.AddSteps(1));
    if (key.size() != name.size()) continue;
    RETURN_IF_ERROR(meter.AddBytes(name.size()));
    if (key == name) return &value;
  }
  return nullptr;
}

absl::Status JinjaNamespace::Set(std::string_view name, JinjaValue value, JinjaMeter& meter) {
  ASSIGN_OR_RETURN(const JinjaValue* known, Find(name, meter));
  if (known != nullptr) {
    const auto same = [&](const auto& attribute) { return &attribute.second == known; };
    std::find_if(attributes.begin(), attributes.end(), same)->second = std::move(value);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(meter.AddBytes(kJinjaValueBytes + name.size()));
  attributes.emplace_back(std::string(name), std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<JinjaValue> NewUndefined(std::string reason, JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddBytes(kJinjaValueBytes + reason.size()));
  return JinjaValue::Undefined(std::move(reason));
}

absl::StatusOr<JinjaValue> NewString(JinjaString value, JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddBytes(kJinjaValueBytes + value.CostBytes()));
  return JinjaValue::String(std::move(value));
}

absl::StatusOr<JinjaValue> NewSequence(JinjaSequence::Kind kind, std::vector<JinjaValue> items,
                                       JinjaMeter& meter) {
  if (items.size() > meter.limits().max_sequence_items) {
    return JinjaLimitReached("a list would hold ", items.size(), " items; the limit is ",
                             meter.limits().max_sequence_items);
  }
  RETURN_IF_ERROR(meter.AddSteps(static_cast<int64_t>(items.size())));
  RETURN_IF_ERROR(meter.AddBytes(kJinjaValueBytes + items.size() * sizeof(JinjaValue)));
  int depth = 1;
  for (const JinjaValue& item : items) depth = std::max(depth, 1 + item.Depth());
  RETURN_IF_ERROR(CheckDepth(depth, meter));
  return JinjaValue::Sequence(
      std::make_shared<const JinjaSequence>(JinjaSequence{kind, std::move(items), depth}));
}

absl::StatusOr<JinjaValue> NewList(std::vector<JinjaValue> items, JinjaMeter& meter) {
  return NewSequence(JinjaSequence::Kind::kList, std::move(items), meter);
}

absl::StatusOr<JinjaValue> NewDict(std::vector<std::pair<JinjaValue, JinjaValue>> entries,
                                   JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddBytes(kJinjaValueBytes + entries.size() * 2 * sizeof(JinjaValue)));
  int depth = 1;
  for (const auto& [key, value] : entries) {
    depth = std::max({depth, 1 + key.Depth(), 1 + value.Depth()});
  }
  RETURN_IF_ERROR(CheckDepth(depth, meter));
  return JinjaValue::Dict(std::make_shared<const JinjaDict>(JinjaDict{std::move(entries), depth}));
}

absl::StatusOr<JinjaValue> NewMethod(const JinjaValue& receiver, std::string_view name,
                                     JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddBytes(kJinjaValueBytes));
  RETURN_IF_ERROR(CheckDepth(1 + receiver.Depth(), meter));
  return JinjaValue::Callable(std::make_shared<const JinjaCallable>(JinjaCallable{
      JinjaCallable::Kind::kMethod, std::string(name), receiver, nullptr, 1 + receiver.Depth()}));
}

absl::StatusOr<JinjaValue> NewFunction(std::string_view name, JinjaMeter& meter) {
  RETURN_IF_ERROR(meter.AddBytes(kJinjaValueBytes));
  return JinjaValue::Callable(std::make_shared<const JinjaCallable>(
      JinjaCallable{JinjaCallable::Kind::kFunction, std::string(name), JinjaValue(), nullptr, 1}));
}

}  // namespace baton
