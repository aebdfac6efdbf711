// Values of the template language: Python's None, bool, int, float, str, list, tuple and dict, and
// jinja2's undefined, namespace and loop.
//
// Invariants:
//   1. Values are immutable, except for namespaces, loop counters and a generator's `consumed`
//      flag. Values can therefore share structure. Every reference cycle contains a namespace; the
//      evaluator empties all namespaces when a render ends.
//   2. Nesting is at most JinjaLimits::max_value_depth, which bounds recursion over a value.
//   3. Strings are valid UTF-8.
// Thread safety: many threads may read the constants of a parsed template. All other values belong
// to one render.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "text/jinja/limits.h"
#include "text/jinja/string.h"

namespace baton {

struct JinjaStatement;
struct JinjaSequence;
struct JinjaDict;
struct JinjaNamespace;
struct JinjaLoop;
struct JinjaCallable;

class JinjaValue {
 public:
  // The order matches the alternatives of `data_`.
  enum class Type {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kSequence,
    kDict,
    kNamespace,
    kLoop,
    kCallable
  };
  using SequencePtr = std::shared_ptr<const JinjaSequence>;

  JinjaValue() = default;  // undefined without a name

  // `reason` is the error message for using the value, as in "'tools' is undefined". Not charged to
  // a meter; see NewUndefined.
  static JinjaValue Undefined(std::string reason);
  static JinjaValue None() { return JinjaValue(Data(NoneType{})); }
  static JinjaValue Bool(bool value) { return JinjaValue(Data(value)); }
  // A number from a request is untrusted, and so are its printed digits.
  static JinjaValue Int(int64_t value, bool trusted = true) { return {Data(value), trusted}; }
  static JinjaValue Float(double value, bool trusted = true) { return {Data(value), trusted}; }
  static JinjaValue Sequence(SequencePtr value) { return JinjaValue(Data(std::move(value))); }
  static JinjaValue Dict(std::shared_ptr<const JinjaDict> value) {
    return JinjaValue(Data(std::move(value)));
  }
  static JinjaValue Namespace(std::shared_ptr<JinjaNamespace> value) {
    return JinjaValue(Data(std::move(value)));
  }
  static JinjaValue Loop(std::shared_ptr<const JinjaLoop> value) {
    return JinjaValue(Data(std::move(value)));
  }
  // Not charged to a meter. For inputs, and for constants, which the template's size bounds.
  static JinjaValue String(JinjaString value) {
    return JinjaValue(Data(std::make_shared<const JinjaString>(std::move(value))));
  }
  static JinjaValue Callable(std::shared_ptr<const JinjaCallable> value) {
    return JinjaValue(Data(std::move(value)));
  }

  Type type() const { return static_cast<Type>(data_.index()); }
  bool Is(Type wanted) const { return type() == wanted; }
  bool IsUndefined() const { return Is(Type::kUndefined); }
  bool IsNone() const { return Is(Type::kNone); }
  bool IsString() const { return Is(Type::kString); }
  // Returns true for int and for bool, which Python treats as an int.
  bool IsIntegral() const { return Is(Type::kInt) || Is(Type::kBool); }
  bool IsNumber() const { return IsIntegral() || Is(Type::kFloat); }
  bool trusted_number() const { return trusted_number_; }

  // REQUIRES, for each accessor: the value has that type.
  std::string UndefinedReason() const;
  bool bool_value() const { return std::get<bool>(data_); }
  double float_value() const { return std::get<double>(data_); }
  const JinjaString& string() const { return *std::get<StringPtr>(data_); }
  const std::string& bytes() const { return string().bytes(); }
  const JinjaSequence& sequence() const { return *sequence_ptr(); }
  const SequencePtr& sequence_ptr() const { return std::get<SequencePtr>(data_); }
  const JinjaDict& dict() const { return *std::get<std::shared_ptr<const JinjaDict>>(data_); }
  const JinjaLoop& loop() const { return *std::get<std::shared_ptr<const JinjaLoop>>(data_); }
  const std::shared_ptr<JinjaNamespace>& name_space() const {
    return std::get<std::shared_ptr<JinjaNamespace>>(data_);
  }
  const JinjaCallable& callable() const {
    return *std::get<std::shared_ptr<const JinjaCallable>>(data_);
  }
  int64_t AsInt() const;    // REQUIRES: IsIntegral()
  double AsDouble() const;  // REQUIRES: IsNumber()

