// Writes JSON to a string, without spaces. Commas are written where they belong.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace baton {

class JsonOutput {
 public:
  JsonOutput& BeginObject() { return Open('{'); }
  JsonOutput& EndObject() { return Close('}'); }
  JsonOutput& BeginArray() { return Open('['); }
  JsonOutput& EndArray() { return Close(']'); }
  // Before each member of an object. `key` needs no escapes.
  JsonOutput& Key(std::string_view key);
  // The same for any text.
  JsonOutput& TextKey(std::string_view key);

  // U+FFFD replaces invalid UTF-8.
  JsonOutput& Text(std::string_view text);
  JsonOutput& TextOrNull(std::string_view text) { return text.empty() ? Null() : Text(text); }
  JsonOutput& Integer(int64_t value);
  // A log-probability with the fewest digits that give the same float. OpenAI writes −9999 for
  // minus infinity, which JSON does not have.
  JsonOutput& Logprob(float value);
  JsonOutput& Null() { return Raw("null"); }
  JsonOutput& Bool(bool value) { return Raw(value ? "true" : "false"); }
  // Writes a value that is JSON already.
  JsonOutput& Raw(std::string_view json);

  bool empty() const { return out_.empty(); }
  // Returns the text and begins anew.
  std::string Take() { return std::exchange(out_, {}); }

 private:
  JsonOutput& Open(char bracket);
  JsonOutput& Close(char bracket);
  void Comma();

  std::string out_;
};

}  // namespace baton
