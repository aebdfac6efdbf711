#include "text/jinja/access.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/string_operations.h"
#include "text/jinja/unicode.h"

namespace baton {
namespace {

using Type = JinjaValue::Type;
using SequenceKind = JinjaSequence::Kind;

absl::StatusOr<JinjaValue> MissingAttribute(const JinjaValue& object, std::string_view name,
                                            JinjaMeter& meter) {
  return NewUndefined(
      JinjaMessage("'", object.TypeName(), " object' has no attribute '", name, "'"), meter);
}

// Returns a field of `loop`, or undefined if there is no such field.
absl::StatusOr<JinjaValue> LoopField(const JinjaValue& value, std::string_view name,
                                     JinjaMeter& meter) {
  const JinjaLoop& loop = value.loop();
  const std::vector<JinjaValue>& items = loop.items->items;
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(items.size());
  if (name == "index") return JinjaValue::Int(index + 1);
  if (name == "index0") return JinjaValue::Int(index);
  if (name == "revindex") return JinjaValue::Int(length - index);
  if (name == "revindex0") return JinjaValue::Int(length - index - 1);
  if (name == "first") return JinjaValue::Bool(index == 0);
  if (name == "last") return JinjaValue::Bool(index == length - 1);
  if (name == "length") return JinjaValue::Int(length);
  // Only recursive loops have other depths, and they are not supported.
  if (name == "depth") return JinjaValue::Int(1);
  if (name == "depth0") return JinjaValue::Int(0);
  if (name == "previtem") {
    if (index > 0) return items[loop.index - 1];
    return NewUndefined("there is no previous item", meter);
  }
  if (name == "nextitem") {
    if (index + 1 < length) return items[loop.index + 1];
    return NewUndefined("there is no next item", meter);
  }
  return MissingAttribute(value, name, meter);
}

// Returns the method or field of that name; nullopt if the type has none.
absl::StatusOr<std::optional<JinjaValue>> OwnAttribute(const JinjaValue& object,
                                                       std::string_view name, JinjaMeter& meter) {
  switch (FindJinjaMethod(object, name)) {
    case JinjaMethodSupport::kSupported: {
      ASSIGN_OR_RETURN(JinjaValue method, NewMethod(object, name, meter));
      return std::optional<JinjaValue>(std::move(method));
    }
    case JinjaMethodSupport::kUnsupported:
      return JinjaUnsupported(object.TypeName(), " method '", name, "' is not supported");
    case JinjaMethodSupport::kNone:
      break;
  }
  if (object.Is(Type::kLoop)) {
    ASSIGN_OR_RETURN(JinjaValue field, LoopField(object, name, meter));
    return std::optional<JinjaValue>(std::move(field));
  }
  if (object.Is(Type::kNamespace)) {
    ASSIGN_OR_RETURN(const JinjaValue* value, object.name_space()->Find(name, meter));
    return value == nullptr ? std::nullopt : std::optional<JinjaValue>(*value);
  }
  return std::optional<JinjaValue>();
}

absl::StatusOr<std::optional<JinjaValue>> DictEntry(const JinjaValue& object, const JinjaValue& key,
                                                    JinjaMeter& meter) {
  if (!object.Is(Type::kDict)) return std::optional<JinjaValue>();
  ASSIGN_OR_RETURN(const JinjaValue* value, JinjaLookUp(object.dict(), key, meter));
  return value == nullptr ? std::nullopt : std::optional<JinjaValue>(*value);
}

// Clamps a slice's bound to `length` items, as Python's PySlice_AdjustIndices does.
absl::StatusOr<int64_t> SliceBound(const std::optional<JinjaValue>& bound, int64_t length,
                                   bool backwards, int64_t otherwise) {
  if (!bound.has_value() || bound->IsNone()) return otherwise;
  if (bound->IsUndefined()) return JinjaError(bound->UndefinedReason());
  if (!bound->IsIntegral()) return JinjaError("a slice needs ints and got ", bound->TypeName());
  int64_t value = bound->AsInt();
  if (value < 0) value = std::max(value + length, int64_t{backwards ? -1 : 0});
  return std::min(value, backwards ? length - 1 : length);
}

}  // namespace

absl::StatusOr<const JinjaValue*> JinjaLookUp(const JinjaDict& dict, const JinjaValue& key,
                                              JinjaMeter& meter) {
  for (const auto& [candidate, value] : dict.entries) {
    ASSIGN_OR_RETURN(const bool same, JinjaEquals(candidate, key, meter));
    if (same) return &value;
  }
  return nullptr;
}

absl::StatusOr<JinjaValue> JinjaAttribute(const JinjaValue& object, std::string_view name,
                                          JinjaMeter& meter) {
  if (object.IsUndefined()) return JinjaError(object.UndefinedReason());
  ASSIGN_OR_RETURN(std::optional<JinjaValue> found, OwnAttribute(object, name, meter));
  if (!found.has_value() && object.Is(Type::kDict)) {
    ASSIGN_OR_RETURN(const JinjaValue key, NewString(JinjaString(name, true), meter));
    ASSIGN_OR_RETURN(found, DictEntry(object, key, meter));
  }
  if (found.has_value()) return *std::move(found);
  return MissingAttribute(object, name, meter);
}

absl::StatusOr<JinjaValue> JinjaSubscript(const JinjaValue& object, const JinjaValue& index,
                                          JinjaMeter& meter) {
  if (object.IsUndefined()) return JinjaError(object.UndefinedReason());
  ASSIGN_OR_RETURN(std::optional<JinjaValue> found, DictEntry(object, index, meter));
  if (found.has_value()) return *std::move(found);
  const bool indexable = object.IsString() || (object.Is(Type::kSequence) &&
                                               object.sequence().kind != SequenceKind::kView &&
                                               object.sequence().kind != SequenceKind::kGenerator);
  if (indexable && index.IsIntegral()) {
    if (object.IsString()) RETURN_IF_ERROR(meter.AddBytes(object.string().size()));
    const int64_t length = object.IsString() ? static_cast<int64_t>(CountCodePoints(object.bytes()))
                                             : static_cast<int64_t>(object.sequence().items.size());
    int64_t position = index.AsInt();
    if (position < 0) position += length;
    if (position >= 0 && position < length) {
      if (!object.IsString()) return object.sequence().items[static_cast<size_t>(position)];
      const size_t begin = CodePointOffset(object.bytes(), static_cast<size_t>(position));
      return NewString(
          object.string().Substring(begin, begin + DecodeUtf8(object.bytes(), begin).bytes), meter);
    }
  }
  if (!index.IsString()) {
    return NewUndefined(JinjaMessage("'", object.TypeName(), " object' has no such element"),
                        meter);
  }
  ASSIGN_OR_RETURN(found, OwnAttribute(object, index.bytes(), meter));
  if (found.has_value()) return *std::move(found);
  return MissingAttribute(object, index.bytes(), meter);
}

absl::StatusOr<JinjaValue> JinjaSlice(const JinjaValue& object,
                                      const std::optional<JinjaValue>& start,
                                      const std::optional<JinjaValue>& stop,
                                      const std::optional<JinjaValue>& step_value,
                                      JinjaMeter& meter) {
  if (object.IsUndefined()) return JinjaError(object.UndefinedReason());
  if (!object.IsString() &&
      (!object.Is(Type::kSequence) || object.sequence().kind == SequenceKind::kView ||
       object.sequence().kind == SequenceKind::kGenerator)) {
    return JinjaError("a ", object.TypeName(), " cannot be sliced");
  }
  int64_t step = 1;
  if (step_value.has_value() && !step_value->IsNone()) {
    if (!step_value->IsIntegral()) return JinjaError("a slice's step is not an int");
    step = step_value->AsInt();
    if (step == 0) return JinjaError("a slice's step is 0");
  }
  const int64_t length = object.IsString() ? static_cast<int64_t>(CountCodePoints(object.bytes()))
                                           : static_cast<int64_t>(object.sequence().items.size());
  step = std::clamp(step, -length - 1, length + 1);  // a longer step selects the same items
  const bool backwards = step < 0;
  ASSIGN_OR_RETURN(const int64_t first,
                   SliceBound(start, length, backwards, backwards ? length - 1 : 0));
  ASSIGN_OR_RETURN(const int64_t end, SliceBound(stop, length, backwards, backwards ? -1 : length));
  if (object.IsString() && step == 1) {
    RETURN_IF_ERROR(meter.AddBytes(object.string().size()));
    if (first >= end) return NewString(JinjaString(), meter);
    const size_t begin_byte = CodePointOffset(object.bytes(), static_cast<size_t>(first));
    const size_t end_byte = CodePointOffset(object.bytes(), static_cast<size_t>(end));
    return NewString(object.string().Substring(begin_byte, end_byte), meter);
  }
  if (object.IsString()) {
    ASSIGN_OR_RETURN(std::vector<JinjaString> characters, JinjaCharacters(object.string(), meter));
    JinjaString result;
    for (int64_t i = first; backwards ? i > end : i < end; i += step) {
      result.Append(characters[static_cast<size_t>(i)]);
    }
    return NewString(std::move(result), meter);
  }
  std::vector<JinjaValue> items;
  for (int64_t i = first; backwards ? i > end : i < end; i += step) {
    items.push_back(object.sequence().items[static_cast<size_t>(i)]);
  }
  return NewSequence(object.sequence().kind, std::move(items), meter);
}

absl::StatusOr<JinjaValue::SequencePtr> JinjaItems(const JinjaValue& value, JinjaMeter& meter) {
  std::vector<JinjaValue> items;
  switch (value.type()) {
    case Type::kUndefined:
      break;
    case Type::kSequence:
      RETURN_IF_ERROR(meter.AddSteps(static_cast<int64_t>(value.sequence().items.size())));
      if (value.sequence().kind == SequenceKind::kGenerator) {
        if (value.sequence().consumed) {
          return JinjaUnsupported("using a generator twice is not supported");
        }
        value.sequence().consumed = true;
      }
      return value.sequence_ptr();
    case Type::kDict:
      for (const auto& [key, unused] : value.dict().entries) items.push_back(key);
      break;
    case Type::kString: {
      ASSIGN_OR_RETURN(std::vector<JinjaString> characters, JinjaCharacters(value.string(), meter));
      for (JinjaString& character : characters) {
        ASSIGN_OR_RETURN(JinjaValue item, NewString(std::move(character), meter));
        items.push_back(std::move(item));
      }
      break;
    }
    default:
      return JinjaError("a ", value.TypeName(), " cannot be iterated over");
  }
  ASSIGN_OR_RETURN(const JinjaValue list, NewList(std::move(items), meter));
  return list.sequence_ptr();
}

absl::StatusOr<JinjaValue> JinjaLength(const JinjaValue& value, JinjaMeter& meter) {
  switch (value.type()) {
    case Type::kUndefined:
      return JinjaValue::Int(0);
    case Type::kString:
      RETURN_IF_ERROR(meter.AddBytes(value.string().size()));
      return JinjaValue::Int(static_cast<int64_t>(CountCodePoints(value.bytes())),
                             value.string().AllTrusted());
    case Type::kSequence:
      if (value.sequence().kind == SequenceKind::kGenerator) break;
      return JinjaValue::Int(static_cast<int64_t>(value.sequence().items.size()));
    case Type::kDict:
      return JinjaValue::Int(static_cast<int64_t>(value.dict().entries.size()));
    case Type::kLoop:
      return JinjaValue::Int(static_cast<int64_t>(value.loop().items->items.size()));
    default:
      break;
  }
  return JinjaError("a ", value.TypeName(), " has no length");
}

}  // namespace baton