  // Returns Python's bool(value).
  bool Truthy() const;
  // Returns Python's name of the type, for messages.
  std::string_view TypeName() const;
  // Nesting depth: 0 for scalars, 1 + the depth of the deepest item for containers.
  int Depth() const;

 private:
  struct NoneType {};
  using StringPtr = std::shared_ptr<const JinjaString>;
  using Data =
      std::variant<std::shared_ptr<const std::string>, NoneType, bool, int64_t, double, StringPtr,
                   SequencePtr, std::shared_ptr<const JinjaDict>, std::shared_ptr<JinjaNamespace>,
                   std::shared_ptr<const JinjaLoop>, std::shared_ptr<const JinjaCallable>>;

  explicit JinjaValue(Data data) : data_(std::move(data)) {}
  JinjaValue(Data data, bool trusted) : data_(std::move(data)), trusted_number_(trusted) {}

  Data data_;
  bool trusted_number_ = true;
};

struct JinjaSequence {
  // A template can iterate over a view (from dict.items()) or a generator (from map or selectattr),
  // but it cannot print or index it. A generator is always true and allows one iteration.
  enum class Kind { kList, kTuple, kRange, kView, kGenerator };

  Kind kind = Kind::kList;
  std::vector<JinjaValue> items;
  int depth = 1;
  mutable bool consumed = false;  // generators only; used by one render
};

// Entries in insertion order, as in Python. Dicts are small in practice, so look-up is linear. Each
// comparison is charged to the meter.
struct JinjaDict {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  int depth = 1;
};

// Look-up is linear. Each comparison is charged to the meter.
struct JinjaNamespace {
  std::vector<std::pair<std::string, JinjaValue>> attributes;

  // Returns null if there is no such attribute.
  absl::StatusOr<const JinjaValue*> Find(std::string_view name, JinjaMeter& meter) const;
  absl::Status Set(std::string_view name, JinjaValue value, JinjaMeter& meter);
};

// The variable `loop` inside a for block. The evaluator advances `index`.
struct JinjaLoop {
  std::shared_ptr<const JinjaSequence> items;
  size_t index = 0;
  int depth = 1;
};

struct JinjaCallable {
  enum class Kind { kFunction, kMethod, kMacro };

  Kind kind = Kind::kFunction;
  std::string name;
  JinjaValue receiver;                    // methods only
  const JinjaStatement* macro = nullptr;  // macros only; owned by the template
  int depth = 1;
};

// Create values during a render. They charge the meter and enforce the limits.
absl::StatusOr<JinjaValue> NewUndefined(std::string reason, JinjaMeter& meter);
absl::StatusOr<JinjaValue> NewString(JinjaString value, JinjaMeter& meter);
absl::StatusOr<JinjaValue> NewSequence(JinjaSequence::Kind kind, std::vector<JinjaValue> items,
                                       JinjaMeter& meter);
absl::StatusOr<JinjaValue> NewList(std::vector<JinjaValue> items, JinjaMeter& meter);
// REQUIRES: keys are distinct.
absl::StatusOr<JinjaValue> NewDict(std::vector<std::pair<JinjaValue, JinjaValue>> entries,
                                   JinjaMeter& meter);
absl::StatusOr<JinjaValue> NewMethod(const JinjaValue& receiver, std::string_view name,
                                     JinjaMeter& meter);
absl::StatusOr<JinjaValue> NewFunction(std::string_view name, JinjaMeter& meter);

}  // namespace baton
